"""Servers with expensive or unsolicited messages: the cost for others, and the consequences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from mcp.types import ErrorData

from mcp_actors import Callbacks, ConnectionLost, LimitExceeded, Limits, open_servers
from mcp_actors.servers import ServerGroup
from mcp_actors.transports.stdio._pipes import READ_BURST, PipeReader

from .groups import AT_ONCE, BOUND, LATER, reach, server, state
from .hostile import STEP, LongestStep, MostInAStep, hostile
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
    """Check that another server is called all the while, and that no step takes long, or many messages."""
    done = trio.Event()

    async def call_the_other() -> None:
        while not done.is_set():
            await group["good"].call_tool("echo", {"text": "here"})
            await trio.sleep(0.01)

    with (
        pytest.MonkeyPatch.context() as patch,
        MostInAStep(patch, (PipeReader, "_parse")) as taken,
        LongestStep() as longest,
        trio.fail_after(6 * BOUND),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_the_other)
            assert text_of(await group["evil"].call_tool(tool, arguments)) == "done"
            done.set()
    assert longest.seconds < STEP, longest.task
    assert 1 <= taken.most["_parse"] <= READ_BURST
    assert text_of(await group["evil"].call_tool("echo", {"text": "still"})) == "still"
    assert state(group, "evil") == "ready"


@pytest.mark.parametrize("method", NOTIFICATIONS)
async def test_a_burst_of_notifications_delays_no_task(method: str) -> None:
    callbacks = Callbacks(logging=nothing, message=nothing)
    async with open_servers(hostile(callbacks=callbacks), server("good")) as group:
        await goes_on_beside(group, "burst", number=1000, method=method)


@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_burst_of_questions_delays_no_task(method: str) -> None:
    """Questions over the limit are answered with an error, and so are those without a callback."""
    callbacks = Callbacks(sampling=no, elicitation=no)
    async with open_servers(hostile(callbacks=callbacks), server("good")) as group:
        await goes_on_beside(group, "questions", number=500, method=method)


async def test_answers_without_a_request_are_ignored() -> None:
    async with open_servers(hostile(), server("good")) as group:
        await goes_on_beside(group, "strangers")


async def test_numbers_that_json_does_not_have_come_as_they_are() -> None:
    """The parser of the SDK accepts them; validate="schema" reports them."""
    async with open_servers(hostile()) as group:
        result = await group["evil"].call_tool("nan")
        content = result.structured_content
        assert content is not None
        assert math.isnan(content["a"])


@pytest.mark.parametrize("id_last", [False, True])
@pytest.mark.parametrize(
    ("part", "remedy"), [("0", "raise max_line_bytes"), (",1", "raise limits=Limits(max_message_values=…)")]
)
async def test_an_answer_over_a_limit_fails_its_request_and_nothing_else(part: str, remedy: str, id_last: bool) -> None:
    """B-14, B-12."""
    config = hostile(limits=Limits(max_message_values=100_000), max_line_bytes=2_000_000)
    async with open_servers(config, server("good")) as group:
        evil = group["evil"]
        with LongestStep() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group["good"].call_tool, "echo", {"text": "here"})
                with pytest.raises(LimitExceeded) as caught:
                    await evil.call_tool("long", {"bytes": 20_000_000, "part": part, "id_last": id_last})
        assert longest.seconds < STEP, longest.task
        for words in ("server 'evil': tools/call", "the request may have taken effect", remedy):
            assert words in str(caught.value)
        assert text_of(await evil.call_tool("echo", {"text": "still"})) == "still"
        assert group.status()["evil"].restarts == 0
        assert evil.statistics().state == "ready"


async def test_a_long_message_that_is_not_an_answer_ends_the_connection() -> None:
    config = hostile(restarts=LATER, max_line_bytes=1_000_000)
    async with open_servers(config, server("good")) as group:
        with pytest.raises(ConnectionLost) as caught:
            await group["evil"].call_tool("burst", {"number": 1, "method": "x" * 2_000_000})
        assert isinstance(caught.value.__cause__, LimitExceeded)
        assert "max_line_bytes" in str(caught.value.__cause__)
        assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"


async def test_an_answer_without_a_line_end_reaches_its_caller_before_the_connection_ends() -> None:
    """B-17."""
    async with open_servers(hostile(restarts=AT_ONCE)) as group:
        for _ in range(5):
            assert text_of(await group["evil"].call_tool("last_words")) == "goodbye"
            await reach(group, "evil", "backoff", "connecting")
            await reach(group, "evil", "ready")


async def test_a_message_may_have_as_many_values_as_the_limit_says() -> None:
    async with open_servers(hostile(limits=Limits(max_message_values=400_000))) as group:
        result = await group["evil"].call_tool("crowd", {"number": 399_000})
        assert result.structured_content is not None
        assert len(result.structured_content["a"]) == 399_001
