"""Progress notifications reach their caller in order, and delay nothing else."""

from __future__ import annotations

import logging
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import InvalidResult, ServerConfig, Stdio, open_servers
from mcp_actors._tasks import open_background
from mcp_actors.servers._deadlines import Deadlines
from mcp_actors.servers._dispatcher import LAST_REPORTS, MAX_PROGRESS_CHARACTERS, MAX_WAITING, Reports
from mcp_actors.servers.requests import ListTools
from mcp_actors.transports.stdio import _pipes

from . import wire_server
from .fleet import PROMPT
from .groups import AT_ONCE, kill, server
from .links import text_of
from .peers import HANDSHAKE, TOOL, connected, text
from .test_request_timeouts import patient

STEPS = 50


async def test_notifications_of_one_burst_are_delivered_in_order_and_before_the_answer() -> None:
    """The SDK passes them on in tasks that run in any order."""
    for _ in range(5):
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None, seen: list[float] = seen) -> None:
            await trio.lowlevel.checkpoint()
            seen.append(progress)

        async with open_servers(server("a", "--progress", str(STEPS))) as servers:
            assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=note)) == "3"
        assert len(seen) == STEPS
        assert seen == sorted(seen)


async def test_a_report_over_stdio_is_not_validated_as_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader finds its request by the token; no listener wants it."""
    validated: list[object] = []
    seen: list[float] = []
    async with open_servers(server("a", "--progress", "3")) as servers:
        monkeypatch.setattr(_pipes, "to_message", validated.append)
        await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=lambda progress, *_: seen.append(progress))
    assert (len(seen), validated) == (3, [])


async def test_a_callback_that_raises_is_logged_and_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []

    async def fail(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        raise ValueError("the progress bar is broken")

    with caplog.at_level(logging.ERROR):
        async with open_servers(server("a", "--progress", "3")) as servers:
            assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=fail)) == "3"
    assert len(seen) == 3
    assert len(caplog.records) == 3
    assert all("progress callback raised" in record.message for record in caplog.records)
    assert "the progress bar is broken" in caplog.text


async def test_a_callback_that_takes_no_report_is_logged_with_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    async with open_servers(server("a", "--progress", "1")) as servers:
        await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=print_one)  # type: ignore[arg-type]  # the mistake
    said = "server 'a': a progress callback raised; the request continues; write it as (progress, total, message)"
    assert [record.message for record in caplog.records] == [said]


async def print_one(progress: float) -> None:
    pass


async def test_a_callback_that_hangs_delays_no_other_request_and_ends_with_its_own() -> None:
    ended: list[str] = []

    async def hang(progress: float, total: float | None, message: str | None) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hang")

    async with open_servers(server("a", "--progress", "3")) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(partial(servers["a"].call_tool, "add", {"a": 1, "b": 2}, progress=hang))
        await wait_all_tasks_blocked(0.1)
        for number in range(5):
            assert text_of(await servers["a"].call_tool("add", {"a": number, "b": 0})) == str(number)
        assert ended == []
        nursery.cancel_scope.cancel("the caller gives up")
    assert ended == ["hang"]


VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


async def test_a_callback_runs_in_its_callers_context() -> None:
    """K7: so a progress bar finds the request that it belongs to."""
    seen: set[str] = set()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.add(VISITOR.get())

    async with open_servers(server("a", "--progress", "3")) as servers:
        VISITOR.set("mary")
        await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=note)
    assert seen == {"mary"}


@pytest.mark.parametrize(
    ("number", "message", "kept"),
    [
        pytest.param(MAX_WAITING + 10, None, MAX_WAITING, id="in number"),
        pytest.param(6, "x" * (MAX_PROGRESS_CHARACTERS // 2), 2, id="in memory"),
    ],
)
async def test_the_oldest_of_too_many_waiting_notifications_are_dropped(
    number: int, message: str | None, kept: int
) -> None:
    seen: list[float] = []
    gate = trio.Event()

    async def slow(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        await gate.wait()

    reports = Reports("a", slow, None)
    async with open_background() as background:
        reports.starts(background.start_soon, copy_context())
        reports(0, None, None)
        await wait_all_tasks_blocked()
        for each in range(1, number + 1):
            reports(each, None, message)
        gate.set()
        await wait_all_tasks_blocked()
        assert reports.seen
    assert seen == [0, *range(number + 1 - kept, number + 1)]


async def test_an_answer_that_has_come_does_not_wait_long_for_a_callback(autojump_clock: MockClock) -> None:
    """And the progress_timeout does not expire because of it."""

    async def hang(progress: float, total: float | None, message: str | None) -> None:
        await trio.sleep_forever()

    async with patient(progress_timeout=0.5, request_timeout=60) as (ref, _):
        began = trio.current_time()
        result = await ref.call_tool("work", {"steps": 1, "seconds": 0, "pause": 0}, progress=hang)
        assert text_of(result) == "done"
        assert trio.current_time() - began == 1


async def test_an_answer_that_has_come_is_not_lost_to_the_request_timeout(autojump_clock: MockClock) -> None:
    async def hang(progress: float, total: float | None, message: str | None) -> None:
        await trio.sleep_forever()

    async with patient(request_timeout=2) as (ref, _):
        began = trio.current_time()
        result = await ref.call_tool("work", {"steps": 1, "seconds": 0, "pause": 1.5}, progress=hang)
        assert (text_of(result), trio.current_time() - began) == ("done", 2)
        assert ref.statistics().latency.done == 1


async def test_reports_of_a_request_that_has_ended_are_not_waited_for() -> None:
    """Its caller has left, and the server has answered all the same."""
    ended = list[str]()
    with Deadlines("a", None, None).begin(ListTools()) as deadline:
        pass
    deadline.call_later(LAST_REPORTS, lambda: ended.append("at once"))
    assert ended == ["at once"]


async def test_an_answer_that_has_come_does_not_wait_for_a_callback_that_cannot_be_cancelled(
    autojump_clock: MockClock,
) -> None:
    """For example one that writes to a file in a thread."""

    async def take_long(progress: float, total: float | None, message: str | None) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)

    async with patient(request_timeout=20) as (ref, _):
        began = trio.current_time()
        result = await ref.call_tool("work", {"steps": 1, "seconds": 0, "pause": 0}, progress=take_long)
        assert text_of(result) == "done"
        assert trio.current_time() - began == LAST_REPORTS


async def test_an_answer_that_has_come_outlives_the_server_while_its_caller_handles_a_report(tmp_path: Path) -> None:
    """The callback is still busy as the server dies, but the answer was read before that."""
    program, arguments = wire_server.command("legacy", str(tmp_path / "log"))
    report = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$id,"progress":1}}'
    answer = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"done"}]}}'
    ended = list[str]()

    async def kill_server(progress: float, total: float | None, message: str | None) -> None:
        kill(servers["a"])
        try:
            await trio.sleep_forever()
        finally:
            ended.append("callback")

    async with open_servers(ServerConfig("a", Stdio(program, arguments), restarts=AT_ONCE)) as servers:
        result = await servers["a"].call_tool("say", {"lines": [report, answer]}, progress=kill_server)
        assert text_of(result) == "done"
        assert text_of(await servers["a"].call_tool("say", {"lines": [answer]})) == "done"
    assert ended == ["callback"]


async def test_a_callback_ends_with_a_call_whose_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "required": ["number"]}
    monkeypatch.setitem(
        HANDSHAKE, "tools/list", {"tools": [{"name": TOOL, "inputSchema": {"type": "object"}, "outputSchema": schema}]}
    )
    began, ended = trio.Event(), trio.Event()

    async def hang(progress: float, total: float | None, message: str | None) -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def call_tool() -> None:
        with pytest.raises(InvalidResult):
            await ref.call_tool(TOOL, progress=hang)

    async with connected("memory", validate="schema") as (peer, ref), trio.open_nursery() as nursery:
        nursery.start_soon(call_tool)
        [call] = await peer.calls(1)
        await peer.say(method="notifications/progress", params={"progressToken": call["id"], "progress": 1})
        await began.wait()
        await peer.say(id=call["id"], result={**text("done"), "structuredContent": {}})
        with trio.fail_after(PROMPT):
            await ended.wait()
