"""Where connections are accepted: sockets at paths that come back, shortages, and the end."""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.gateway import _listen, _output, _serve, _session
from mcp_actors.gateway._listen import SOCKET_POLL, Acceptor, KeptSocket

from ..servers.processes import BOUND
from .test_serve import until


@pytest.fixture
def path() -> Iterator[Path]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "s.sock")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the socket all the time."""
    monkeypatch.setattr(_listen, "SOCKET_POLL", 0.02)
    monkeypatch.setattr(_listen, "SHORTAGE", 0.02)


@contextmanager
def shortage() -> Iterator[None]:
    """Have no descriptor left during a block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 + max(map(int, os.listdir("/dev/fd"))), limits[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in taken:
            os.close(each)


def connected(path: Path) -> socket.socket:
    """Return a client."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def beside(path: Path) -> list[str]:
    """Return the names of all files in the folder."""
    return os.listdir(path.parent)


def put_file(path: Path) -> None:
    path.write_text("a file")


def said(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """Return the log lines about a path, without it."""
    return [record.message.removeprefix(f"{path}: ") for record in caplog.records]


REMOVED = "the socket was removed; it was created again"
BACK = "the socket is there again"


def fails(reason: str) -> str:
    return f"the socket was removed and cannot be created again ({reason}); retrying every 0.02 s"


@pytest.mark.usefixtures("quick")
async def test_a_socket_is_created_again_once_that_is_possible(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its folder was removed, another file or the socket of another process is in its place, or it came back."""
    with closing(KeptSocket(str(path))) as acceptor, trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, socket.socket.close)

            async def logged(number: int) -> None:
                await until(lambda: len(caplog.records) >= number)

            os.rename(path.parent, f"{path.parent}-elsewhere")
            await logged(1)
            os.rename(f"{path.parent}-elsewhere", path.parent)
            await logged(2)
            os.unlink(path)
            await logged(3)
            os.unlink(path)
            put_file(path)
            await logged(4)
            os.unlink(path)
            await logged(5)
            with socket.socket(socket.AF_UNIX) as other:
                os.unlink(path)
                other.bind(str(path))
                other.listen()
                await logged(6)
            await logged(7)
            with connected(path) as client:
                client.setblocking(False)
                await trio.lowlevel.wait_readable(client)
                assert client.recv(1) == b""  # accepted, and closed
            nursery.cancel_scope.cancel("the test is done")
    found = said(caplog, path)
    assert found[:3] == [fails("No such file or directory"), BACK, REMOVED]
    assert found[3].startswith("the socket was removed and cannot be created again (")
    assert found[4:] == [
        REMOVED,
        fails("another process serves there; stop it, or choose another path"),
        REMOVED,
    ]
    assert beside(path) == []


async def test_clients_that_waited_at_a_removed_socket_are_accepted(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors were used up, so they had to wait."""
    monkeypatch.setattr(_listen, "SHORTAGE", 1.5 * SOCKET_POLL)
    accepted: list[socket.socket] = []
    with closing(KeptSocket(str(path))) as acceptor, socket.socket(socket.AF_UNIX) as client:
        async with trio.open_nursery() as nursery:
            with shortage():
                nursery.start_soon(acceptor.run, accepted.append)
                await wait_all_tasks_blocked()
                client.connect(str(path))
                os.unlink(path)
                await trio.sleep(SOCKET_POLL / 2)
            await trio.sleep(SOCKET_POLL)
            nursery.cancel_scope.cancel("the test is done")
        assert beside(path) == [path.name]
    [ours] = accepted
    ours.close()


async def test_a_socket_that_was_closed_is_not_created_again(path: Path, autojump_clock: MockClock) -> None:
    """Also if it is closed in the moment in which it is to be looked at, while descriptors are used up, or twice."""
    for number in range(40):
        acceptor = KeptSocket(str(path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, socket.socket.close)
            await wait_all_tasks_blocked()
            if number % 2:
                with connected(path), shortage():
                    await trio.sleep(SOCKET_POLL)
                    acceptor.close()
            else:
                await trio.sleep(SOCKET_POLL)
                acceptor.close()
        assert beside(path) == []
        successor = KeptSocket(str(path))
        acceptor.close()
        assert beside(path) == [path.name]
        successor.close()


async def test_a_socket_that_cannot_be_removed_does_not_hold_the_end(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    acceptor = KeptSocket(str(path))
    monkeypatch.setattr(os, "unlink", refuse)
    acceptor.close()
    monkeypatch.undo()
    assert said(caplog, path) == ["the socket cannot be removed (Operation not permitted)"]
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))
    KeptSocket(str(path)).close()  # it is replaced
    assert beside(path) == []


async def test_a_path_may_be_as_long_as_that_of_a_socket(path: Path) -> None:
    longest = path.with_name("x" * (107 - len(str(path.parent)) - 1))
    with closing(KeptSocket(str(longest))), connected(longest):
        pass


async def test_a_connection_that_finds_no_descriptor_is_accepted_later_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listen, "SHORTAGE", 0.02)
    [listener] = await _listen.listen("127.0.0.1", 0)
    acceptor = Acceptor(listener)
    with socket.create_connection(listener.getsockname()) as client:
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                [accepted] = await acceptor.accept()
                with accepted:
                    assert accepted.getpeername() == client.getsockname()

            with shortage():
                nursery.start_soon(take)
                for _ in range(20):  # some tries
                    await wait_all_tasks_blocked(0.005)
        acceptor.close()
        with pytest.raises(trio.ClosedResourceError):
            await acceptor.accept()
    assert [record.message for record in caplog.records] == [
        f"{acceptor.name}: a connection could not be accepted (Too many open files); retrying every 0.02 s"
    ]


class Late(Acceptor):
    """Accepts a client in the moment in which the time without one is over."""

    def __init__(self, client: socket.socket) -> None:
        super().__init__(client)
        self._clients = [client]

    async def accept(self) -> list[socket.socket]:
        await trio.sleep(60 if self._clients else 600)
        clients, self._clients = self._clients, []
        return clients


async def test_a_client_that_comes_when_the_idle_time_ends_is_served(autojump_clock: MockClock) -> None:
    served = 0
    for _ in range(40):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        reception = _serve.Reception(_session.Gateway(refusal="there is none"), _output.Heart(), None)
        with theirs, ours, trio.move_on_after(100) as waiting:
            await reception.run([Late(ours)], 60)
        assert waiting.cancelled_caught == (reception._number == 1)  # it may come in the step after the end
        served += reception._number
    assert served


@pytest.mark.parametrize("pipes", [False, True])
async def test_a_shortage_of_descriptors_does_not_hold_the_end(pipes: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A client that is idle is closed at once."""
    heart, gateway = _output.Heart(), _session.Gateway(refusal="there is none")
    ours, theirs = socket.socketpair()
    reads, writes = os.pipe() if pipes else (ours.fileno(), -1)
    os.set_blocking(reads, False)
    ours.setblocking(False)
    with ours, theirs, trio.fail_after(_listen.DRAIN_SECONDS / 2):
        async with trio.open_nursery() as nursery:
            connection = _serve.ClientConnection(gateway, heart, reads, ours.fileno(), "the client")
            nursery.start_soon(connection.run)
            await wait_all_tasks_blocked()
            with shortage():
                nursery.start_soon(partial(_listen.drain, gateway.stopping, (), heart.connections))
                await connection.ended.wait()
    for each in (reads, writes) if pipes else ():
        os.close(each)
    assert caplog.records == []
