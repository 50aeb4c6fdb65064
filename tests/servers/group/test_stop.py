"""Leaving a group: every server is asked at once, each has its own bound, nothing is left. Against real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import open_servers
from mcp_actors.kernel import Event, StopFailed, Stopped, Stopping
from mcp_actors.servers._session import SdkListener
from mcp_actors.servers.group._tree import supervisor_id
from tests.idle_clock import IdleClock

from ..groups import BOUND, LATER, NEVER, Events, Fault, crash, pids_in, server, state
from ..links import MARGIN
from ..processes import child_pids, state_of, wait_ended

STUBBORN = ("--ignore-eof", "--ignore-sigterm")


async def test_servers_are_stopped_side_by_side(idle_clock: IdleClock) -> None:
    """S2-38: three that must be killed take the time of one; all were asked before any had ended."""
    events = Events()
    names = ["a", "b", "c", "d"]
    configs = [server(name, *STUBBORN, stop_timeout=BOUND) for name in names]
    async with open_servers(*configs, observers=[events]) as group:
        pids = [status.pid for status in group.status().values()]
        began = trio.current_time()
    assert trio.current_time() - began < BOUND + MARGIN
    supervisors = [supervisor_id(name) for name in names]
    assert [event.actor for event in events.of(Stopping, *supervisors)] == supervisors[::-1]
    ended = [events.index(event) for event in events.of(Stopped, *names)]
    assert max(events.index(event) for event in events.of(Stopping, *names)) < min(ended)
    assert [state_of(pid) for pid in pids] == ["gone"] * 4


@pytest.mark.parametrize("cut_short", [False, True])
async def test_servers_begin_to_close_in_reverse_configured_order(
    cut_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-06, B-41: also if the block is cancelled, and past one that was lost and one that does not want to go.

    C-44: their events say the same.
    """
    faults = {f"s{number}": Fault() for number in range(6)}
    closed, leave = list[str](), SdkListener.__aexit__

    async def noted(listener: SdkListener, *exc_info: Any) -> bool | None:
        closed.append(listener.server)
        return await leave(listener, *exc_info)

    monkeypatch.setattr(SdkListener, "__aexit__", noted)
    faults["s4"].on_exit = RuntimeError("no way out")
    configs, events = [fault.config(name, restarts=LATER) for name, fault in faults.items()], Events()
    with trio.CancelScope() as scope:
        async with open_servers(*configs, observers=[events]) as group:
            faults["s2"].now.set()
            await group["s2"].wait_state("backoff")
            closed.clear()
            if cut_short:
                scope.cancel("the block is not wanted any more")
    assert closed == ["s5", "s4", "s3", "s1", "s0"] == [event.actor for event in events.of(Stopping, *faults)]


async def test_one_server_that_fails_to_stop_keeps_no_other_from_stopping(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S2-38: one raises when it is closed, one must be killed, one exits at once; all end, and the block succeeds."""
    fault, events = Fault(), Events()
    fault.on_exit = RuntimeError("no way out")
    order: list[str] = []

    def look(event: Event) -> None:
        if isinstance(event, Stopped):
            order.append(event.actor)

    pids = tmp_path / "pids"
    before = child_pids()
    async with open_servers(
        server("stubborn", *STUBBORN, stop_timeout=BOUND, required=True),
        fault.config("faulty"),
        server("polite", "--spawn-grandchild", "--pid-file", str(pids)),
        observers=[events, look],
    ) as group:
        assert group.active == group.configured
    assert child_pids() == before
    await wait_ended(pids_in(pids))
    assert [event.actor for event in events.of(StopFailed)] == ["faulty"]
    assert [state(group, name) for name in group] == ["stopped"] * 3
    assert [name for name in order if name in group][-1] == "stubborn"
    assert group.active == group.failed == ()
    assert len(group.tools) == 0


async def test_one_server_can_be_stopped_while_another_refuses_to(idle_clock: IdleClock) -> None:
    """S2-38: the polite one has ended long before the stubborn one is killed."""
    events = Events()
    async with open_servers(server("stubborn", *STUBBORN, stop_timeout=BOUND), server("polite"), observers=[events]):
        pass
    stopped = [event.actor for event in events.of(Stopped, "stubborn", "polite")]
    assert stopped == ["polite", "stubborn"]


async def test_servers_that_do_not_run_do_not_affect_the_end_of_a_group() -> None:
    """S1-16: parked, in back-off, stopped, never started: leaving the group is as if they were not there."""
    events = Events()
    async with open_servers(
        server("parked", "--exit-at-start", "3", restarts=NEVER),
        server("waiting", restarts=LATER),
        server("off"),
        observers=[events],
    ) as group:
        await crash(group, "waiting")
        await group["off"].stop()
        assert [state(group, name) for name in group] == ["failed", "backoff", "stopped"]
        events.clear()
    assert [state(group, name) for name in group] == ["failed", "stopped", "stopped"]
    assert [event.actor for event in events.of(Stopped) if event.actor in group] == ["waiting"]


@pytest.mark.parametrize("how", ["end", "error", "cancel"])
async def test_however_the_block_ends_everything_is_stopped(how: str, tmp_path: Path) -> None:
    """S1-16: at its end, after an error and after a cancellation; grandchildren too."""
    pids = tmp_path / "pids"
    events = Events()
    configs = [server(name, "--spawn-grandchild", "--pid-file", str(pids)) for name in ("a", "b")]

    async def block() -> None:
        async with open_servers(*configs, observers=[events]):
            if how == "error":
                raise LookupError("mine")
            if how == "cancel":
                scope.cancel("enough")
                await trio.sleep_forever()

    with trio.CancelScope() as scope:
        if how == "error":
            with pytest.raises(LookupError, match="mine"):
                await block()
        else:
            await block()
    assert len(pids_in(pids)) == 4
    await wait_ended(pids_in(pids))
    assert events.states("a")[-1] == events.states("b")[-1] == "stopped"
