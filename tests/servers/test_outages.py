"""Servers that are away for longer than their restarts last, and come back by themselves.

The waits are scaled down; ``tests/slow`` has the same at the default values.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    ConnectFailed,
    ConnectionLost,
    Http,
    RestartPolicy,
    ServerConfig,
    ServerUnavailable,
    StateChanged,
    Stdio,
    open_servers,
)
from mcp_actors.kernel import Event, GaveUp, Restarting, Starting
from mcp_actors.servers import ServerGroup
from mcp_actors.servers._rules import seconds_to_retry

from .fleet import STARTED, http_config, http_server
from .groups import (
    AT_ONCE,
    FOR_A_WHILE,
    Events,
    Fault,
    after,
    command_with,
    crash,
    kill,
    reach,
    server,
    shell,
    state,
    until,
)
from .http_server import run_server
from .links import text_of
from .scripted_server import command

QUICK: Final = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=0.2)
"""Parked after two failures, and tried again five times a second."""


async def outlast(group: ServerGroup, name: str, attempts: int = 3) -> None:
    """Wait until a parked server has been tried in vain a few times."""
    with trio.fail_after(STARTED):
        async with group.watch_events() as events:
            async for event in events:
                attempts -= isinstance(event, GaveUp) and event.actor == name
                if not attempts:
                    return


async def test_an_http_server_that_is_away_comes_back() -> None:
    """B-08: connections are refused for longer than the restarts last."""
    with http_server() as (port, process):
        async with open_servers(http_config(port, restarts=QUICK)) as group:
            process.kill()
            process.wait()
            with pytest.raises(Exception, match="web"):
                await group["web"].call_tool("pid")
            await outlast(group, "web")
            with http_server(port):
                with trio.fail_after(STARTED):
                    await group["web"].wait_state("ready")
                assert text_of(await group["web"].call_tool("echo", {"text": "back"})) == "back"
                assert dict(group.errors) == {}
                assert group.failed == ()


async def test_a_server_whose_name_does_not_resolve_comes_back_when_it_does() -> None:
    """B-08: the network, and with it DNS, is away."""
    with http_server() as (port, _):
        host = {"Host": f"127.0.0.1:{port}"}  # the only one that the server answers to
        transport = Http(f"http://nowhere.invalid:{port}/mcp", headers=host, allow_insecure=True)
        config = ServerConfig("web", transport, restarts=QUICK)
        async with open_servers(config) as group:
            await outlast(group, "web")
            assert "nowhere.invalid" in str(group.errors["web"])
            resolves = trio.socket.set_custom_hostname_resolver(Loopback())
            try:
                await reach(group, "web", "ready")
            finally:
                trio.socket.set_custom_hostname_resolver(resolves)


class Loopback(trio.abc.HostnameResolver):
    """A DNS that knows every name."""

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        """Return an address of this machine."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, *_: Any) -> Any:
        """Is not asked."""
        raise NotImplementedError


async def test_a_server_that_exits_at_its_start_comes_back_when_it_does_not(tmp_path: Path) -> None:
    """B-08: what it needs is missing for a while."""
    fine, events = tmp_path / "fine", Events()
    config = shell("a", f"[ -e '{fine}' ] || exit 3; exec {command_with()}", restarts=QUICK)
    async with open_servers(config, observers=[events]) as group:
        await outlast(group, "a")
        fine.write_text("x")
        await reach(group, "a", "ready")
    assert len(events.of(Restarting, "a")) == 1, "one attempt at a time, without a fresh budget"


async def test_a_server_that_starts_and_dies_keeps_its_back_off() -> None:
    """B-08: five quick restarts are earned by serving for ``reset_after``."""
    events = Events()
    async with open_servers(server("a", restarts=QUICK), observers=[events]) as group:
        for _ in range(5):
            await reach(group, "a", "ready")
            await crash(group, "a")
    assert len(events.of(Restarting, "a")) == 1
    assert len(events.of(GaveUp, "a")) == 4


async def test_the_status_of_a_parked_server_has_the_time_of_the_next_attempt(autojump_clock: MockClock) -> None:
    """B-08: ``retry_at``, in ``status()`` and in the error of a call, is a time of the wall clock."""
    fault = Fault()
    fault.on_enter = RuntimeError("the database is away")
    async with open_servers(fault.config(restarts=FOR_A_WHILE)) as group:
        await group["here"].wait_state("failed")
        retry_at = group.status()["here"].retry_at
        assert retry_at is not None
        assert timedelta(hours=0.89) < retry_at - datetime.now(UTC) <= timedelta(hours=1)
        with pytest.raises(
            ServerUnavailable, match=r"the database is away; the next attempt is in 3\d\d\d s"
        ) as caught:
            await group["here"].call_tool("ping")
        assert caught.value.retry_at == retry_at
        fault.on_enter = None
        await group["here"].restart()
        assert group.status()["here"].retry_at is None


async def test_after_an_hour_a_server_is_back_within_a_minute(autojump_clock: MockClock) -> None:
    """B-08: with the default policy, and no more than one attempt a minute meanwhile."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("the database is away")
    async with open_servers(fault.config(), observers=[events]) as group:
        await group["here"].wait_state("failed")
        await trio.sleep(3600)
        assert state(group, "here") == "failed"
        attempts = len(events.of(Starting, "here"))
        assert 6 + 59 <= attempts <= 6 + 67
        fault.on_enter = None
        with trio.fail_after(60):
            await group["here"].wait_state("ready")
    assert len(events.of(Restarting, "here")) == 5


async def test_many_servers_are_not_retried_in_the_same_instant(autojump_clock: MockClock) -> None:
    """B-08: jitter."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("the network is away")
    policy = RestartPolicy(max_restarts=1, backoff=Backoff())
    configs = [fault.config(f"s{number}", restarts=policy) for number in range(20)]
    async with open_servers(*configs, observers=[events]) as group:
        for ref in group.configured:
            await ref.wait_state("failed")
        began = trio.current_time()
        await trio.sleep(61)
    again = [event.time - began for event in events.of(Starting) if event.actor in group and event.time > began]
    assert len(again) == 20
    assert min(again) >= 54
    assert max(again) <= 60
    assert max(again) - min(again) > 1


@pytest.mark.parametrize(
    "options",
    [
        {"restarts": RestartPolicy(max_restarts=0)},
        {"restarts": RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=None)},
    ],
    ids=["max_restarts=0", "park_retry=None"],
)
async def test_retrying_parked_servers_can_be_disabled(options: dict[str, Any], autojump_clock: MockClock) -> None:
    """S2-36: with ``max_restarts=0`` nothing is restarted, as with ``park_retry=None`` nothing that is parked."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("no")
    async with open_servers(fault.config(**options), observers=[events]) as group:
        await group["here"].wait_state("failed")
        assert group.status()["here"].retry_at is None
        await trio.sleep(3600)
    assert len(events.of(GaveUp, "here")) == 1


async def test_a_command_that_does_not_exist_is_not_tried_again(mock_clock: MockClock) -> None:
    """B-08: nor is anything else that is hopeless."""
    events = Events()
    async with open_servers(ServerConfig("a", Stdio("no-such-command")), observers=[events]) as group:
        assert (state(group, "a"), group.status()["a"].retry_at) == ("failed", None)
        mock_clock.jump(3600)
        await wait_all_tasks_blocked()
    assert len(events.of(Starting, "a")) == 1


@pytest.mark.parametrize("what", ["command", "cwd"])
async def test_a_command_that_has_worked_is_tried_again_until_it_is_back(what: str, tmp_path: Path) -> None:
    """D-09: a disk that was unmounted, or a virtual environment that is made anew."""
    place, away = tmp_path / "place", tmp_path / "away"
    place.mkdir()
    program, args = command()
    start = (place if what == "command" else tmp_path) / "start"
    start.write_text(f"#!/bin/sh\nexec '{program}' \"$@\"\n")
    start.chmod(0o755)
    policy = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=0.2)
    transport = Stdio(str(start), args, cwd=str(place) if what == "cwd" else None)
    async with open_servers(ServerConfig("a", transport, restarts=policy), strict=True) as group:
        place.rename(away)
        kill(group["a"])
        await reach(group, "a", "failed")
        assert "does not exist" in str(group.errors["a"])
        assert group.status()["a"].retry_at is not None
        away.rename(place)
        await reach(group, "a", "ready")
        place.rename(away)
        with pytest.raises(ConnectFailed):
            await group.replace(ServerConfig("a", evolve(transport, env={"NEW": "1"}), restarts=policy))
        await reach(group, "a", "failed")
        assert group.status()["a"].retry_at is None  # this configuration has never worked


async def test_a_server_that_refuses_the_credentials_is_not_tried_again() -> None:
    """B-08: each attempt with a wrong token looks like a break-in to the server's operator."""
    with run_server("--require-header", "Authorization=Bearer right") as web:
        config = ServerConfig("web", Http(web.url, auth="wrong"), restarts=QUICK)
        async with open_servers(config) as group:
            await reach(group, "web", "failed")
            assert isinstance(error := group.errors["web"], ConnectFailed)
            assert error.http_status == 401
            assert group.status()["web"].retry_at is None


async def test_a_stopped_server_is_not_retried(autojump_clock: MockClock) -> None:
    """B-08: ``stop()`` was called explicitly."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("no")
    async with open_servers(fault.config(), observers=[events]) as group:
        await group["here"].wait_state("failed")
        await group["here"].stop()
        assert group.status()["here"].retry_at is None
        await trio.sleep(3600)
        assert len(events.of(Starting, "here")) == 6
        fault.on_enter = None
        await group["here"].start()
        assert state(group, "here") == "ready"


@pytest.mark.parametrize("park_retry", [60.0, None])
async def test_a_failed_server_that_is_stopped_is_stopped(park_retry: float | None, autojump_clock: MockClock) -> None:
    """B-08: a server that is not supposed to run has no problem."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("no")
    config = fault.config(restarts=RestartPolicy(park_retry=park_retry))
    async with open_servers(config, observers=[events]) as group:
        await group["here"].wait_state("failed")
        await group["here"].stop()
        assert state(group, "here") == "stopped"
        assert (dict(group.errors), group.failed) == ({}, ())
        last = events.of(StateChanged, "here")[-1]
        assert (last.old, last.new) == ("failed", "stopped")
        await group.reconnect()
        assert state(group, "here") == "stopped"
        with pytest.raises(ServerUnavailable, match="stopped"):
            await group["here"].call_tool("add")
        fault.on_enter = None
        await group["here"].start()
        assert state(group, "here") == "ready"


async def test_the_tools_of_a_parked_server_do_not_come_and_go_with_each_attempt() -> None:
    """B-08: a model that is offered a tool every minute, for the time of a connect, would call it in vain."""
    shown = set[bool]()

    def look(event: Event) -> None:
        if isinstance(event, StateChanged) and event.new == "connecting" and event.old == "failed":
            shown.add(bool(group.tools))

    with http_server() as (port, process):
        async with open_servers(http_config(port, restarts=QUICK)) as group:
            group._hub.add(look)
            assert group.tools
            process.kill()
            process.wait()
            with pytest.raises(Exception, match="web"):
                await group["web"].call_tool("pid")
            await outlast(group, "web")
    assert shown == {False}


async def test_a_server_that_reconnects_counts_as_failed(tmp_path: Path) -> None:
    """B-10: from the loss to the connection that serves again, whatever state it is in."""
    gate, seen = tmp_path / "gate", list[tuple[str, bool, bool]]()
    gate.write_text("x")

    def look(event: Event) -> None:
        if isinstance(event, StateChanged):
            seen.append((event.new, "a" in group.errors, group.failed == (group["a"],)))

    async with open_servers(after("a", until(gate), restarts=AT_ONCE)) as group:
        group._hub.add(look)
        gate.unlink()
        await crash(group, "a")
        await reach(group, "a", "connecting")
        assert group.failed == (group["a"],)
        assert [*group.errors] == ["a"]
        gate.write_text("x")
        await reach(group, "a", "ready")
        await group["a"].stop()
    down = [("backoff", True, True), ("connecting", True, True)]
    assert seen == [*down, ("ready", False, False), ("stopping", False, False), ("stopped", False, False)]


@pytest.mark.parametrize(("drawn", "seconds"), [(0.0, 60.0), (1.0, 54.0)])
def test_a_server_that_answered_no_check_is_tried_again(
    drawn: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-08: a ladder of health checks that has come to its end (``fail_after``) says nothing about next time."""
    silent = ConnectionLost("server 'a': did not answer", server="a")
    monkeypatch.setattr("random.random", lambda: drawn)
    assert [seconds_to_retry(RestartPolicy(), error) for error in (silent, None)] == [seconds, seconds]
