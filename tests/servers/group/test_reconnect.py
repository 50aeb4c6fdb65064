"""Reconnecting, stopping and starting servers of an open group. Against real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    ConnectFailed,
    ConnectionLost,
    ServerGroup,
    ServerUnavailable,
    StateChanged,
    open_servers,
)
from mcp_actors.kernel import Stopping
from mcp_actors.servers import ServerRef
from tests.idle_clock import IdleClock

from ..groups import (
    BOUND,
    LATER,
    NEVER,
    Events,
    absent,
    after,
    command_with,
    crash,
    lines_of,
    pids_in,
    reach,
    server,
    shell,
    state,
    until,
)
from ..links import text_of
from ..processes import child_pids, state_of


def numbers(group: ServerGroup) -> list[int]:
    """Return the number of the connection of each server."""
    return [status.incarnation for status in group.status().values()]


async def test_reconnecting_failed_servers_does_not_affect_healthy_ones(tmp_path: Path) -> None:
    """S1-13: they see no new handshake; each failed one gets one new connection."""
    log, fixed = tmp_path / "log", tmp_path / "fixed"
    mended = shell("b", f"[ -e '{fixed}' ] || exit 3; exec {command_with()}", restarts=LATER)
    parked = shell("c", f"[ -e '{fixed}' ] || exit 4; exec {command_with()}", restarts=NEVER)
    async with open_servers(server("a", "--log-file", str(log)), mended, parked) as group:
        assert [ref.name for ref in group.failed] == ["b", "c"]
        fixed.write_text("x")
        await group.reconnect()
        assert group.active == group.configured
        assert dict(group.errors) == {}
        assert numbers(group) == [1, 2, 2]
        await group.reconnect()
        assert numbers(group) == [1, 2, 2]
        assert text_of(await group["a"].call_tool("echo", {"text": "x"})) == "x"
    assert lines_of(log, "start", "initialize") == ["start", "initialize"]


async def test_two_tasks_that_reconnect_failed_servers_do_it_once(tmp_path: Path) -> None:
    """S1-13: when the second one has its turn nothing is failed any more.

    S1-14: concurrent changes wait for each other.
    """
    fixed = tmp_path / "fixed"
    mended = shell("b", f"[ -e '{fixed}' ] || exit 3; exec {command_with()}", restarts=LATER)
    async with open_servers(mended) as group:
        fixed.write_text("x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.reconnect)
            nursery.start_soon(group.reconnect)
        assert numbers(group) == [2]


async def test_servers_are_reconnected_by_name_whatever_their_state() -> None:
    """S3-19: also a healthy one, and only those that are named; a name that is given twice counts once."""
    async with open_servers(server("a"), server("b"), server("c")) as group:
        pids = [status.pid for status in group.status().values()]
        await group.reconnect("b", "b")
        assert numbers(group) == [1, 2, 1]
        again = [status.pid for status in group.status().values()]
        assert (again[0], again[2]) == (pids[0], pids[2])
        assert again[1] != pids[1]
        assert state_of(pids[1]) == "gone"


async def test_a_full_reconnect_closes_all_before_it_opens_any(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S1-14: the quick one is not opened before the slow one is closed, neither by our account nor by theirs."""
    log, events = tmp_path / "log", Events()
    slow = server("slow", "--ignore-eof", "--log-file", str(log), stop_timeout=BOUND)
    async with open_servers(server("quick", "--log-file", str(log)), slow, observers=[events]) as group:
        old = [status.pid for status in group.status().values()]
        still_there: list[str] = []
        events.clear()

        def look(event: object) -> None:
            if isinstance(event, StateChanged) and event.new == "connecting":
                still_there.extend(state_of(pid) for pid in old)

        group._hub.add(look)
        await group.reconnect(failed_only=False)
        assert [event.new for event in events.of(StateChanged)] == [
            *["stopping"] * 2,
            *["stopped"] * 2,
            *["connecting"] * 2,
            *["ready"] * 2,
        ]
        assert still_there == ["gone"] * 4
        assert lines_of(log, "start", "eof") == ["start", "start", "eof", "eof", "start", "start"]
        assert group.active == group.configured


async def test_changes_at_the_same_time_share_a_connection_that_began_after_all_of_them() -> None:
    """S1-14, C-65: no step of one change meets one of another, and each caller is served by a new connection."""
    events = Events()
    async with open_servers(server("a"), observers=[events]) as group:
        async with trio.open_nursery() as nursery:
            for change in (group["a"].restart, group["a"].start, group["a"].restart, group["a"].restart):
                nursery.start_soon(change)
                await trio.lowlevel.checkpoint()
        assert state(group, "a") == "ready"
        assert numbers(group) == [2]
        await group["a"].restart()
        assert numbers(group) == [3]
    down, up = ["stopping", "stopped"], ["connecting", "ready"]
    assert events.states("a") == [*up, *down, *up, *down, *up, *down]


async def test_waiting_for_a_server_that_is_being_restarted_succeeds(idle_clock: IdleClock) -> None:
    """While a server is down only to reconnect, waiting for it does not raise."""
    async with open_servers(server("a", "--ignore-eof", stop_timeout=BOUND)) as group:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group["a"].restart)
            await reach(group, "a", "stopping")
            nursery.start_soon(group.wait_ready)
            await group.wait_ready("a")
        assert numbers(group) == [2]


async def test_waiting_for_a_reconnect_that_the_end_of_the_group_cut_off_raises(idle_clock: IdleClock) -> None:
    """A task outside the block waits for a server; the group is left before that could come back."""
    waiting = trio.Event()

    async def wait(ref: ServerRef) -> None:
        waiting.set()
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable, match=r"its open_servers\(\) block has exited"):
            await ref.wait_ready()

    async def reconnect(group: ServerGroup) -> None:
        with pytest.raises(ServerUnavailable, match="block has exited"):
            await group.reconnect(failed_only=False)

    slow = server("slow", "--ignore-eof", stop_timeout=BOUND)
    async with trio.open_nursery() as nursery, open_servers(server("a"), slow) as group:
        nursery.start_soon(reconnect, group)
        await reach(group, "a", "stopped")
        assert state(group, "slow") == "stopping"
        nursery.start_soon(wait, group["a"])
        await waiting.wait()


async def test_a_request_that_waits_is_answered_by_the_new_connection() -> None:
    """A reconnect keeps what was not sent; what was sent, and has no answer in time, ends in an error that says so."""
    async with open_servers(server("a", max_in_flight=1), drain_timeout=0) as group:
        first = group["a"].statistics().pid
        answers: list[str] = []

        async def sent() -> None:
            with pytest.raises(ConnectionLost, match=r"during tools/call .sleep.") as caught:
                await group["a"].call_tool("sleep", {"seconds": 1000})
            assert caught.value.outcome == "unknown"

        async def queued() -> None:
            answers.append(text_of(await group["a"].call_tool("pid")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sent)
            await wait_all_tasks_blocked()
            nursery.start_soon(queued)
            await wait_all_tasks_blocked()
            assert group["a"].statistics().queued == 1
            await group.reconnect("a")
        assert answers == [str(group["a"].statistics().pid)]
        assert answers != [str(first)]


async def test_a_reconnect_goes_on_when_its_caller_is_cancelled(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S1-16: no server stays closed half-way; a call to it is answered."""
    async with open_servers(server("a", "--ignore-eof", stop_timeout=BOUND), server("b")) as group:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reconnect, "a", "b")
                await reach(group, "b", "stopped")
                assert state(group, "a") == "stopping"
                scope.cancel("its caller has lost interest")
        assert scope.cancelled_caught
        with trio.fail_after(BOUND):
            for ref in group.configured:
                assert text_of(await ref.call_tool("echo", {"text": "x"})) == "x"
        assert numbers(group) == [2, 2]


async def test_a_reconnect_goes_on_when_its_caller_is_cancelled_while_it_connects(tmp_path: Path) -> None:
    """S1-16: what was begun is finished; a call that waits for it is answered."""
    gate = tmp_path / "gate"
    gate.write_text("x")
    async with open_servers(after("a", until(gate)), server("b")) as group:
        with absent(gate), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reconnect, "a", "b")
                await reach(group, "b", "stopped")
                await reach(group, "b", "ready")
                assert state(group, "a") == "connecting"
                scope.cancel("its caller has lost interest")
        assert scope.cancelled_caught
        assert text_of(await group["a"].call_tool("echo", {"text": "x"})) == "x"
        assert numbers(group) == [2, 2]


async def test_a_reconnect_of_a_required_server_that_fails_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    """S1-12, C-63: what ran before is connected again, what was stopped or rested does so, then the error is raised."""
    fine = tmp_path / "fine"
    fine.write_text("x")
    pids = tmp_path / "pids"
    async with open_servers(
        server("a"),
        shell("b", f"[ -e '{fine}' ] || exit 3; exec {command_with()}"),
        server("c", "--pid-file", str(pids)),
        server("d"),
        server("e", connect="lazy"),
        strict=True,
    ) as group:
        untouched = group.status()["a"]
        await group["d"].stop()
        with absent(fine), pytest.raises(ConnectFailed, match="server 'b': its process exited with code 3"):
            await group.reconnect("b", "c", "d", "e")
        assert group.status()["a"] == untouched
        assert text_of(await group["a"].call_tool("echo", {"text": "x"})) == "x"
        assert len(pids_in(pids)) == 2
        assert [state_of(pid) for pid in pids_in(pids)] == ["gone", "running"]
        assert [state(group, name) for name in "bcde"] == ["failed", "ready", "stopped", "pending"]
        assert text_of(await group["c"].call_tool("echo", {"text": "x"})) == "x"
        with pytest.raises(ServerUnavailable):
            await group["b"].call_tool("echo", {"text": "x"})
        await group.reconnect("b", "d", "e")
        assert group.active == group.configured
        assert dict(group.errors) == {}


async def test_a_required_server_that_could_not_be_reconnected_counts_as_failed(tmp_path: Path) -> None:
    """S1-12: the views say so, and waiting for it is in vain."""
    fine = tmp_path / "fine"
    fine.write_text("x")
    config = shell("b", f"[ -e '{fine}' ] || exit 3; exec {command_with()}", required=True)
    async with open_servers(config) as group:
        for change in (group["b"].restart, group["b"].start):
            with absent(fine), pytest.raises(ConnectFailed):
                await change()
            assert state(group, "b") == "failed"
            assert group.failed == (group["b"],)
            assert isinstance(group.errors["b"], ConnectFailed)
            with pytest.raises(ServerUnavailable):
                await group.wait_ready("b")
        await group.reconnect()
        assert state(group, "b") == "ready"


async def test_of_several_required_servers_that_cannot_be_reconnected_the_first_is_raised(tmp_path: Path) -> None:
    """S1-15: in configured order, whatever the order in which they failed; the other is a note."""
    fine, gone = tmp_path / "fine", tmp_path / "gone"
    fine.write_text("x")
    async with open_servers(
        shell("b", f"[ -e '{fine}' ] || {{ {until(gone)}; exit 3; }}; exec {command_with()}"),
        shell("c", f"[ -e '{fine}' ] || {{ echo x > '{gone}'; exit 4; }}; exec {command_with()}"),
        strict=True,
    ) as group:
        with absent(fine), pytest.raises(ConnectFailed, match="server 'b'") as caught:
            await group.reconnect("c", "b")
        [note] = caught.value.__notes__
        assert note.startswith("also: server 'c': its process exited with code 4")


async def test_a_server_that_is_not_required_and_cannot_be_reconnected_is_recorded(tmp_path: Path) -> None:
    fine = tmp_path / "fine"
    fine.write_text("x")
    async with open_servers(shell("b", f"[ -e '{fine}' ] || exit 3; exec {command_with()}", restarts=LATER)) as group:
        with absent(fine):
            await group["b"].restart()
        assert state(group, "b") == "backoff"
        assert "code 3" in str(group.errors["b"])


async def test_a_stopped_server_stays_so_until_it_is_started() -> None:
    """Its process is gone when ``stop`` returns; calls that wait and later ones fail at once; ``start`` revives it."""
    async with open_servers(server("a", max_in_flight=1)) as group:
        before = child_pids()
        pid = group["a"].statistics().pid
        states: list[str] = []

        async def ask(seconds: float) -> None:
            with pytest.raises(ServerUnavailable) as caught:
                await group["a"].call_tool("sleep", {"seconds": seconds})
            states.append(caught.value.state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1000)
            nursery.start_soon(ask, 1000)
            await wait_all_tasks_blocked()
            await group["a"].stop()
        assert states == ["stopping", "stopping"]
        assert child_pids() == before - {pid}
        await ask(0)
        assert states[-1] == "stopped"
        await group["a"].stop()
        await group["a"].start()
        await group["a"].start()
        assert numbers(group) == [2]
        assert text_of(await group["a"].call_tool("sleep", {"seconds": 0})) == "slept 0"


async def test_a_server_in_backoff_can_be_stopped_and_started_and_restarted() -> None:
    """Stopping ends the back-off, starting leaves it as it is, restarting does not wait for it."""
    async with open_servers(server("a", restarts=LATER)) as group:
        await crash(group, "a")
        await group["a"].start()
        assert state(group, "a") == "backoff"
        await group["a"].stop()
        assert state(group, "a") == "stopped"
        assert dict(group.errors) == {}
        await group["a"].start()
        await crash(group, "a")
        await group["a"].restart()
        assert state(group, "a") == "ready"
        assert numbers(group) == [3]


async def test_a_server_that_is_connecting_in_the_background_can_be_stopped(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """The connect is given up at once, and it is stopped then."""
    gate = tmp_path / "gate"
    gate.write_text("x")
    async with open_servers(after("a", until(gate))) as group:
        with absent(gate):
            await crash(group, "a")
            await reach(group, "a", "connecting")
            await group["a"].stop()
            assert state(group, "a") == "stopped"
        await group["a"].start()
        assert state(group, "a") == "ready"


async def test_after_the_group_was_left_nothing_can_be_changed() -> None:
    async with open_servers(server("a")) as group:
        ref = group["a"]
    left = r"server 'a' is stopped because its open_servers\(\) block has exited; open it again"
    for change in (ref.restart, ref.stop, ref.start, group.reconnect):
        with pytest.raises(ServerUnavailable, match=left):
            await change()
    with pytest.raises(ServerUnavailable, match=left):
        await ref.call_tool("echo", {"text": "x"})


async def test_leaving_the_group_ends_a_reconnect_that_is_under_way(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S1-16: the block does not wait for a connect that may take for ever, and no process is left."""
    gate, events = tmp_path / "gate", Events()
    gate.write_text("x")
    before = child_pids()
    async with open_servers(after("a", until(gate)), observers=[events]) as group:
        gate.unlink()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reconnect, "a")
                await reach(group, "a", "stopped")
                await reach(group, "a", "connecting")
                scope.cancel("leave")
    assert child_pids() == before
    assert events.states("a")[-1] == "stopped"
    assert len(events.of(Stopping, "a")) == 1


async def test_a_group_without_servers_has_nothing_to_change() -> None:
    async with open_servers() as group:
        await group.reconnect()
    await group.reconnect()
