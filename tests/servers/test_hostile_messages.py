"""Servers whose messages are a burden, or are meant for nobody: what they cost others, and what comes of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from mcp.types import ErrorData

from mcp_actors import Callbacks, ConnectionLost, LimitExceeded, Limits, open_servers
from mcp_actors.servers import ServerGroup

from .groups import BOUND, LATER, server, state
from .hostile import STEP, LongestStep, hostile
from .links import text_of

NOTIFICATIONS = [
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/resources/updated",
    "notifications/progress",
    "notifications/unknown",
]

QUESTIONS = ["sampling/createMessage", "elicitation/create", "roots/list", "ping", "unknown/method"]


async def no(context: Any, params: Any) -> ErrorData:
    await trio.lowlevel.checkpoint()
    return ErrorData(code=1, message="no")


async def nothing(context: Any, params: Any) -> None:
    await trio.lowlevel.checkpoint()


async def goes_on_beside(group: ServerGroup, tool: str, **arguments: Any) -> None:
    """Check that another server is called all the while, and that no step takes long."""
    done = trio.Event()

    async def call_the_other() -> None:
        while not done.is_set():
            await group["good"].call_tool("echo", {"text": "here"})

    with LongestStep() as longest, trio.fail_after(6 * BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_the_other)
            assert text_of(await group["evil"].call_tool(tool, arguments)) == "done"
            done.set()
    assert longest.seconds < STEP, longest.task
    assert text_of(await group["evil"].call_tool("echo", {"text": "still"})) == "still"
    assert state(group, "evil") == "ready"


@pytest.mark.parametrize("method", NOTIFICATIONS)
async def test_a_burst_of_notifications_holds_up_nobody(method: str) -> None:
    callbacks = Callbacks(logging=nothing, message=nothing)
    async with open_servers(hostile(callbacks=callbacks), server("good")) as group:
        await goes_on_beside(group, "burst", number=1000, method=method)


@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_burst_of_questions_holds_up_nobody(method: str) -> None:
    """Those beyond what may be asked at a time are answered with an error, as are those for which there is nobody."""
    callbacks = Callbacks(sampling=no, elicitation=no)
    async with open_servers(hostile(callbacks=callbacks), server("good")) as group:
        await goes_on_beside(group, "questions", number=500, method=method)


async def test_answers_to_nobody_change_nothing() -> None:
    async with open_servers(hostile(), server("good")) as group:
        await goes_on_beside(group, "strangers")


async def test_numbers_that_json_does_not_have_come_as_they_are() -> None:
    """The parser of the SDK takes them; whoever asked for checks hears of them."""
    async with open_servers(hostile()) as group:
        result = await group["evil"].call_tool("nan")
        content = result.structured_content
        assert content is not None
        assert math.isnan(content["a"])


async def test_a_message_of_very_many_values_ends_the_connection_before_it_is_parsed() -> None:
    async with open_servers(hostile(restart=LATER), server("good")) as group:
        with LongestStep() as longest, pytest.raises(ConnectionLost) as caught:
            await group["evil"].call_tool("crowd", {"number": 5_000_000})
        assert longest.seconds < STEP, longest.task
        assert isinstance(caught.value.__cause__, LimitExceeded)
        assert str(caught.value.__cause__) == (
            "server 'evil': sent a message with too many JSON values in it; raise "
            "limits=Limits(max_message_values=…), which is 250000, if it may do that"
        )
        assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"


async def test_a_message_may_have_as_many_values_as_is_said() -> None:
    async with open_servers(hostile(limits=Limits(max_message_values=400_000))) as group:
        result = await group["evil"].call_tool("crowd", {"number": 399_000})
        assert result.structured_content is not None
        assert len(result.structured_content["a"]) == 399_001
