"""Plain functions wherever a program may give one, for the tests on both event loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mcp.client import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    TextContent,
)

from mcp_actors import Callbacks, ServerConfig, ToolRequest
from mcp_actors.config import CallbackContext, CallNext

from .asking import ACCEPTED, ELICIT, FOLDERS, ROOTS, SAID, SAMPLE, asking, log
from .groups import server
from .library import Library
from .test_extensions import JobResult, Mood, answer_with_a_job

QUESTIONS = (ELICIT, SAMPLE, ROOTS)


class Heard:
    """The calls that the functions have seen, and the threads in which they were called.

    Args:
        complete: called when all of them have been called.
    """

    def __init__(self, complete: Callable[[], object]) -> None:
        self.of: set[str] = set()
        self.threads: set[threading.Thread] = set()
        self._complete = complete

    def note(self, what: str) -> None:
        self.of.add(what)
        self.threads.add(threading.current_thread())
        if self.of >= ALL:
            self._complete()

    def callbacks(self) -> Callbacks:
        """Return callbacks of all kinds."""

        def sampling(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
            self.note("sampling")
            return SAID

        def elicitation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
            self.note("elicitation")
            return ACCEPTED

        def roots(context: CallbackContext) -> ListRootsResult:
            self.note("roots")
            return FOLDERS

        def logging(context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
            self.note(f"log {params.data}")

        def message(context: CallbackContext, message: object) -> None:
            self.note("message")

        return Callbacks(
            sampling=sampling, elicitation=elicitation, roots=roots, logging=logging, message=message, log_level="debug"
        )

    def asking(self) -> ServerConfig:
        """Configure a server that asks and logs."""
        return asking(callbacks=self.callbacks())

    def reporting(self) -> ServerConfig:
        """Configure a server that reports its progress, with middleware that passes calls on."""

        def middleware(request: ToolRequest, call_next: CallNext) -> Any:
            self.note("middleware")
            return call_next(request)

        return server("reporting", "--progress", "3", middleware=[middleware])

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Hear of progress."""
        self.note(f"progress {progress:g}")

    def extended(self) -> ServerConfig:
        """Configure a server with an extension."""
        library = Library()
        library.server.middleware.append(answer_with_a_job)
        return library.config(protocol="2026-07-28", extensions=[PlainJobs(self)])


class PlainJobs(ClientExtension):
    """An extension whose functions are not async."""

    identifier = "com.example/jobs"

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def settings(self) -> dict[str, Any]:
        return {"patience": "endless"}

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="job", model=JobResult, resolve=self._resolve)]  # type: ignore[arg-type]  # plain

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        binding = NotificationBinding(
            method="notifications/mood",
            params_type=Mood,
            handler=self._hear,  # type: ignore[arg-type]  # plain
        )
        return [binding]

    def _resolve(self, result: JobResult, context: ClaimContext) -> CallToolResult:
        self._heard.note("claim")
        return CallToolResult(content=[TextContent(type="text", text=f"job {result.job}")])

    def _hear(self, params: Mood) -> None:
        self._heard.note(f"mood {params.mood}")


LOG = log("hello")

ALL = {
    *("sampling", "elicitation", "roots", "log hello", "message"),
    *("middleware", "progress 1", "progress 2", "progress 3", "claim", "mood busy"),
}
"""What is heard when all functions have been called."""
