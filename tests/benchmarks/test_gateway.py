"""The comparison of gateways measures what it says, and checks each answer; the figures are for ``nox -s bench``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from . import gateway_http
from .gateway import (
    CALLS,
    DIRECT,
    OURS,
    Direct,
    at_socket,
    attached_calls,
    crowding,
    daemon,
    fleet,
    play_rounds,
    processor_time,
    running,
    through_socket,
)
from .peers import BY_HAND, quick_server
from .peers.contest import enter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the clocks of other processes")

LIAR = f"""
import sys

sys.path.insert(0, {str(Path(quick_server.__file__).parent)!r})
import quick_server

honest = quick_server.result_of


def result_of(message):
    if message["method"] != "tools/call" or message["params"]["arguments"]["text"] != "hello 5":
        return honest(message)
    return {{"content": [{{"type": "text", "text": "hello 4"}}]}}


sys.argv = ["quick_server.py", "0"]
quick_server.result_of = result_of
quick_server.main()
"""
"""A server that gives one call the answer of another."""


def test_the_processor_time_of_a_process_is_what_the_process_itself_reads() -> None:
    before = time.process_time()
    read = processor_time(os.getpid())
    assert before <= read <= time.process_time()


@pytest.fixture(scope="module")
def on_a_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """A gateway on a unix socket for all tests: its pid and its path."""
    with daemon(tmp_path_factory.mktemp("socket")) as ours:
        yield ours


@pytest.mark.usefixtures("programs_in_forks")
def test_a_gateway_and_a_direct_call_play_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway is a server here, which answers as one does."""
    for name in (OURS, DIRECT):
        monkeypatch.setitem(CALLS, name, 128)
    with running(OURS, quick_server.command()) as ours, enter("calls", "ServerRef") as direct:
        seconds = play_rounds({OURS: ours, DIRECT: Direct(direct)}, 2, 16)
    assert [len(rounds) for rounds in seconds.values()] == [2, 2]
    assert all(0 < each < 1 for rounds in seconds.values() for each in rounds)


@pytest.mark.usefixtures("programs_in_forks")
def test_both_processes_of_calls_through_a_socket_count(on_a_socket: tuple[int, str]) -> None:
    with through_socket(*on_a_socket) as ours:
        before = processor_time(ours.gateway)
        seconds = ours.play(16, 128)
        assert 0 < processor_time(ours.gateway) - before < seconds


@pytest.mark.usefixtures("programs_in_forks")
def test_a_minimal_client_calls_through_a_socket(on_a_socket: tuple[int, str]) -> None:
    with at_socket(on_a_socket[1]), enter("calls", f"{BY_HAND}, Socket") as contestant:
        assert 0 < contestant.play(2, 4) < 60


def test_a_wrong_answer_ends_the_comparison() -> None:
    pattern = "liar gave a wrong answer"
    with pytest.raises(RuntimeError, match=pattern), running("liar", [sys.executable, "-c", LIAR]) as liar:
        liar.play(2, 8)


def test_a_gateway_that_ends_says_why() -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no such file')"]
    with pytest.raises(RuntimeError, match="broken ended; its last words:\nno such file"), running("broken", broken):
        pass


def test_attached_sessions_share_a_daemon_and_its_servers_and_leave_no_process() -> None:
    processes, session, shared, alone, share = fleet(quick_server.command(), 3, 2)
    assert processes.value == 3 + 1 + 2
    assert 1 < session.value < shared.value
    assert share.value == pytest.approx(shared.value / alone.value)


def test_a_session_that_is_attached_has_figures() -> None:
    *calls, ready = attached_calls(1)
    assert all(0 < figure.value < 10_000 for figure in calls)
    assert 1 < ready.value < 10_000


def test_each_client_of_a_crowd_gets_its_own_answers(on_a_socket: tuple[int, str]) -> None:
    *memory, wrong = crowding(*on_a_socket, 8)
    assert wrong.value == 0
    assert all(figure.value < 1000 for figure in memory)


@pytest.fixture(scope="module")
def one_over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gateway_http.Gateway]:
    """A gateway for all tests over HTTP."""
    with gateway_http.running(OURS, tmp_path_factory.mktemp("http")) as ours:
        yield ours


@pytest.fixture
def over_http(one_over_http: gateway_http.Gateway) -> Iterator[gateway_http.Gateway]:
    """The gateway, without connections."""
    one_over_http.waited.clear()
    yield one_over_http
    one_over_http.close()


def test_calls_over_http_are_measured_and_checked(over_http: gateway_http.Gateway) -> None:
    assert 0 < over_http.play(4, 16) < 1


def test_a_crowd_over_http_gets_its_own_answers(over_http: gateway_http.Gateway) -> None:
    assert [figure.value for figure in gateway_http.crowding(over_http, 8)] == [0, 0]


def open_files(pid: int) -> set[str]:
    """Return the names of the files and connections that a process has open."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return found


@pytest.mark.parametrize("neighbour", gateway_http.NEIGHBOURS.values())
def test_a_client_that_misbehaves_is_connected_while_others_are_timed(
    neighbour: Callable[[gateway_http.Gateway], None], over_http: gateway_http.Gateway
) -> None:
    before = open_files(over_http.pid)
    with gateway_http.disturbing(neighbour, over_http):
        while open_files(over_http.pid) <= before:
            time.sleep(0.01)
        assert over_http.play(8, 8) > 0
    assert len(over_http.waited) == 8


def test_others_are_timed_with_and_without_such_a_client(over_http: gateway_http.Gateway) -> None:
    figures = list(gateway_http.neighbouring(over_http, 16, 1))
    assert len(figures) == 2 * len(gateway_http.NEIGHBOURS)
    assert all(figure.value > 0 for figure in figures)
