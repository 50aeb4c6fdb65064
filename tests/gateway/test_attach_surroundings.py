"""`attach` with clocks, signals, paths and folders that are not the usual ones."""

from __future__ import annotations

import os
import sys
import time

import pytest

from mcp_actors.gateway import _daemon, attach

from .test_attach import INITIALIZE, INITIALIZED, LIST_CHANGED, SERVER, WITH_LINE_SERVER, Place, outcome, place

__all__ = ["place"]  # the fixture


def test_a_failed_start_does_not_block_the_next_one_when_the_clock_is_set_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    names = attach.names_for(str(place.config))
    command = [sys.executable, "-I", "-S", str(SERVER), names.socket, str(place.ledger)]
    with pytest.raises(attach.Refused, match="did not start"):
        _daemon.open_daemon(names, [*command, "fail"])
    future = time.time() + 3600
    os.utime(names.lock, (future, future))
    _daemon.open_daemon(names, [*command, "plain"]).close()


def test_what_ends_the_handshake_is_given_to_the_next_daemon_although_none_could_be_started(place: Place) -> None:
    program = WITH_LINE_SERVER.replace("ledger, mode", "_relay.RETRY_SECONDS = 0\nledger, mode", 1)
    words = ["-c", program, str(place.ledger), "plain", "--config", str(place.config)]
    client = place.start([sys.executable, "-I", "-S", *words], place.environ)
    client.send(INITIALIZE)
    assert client.receive()["id"] == 0
    place.config.rename(place.folder / "away")
    place.kill_daemons()
    assert client.process.stderr is not None
    assert b"has ended" in client.process.stderr.readline()
    client.send(INITIALIZED)
    assert outcome(client.call(1)) == "not_sent"
    (place.folder / "away").rename(place.config)
    client.request(2)
    messages = [client.receive() for _ in (*LIST_CHANGED, 2)]
    assert [message.get("id", message.get("method")) for message in messages] == [*LIST_CHANGED, 2]
    again = [message.get("id", message["method"]) for message in place.read_by(1)]
    assert again == [0, "notifications/initialized", 2]
