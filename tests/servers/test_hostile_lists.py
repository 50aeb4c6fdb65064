"""Servers with huge lists: the cost for others, the reports, and the results for their own users."""

from __future__ import annotations

import pytest
from attrs import evolve

from mcp_actors import ConnectFailed, LimitExceeded, Limits, open_servers
from mcp_actors.servers import LimitReached

from .groups import LATER, Events, server, state
from .hostile import STEP, LongestStep, hostile
from .links import text_of

MANY = Limits(max_message_values=10_000_000)
"""So that a message may hold more values than a list."""


async def test_a_list_that_is_just_within_the_limits_delays_no_task() -> None:
    """It is measured, copied and hashed tool by tool, and not again when a task asks for the tools."""
    config = hostile("--values", "200000", on_tool_change="warn", limits=MANY)
    with LongestStep() as longest:
        async with open_servers(config, server("good")) as group:
            assert len(group.tools.of("evil")) >= 10
            await group["evil"].list_tools()
            assert len(group.tools.of("evil")) >= 10
            assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
    assert longest.seconds < STEP, longest.task


async def test_ten_thousand_tools_in_one_page_connect_within_the_timeout() -> None:
    async with open_servers(hostile("--tools", "10000", limits=Limits(max_tools=20_000))) as group:
        assert state(group, "evil") == "ready"
        assert len(group.tools.of("evil")) > 10_000


async def test_a_list_that_is_too_large_as_a_whole_is_an_event_and_an_error_and_delays_no_task() -> None:
    events, config = Events(), hostile("--values", "500000", restarts=LATER, limits=evolve(MANY, max_list_bytes=2**21))
    with LongestStep() as longest:
        async with open_servers(config, server("good"), observers=[events]) as group:
            assert state(group, "evil") == "backoff"
            error = group.errors["evil"]
            assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
    assert isinstance(error, ConnectFailed)
    assert "set limits=Limits(max_list_bytes=…) to allow more, if you trust the server" in str(error)
    [told] = events.of(LimitReached)
    assert "its list of tools takes" in str(told.error)
    assert longest.seconds < STEP, longest.task


async def test_other_lists_have_the_same_limits() -> None:
    events = Events()
    config = hostile("--values", "40000", limits=Limits(max_schema_bytes=50_000))
    async with open_servers(config, observers=[events]) as group:
        assert await group["evil"].list_resources() == ()
        assert [str(each.error).split(":")[1] for each in events.of(LimitReached)] == [
            *(f" tool 't{number}' is left out" for number in (0, 1)),
            *(f" resource 'r{number}' is left out" for number in (0, 1, 0, 1)),
        ]
    async with open_servers(hostile("--values", "40000", limits=Limits(max_list_bytes=500_000))) as group:
        with pytest.raises(LimitExceeded, match=r"its list of resources takes .* bytes or more, and the limit is"):
            await group["evil"].list_resources()


async def test_pages_without_end_are_a_connect_that_failed() -> None:
    async with open_servers(hostile("--pages", "endless", restarts=LATER)) as group:
        assert "its list of tools did not end after 1000 pages" in str(group.errors["evil"])


async def test_an_empty_cursor_leads_nowhere() -> None:
    """Some servers say so that there is no next page."""
    async with open_servers(hostile("--pages", "empty")) as group:
        assert state(group, "evil") == "ready"
        assert await group["evil"].list_resources() == ()


async def test_a_cursor_that_is_too_long_ends_the_list() -> None:
    async with open_servers(hostile("--pages", "long", restarts=LATER)) as group:
        assert "the cursor to the next page of its tools has 100000 characters" in str(group.errors["evil"])
