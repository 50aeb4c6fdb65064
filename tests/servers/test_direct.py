"""Requests that are sent over stdio without a task: the same outcomes as by the SDK's session, whatever happens."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.types import CallToolResult, ListRootsResult, Root
from opentelemetry import propagate, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext
from pydantic import FileUrl
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Callbacks,
    ConnectionLost,
    LimitExceeded,
    RequestTimedOut,
    ServerConfig,
    ServerGroup,
    ServerRef,
    Stdio,
    open_servers,
)
from mcp_actors.config import CallbackContext
from mcp_actors.servers import NotSupported
from mcp_actors.servers.connection._direct import DirectRequests
from mcp_actors.servers.requests import CallTool
from mcp_actors.transports._messages import ReadingPace
from mcp_actors.transports._request_table import LAST_ID, RequestTable, RequestUnderWay
from mcp_actors.transports.stdio._pipes import READ_BYTES, PipeReader
from tests.idle_clock import IdleClock
from tests.messages import Said

from . import wire_server
from .answers import BY_SESSION
from .fleet import Outcome, calls, kill, pid_of
from .groups import AT_ONCE, BOUND
from .links import text_of
from .processes import eventually, freeze

pytestmark = pytest.mark.own_way

ERAS: Final = ("legacy", "modern")


def config(era: str, log: Path, **options: Any) -> ServerConfig:
    """Configure the server of these tests."""
    program, arguments = wire_server.command(era, str(log))
    return ServerConfig("a", Stdio(program, arguments), **options)


def messages(log: Path, method: str) -> list[dict[str, Any]]:
    """Return what the server has read."""
    read = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [message for message in read if message.get("method") == method]


def last_line(log: Path) -> int:
    """Return the size of the last line that the server has read."""
    return len(log.read_bytes().splitlines(keepends=True)[-1])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which the server keeps what it reads."""
    return tmp_path / "log"


async def say(ref: ServerRef, *lines: str, meta: dict[str, Any] | None = None) -> CallToolResult:
    """Call a tool that answers with these lines."""
    return await ref.call_tool("say", {"lines": lines}, meta=meta)


ANSWER: Final = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"answered"}]}}'


# --- the way --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_plain_call_has_no_task_and_an_id_of_its_own(era: str, log: Path) -> None:
    async with open_servers(config(era, log)) as servers:
        await servers["a"].call_tool("echo")
        idle = trio.lowlevel.current_statistics().tasks_living
        async with calls(10, servers["a"].call_tool, "mute") as outcomes:
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living <= idle + 10  # those of the callers
            assert servers["a"].statistics().in_flight == 10
            await eventually(lambda: len(messages(log, "tools/call")) == 11)
            kill(servers["a"])
    assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 10
    ids = [message["id"] for method in ("tools/call", "tools/list") for message in messages(log, method)]
    assert len(set(ids)) == len(ids) == 12


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_with_a_meta_differs_in_nothing_else(era: str, log: Path) -> None:
    arguments = {"a": None, "b": [None, {"c": "é\u2028"}], "d": 1.5, "e": 2**60, "f": True}
    async with open_servers(config(era, log)) as servers:
        for given in (arguments, {}, None):
            await servers["a"].call_tool("echo", given)
            await servers["a"].call_tool("echo", given, meta={"k": 1})
    sent = [message["params"] for message in messages(log, "tools/call")]
    for bare, full in zip(sent[::2], sent[1::2], strict=True):
        assert full["_meta"].pop("k") == 1
        assert bare == {name: value for name, value in full.items() if value or name != "_meta"}


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_answers_out_of_order_doubled_or_unasked_reach_the_right_callers(era: str, log: Path) -> None:
    reply = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%d"}]}}'
    async with open_servers(config(era, log)) as servers:
        async with calls(3, servers["a"].call_tool, "mute") as outcomes:
            await wait_all_tasks_blocked(0.01)
            await eventually(lambda: len(messages(log, "tools/call")) == 3)
            first = messages(log, "tools/call")[0]["id"]
            ids = (first + 2, first + 2, first + 500, LAST_ID, LAST_ID + 1, 2**70, first, first + 1, first)
            lines = [reply % (number, number - first) for number in ids]
            text = '{"jsonrpc":"2.0","id":$text,"result":{"content":[]}}'
            assert (await say(servers["a"], *lines, text)).content == []  # its own answer has its id as a string
        assert sorted(text_of(outcome.value) for outcome in outcomes) == ["0", "1", "2"]
        assert text_of(await say(servers["a"], ANSWER)) == "answered"


async def test_an_answer_that_arrives_byte_by_byte_is_whole(log: Path) -> None:
    async with open_servers(config("legacy", log)) as servers:
        assert text_of(await servers["a"].call_tool("slowly")) == "slow"


@pytest.mark.parametrize("body", ['"result":{"content":[]}', '"error":{"code":1,"message":"no"}'])
async def test_answers_to_no_request_are_counted_as_unasked(
    body: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that floods its client with them is read more slowly, as by the way of the session."""
    unasked, count = list[float](), ReadingPace.unasked

    def note(pace: ReadingPace, now: float, *args: Any, **options: Any) -> float:
        unasked.append(now)
        return count(pace, now, *args, **options)

    monkeypatch.setattr(ReadingPace, "unasked", note)
    async with open_servers(config("legacy", log)) as servers:
        doubled = f'{{"jsonrpc":"2.0","id":$id,{body}}}'
        with suppress(MCPError):
            await say(servers["a"], *[doubled] * 20)
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
    assert 18 <= len(unasked) <= 20  # one may have answered the second call, as far as the count knows


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_breaks_the_schema_hurts_its_caller_alone(era: str, log: Path) -> None:
    async with open_servers(config(era, log)) as servers, trio.open_nursery() as nursery:
        sibling = Outcome()
        nursery.start_soon(sibling.of, servers["a"].call_tool, "mute")
        await wait_all_tasks_blocked(0.01)
        for broken in ('"result":{"content":5}', '"result":[]', '"error":{"code":"x"}', '"error":5', '"result":null'):
            with pytest.raises(MCPError if "error" in broken else ConnectionLost):
                await say(servers["a"], f'{{"jsonrpc":"2.0","id":$id,{broken}}}')
        assert servers["a"].state == "ready"
        assert not sibling.over
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
        nursery.cancel_scope.cancel()


async def test_a_defect_in_reading_an_answer_hurts_its_caller_alone(
    log: Path, said: Said, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise KeyError("a defect")

    async with open_servers(config("legacy", log)) as servers, calls(1, servers["a"].call_tool, "mute") as siblings:
        await wait_all_tasks_blocked(0.01)
        monkeypatch.setattr(CallTool, "read", read)
        with pytest.raises(ConnectionLost) as caught:
            await servers["a"].call_tool("echo")
        monkeypatch.undo()
        said("a defect in reading an answer", str(caught.value))
        assert isinstance(caught.value.__cause__, KeyError)
        [logged] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert logged.exc_info is not None
        assert logged.exc_info[2] is not None
        assert logged.getMessage() == "server 'a': tools/call 'echo': reading the response failed"
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
        assert servers["a"].statistics().incarnation == 1
        assert not siblings[0].over
        kill(servers["a"])


# --- input ----------------------------------------------------------------------------------------------------------


async def roots(_: object) -> ListRootsResult:
    """Answer the server's question."""
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///here"))])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("max_in_flight", [1, 64])
async def test_a_server_that_asks_back_gets_its_answer_and_the_call_is_sent_once(
    era: str, max_in_flight: int, log: Path
) -> None:
    async with open_servers(config(era, log, max_in_flight=max_in_flight), callbacks=Callbacks(roots=roots)) as servers:
        assert "file:///here" in text_of(await servers["a"].call_tool("ask"))
    sent = messages(log, "tools/call")
    assert len({message["id"] for message in sent}) == len(sent)
    assert [message["params"].get("requestState") for message in sent[1:]] == ["halfway"] * (era == "modern")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("meta", [None, BY_SESSION])
async def test_a_tool_that_requires_a_task_is_not_supported_after_its_input_either(
    era: str, meta: dict[str, Any] | None, log: Path
) -> None:
    async with open_servers(config(era, log), callbacks=Callbacks(roots=roots)) as servers:
        with pytest.raises(NotSupported, match="requires task execution") as caught:
            await servers["a"].call_tool("task", meta=meta)
    assert isinstance(caught.value.__cause__, MCPError)


@pytest.mark.parametrize("meta", [None, BY_SESSION])
async def test_rounds_of_input_are_limited_as_by_the_session(meta: dict[str, Any] | None, log: Path) -> None:
    async with open_servers(config("modern", log), callbacks=Callbacks(roots=roots)) as servers:
        with pytest.raises(LimitExceeded, match="asked for input 10 times"):
            await servers["a"].call_tool("ask again", meta=meta)
    assert len(messages(log, "tools/call")) == 11


async def test_a_question_that_is_withdrawn_in_the_same_write_is_asked_no_longer(log: Path) -> None:
    open_questions = set[object]()

    async def ask(context: CallbackContext) -> ListRootsResult:
        open_questions.add(context.request_id)
        try:
            await trio.sleep_forever()
        finally:
            open_questions.remove(context.request_id)

    question = '{"jsonrpc":"2.0","id":"q$id","method":"roots/list"}'
    withdrawal = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q$id"}}'
    answer = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"done"}]}}'
    async with open_servers(config("legacy", log, callbacks=Callbacks(roots=ask))) as servers:
        for _ in range(20):  # Trio runs the tasks of a tick in any order
            await servers["a"].call_tool("say", {"lines": [question + "\n" + withdrawal, answer]})
            await wait_all_tasks_blocked()
            assert open_questions == set()


@pytest.mark.parametrize("attempt", range(8))  # Trio runs the tasks of a tick in any order
async def test_a_caller_that_leaves_as_the_server_asks_back_has_its_call_not_carried_on(
    attempt: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope, asked, carry_on = trio.CancelScope(), list[object](), DirectRequests.carry_on

    def leave(*args: Any) -> None:
        carry_on(*args)
        scope.cancel()

    async def ask(context: object) -> ListRootsResult:
        asked.append(context)
        return await roots(context)

    monkeypatch.setattr(DirectRequests, "carry_on", leave)
    async with open_servers(config("modern", log, max_in_flight=1), callbacks=Callbacks(roots=ask)) as servers:
        with scope:
            await servers["a"].call_tool("ask")
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
        assert servers["a"].statistics().in_flight == 0
    assert scope.cancelled_caught
    assert [message["params"]["name"] for message in messages(log, "tools/call")] == ["ask", "say"]
    assert len(asked) <= 1


# --- leaving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_server_is_asked_to_cancel_each_call_it_may_have_read_and_no_other(era: str, log: Path) -> None:
    async with open_servers(config(era, log, max_in_flight=3)) as servers:
        async with trio.open_nursery() as nursery:
            for _ in range(5):  # two of them wait in the mailbox
                nursery.start_soon(servers["a"].call_tool, "mute")
            await wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
        assert servers["a"].statistics().in_flight == 0
    written = [message["id"] for message in messages(log, "tools/call")]
    told = [message["params"]["requestId"] for message in messages(log, "notifications/cancelled")]
    assert len(written) == 4
    assert sorted(told) == sorted(written)[:3]


async def test_a_call_that_times_out_is_cancelled_at_the_server_and_frees_its_slot(
    log: Path, idle_clock: IdleClock
) -> None:
    async with open_servers(config("legacy", log, max_in_flight=1, request_timeout=10)) as servers:
        for _ in range(3):
            with pytest.raises(RequestTimedOut):
                await servers["a"].call_tool("mute")
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
    cancelled = {message["params"]["requestId"] for message in messages(log, "notifications/cancelled")}
    assert {message["id"] for message in messages(log, "tools/call")[:3]} <= cancelled  # a ping may time out as well


async def leave_or_get(ref: ServerRef, number: int, served: list[int]) -> None:
    """Call with a line of 2 KB; every third caller leaves."""
    with trio.CancelScope() as scope:
        if number % 3 == 0:
            scope.deadline = trio.current_time() + 0.02
        await ref.call_tool("echo", {"number": number, "padding": "x" * 2000})
        served.append(number)


async def frozen_and_thawed(servers: ServerGroup, callers: int) -> list[int]:
    """Make calls while the server reads nothing, and return who was served once it reads again."""
    served: list[int] = []
    pid = pid_of(servers["a"])
    await freeze(pid)
    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(leave_or_get, servers["a"], number, served)
        await trio.sleep(0.05)
        os.kill(pid, signal.SIGCONT)
    return served


async def test_a_full_pipe_keeps_only_the_calls_that_it_has_taken(log: Path) -> None:
    """Callers that leave while the pipe is full are never served, the others are, and nothing is sent twice."""
    async with open_servers(config("legacy", log, max_in_flight=1000, mailbox_size=10_000)) as servers:
        await servers["a"].call_tool("echo", {"number": -1})
        served = await frozen_and_thawed(servers, 3000)
        assert len(served) == len(set(served))
        assert set(range(3000)) - set(served) <= set(range(0, 3000, 3))
        read = [message["params"]["arguments"]["number"] for message in messages(log, "tools/call")]
        assert len(read) == len(set(read))
        assert set(served) < set(read)
        assert len(read) - len(served) < 100  # what the pipe had taken; the others left the mailbox
        assert servers["a"].statistics().in_flight == 0


async def test_calls_that_a_lost_connection_has_not_written_are_served_by_the_next(log: Path) -> None:
    """A-03: only what the pipe had taken is lost."""
    async with open_servers(config("legacy", log, max_in_flight=1000, restarts=AT_ONCE)) as servers:
        await servers["a"].call_tool("echo")
        await freeze(pid_of(servers["a"]))
        async with calls(100, servers["a"].call_tool, "echo", {"padding": "x" * 2000}) as outcomes:
            await wait_all_tasks_blocked(0.01)
            taken = servers["a"].statistics().in_flight
            assert 0 < taken < 100
            kill(servers["a"])
        lost = [outcome for outcome in outcomes if outcome.error is not None]
        assert {type(outcome.error) for outcome in lost} == {ConnectionLost}
        assert len(lost) <= taken
    assert len(messages(log, "tools/call")) == 1 + len(outcomes) - len(lost)


async def test_a_message_of_the_session_that_fills_the_pipe_lets_no_call_follow(log: Path) -> None:
    """The calls wait in the mailbox, so they survive a restart as well."""
    async with (
        open_servers(config("legacy", log, stop_timeout=0.1), drain_timeout=0) as servers,
        trio.open_nursery() as nursery,
    ):
        await servers["a"].call_tool("echo")
        await freeze(pid_of(servers["a"]))
        large = Outcome()
        nursery.start_soon(large.of, partial(servers["a"].call_tool, "echo", {"x": "x" * 200_000}, meta=BY_SESSION))
        await wait_all_tasks_blocked(0.01)
        async with calls(5, servers["a"].call_tool, "echo") as outcomes:
            await wait_all_tasks_blocked(0.01)
            assert servers["a"].statistics().in_flight == 1
            await servers["a"].restart()
    assert isinstance(large.error, ConnectionLost)
    assert [outcome.error for outcome in outcomes] == [None] * 5


@pytest.fixture
def directs(monkeypatch: pytest.MonkeyPatch) -> list[DirectRequests]:
    """The connections of a test, whose every tick collects its lines."""
    made, init = list[DirectRequests](), DirectRequests.__init__

    def note(self: DirectRequests, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(DirectRequests, "__init__", note)
    monkeypatch.setattr(PipeReader, "crowded", property(lambda _: True, lambda *_: None))
    return made


def call_of(ref: ServerRef, size: int) -> Callable[[], Any]:
    """Return a call whose line has about so many bytes."""
    return partial(ref.call_tool, "echo", {"padding": "x" * size})


async def test_callers_that_leave_a_full_pipe_leave_nothing_behind(log: Path, directs: list[DirectRequests]) -> None:
    async with open_servers(config("legacy", log)) as servers:
        await servers["a"].call_tool("echo")
        pid = pid_of(servers["a"])
        await freeze(pid)
        async with trio.open_nursery() as nursery:
            for _ in range(3):  # one is written, one is begun, one stays collected
                nursery.start_soon(call_of(servers["a"], 50_000))
            await wait_all_tasks_blocked(0.01)
            nursery.start_soon(servers["a"].call_tool, "echo")  # it is refused
            await wait_all_tasks_blocked(0.01)
            assert servers["a"].statistics().in_flight == 3
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked(0.01)
        assert servers["a"].statistics().in_flight == 2  # until the notices are written
        os.kill(pid, signal.SIGCONT)
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
        assert servers["a"].statistics().in_flight == 0
        (direct,) = directs
        assert len(direct.pipe.table) == 0
        assert direct.wind_down.under_way == 0
    assert len(messages(log, "tools/call")) == 4
    assert len(messages(log, "notifications/cancelled")) == 2


async def test_a_call_whose_trace_cannot_be_written_leaves_nothing_behind(
    log: Path, directs: list[DirectRequests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Propagators are code of others, and may raise."""

    def inject(*_: object) -> None:
        raise KeyError("traceparent")

    async def progress(*_: object) -> None:
        raise AssertionError("nothing was sent")

    async with open_servers(config("legacy", log)) as servers:
        await servers["a"].call_tool("echo")
        with monkeypatch.context() as patched, trace.use_span(NonRecordingSpan(SpanContext(1, 2, False))):
            patched.setattr(propagate, "inject", inject)
            with pytest.raises(KeyError):
                await servers["a"].call_tool("echo", progress=progress)
        assert len(directs[0].pipe.table) == 0
        assert servers["a"].statistics().in_flight == 0
        assert text_of(await say(servers["a"], ANSWER)) == "answered"
    assert len(messages(log, "tools/call")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the capacity of a pipe differs elsewhere")
@pytest.mark.usefixtures("directs")
async def test_a_call_that_fills_the_pipe_exactly_lets_the_next_ones_wait(log: Path) -> None:
    async with open_servers(config("legacy", log)) as servers:
        await call_of(servers["a"], 0)()
        spare = READ_BYTES - last_line(log)
        await freeze(pid_of(servers["a"]))
        async with calls(3, call_of(servers["a"], spare)) as outcomes:
            await wait_all_tasks_blocked(0.01)
            assert servers["a"].statistics().in_flight == 3
            os.kill(pid_of(servers["a"]), signal.SIGCONT)
    assert [outcome.error for outcome in outcomes] == [None] * 3


async def test_a_collected_call_survives_the_loss_of_its_connection(log: Path, directs: list[DirectRequests]) -> None:
    async with open_servers(config("legacy", log, restarts=AT_ONCE)) as servers:
        await servers["a"].call_tool("echo")
        await freeze(pid_of(servers["a"]))
        async with calls(3, call_of(servers["a"], 50_000)) as outcomes:
            await wait_all_tasks_blocked(0.01)
            assert servers["a"].statistics().in_flight == 3
            kill(servers["a"])
    assert sorted(type(outcome.error).__name__ for outcome in outcomes) == ["ConnectionLost"] * 2 + ["NoneType"]
    assert [len(direct.pipe.table) for direct in directs] == [0, 0]


async def test_a_call_to_a_server_that_has_closed_its_stdin_is_served_by_the_next(
    log: Path, idle_clock: IdleClock
) -> None:
    async with open_servers(config("legacy", log, restarts=AT_ONCE, stop_timeout=0.1)) as servers:
        assert text_of(await servers["a"].call_tool("deaf")) == "deaf"
        with trio.fail_after(BOUND):
            assert text_of(await say(servers["a"], ANSWER)) == "answered"
    assert len(messages(log, "tools/call")) == 2


# --- the table ------------------------------------------------------------------------------------------------------


def test_ids_begin_again_and_pass_by_those_that_wait() -> None:
    table = RequestTable()
    old = table.add(RequestUnderWay("ping", {}))
    table._last = LAST_ID - 1
    assert [table.add(RequestUnderWay("ping", {})) for _ in range(3)] == [LAST_ID, 2, 3]
    assert old == 1
    assert len(table) == 4


async def test_ids_that_begin_again_reach_their_callers(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestTable, "add", starting_late(RequestTable.add))
    async with open_servers(config("legacy", log)) as servers:
        for _ in range(5):
            assert text_of(await say(servers["a"], ANSWER)) == "answered"
    ids = [message["id"] for message in messages(log, "tools/call")]
    assert ids == [LAST_ID - 1, LAST_ID, *range(ids[2], ids[2] + 3)]
    assert ids[2] < 10


def starting_late(add: Any) -> Any:
    """Return `RequestTable.add` of a connection that has sent a thousand million requests."""

    def add_late(table: RequestTable, request: Any, *given: Any) -> int:
        if request.method == "tools/call" and table._last < 10 and not table.__dict__.setdefault("late", False):
            table.__dict__["late"], table._last = True, LAST_ID - 2
        number: int = add(table, request, *given)
        return number

    return add_late


# --- garbage --------------------------------------------------------------------------------------------------------


async def test_a_spent_call_leaves_nothing_for_the_garbage_collector(log: Path) -> None:
    async with open_servers(config("legacy", log)) as servers:
        await servers["a"].call_tool("echo")
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(200):
                await servers["a"].call_tool("echo")
            assert len(gc.get_objects()) - before < 200
        finally:
            gc.enable()
