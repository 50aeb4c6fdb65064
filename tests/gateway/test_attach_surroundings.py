"""`attach` with clocks, signals, paths and folders that are not the usual ones."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import time
from functools import partial
from pathlib import Path

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
    with pytest.raises(attach.DaemonRefused, match="did not start"):
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


@pytest.mark.skipif(sys.platform != "linux", reason="the signals of a process are in /proc")
def test_a_host_that_ignores_the_end_of_its_children_gets_a_daemon_that_does_not(place: Place) -> None:
    client = place.attach(preexec_fn=partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN))
    daemon = client.call(1)["result"]["pid"]
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{daemon}/status").read_text().splitlines())
    assert not int(status["SigIgn"], 16) & 1 << (signal.SIGCHLD - 1)


@pytest.mark.parametrize("exists", [False, True])
def test_the_path_of_a_file_that_is_not_utf_8_is_in_the_answer_all_the_same(exists: bool, place: Place) -> None:
    folder = os.fsencode(place.folder) + b"/\xff"
    os.mkdir(folder)
    file = os.fsdecode(folder + b"/mcp.json")
    if exists:
        Path(file).write_text("{}")
    answer = place.attach("fail", config=file).call(1)
    problem = "did not start: first line" if exists else "cannot be read"
    assert f"{place.folder}/?/mcp.json {problem}" in answer["error"]["message"]


def test_the_folder_of_a_parent_that_passes_on_its_group_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    place.runtime.chmod(0o2700)
    assert attach.folder() == f"{place.runtime}/mcp-actors"


def test_a_user_without_a_home_has_to_set_a_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.chdir(place.folder)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(attach.DaemonRefused, match="set XDG_RUNTIME_DIR or HOME"):
        attach.folder()
    assert not (place.folder / "~").exists()
