"""The time of a person who answers a question of a server does not count for the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import frozen
from mcp.types import ElicitRequestParams, ElicitResult
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Callbacks, Http, RequestTimedOut, ServerConfig, bridge, open_servers
from mcp_actors.config import CallbackContext
from mcp_actors.gateway import _output
from mcp_actors.servers._deadlines import Deadline, Deadlines, DeadlineTimer
from mcp_actors.servers.requests import ListTools
from tests.gateway.hosts import LEGACY, gateway
from tests.idle_clock import IdleClock

from ..asking import ACCEPTED, ELICIT, ERAS, Era, ask, asking, call, until
from ..http_server import Running, run_server
from ..links import text_of


async def thinks(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    """Answer after four minutes, in which every other time-out expires."""
    await trio.sleep(240)
    return ACCEPTED


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_may_think_for_longer_than_a_request_may_take(era: Era, idle_clock: IdleClock) -> None:
    """D-08: over stdio, where a legacy server does not say which request it asks for."""
    config = asking(era, callbacks=Callbacks(elicitation=thinks), request_timeout=30, progress_timeout=20)
    async with open_servers(config) as servers:
        assert len(await ask(servers["a"], ELICIT)) == 1
        with pytest.raises(RequestTimedOut):
            await call(servers["a"], "silent")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with run_server("--asks") as running:
        yield running


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_over_http_a_person_may_think_as_long(server: Running, protocol: Any, mock_clock: MockClock) -> None:
    """D-08: only the request that the question belongs to waits for the person."""

    async def thinks(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        began = trio.current_time()
        mock_clock.jump(240)
        await wait_all_tasks_blocked()
        return ElicitResult(action="accept", content={"name": f"{trio.current_time() - began:.0f}"})

    callbacks = Callbacks(elicitation=thinks)
    config = ServerConfig("a", Http(server.url), protocol=protocol, callbacks=callbacks, connect_timeout=1000)
    async with open_servers(config) as servers:
        assert text_of(await servers["a"].call_tool("greet")) == "hello 240"


@pytest.fixture
def looks_rarely_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a gateway look for gaps once in a minute; four times in each second of a person, it would work for long."""
    monkeypatch.setattr(_output, "BEAT", 60.0)


@pytest.mark.usefixtures("looks_rarely_at_the_clock")
async def test_a_client_of_a_gateway_may_think_as_long(tmp_path: Path, idle_clock: IdleClock) -> None:
    """D-08: the person is at the client, and the gateway has a limit of its own for the request."""
    async with gateway(tmp_path, per_session=[asking(name="own", request_timeout=30)]) as door:
        host = await door.connect(LEGACY, elicitation={"form": {}})
        request = host.request("tools/call", {"name": "own_ask", "arguments": {"questions": [ELICIT]}})
        await host.send(request)
        await until(lambda: host.asked)
        await trio.sleep(240)
        answer = ACCEPTED.model_dump(by_alias=True, exclude_none=True)
        await host.send({"jsonrpc": "2.0", "id": host.asked[0]["id"], "result": answer})
        assert "which" in (await host.answer_to(request))["result"]["content"][0]["text"]


@asynccontextmanager
async def asked_by_a_modern_server(folder: Path, *questions: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Have a shared server ask a legacy client of a gateway, whose answers may take 20 s."""
    callbacks = Callbacks(timeout=20)
    async with gateway(folder, asking("modern", request_timeout=10, callbacks=callbacks)) as door:
        host = await door.connect(LEGACY, elicitation={"form": {}})
        request = host.request("tools/call", {"name": "a_ask", "arguments": {"questions": [*questions]}})
        await host.send(request)
        await until(lambda: host.asked)
        yield host, request


async def answer_slowly(host: Any, seconds: float, number: int) -> None:
    """Answer the newest question of a gateway, as a person who thinks for some time."""
    await trio.sleep(seconds)
    answer = ACCEPTED.model_dump(by_alias=True, exclude_none=True)
    await host.send({"jsonrpc": "2.0", "id": host.asked[number]["id"], "result": answer})


@pytest.mark.usefixtures("looks_rarely_at_the_clock")
async def test_a_client_of_a_gateway_has_the_time_of_a_callback(tmp_path: Path, idle_clock: IdleClock) -> None:
    """D-08: for a question of a modern server, which no other limit of the gateway counts."""
    async with asked_by_a_modern_server(tmp_path, ELICIT) as (host, request):
        await answer_slowly(host, 19, 0)
        assert "which" in (await host.answer_to(request))["result"]["content"][0]["text"]
    async with asked_by_a_modern_server(tmp_path, ELICIT) as (host, request):
        error = (await host.answer_to(request))["error"]
        assert "tools/call 'ask': the client did not answer elicitation/create within 20 s" in error["message"]
        assert (await host.notice("notifications/cancelled"))["requestId"] == host.asked[0]["id"]


@pytest.mark.usefixtures("looks_rarely_at_the_clock")
async def test_a_client_of_a_gateway_has_ten_times_that_for_one_request(tmp_path: Path, idle_clock: IdleClock) -> None:
    """D-08: however many questions a modern server has."""
    async with asked_by_a_modern_server(tmp_path, *[ELICIT] * 11) as (host, request):
        for number in range(10):
            await until(lambda number=number: len(host.asked) > number)
            await answer_slowly(host, 19, number)
        await until(lambda: len(host.asked) > 10)
        await answer_slowly(host, 15, 10)  # soon enough for one question, and too late for all
        error = (await host.answer_to(request))["error"]
        assert "has used its 200 s for the answers to all questions" in error["message"]


def test_a_callback_on_asyncio_may_think_as_long() -> None:
    """D-08: it answers when a request that began later, of a server with the same limit, has timed out."""
    limits: dict[str, Any] = {"request_timeout": 0.2}

    async def main() -> None:
        async def thinks(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
            with pytest.raises(RequestTimedOut):
                await servers["b"].call_tool("silent")
            return ACCEPTED

        callbacks = Callbacks(elicitation=thinks)
        configs = asking("legacy", callbacks=callbacks, **limits), asking("legacy", name="b", **limits)
        async with bridge.open_servers(*configs) as servers:
            assert "which" in text_of(await servers["a"].call_tool("ask", {"questions": [ELICIT]}))

    asyncio.run(main())


async def expired(*requests: Deadline) -> list[bool]:
    """Return which requests have expired, once all that is due has."""
    await wait_all_tasks_blocked()
    return [each.expired for each in requests]


@frozen
class At:
    """A message that an actor has."""

    actor: str
    handed_over = True

    def expire(self, exc: Exception) -> None:
        """Do nothing: no task waits for it."""


@asynccontextmanager
async def timed() -> AsyncIterator[Deadlines]:
    """Enforce the deadlines of a server, which are of 60 s."""
    timer = DeadlineTimer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        yield Deadlines("a", 60, None, timer)
        nursery.cancel_scope.cancel("the test is over")


async def test_a_question_of_an_unknown_request_stops_those_that_were_sent_before_it(mock_clock: MockClock) -> None:
    """D-08: a request that was not sent, or that began later, is not the one for which the server asks."""
    async with timed() as deadlines:
        before, waiting = deadlines.begin(ListTools()), deadlines.begin(ListTools())
        before.call = cast("Any", At("a"))
        mock_clock.jump(20)
        with deadlines.answering("a", None, 3000):
            during = deadlines.begin(ListTools())
            during.call = cast("Any", At("a"))
            mock_clock.jump(59)
            assert await expired(before, waiting, during) == [False, True, False]
            mock_clock.jump(1)
            assert await expired(before, waiting, during) == [False, True, True]
        mock_clock.jump(39)
        assert await expired(before) == [False]
        mock_clock.jump(1)
        assert await expired(before) == [True]


async def test_questions_at_the_same_time_stop_the_time_once(mock_clock: MockClock) -> None:
    async with timed() as deadlines:
        request, later = deadlines.begin(ListTools()), deadlines.begin(ListTools())
        with deadlines.answering("a", request, 3000):
            mock_clock.jump(30)
            with deadlines.answering("a", request, 3000):
                mock_clock.jump(20)
            deadlines.set_limits(70, None)
            mock_clock.jump(10)
            assert await expired(request, later) == [False, False]
        mock_clock.jump(69)
        assert await expired(request, later) == [False, True]
        mock_clock.jump(1)
        assert await expired(request) == [True]


async def test_a_server_that_asks_again_and_again_does_not_hold_a_request_for_ever(mock_clock: MockClock) -> None:
    """D-08: the sum is bounded, whether a person answers or not."""
    async with timed() as deadlines:
        request = deadlines.begin(ListTools())
        request.call = cast("Any", At("a"))
        for _ in range(10):
            with deadlines.answering("a", request, 3000):
                mock_clock.jump(299)
        with deadlines.answering("a", request, 3000):
            mock_clock.jump(69)
            assert await expired(request) == [False]
            mock_clock.jump(1)
            assert await expired(request) == [True]
            assert "its 3000 s for the answers of people are over, too" in str(deadlines.failure(request))
