"""Daemons that clients have left, that hang, or whose files were removed: they are found, or end, and none is left."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_actors.gateway import _daemon, _listen, attach

from .daemons import counting, daemon
from .test_attach import INITIALIZE, PROGRAM, SERVER, Attached, Place, outcome, place, wait_until

__all__ = ["place"]  # the fixture

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


# --- Clients that leave while a daemon starts -------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [[], [INITIALIZE]])
def test_a_client_that_leaves_does_not_wait_for_a_daemon_that_starts(asked: list[Any], place: Place) -> None:
    client = place.attach("slow600")
    client.send(*asked)
    wait_until(lambda: [*place.runtime.glob("*/*.lock")] and place.file("lock").read_text())
    assert client.close() == 0
    assert place.starts == []


def test_what_a_client_has_asked_before_it_leaves_is_refused_if_no_daemon_is_ready(place: Place) -> None:
    client = place.attach("slow600")
    client.send(INITIALIZE)
    wait_until(lambda: [*place.runtime.glob("*/*.lock")] and place.file("lock").read_text())
    client.request("withdrawn")
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "withdrawn"}})
    client.request(1)
    client.request(2, "tools/list")
    assert client.close() == 0
    for id in (1, 2):
        answer = client.receive()
        assert (answer["id"], outcome(answer)) == (id, "not_sent")
    assert client.receive_line() == b""


def test_a_client_that_leaves_does_not_wait_for_the_client_that_starts_a_daemon(place: Place) -> None:
    place.attach("slow600")
    wait_until(lambda: [*place.runtime.glob("*/*.lock")] and place.file("lock").read_text())
    second = place.attach("slow600")
    assert second.close() == 0


def test_a_client_whose_output_was_closed_does_not_wait_for_a_daemon(place: Place) -> None:
    client = place.attach("slow600")
    wait_until(lambda: [*place.runtime.glob("*/*.lock")] and place.file("lock").read_text())
    assert client.process.stdout is not None
    client.process.stdout.close()
    assert client.process.wait(60) == 0


def test_what_a_client_has_asked_before_it_leaves_is_answered_by_a_daemon_that_starts(place: Place) -> None:
    client = place.attach("slow0.3")
    client.request(1)
    assert client._stdin.close() is None
    assert client.receive()["id"] == 1


# --- Daemons that hang ------------------------------------------------------------------------------------------------


def test_a_daemon_that_is_not_ready_in_time_stays_on_record(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    monkeypatch.setattr(_daemon, "START_SECONDS", 0.3)
    names = attach.names_for(str(place.config))
    command = [sys.executable, "-I", "-S", str(SERVER), names.socket, str(place.ledger), "slow600"]
    with pytest.raises(attach.DaemonRefused, match=r"was not ready within 0\.3 s: .*; end it: kill -9 \d+$") as raised:
        _daemon.open_daemon(names, command)
    process = int(attach.holder(names.lock))
    assert str(raised.value).endswith(f" {process}")
    os.kill(process, 0)
    with pytest.raises(attach.DaemonRefused, match=re.escape(f"end the process that is named in {names.lock}")):
        _daemon.open_daemon(names, command)
    os.kill(process, signal.SIGKILL)


# --- Files that were removed ------------------------------------------------------------------------------------------


def real(place: Place) -> Attached:
    """Start a client with a real daemon, and wait until that runs."""
    place.config.write_text(json.dumps({"mcpServers": {"s": counting(place.ledger)}}))
    client = place.start([sys.executable, "-I", "-S", str(PROGRAM), "--config", str(place.config)], place.environ)
    client.request(1, "ping")
    assert client.receive()["id"] == 1
    return client


def test_a_daemon_whose_sockets_were_removed_is_found_again(place: Place) -> None:
    first = real(place)
    process = place.file("lock").read_text()
    control, log = place.file("ctl"), place.file("log")

    def has_made(number: int) -> bool:
        return log.read_text().count("was removed; it was created again") == number

    for number in (2, 4):
        place.file("sock").unlink()
        control.unlink()
        real(place).close()
        wait_until(partial(has_made, number))
    first.request(2, "ping")
    assert first.receive()["id"] == 2
    assert place.file("lock").read_text() == process
    with socket.socket(socket.AF_UNIX) as command:
        command.connect(str(control))
        command.sendall(json.dumps({"do": "stop", "file": str(place.config), "servers": []}).encode() + b"\n")
        while command.recv(1000):
            pass
    assert not control.exists()
    wait_until(lambda: not os.path.exists(f"/proc/{process}"))


@pytest.mark.parametrize("removed", [False, True])
def test_a_daemon_ends_by_a_signal_also_if_its_socket_was_made_again(removed: bool, place: Place) -> None:
    client = real(place)
    if removed:
        place.file("sock").unlink()
        real(place).close()
    socket_file = place.file("sock")
    os.kill(int(place.file("lock").read_text()), signal.SIGTERM)
    wait_until(lambda: not socket_file.exists())
    client.request(2, "ping")
    assert client.receive()["id"] == 2  # of the next one


def test_a_daemon_whose_socket_was_replaced_serves_its_clients_and_is_found_again_later(tmp_path: Path) -> None:
    with daemon(tmp_path, s=counting(tmp_path / "ledger")) as served, socket.socket(socket.AF_UNIX) as client:
        client.connect(served.path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{served.path}.other")
            other.listen()
            os.rename(f"{served.path}.other", served.path)
            wait_until(lambda: "another process serves there" in served.log.read_text())
            client.sendall(PING)
            assert json.loads(client.recv(1000))["id"] == 1
        wait_until(lambda: "it was created again" in served.log.read_text())
        with socket.socket(socket.AF_UNIX) as second:
            second.connect(served.path)
            second.sendall(PING)
            assert json.loads(second.recv(1000))["id"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux changes the limits of another process")
def test_a_shortage_of_descriptors_is_logged_once(tmp_path: Path) -> None:
    with daemon(tmp_path, s=counting(tmp_path / "ledger")) as served, socket.socket(socket.AF_UNIX) as client:
        wait_until(lambda: "server 's': connected" in served.log.read_text())
        limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        client.connect(served.path)
        until = time.monotonic() + 2 * _listen.SOCKET_POLL
        wait_until(lambda: time.monotonic() > until)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limits)
        client.sendall(PING)
        assert json.loads(client.recv(1000))["id"] == 1
        assert served.log.read_text().count("could not be accepted") == 1


def test_the_log_of_a_daemon_is_bounded_while_it_runs(place: Place) -> None:
    real(place)
    log = place.file("log")
    lines = "".join(f"a line, and its number is {number}\n" for number in range(40_000))
    with log.open("ab", buffering=0) as file:  # at once, so that the daemon writes none of it anew meanwhile
        file.write(f"{lines}the newest line\n".encode())
    # It is empty, and then a part of itself, while the daemon writes it anew.
    wait_until(lambda: log.stat().st_size <= _daemon.MAX_LOG and "the newest line\n" in log.read_text())
    assert log.read_text().startswith("a line, and")
