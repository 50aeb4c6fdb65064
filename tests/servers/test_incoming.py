"""Notifications reach the listeners, and those of an old connection reach none."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ServerNotification,
    ToolListChangedNotification,
)
from trio.testing import wait_all_tasks_blocked

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.servers import ServerGroup
from mcp_actors.servers.record._subscriptions import Listeners, MessageRelay, open_incoming


def listeners_of(group: ServerGroup, name: str = "here") -> Listeners:
    return group._roster.records[name].listeners


def telling() -> MCPServer:
    """Return a server with a tool that sends a notice before it answers."""
    here = MCPServer("here")

    async def change(ctx: Context[Any, Any], times: int = 1) -> str:
        for _ in range(times):
            await ctx.session.send_tool_list_changed()
        return "changed"

    here.add_tool(change)
    return here


async def test_a_listener_gets_messages_until_it_is_removed() -> None:
    heard: list[object] = []
    async with open_servers(ServerConfig("here", InProcess(telling()), protocol="legacy")) as group:
        with listeners_of(group).added(ToolListChangedNotification, heard.append):
            await group["here"].call_tool("change", {"times": 3})
            await wait_all_tasks_blocked()
            assert [type(each) for each in heard] == [ToolListChangedNotification] * 3
        await group["here"].call_tool("change")
        await wait_all_tasks_blocked()
        assert len(heard) == 3


async def test_a_listener_stays_after_a_reconnect() -> None:
    heard: list[object] = []
    async with open_servers(ServerConfig("here", InProcess(telling()), protocol="legacy")) as group:
        listeners_of(group).add(ToolListChangedNotification, heard.append)
        await group["here"].restart()
        await group["here"].call_tool("change")
        await wait_all_tasks_blocked()
    assert len(heard) == 1


def test_a_listener_hears_of_its_kind_only_in_the_order_of_adding() -> None:
    told: list[str] = []
    listeners = Listeners("here")
    listeners.add(ToolListChangedNotification, lambda _: told.append("tools"))
    listeners.add(PromptListChangedNotification, lambda _: told.append("prompts"))
    listeners.add(object, lambda _: told.append("all"))
    remove = listeners.add(Exception, lambda _: told.append("faults"))
    listeners.tell(ToolListChangedNotification())
    listeners.tell(ResourceListChangedNotification())
    listeners.tell(ValueError())
    remove()
    remove()
    listeners.tell(ValueError())
    assert told == ["tools", "all", "all", "all", "faults", "all"]


def test_a_listener_that_raises_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    listeners = Listeners("here")
    listeners.add(ToolListChangedNotification, lambda _: 1 / 0)
    listeners.add(ToolListChangedNotification, told.append)
    listeners.tell(ToolListChangedNotification())
    assert len(told) == 1
    [record] = caplog.records
    assert record.getMessage() == "server 'here': a listener raised on ToolListChangedNotification"
    assert record.exc_info is not None


def test_listeners_may_come_and_go_while_a_message_is_passed_on() -> None:
    told: list[str] = []
    listeners = Listeners("here")

    def once(_: object) -> None:
        told.append("once")
        remove()
        listeners.add(ToolListChangedNotification, lambda _: told.append("new"))

    remove = listeners.add(ToolListChangedNotification, once)
    listeners.add(ToolListChangedNotification, lambda _: told.append("old"))
    listeners.tell(ToolListChangedNotification())
    assert told == ["once", "old"]
    listeners.tell(ToolListChangedNotification())
    assert told == ["once", "old", "old", "new"]


@contextmanager
def kept() -> Iterator[list[MessageRelay]]:
    """Keep what is opened for each connection."""
    opened: list[MessageRelay] = []

    @asynccontextmanager
    async def keep(listeners: Listeners, on_failure: Callable[[Exception], object]) -> AsyncIterator[MessageRelay]:
        async with open_incoming(listeners, on_failure) as incoming:
            opened.append(incoming)
            yield incoming

    with patch("mcp_actors.servers.connection._actor.open_incoming", keep):
        yield opened


async def test_a_late_message_of_an_old_connection_reaches_no_listener() -> None:
    """A-22: also while the new connection is open."""
    heard: list[ServerNotification] = []
    with kept() as opened:
        async with open_servers(ServerConfig("here", InProcess(telling()), protocol="legacy")) as group:
            listeners_of(group).add(ToolListChangedNotification, heard.append)
            await group["here"].restart()
            old, new = (each.handle for each in opened)
            await old(ToolListChangedNotification())
            assert heard == []
            await new(ToolListChangedNotification())
            assert len(heard) == 1
        await new(ToolListChangedNotification())
        assert len(heard) == 1


async def test_the_tasks_of_a_connection_end_when_it_is_left_and_not_before() -> None:
    over: list[str] = []

    async def stay() -> None:
        try:
            await trio.sleep_forever()
        finally:
            over.append("stay")

    async with open_incoming(Listeners("here"), list[Exception]().append) as incoming:
        incoming.tasks.start_soon(stay, name="here:stay")
        with trio.CancelScope() as scope:
            scope.cancel("somebody leaves")
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert not over
        incoming.close()
        await wait_all_tasks_blocked()
        assert over == ["stay"]


async def test_a_message_is_passed_on_before_the_server_goes_on() -> None:
    """The server sends from within a call of this process's: a listener that waited would hold it up."""
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    heard: list[str] = []
    async with open_incoming(Listeners("here"), list[Exception]().append) as incoming:
        incoming.listeners.add(ToolListChangedNotification, lambda _: heard.append(where.get()))
        token = where.set("in the task that sent it")
        with trio.testing.assert_no_checkpoints():
            await incoming.handle(ToolListChangedNotification())
        where.reset(token)
    assert heard == ["in the task that sent it"]
