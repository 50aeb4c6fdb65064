"""Extensions of the protocol are the SDK's; they are passed through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import pytest
import trio
from mcp.client import ClaimContext, ClientExtension, NotificationBinding, ResultClaim, advertise
from mcp.types import CallToolResult, Notification, NotificationParams, Result, TextContent

from mcp_actors import ConfigError, InProcess, ServerConfig, open_servers

from .groups import BOUND
from .library import Library
from .links import text_of

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class JobResult(Result):
    """The answer of a server with this extension in place of a result."""

    result_type: Literal["job"] = "job"
    job: str


class Mood(NotificationParams):
    """The notification of a server with this extension."""

    mood: str


class Jobs(ClientExtension):
    """Waits for jobs, and hears of moods."""

    identifier = "com.example/jobs"

    def __init__(self) -> None:
        self.moods: list[str] = []
        self.heard = trio.Event()

    def settings(self) -> dict[str, Any]:
        return {"patience": "endless"}

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="job", model=JobResult, resolve=self.wait)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return [NotificationBinding(method="notifications/mood", params_type=Mood, handler=self.hear)]

    async def wait(self, result: JobResult, ctx: ClaimContext) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=f"job {result.job} of {ctx.tool_name} is done")])

    async def hear(self, params: Mood) -> None:
        self.moods.append(params.mood)
        self.heard.set()


async def answer_with_a_job(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Answer tool calls as a server of the extension does."""
    if ctx.method != "tools/call":
        return await call_next(ctx)
    extensions = ctx.meta[CAPABILITIES].get("extensions", {})
    mood = Notification[Mood, str](method="notifications/mood", params=Mood(mood="busy"))
    await ctx.session.send_notification(mood, related_request_id=ctx.request_id)
    return {"resultType": "job", "job": extensions["com.example/jobs"]["patience"]}


async def test_an_extension_is_advertised_and_gets_its_results_and_notifications() -> None:
    library, jobs = Library(), Jobs()
    library.server.middleware.append(answer_with_a_job)
    async with open_servers(library.config(protocol="2026-07-28", extensions=[jobs])) as servers:
        ref = servers["library"]
        for _ in range(2):  # and the next connection has it too
            assert text_of(await ref.call_tool("search")) == "job endless of search is done"
            with trio.fail_after(BOUND):
                await jobs.heard.wait()
            jobs.heard = trio.Event()
            await ref.restart()
    assert jobs.moods == ["busy", "busy"]


async def test_the_progress_of_a_request_of_an_extension_is_delivered_one_report_after_the_other() -> None:
    seen: list[float] = []
    running, all_seen = 0, trio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        nonlocal running
        running += 1
        await trio.lowlevel.checkpoint()
        seen.append(progress if running == 1 else -1)
        running -= 1
        if len(seen) == 3:
            all_seen.set()

    class Following(Jobs):
        async def wait(self, result: JobResult, ctx: ClaimContext) -> CallToolResult:
            followed = await ctx.session.call_tool("search", {}, progress_callback=note)
            assert isinstance(followed, CallToolResult)
            with trio.fail_after(BOUND):
                await all_seen.wait()
            return followed

    calls: list[str] = []

    async def work(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        if ctx.method == "tools/call":
            calls.append(ctx.method)
            if len(calls) == 1:
                return {"resultType": "job", "job": "long"}
            for step in (1, 2, 3):
                await ctx.session.report_progress(step)
        return await call_next(ctx)

    library = Library()
    library.server.middleware.append(work)
    async with open_servers(library.config(protocol="2026-07-28", extensions=[Following()])) as servers:
        await servers["library"].call_tool("search")
    assert seen == [1, 2, 3]


async def test_no_extension_is_advertised_by_default() -> None:
    seen: list[Any] = []

    async def look(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        seen.append((ctx.meta or {}).get(CAPABILITIES, {}).get("extensions"))
        return await call_next(ctx)

    library = Library()
    library.server.middleware.append(look)
    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        await servers["library"].call_tool("search")
    assert set(seen) == {None}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            advertise("com.example/a"),
            "extensions=<_AdvertiseOnly> is not valid; give a tuple of mcp.client.ClientExtension objects, such as "
            "mcp.client.advertise('com.example/thing')",
        ),
        (
            {"com.example/a": {}},
            "extensions=<dict> is not valid; give a tuple of mcp.client.ClientExtension objects, such as "
            "mcp.client.advertise('com.example/thing')",
        ),
        (
            ["com.example/a"],
            "extensions=<a tuple with a str in it> is not valid; give a tuple of mcp.client.ClientExtension "
            "objects, such as mcp.client.advertise('com.example/thing')",
        ),
        (
            [None],
            "extensions=<a tuple with None in it> is not valid; give a tuple of mcp.client.ClientExtension "
            "objects, such as mcp.client.advertise('com.example/thing')",
        ),
        (
            [advertise("com.example/a"), advertise("com.example/a")],
            "extensions=<2 of them> is not valid; extension identifier 'com.example/a' is passed more than once",
        ),
    ],
)
def test_invalid_or_conflicting_extensions_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig("a", InProcess(object()), extensions=given)  # type: ignore[arg-type]  # not a server of the SDK
    assert str(caught.value) == f"server 'a': {problem}"
    assert caught.value.path == "servers.a.extensions"
