"""Deliver the progress reports of one request to its caller."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from ..._foreign import Log, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from ...config import ProgressCallback
    from ...kernel import Later
    from ..policy import Deadline

logger = Log("mcp_actors.servers")

MAX_WAITING: Final = 1000
"""Reports that may wait for a slow callback. Then the oldest is dropped, because the latest matter most."""

MAX_CHARACTERS: Final = 1024 * 1024
"""Characters of their messages that may wait, likewise. The label of a progress bar is at most a line."""

LAST_REPORTS: Final = 1.0
"""Seconds that an answer waits for the caller's callback to handle the reports before it."""


class Reports:
    """Takes the reports of progress of one request, in the step that reads them.

    The callback runs in a task of the session, which is started when a report arrives and ends when none waits. So a
    request without reports has no such task, and a slow callback delays nothing but itself.

    Args:
        server: the server's name.
        callback: the caller's callback. Its exceptions are logged and ignored. None only renews the deadline.
        deadline: the deadline that each report renews; None if the request has none.
    """

    def __init__(self, server: str, callback: ProgressCallback | None, deadline: Deadline | None) -> None:
        self._server = server
        self._callback = callback
        self._deadline = deadline
        self._start: Callable[..., None] | None = None
        self._waiting: deque[tuple[float, float | None, str | None]] = deque()
        self._characters = 0
        self._running = False
        self._scope: trio.CancelScope | None = None
        self._idle: Callable[[], object] | None = None
        self._ended: trio.Event | None = None

    def starts(self, start: Callable[..., None], context: Context) -> None:
        """Set the function that starts a task with a ``name``, and the context variables of the caller."""
        self._start = partial(context.run, start)

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report."""
        if self._deadline is not None:
            self._deadline.renew()
        if self._callback is None or self._idle is not None or len(message or "") > MAX_CHARACTERS:
            return
        self._waiting.append((progress, total, message))
        self._characters += len(message or "")
        while len(self._waiting) > MAX_WAITING or self._characters > MAX_CHARACTERS:
            self._take()
        if not self._running and self._start is not None:
            self._running = True
            self._scope = trio.CancelScope()
            self._start(self._deliver, name=f"{self._server}:progress")

    def _take(self) -> tuple[float, float | None, str | None]:
        report = self._waiting.popleft()
        self._characters -= len(report[2] or "")
        return report

    async def _deliver(self) -> None:
        assert self._scope is not None
        try:
            with self._scope:
                while self._waiting:
                    await self._call(*self._take())
        finally:
            self._running = False
            if self._ended is not None:
                self._ended.set()
            if (idle := self._idle) is not None:
                idle()

    @trio.lowlevel.disable_ki_protection  # so that Ctrl-C can interrupt a callback that computes for long
    async def _call(self, progress: float, total: float | None, message: str | None) -> None:
        assert self._callback is not None
        try:
            await answer_of(self._callback(progress, total, message))
        except Exception:
            logger.exception("server %r: a progress callback raised; the request continues", self._server)

    def then(self, fn: Callable[[], object]) -> None:
        """Call a function once the callback has seen every report, or `LAST_REPORTS` seconds are over.

        The server has answered: a slow callback must not make the request time out.
        """
        if self._deadline is not None:
            self._deadline.suspend()
        if self.seen or self._scope is None:
            fn()
            return
        self._idle, self._ended = fn, trio.Event()
        assert self._start is not None  # it has started the callback's task
        self._start(self._hurry_late, name=f"{self._server}:progress")

    async def _hurry_late(self) -> None:
        assert self._ended is not None
        # A deadline of the callback's own scope would not do: in a thread, for example, it cannot be cancelled.
        with trio.move_on_after(LAST_REPORTS) as waiting:
            await self._ended.wait()
        if waiting.cancelled_caught:
            self.hurry()

    @property
    def seen(self) -> bool:
        """True if the callback has seen every report."""
        return not self._running

    def hurry(self) -> None:
        """Call the function of `then` now, and cancel the callback."""
        if (idle := self._idle) is not None:
            self.cancel()
            idle()

    async def wait(self) -> None:
        """Wait until the callback has seen every report, likewise."""
        seen = trio.Event()
        self.then(seen.set)
        await seen.wait()

    def cancel(self) -> None:
        """Drop what waits, and cancel the callback: the caller has its result, or has left."""
        self._waiting.clear()
        if self._running and self._scope is not None:
            self._scope.cancel("its request has ended")


class Answered:
    """The requests of one connection whose answers have come, and whose callers are still busy with reports before."""

    def __init__(self) -> None:
        self._waiting: dict[Reports, None] = {}

    def reply(self, later: Later[Any], value: Any, reports: Reports) -> None:
        """Settle a message once its caller has seen the reports, or the connection ends."""

        def settle() -> None:
            self._waiting.pop(reports, None)
            later.on_cancel = None  # else the two would be cyclic garbage
            later.reply(value)

        later.on_cancel = lambda _: reports.cancel()  # which settles it: its caller has left
        self._waiting[reports] = None
        reports.then(settle)

    def hurry(self) -> None:
        """Settle all of them now, because the connection ends."""
        for reports in tuple(self._waiting):
            reports.hurry()
