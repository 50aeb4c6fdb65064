"""Requests for input before an answer (``InputRequiredResult``): rounds, their end, and clients without a callback."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from mcp.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    ListRootsRequest,
    ReadResourceResult,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import LimitExceeded, RequestTimedOut, open_servers
from mcp_actors.config import CallbackContext, Callbacks
from mcp_actors.servers import NotSupported
from mcp_actors.servers._deadlines import Deadlines, DeadlineTimer, InTask
from mcp_actors.servers._session import MAX_ROUNDS
from mcp_actors.servers.requests import ListTools

from ..messages import Said
from .library import Library

QUESTION = ElicitRequest(
    params=ElicitRequestFormParams(message="Which one?", requested_schema={"type": "object", "properties": {}})
)

SAMPLE = CreateMessageRequest(
    params=CreateMessageRequestParams(
        max_tokens=7, messages=[SamplingMessage(role="user", content=TextContent(type="text", text="?"))]
    )
)


class ServerRequests(Library):
    """Asks back so often, in each request of the kinds in which a server may; then it answers."""

    def __init__(self, rounds: int, **questions: Any) -> None:
        self.rounds = rounds
        self.questions = questions or None
        self.answers: list[Any] = []
        super().__init__(
            on_call_tool=self.asking(CallToolResult(content=[TextContent(type="text", text="done")])),
            on_get_prompt=self.asking(GetPromptResult(messages=[])),
            on_read_resource=self.asking(ReadResourceResult(contents=[TextResourceContents(uri="a:b", text="done")])),
        )

    def asking(self, result: Any) -> Callable[[Any, Any], Any]:
        async def handler(ctx: Any, params: Any) -> Any:
            done = int(params.request_state or 0)
            if params.input_responses:
                self.answers.append(params.input_responses)
            if done == self.rounds:
                return result
            return InputRequiredResult(input_requests=self.questions, request_state=str(done + 1))

        return handler


KINDS = {
    "tools/call 'search'": lambda ref: ref.call_tool("search"),
    "prompts/get 'prompt_1'": lambda ref: ref.get_prompt("prompt_1"),
    "resources/read 'file:///a'": lambda ref: ref.read_resource("file:///a"),
}

each_kind = pytest.mark.parametrize("operation", KINDS)


def modern(library: Library, **options: Any) -> Any:
    return library.config(protocol="2026-07-28", **options)


@each_kind
async def test_a_server_that_asks_for_another_round_gets_it(operation: str, autojump_clock: MockClock) -> None:
    async with open_servers(modern(ServerRequests(MAX_ROUNDS))) as servers:
        await KINDS[operation](servers["library"])
        assert servers["library"].statistics().latency.done == 1


@each_kind
async def test_endless_requests_for_input_are_ended(operation: str, said: Said, autojump_clock: MockClock) -> None:
    async with open_servers(modern(ServerRequests(MAX_ROUNDS + 1))) as servers:
        with pytest.raises(LimitExceeded) as caught:
            await KINDS[operation](servers["library"])
        assert servers["library"].state == "ready"
    said("too many requests for input", str(caught.value), operation=operation)


@each_kind
@pytest.mark.parametrize(
    ("kind", "question"), [("elicitation", QUESTION), ("sampling", SAMPLE), ("roots", ListRootsRequest())]
)
async def test_request_for_input_without_a_callback_raises(
    operation: str, kind: str, question: Any, said: Said
) -> None:
    async with open_servers(modern(ServerRequests(1, q=question))) as servers:
        with pytest.raises(NotSupported) as caught:
            await KINDS[operation](servers["library"])
        assert servers["library"].state == "ready"
    assert caught.value.capability == kind
    said("input without a callback", str(caught.value), operation=operation, kind=kind)


async def test_the_rounds_have_the_time_of_one_request(autojump_clock: MockClock) -> None:
    """A deadline is for all of them together."""
    async with open_servers(modern(ServerRequests(MAX_ROUNDS), request_timeout=1)) as servers:
        with pytest.raises(RequestTimedOut, match="tools/call 'search' timed out after 1 s"):
            await servers["library"].call_tool("search")
        assert trio.current_time() == pytest.approx(1)
        await wait_all_tasks_blocked()
        assert servers["library"].statistics().in_flight == 0


async def test_a_caller_cancelled_between_two_rounds_leaves_at_once(autojump_clock: MockClock) -> None:
    library = ServerRequests(MAX_ROUNDS)
    async with open_servers(modern(library)) as servers:
        with trio.move_on_after(0.3) as scope:
            await servers["library"].call_tool("search")
        assert scope.cancelled_caught
        asked = len(library.asked)
        await trio.sleep(10)
        assert len(library.asked) == asked
        assert servers["library"].statistics().in_flight == 0


@each_kind
async def test_progress_timeout_is_suspended_while_a_person_answers(operation: str, autojump_clock: MockClock) -> None:
    """The time without progress is the server's; what is asked of a person is not counted."""
    asked = 0

    async def think(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        nonlocal asked
        asked += 1
        await trio.sleep(20 * asked)
        return ElicitResult(action="accept", content={})

    library = ServerRequests(2, first=QUESTION, second=QUESTION)
    config = modern(library, request_timeout=None, progress_timeout=1, callbacks=Callbacks(elicitation=think))
    async with open_servers(config) as servers:
        await KINDS[operation](servers["library"])
        assert trio.current_time() == pytest.approx(40 + 80)
    assert len(library.answers) == 2


async def test_progress_timeout_runs_again_after_the_answer(autojump_clock: MockClock) -> None:
    async def answer(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.sleep(20)
        return ElicitResult(action="accept", content={})

    async def silent(ctx: Any, params: Any) -> Any:
        if params.input_responses is None:
            return InputRequiredResult(input_requests={"q": QUESTION}, request_state="1")
        await trio.sleep_forever()
        raise AssertionError

    library = Library(on_call_tool=silent)
    config = modern(library, progress_timeout=1, callbacks=Callbacks(elicitation=answer))
    async with open_servers(config) as servers:
        with pytest.raises(RequestTimedOut, match="after 1 s without progress"):
            await servers["library"].call_tool("search")
        assert trio.current_time() == pytest.approx(21)


async def test_a_question_of_an_earlier_replica_stops_the_time_without_progress() -> None:
    """Middleware may send several messages for one request, each to another replica."""
    deadlines = Deadlines("a", None, 5.0, DeadlineTimer())
    with deadlines.begin(ListTools()) as deadline:
        deadline.call = attempt = InTask()
        messages: list[Any] = [SimpleNamespace(handed_over=True, actor=actor) for actor in ("a:1", "a:2")]
        attempt.calls, attempt.latest = messages, messages[-1]
        deadline.renew()
        for actor in ("a:1", "a:2"):
            with deadlines.answering(actor, None):
                assert deadlines.next() == math.inf
            assert deadlines.next() < math.inf
