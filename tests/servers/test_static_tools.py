"""A server that does not list its tools is served with those that its configuration declares, until it does."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, Tool
from trio.testing import MockClock

from mcp_actors import (
    ConfigError,
    ConnectFailed,
    Http,
    HttpStatusError,
    ServerConfig,
    StateChanged,
    Stdio,
    ToolNotFound,
    open_servers,
)

from .changing import Changing, shown, wait_shown
from .faults.http_faults import Raw, faulty_server, response
from .groups import LATER, NEVER, Events, crash, reach, server, state
from .links import text_of

LOST = MCPError(INTERNAL_ERROR, "the list is lost")
DECLARED = {"name": "same", "inputSchema": {"type": "object", "required": ["x"], "properties": {"x": {}}}}


async def test_declared_tools_are_served_while_the_server_does_not_list_its_own(autojump_clock: MockClock) -> None:
    """S2-23: the server is degraded, which is connected and active, and it is asked again until it answers.

    B-10: something is wrong with it meanwhile.
    """
    here, events = Changing(), Events()
    here.answers = [LOST] * 3
    async with open_servers(here.config(static_tools=[DECLARED]), observers=[events]) as group:
        ref = group["here"]
        assert state(group, "here") == "degraded"
        assert group.connected == group.active == (ref,)
        assert group.failed == (ref,)
        assert group.errors["here"] is ref.statistics().last_error is not None
        assert str(group.errors["here"]) == "the list is lost"
        assert shown(group) == ["same"]
        assert group.tools[0].available
        with pytest.raises(Exception, match="'x'"):
            await group.call_tool("mcp__here__same")
        assert text_of(await group.call_tool("mcp__here__same", {"x": 1})) == "same"
        await group.wait_ready()
        await wait_shown(group, "v1", "same")
        assert (state(group, "here"), dict(group.errors), here.asked) == ("ready", {}, 4)
        assert text_of(await group.call_tool("mcp__here__same")) == "same"
    assert events.states("here") == ["connecting", "degraded", "ready", "stopping", "stopped"]
    reasons = [event.reason for event in events.of(StateChanged, "here")]
    assert reasons[1:3] == [
        "connected, 1 tool, as it does not list them: the list is lost",
        "it lists its tools again: 2 tools",
    ]


async def test_without_declared_tools_a_failed_list_is_a_failed_connect() -> None:
    """S2-14: ready means that the list was answered."""
    here = Changing()
    here.answers = [LOST]
    async with open_servers(here.config(restarts=NEVER)) as group:
        assert state(group, "here") == "failed"
        assert isinstance(group.errors["here"], ConnectFailed)
        assert group.errors["here"].phase == "list_tools"


async def test_a_server_that_never_answers_has_half_of_the_time_to_connect(autojump_clock: MockClock) -> None:
    here = Changing()
    here.answers = [trio.Event()]
    began = trio.current_time()
    async with open_servers(here.config(static_tools=[DECLARED], connect_timeout=8)) as group:
        assert trio.current_time() - began == 4
        assert state(group, "here") == "degraded"
        assert (
            str(group.errors["here"]) == "server 'here': tools/list timed out after 4 s; static_tools are used instead"
        )
        await wait_shown(group, "v1", "same")
        assert state(group, "here") == "ready"


async def test_declared_tools_do_not_take_the_place_of_what_the_server_listed_before(autojump_clock: MockClock) -> None:
    here = Changing()
    async with open_servers(here.config(static_tools=[DECLARED])) as group:
        here.answers = [LOST]
        await group["here"].restart()
        assert state(group, "here") == "degraded"
        assert shown(group) == ["v1", "same"]
        here.version = 2
        await group["here"].list_tools()
        assert state(group, "here") == "ready"
        assert shown(group) == ["v2", "same"]


async def test_a_server_that_blocks_is_called_for_declared_tools_only_while_it_lists_none() -> None:
    """Other tools are unknown."""
    here = Changing()
    here.answers = [LOST]
    async with open_servers(here.config(static_tools=[DECLARED], on_tool_change="block")) as group:
        assert shown(group) == ["same"]
        with pytest.raises(ToolNotFound, match="'v1' is not listed"):
            await group["here"].call_tool("v1")
        assert text_of(await group["here"].call_tool("same", {"x": 1})) == "same"
        await group["here"].list_tools()
        assert text_of(await group["here"].call_tool("v1")) == "v1"
    assert here.called == ["same", "v1"]


async def test_declared_tools_are_served_over_http_too() -> None:
    """S2-23: the server answers, but not with its list."""
    with faulty_server() as web:
        web.scripts["tools/list"] = Raw(response(503, "", "Retry-After: 1"), "keep")
        config = ServerConfig("web", Http(web.url()), static_tools=[{"name": "sleep", "inputSchema": {}}])
        async with open_servers(config) as group:
            assert state(group, "web") == "degraded"
            error = group.errors["web"]
            assert isinstance(error, HttpStatusError)
            assert error.status == 503
            assert text_of(await group.call_tool("mcp__web__sleep", {"seconds": 0})) == "slept 0"
            del web.scripts["tools/list"]
            await wait_shown(group, "sleep", "hold", "raw", "slowly", within=30)
            assert state(group, "web") == "ready"


async def test_a_server_that_dies_when_it_is_asked_is_not_connected() -> None:
    config = server("a", "--die-on-list", restarts=LATER, static_tools=[DECLARED])
    async with open_servers(config) as group:
        assert state(group, "a") == "backoff"
        assert shown(group) == []


async def test_a_degraded_server_that_dies_is_known_to_be_dead() -> None:
    config = server("a", "--error-on-list", restarts=LATER, static_tools=[DECLARED])
    async with open_servers(config) as group:
        assert state(group, "a") == "degraded"
        assert "the list of tools is lost" in str(group.errors["a"])
        await crash(group, "a")
        assert state(group, "a") == "backoff"
        assert [tool.available for tool in group.tools] == [False]
        await group.reconnect()
        assert await reach(group, "a", "degraded") == "degraded"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("add", "static_tools=<str> is not valid"),
        ([1], "static_tools=<a tuple with an int in it> is not valid"),
        ([Tool(name="a", input_schema={})] * 2, "static_tools='a' twice is not valid"),
        ([{"name": "a"}], "static_tools: tool 'a': inputSchema: Field required"),
        ([{}], "static_tools: tool number 1: name: Field required"),
    ],
)
def test_a_static_tool_of_another_type_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig("a", Stdio("a"), static_tools=value)
    assert problem in str(caught.value)
    assert "give mcp.types.Tool objects, or mappings with a name and an inputSchema, each name once" in str(
        caught.value
    )
    assert str(caught.value.path).endswith("static_tools")
