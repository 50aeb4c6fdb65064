"""The views of a group, with real processes."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectionLost, ServerUnavailable, StateChanged, Stdio, ToolsChanged, open_servers
from mcp_actors.config import Secret, ServerConfig
from mcp_actors.kernel import Event, EventHub, EventStream, Restarting
from mcp_actors.servers import ServerRef, ServerState
from mcp_actors.servers.record._states import next_state

from ..fleet import PROMPT
from ..groups import AT_ONCE, LATER, NEVER, Events, after, crash, kill, reach, server, state, until
from ..links import text_of
from ..processes import eventually
from ..scripted_server import TOOLS, command


def names(refs: tuple[ServerRef, ...]) -> list[str]:
    return [ref.name for ref in refs]


async def test_the_views_are_distinct() -> None:
    """S1-09: configured, connected, active, failed and errors each show their own thing.

    S2-07: a server that failed stays registered.
    """
    async with open_servers(
        server("ready"),
        server("parked", "--exit-at-start", "3", restarts=NEVER),
        server("stopped"),
        server("waiting", "--exit-at-start", "3", restarts=LATER),
    ) as group:
        await group["stopped"].stop()
        assert names(group.configured) == [*group] == ["ready", "parked", "stopped", "waiting"]
        assert names(group.connected) == ["ready"]
        assert names(group.active) == ["ready"]
        assert names(group.failed) == ["parked", "waiting"]
        assert [*group.errors] == ["parked", "waiting"]
        assert [group[name].state for name in group] == ["ready", "failed", "stopped", "backoff"]
        assert len(group) == 4


async def test_a_server_that_dies_leaves_the_views_at_once() -> None:
    """S1-10: ``active`` excludes what is not serving, and keeps the order of the rest."""
    async with open_servers(server("a"), server("b", restarts=LATER), server("c")) as group:
        kill(group["b"])
        assert await group["b"].wait_state("backoff") == "backoff"
        assert names(group.active) == names(group.connected) == ["a", "c"]
        assert names(group.failed) == [*group.errors] == ["b"]


async def test_every_change_of_state_is_shown_with_its_reason() -> None:
    """S2-46: there is an event for every change of state, with both states and a reason. S3-18: a reconnect too."""
    async with open_servers(server("a", restarts=AT_ONCE)) as group, group.watch_events() as events:
        await group.reconnect("a")
        kill(group["a"])
        await reach(group, "a", "backoff")
        await reach(group, "a", "ready")
        seen = [event for event in events.pending() if isinstance(event, StateChanged)]
    assert [(event.old, event.new) for event in seen] == [
        ("ready", "stopping"),
        ("stopping", "stopped"),
        ("stopped", "connecting"),
        ("connecting", "ready"),
        ("ready", "backoff"),
        ("backoff", "connecting"),
        ("connecting", "ready"),
    ]
    assert {event.server for event in seen} == {"a"}
    assert [event.incarnation for event in seen] == [1, 1, 2, 2, 2, 3, 3]
    assert seen[2].reason == "connect number 2"
    assert seen[3].reason == f"connected, {len(TOOLS)} tools"
    assert all(event.reason for event in seen)
    assert [event.time for event in seen] == sorted(event.time for event in seen)


async def test_observers_given_at_the_door_see_the_first_connect_too() -> None:
    """S2-46: the hook is called from the first change to the last."""
    events = Events()
    async with open_servers(server("a"), server("b", "--exit-at-start", "3", restarts=NEVER), observers=[events]):
        pass
    assert events.states("a") == ["connecting", "ready", "stopping", "stopped"]
    assert events.states("b") == ["connecting", "failed"]
    assert [event.old for event in events.of(StateChanged, "a")] == ["pending", "connecting", "ready", "stopping"]


async def test_the_state_follows_from_the_events_alone() -> None:
    """S3-05: the state of a server is derived from the life of its actor; at no event do the two differ."""
    differences: list[Event] = []
    folded: ServerState = "pending"
    seen: list[ServerState] = []

    def observe(event: Event) -> None:
        nonlocal folded
        if isinstance(event, StateChanged):
            seen.append(event.new)
            if event.new != folded:
                differences.append(event)
        elif event.actor == "a":
            folded = next_state(folded, event)

    async with open_servers(server("a", restarts=AT_ONCE), observers=[observe]) as group:
        assert state(group, "a") == group.status()["a"].state == "ready"
        kill(group["a"])
        await reach(group, "a", "backoff")
        await reach(group, "a", "ready")
        await group["a"].stop()
        assert state(group, "a") == group.status()["a"].state == "stopped"
        await group["a"].start()
    assert not differences
    down, up = ["stopping", "stopped"], ["connecting", "ready"]
    assert seen == [*up, "backoff", *up, *down, *up, *down]


async def test_the_status_of_a_server() -> None:
    """S2-05: state, consecutive failures, loaded tools, last error, process and counters."""
    async with open_servers(server("a", restarts=LATER, max_in_flight=1)) as group:
        ready = group.status()["a"]
        pid = int(text_of(await group["a"].call_tool("pid")))
        assert (ready.name, ready.state, ready.pid, ready.tools) == ("a", "ready", pid, len(TOOLS))
        assert (ready.incarnation, ready.restarts, ready.failures, ready.last_error) == (1, 0, 0, None)
        assert (ready.queued, ready.in_flight) == (0, 0)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(group["a"].call_tool, "sleep", {"seconds": 1000})
            await wait_all_tasks_blocked()
            busy = group.status()["a"]
            assert (busy.in_flight, busy.queued) == (1, 2)
            assert repr(group["a"]) == "<ServerRef 'a' ready, 1 in flight, 2 queued>"
            nursery.cancel_scope.cancel("seen enough")

        await crash(group, "a")
        down = group.status()["a"]
        assert (down.state, down.failures, down.incarnation) == ("backoff", 1, 1)
        assert isinstance(down.last_error, ConnectionLost)
        assert down.since > ready.since

        await group.reconnect()
        again = group.status()["a"]
        assert (again.state, again.failures, again.incarnation, again.restarts) == ("ready", 0, 2, 1)
        assert again.last_error is down.last_error
        assert again.pid not in (None, pid)
        assert dict(group.errors) == {}
        await group["a"].stop()
        assert group.status()["a"].pid is None


async def test_consecutive_failures_are_counted() -> None:
    """S2-05: each failed connect counts one more, until one succeeds."""
    async with open_servers(server("b", "--exit-at-start", "3", restarts=AT_ONCE)) as group:
        while group.status()["b"].failures < 3:
            await reach(group, "b", "connecting")
            await reach(group, "b", "backoff", "failed")
        assert group.status()["b"].restarts >= 2


async def test_the_views_of_a_group_are_immutable() -> None:
    async with open_servers(server("a"), server("b", "--exit-at-start", "3", restarts=LATER)) as group:
        errors: Any = group.errors
        status: Any = group.status()
        with pytest.raises(TypeError):
            errors["a"] = ValueError()
        with pytest.raises(TypeError):
            status["a"] = None
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            status["a"].state = "failed"
        await group["a"].stop()
        assert status["a"].state == "ready"
        assert [*errors] == ["b"]


async def test_an_unknown_server_is_a_key_error_that_lists_the_known_ones() -> None:
    async with open_servers(server("a"), server("b")) as group:
        words = "server 'c' not found in this group; its servers are: a, b"
        with pytest.raises(KeyError, match=words):
            group["c"]
        for ask in (group.wait_ready, group.reconnect):
            with pytest.raises(KeyError, match=words):
                await ask("a", "c")
        assert group["a"].statistics().incarnation == 1
        assert group.get("c") is None


async def test_the_error_about_a_server_that_is_disabled_says_that(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"off": {"command": "x", "disabled": true}}}')
    async with open_servers(server("a"), file) as group:
        with pytest.raises(
            KeyError, match=r"server 'off' is disabled in .*mcp\.json, or was removed; its servers are: a"
        ):
            group["off"]


async def test_no_secret_is_in_what_is_printed() -> None:
    program, args = command()
    transport = Stdio(program, args, env={"TOKEN": Secret("s3cret"), "KEY": "pr1vate"})
    async with open_servers(ServerConfig("a", transport)) as group:
        assert text_of(await group["a"].call_tool("env", {"name": "TOKEN"})) == "s3cret"
        assert text_of(await group["a"].call_tool("env", {"name": "KEY"})) == "pr1vate"
        shown = f"{group!r} {group['a']!r} {group.status()} {group['a'].config!r} {group['a'].info}"
        assert repr(group) == "<ServerGroup a: ready>"
    assert "s3cret" not in shown
    assert "pr1vate" not in shown


async def test_server_info_is_known_once_the_server_was_connected() -> None:
    async with open_servers(
        server("a", "--name", "calculator"), server("b", "--exit-at-start", "3", restarts=NEVER)
    ) as group:
        info = group["a"].info
        assert (info.name, info.version, info.protocol_version) == ("calculator", "1.0", "2025-11-25")
        assert info.capabilities.tools is not None
        await group["a"].stop()
        assert group["a"].info == info
        with pytest.raises(
            ServerUnavailable, match=r"server 'b' has no info.*never been connected.*\(it is failed\)"
        ) as caught:
            _ = group["b"].info
    assert caught.value.state == "failed"


async def test_a_call_to_a_server_that_does_not_serve_says_so_with_its_state(tmp_path: Path) -> None:
    """S2-42: at once, with the state and what led to it, and without any exception of the kernel."""
    async with open_servers(server("down", "--exit-at-start", "3", restarts=NEVER), server("off")) as group:
        await group["off"].stop()
        with trio.fail_after(PROMPT):
            with pytest.raises(ServerUnavailable, match=r"'off' is stopped; .*start\(\)") as stopped:
                await group["off"].call_tool("echo", {"text": "x"})
            with pytest.raises(ServerUnavailable, match=r"'down' has failed: its process exited with code 3") as failed:
                await group["down"].list_tools()
    assert (stopped.value.server, stopped.value.state, stopped.value.last_error) == ("off", "stopped", None)
    assert (failed.value.server, failed.value.state) == ("down", "failed")
    assert failed.value.last_error is failed.value.__cause__ is group.errors["down"]


async def test_wait_ready_waits_for_those_that_come_and_not_for_those_that_do_not(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text("x")
    async with open_servers(
        after("late", until(gate), restarts=AT_ONCE), server("parked", "--exit-at-start", "3", restarts=NEVER)
    ) as group:
        gate.unlink()
        kill(group["late"])
        await reach(group, "late", "backoff", "connecting")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.wait_ready, "late")
            nursery.start_soon(group["late"].wait_ready)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 2
            gate.write_text("x")
        assert state(group, "late") == "ready"
        with pytest.raises(ServerUnavailable, match="server 'parked' has failed"):
            await group.wait_ready()
        await group["late"].stop()
        with pytest.raises(ServerUnavailable, match="server 'late' is stopped"):
            await group["late"].wait_ready()


async def test_a_slow_reader_of_events_misses_the_oldest_and_knows_it() -> None:
    async with open_servers(server("a")) as group:
        async with group.watch_events(size=2) as events:
            await group["a"].stop()
            assert events.missed > 0
            assert len([*events.pending()]) == 2
        assert [event async for event in events] == []


async def test_the_events_of_the_kernel_and_of_the_catalogue_are_in_the_same_stream() -> None:
    async with open_servers(server("a", restarts=AT_ONCE)) as group, group.watch_events() as events:
        kill(group["a"])
        async for event in events:
            if isinstance(event, Restarting):
                assert (event.actor, event.attempt, event.delay) == ("a", 1, 0.0)
                break
        await reach(group, "a", "ready")
        assert not [event for event in events.pending() if isinstance(event, ToolsChanged)]


async def test_requests_are_events_only_if_an_observer_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    emit = EventHub.emit

    def count(hub: EventHub, event: Event) -> None:
        made.append(type(event).__name__)
        emit(hub, event)

    async with open_servers(server("a")) as group:
        monkeypatch.setattr(EventHub, "emit", count)
        await group["a"].call_tool("echo", {"text": "unseen"})
        assert made == []
        async with group.watch_events() as events:
            await group["a"].call_tool("echo", {"text": "seen"})
            assert [type(event).__name__ for event in events.pending()] == ["RequestStarted", "RequestFinished"]


async def test_watching_and_waiting_end_with_the_group() -> None:
    """The stream of events ends, and a state that cannot come any more is an error."""
    seen: list[str] = []

    async def watch(events: AbstractAsyncContextManager[EventStream]) -> None:
        async with events as stream:
            seen.extend([type(event).__name__ async for event in stream])

    async def wait(ref: ServerRef) -> None:
        with pytest.raises(ServerUnavailable, match=r"'a' is stopped because its open_servers\(\) block"):
            await ref.wait_state("backoff")

    async with trio.open_nursery() as outer, open_servers(server("a")) as group:
        outer.start_soon(watch, group.watch_events())
        outer.start_soon(wait, group["a"])
        await wait_all_tasks_blocked()
    assert seen[-1] == "Stopped"


async def test_a_status_has_a_json_form(caplog: pytest.LogCaptureFixture) -> None:
    """C-27: times are ISO 8601, errors are texts, and nothing is lost. Records of the log name their server."""
    async with open_servers(server("fine"), server("parked", "--exit-at-start", "3", restarts=NEVER)) as group:
        await group["fine"].call_tool("echo", {"text": "x"})
        await group["fine"].check_health()
        forms = json.loads(json.dumps({name: each.to_json() for name, each in group.status().items()}))
        fine, parked = forms["fine"], forms["parked"]
        status = group.status()["fine"]
    assert fine.keys() == {each.name for each in attrs.fields(type(status))} - {"since"}
    assert (fine["name"], fine["state"], fine["pid"], fine["in_flight"]) == ("fine", "ready", status.pid, 0)
    assert datetime.fromisoformat(fine["changed_at"]) == status.changed_at
    assert fine["latency"]["done"] == status.latency.done > 0
    assert fine["health"]["last_check"]["status"] == "healthy"
    assert [each["name"] for each in fine["replicas"]["each"]] == ["fine"]
    assert parked["last_error"]["type"] == "ConnectFailed"
    assert "exited with code 3" in parked["last_error"]["message"]
    assert [vars(record)["mcp_server"] for record in caplog.records if record.levelname == "WARNING"] == ["parked"]


async def test_the_last_lines_of_stderr_are_shown_while_a_process_runs_and_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-27: with credentials masked; of a new process, only its own."""
    caplog.set_level("INFO", "mcp_actors.servers.stderr")
    said, secret = "echo one >&2; echo two: $TOKEN >&2", Secret("a-long-secret")
    config = after("a", said, restarts=NEVER)
    assert isinstance(config.transport, Stdio)
    config = attrs.evolve(config, transport=attrs.evolve(config.transport, env={"TOKEN": secret}))
    async with open_servers(config) as group:
        ref = group["a"]
        assert ref.stderr_tail == "one\ntwo: <env.TOKEN>"
        await ref.restart()
        assert ref.stderr_tail == "one\ntwo: <env.TOKEN>"
        await ref.stop()
        assert ref.stderr_tail == "one\ntwo: <env.TOKEN>"
        await group.add(after("b", "echo once >&2", replicas=2))
        await eventually(lambda: group["b"].stderr_tail == "once\nonce")  # one replica makes it ready
    assert [vars(record)["mcp_server"] for record in caplog.records] == ["a"] * 4 + ["b"] * 2
