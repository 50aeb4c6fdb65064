"""An old connection cannot affect the new one, and its requests end in an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectionLost, ServerConfig, ServerRef, open_servers
from mcp_actors.servers.connection import _actor
from mcp_actors.transports import Link, open_link

from .fleet import Outcome, calls, kill, pid_of, wait_calls
from .groups import AT_ONCE, BOUND, LATER, Events, crash, lines_of, server
from .links import text_of

LONG = {"seconds": 600}


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """The functions that each connection calls when the other side is gone."""
    losses: list[Callable[[], None]] = []

    @asynccontextmanager
    async def watched_link(config: ServerConfig, *, on_lost: Callable[[], None], **options: Any) -> AsyncIterator[Link]:
        losses.append(on_lost)
        async with open_link(config, on_lost=on_lost, **options) as link:
            yield link

    monkeypatch.setattr(_actor, "open_link", watched_link)
    return losses


async def test_an_old_connection_that_reports_its_end_late_has_no_effect(losses: list[Callable[[], None]]) -> None:
    """A-22: neither the connection that has taken its place nor the calls on it."""
    events = Events()
    async with open_servers(server("a"), observers=[events]) as servers:
        ref = servers["a"]
        await ref.restart()
        before, pid = len(events), pid_of(ref)
        async with calls(3, ref.call_tool, "sleep", {"seconds": 0.1}) as outcomes:
            await wait_all_tasks_blocked()
            losses[0]()
        assert [text_of(outcome.value) for outcome in outcomes] == ["slept 0.1"] * 3
        assert (ref.state, ref.statistics().incarnation, pid_of(ref)) == ("ready", 2, pid)
        assert ref.statistics().last_error is None
        assert {event.incarnation for event in events[before:] if event.actor == "a"} == {2}


async def call_for_ever(ref: ServerRef, number: int) -> None:
    for count in range(100_000):
        text = f"{number}:{count}"
        with suppress(ConnectionLost):
            assert text_of(await ref.call_tool("echo", {"text": text})) == text


async def test_under_load_no_answer_and_no_event_is_of_an_earlier_connection(tmp_path: Path) -> None:
    """A-22: though the ids of requests begin anew with each connection, and servers die in the middle of calls."""
    log, events = tmp_path / "log", Events()
    config = server("a", "--log-file", str(log), restarts=AT_ONCE)
    async with open_servers(config, observers=[events]) as servers, trio.open_nursery() as nursery:
        ref = servers["a"]
        for number in range(8):
            nursery.start_soon(call_for_ever, ref, number)
        with trio.fail_after(BOUND):
            for time in range(3):
                await ref.restart()
                async with calls(2, ref.call_tool, "sleep", LONG) as outcomes:
                    await wait_calls(log, 2 * (time + 1))
                    await crash(servers, "a")
                assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 2
                await servers.wait_ready()
        nursery.cancel_scope.cancel("enough")
    incarnations = [event.incarnation for event in events if event.actor == "a"]
    assert incarnations == sorted(incarnations)
    assert incarnations[-1] == 7


async def test_a_request_whose_session_is_torn_down_is_not_sent_again(tmp_path: Path) -> None:
    """S1-18: neither the caller nor the server says that doing it twice would do no harm."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log)), drain_timeout=0) as servers:
        ref = servers["a"]
        with trio.fail_after(BOUND):
            async with calls(3, ref.call_tool, "sleep", LONG) as outcomes:
                await wait_calls(log, 3)
                await ref.restart()
        assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 3
        assert text_of(await ref.call_tool("echo", {"text": "after"})) == "after"
    assert log.read_text().count("tools/call sleep") == 3


async def test_a_request_that_its_caller_cancelled_is_not_sent_again(tmp_path: Path) -> None:
    """S1-18: neither one that was with the server nor one that waits for it to come back."""
    log = tmp_path / "log"
    config = server("a", "--log-file", str(log), restarts=LATER)
    async with open_servers(config) as servers:
        ref, sent, queued = servers["a"], Outcome(), Outcome()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sent.of, ref.call_tool, "sleep", LONG)
            await wait_calls(log, 1)
            # In one step: the session ends while the caller leaves.
            kill(ref)
            nursery.cancel_scope.cancel("it has no more patience")
        await ref.wait_state("backoff")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queued.of, ref.call_tool, "echo", {"text": "queued"})
            await wait_all_tasks_blocked()
            assert ref.statistics().queued == 1
            nursery.cancel_scope.cancel("nor has this one")
        assert [type(outcome.error) for outcome in (sent, queued)] == [trio.Cancelled] * 2
        await ref.restart()
        assert text_of(await ref.call_tool("pid")) == str(pid_of(ref))
    assert lines_of(log, "start", "tools/call") == ["start", "tools/call"] * 2
    assert log.read_text().count("tools/call sleep") == log.read_text().count("tools/call pid") == 1
