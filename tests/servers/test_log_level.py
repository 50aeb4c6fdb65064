"""The log level of a server, requested in the way of either era."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any, Literal

import pytest
import trio
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import (
    INTERNAL_ERROR,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    EmptyResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SetLevelRequestParams,
)
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, InProcess, ServerConfig, open_servers
from mcp_actors.servers import NotSupported

from ..messages import Said
from .fleet import Outcome
from .library import Library
from .test_resources import PROMPT


def told(library: Library) -> list[object]:
    """The levels that a server of the legacy era received."""
    return [level for method, level in library.asked if method == "logging/setLevel"]


async def test_a_server_of_the_legacy_era_gets_the_level_at_every_connect() -> None:
    """S4-23: the level belongs to the server, not to one connection."""
    library = Library()
    async with open_servers(library.config(protocol="legacy")) as servers:
        ref = servers["library"]
        await ref.set_log_level("warning")
        assert told(library) == ["warning"]
        await ref.restart()
        await wait_all_tasks_blocked()
        assert told(library) == ["warning", "warning"]
        await ref.read_resource("file:///a")
    assert set(library.levels) == {None}


async def test_a_changed_configuration_replaces_the_level_only_if_it_has_another_one() -> None:
    async def listen(_: object, __: object) -> None:
        raise AssertionError

    library = Library()
    async with open_servers(library.config(protocol="legacy", callbacks=Callbacks(logging=listen))) as servers:
        ref = servers["library"]
        await wait_all_tasks_blocked()
        await ref.set_log_level("critical")
        for level in (None, "error"):
            callbacks = Callbacks(logging=listen, log_level=level)
            await servers.reload(library.config(protocol="legacy", request_timeout=61, callbacks=callbacks))
            await ref.wait_ready()
            await wait_all_tasks_blocked()
        assert told(library) == ["info", "critical", "critical", "error"]


async def test_since_2026_every_request_has_the_level() -> None:
    """S4-23: on all connections, and ``set_log_level`` itself sends nothing."""
    library = Library()
    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        ref = servers["library"]
        await ref.read_resource("file:///a")
        before = len(library.asked)
        await ref.set_log_level("debug")
        assert len(library.asked) == before
        for _ in range(2):
            await ref.call_tool("search", meta={"mine": 1})
            await ref.read_resource("file:///a")
            await ref.get_prompt("prompt_1")
            await ref.complete(PROMPT, {"name": "x", "value": ""})
            await ref.list_resources()
            await ref.list_tools()
            await ref.restart()
    assert set(library.levels[:before]) == {None}
    assert set(library.levels[before:]) == {"debug"}


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
async def test_a_level_that_was_set_is_what_the_server_keeps_to() -> None:
    """The SDK's own server sends what was asked for, and nothing less."""
    heard: list[object] = []
    library = Library()

    async def talk(ctx: object, call_next: object) -> object:
        for level in ("debug", "error"):
            await ctx.session.send_log_message(level, level)  # type: ignore[attr-defined]  # it is the SDK's
        return await call_next(ctx)  # type: ignore[operator]  # likewise

    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        ref = servers["library"]
        ref._record.listeners.add(LoggingMessageNotification, lambda message: heard.append(message.params.data))
        library.server.middleware.append(talk)  # type: ignore[arg-type]  # its types are the SDK's
        await ref.read_resource("file:///a")
        assert heard == []
        await ref.set_log_level("warning")
        await ref.read_resource("file:///a")
    assert heard == ["error"]


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_callbacks_get_no_message_below_the_level(protocol: Literal["legacy", "2026-07-28"]) -> None:
    """S4-23: the SDK's `MCPServer` has no levels in the legacy era, and sends everything."""
    heard: list[str] = []
    chatty = MCPServer("chatty", log_level="WARNING")

    @chatty.tool()
    async def chat(ctx: Context) -> None:
        for level in ("debug", "info", "warning", "error"):
            await ctx.log(level, level)

    def hear(_: object, params: LoggingMessageNotificationParams) -> None:
        heard.append(params.level)

    async def levels(**meta: object) -> list[str]:
        heard.clear()
        await ref.call_tool("chat", meta=meta)
        await wait_all_tasks_blocked()
        return list(heard)

    callbacks = Callbacks(logging=hear, log_level="warning")
    config = ServerConfig("chatty", InProcess(chatty), protocol=protocol, callbacks=callbacks)
    async with open_servers(config) as servers:
        ref = servers["chatty"]
        await ref.wait_ready()
        assert await levels() == ["warning", "error"]
        with pytest.raises(NotSupported) if protocol == "legacy" else nullcontext():
            await ref.set_log_level("error")
        assert await levels() == ["error"]
        await ref.restart()
        assert await levels() == ["error"]
        if protocol != "legacy":
            assert await levels(**{LOG_LEVEL_META_KEY: "info"}) == ["info", "warning", "error"]


async def test_a_server_without_logging_gets_no_level() -> None:
    library = Library(on_set_logging_level=None)
    async with open_servers(library.config(protocol="legacy")) as servers:
        with pytest.raises(
            NotSupported, match="capability 'logging' is not supported, so logging/setLevel was not sent"
        ):
            await servers["library"].set_log_level("info")
        await servers["library"].restart()
        await wait_all_tasks_blocked()
    assert library.methods() == []


async def test_a_level_that_was_refused_is_not_kept() -> None:
    library = Library()
    library.failing["logging/setLevel"] = [MCPError(METHOD_NOT_FOUND, "no")]
    async with open_servers(library.config(protocol="legacy")) as servers:
        with pytest.raises(MCPError, match="no"):
            await servers["library"].set_log_level("info")
        await servers["library"].restart()
        await wait_all_tasks_blocked()
    assert told(library) == ["info"]


async def test_a_level_that_cannot_be_set_again_is_logged_and_changes_no_state(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """S3-22."""
    library = Library()
    async with open_servers(library.config(protocol="legacy")) as servers:
        ref = servers["library"]
        await ref.set_log_level("info")
        library.failing["logging/setLevel"] = [MCPError(INTERNAL_ERROR, "not now")]
        await ref.restart()
        await wait_all_tasks_blocked()
        assert (ref.state, ref.statistics().last_error) == ("ready", None)
        assert (await ref.call_tool("search")).structured_content == {"found": 1}
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    said("log level not set again", warning)


async def test_a_refused_level_does_not_revert_another_one() -> None:
    """The server refuses one level while it accepts another; the accepted one stays, also for the next connection."""
    refuse = trio.Event()

    class Slow(Library):
        async def set_level(self, ctx: Any, params: SetLevelRequestParams) -> EmptyResult:
            if params.level == "debug":
                await refuse.wait()
                raise MCPError(METHOD_NOT_FOUND, "not that one")
            return await super().set_level(ctx, params)

    library, first = Slow(), Outcome()
    async with open_servers(library.config(protocol="legacy")) as servers, trio.open_nursery() as nursery:
        ref = servers["library"]
        nursery.start_soon(first.of, ref.set_log_level, "debug")
        await wait_all_tasks_blocked()
        await ref.set_log_level("error")
        refuse.set()
        with pytest.raises(MCPError, match="not that one"):
            await first.result()
        await ref.restart()
        await wait_all_tasks_blocked()
        assert told(library) == ["error", "error"]
