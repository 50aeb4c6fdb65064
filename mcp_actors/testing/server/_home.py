"""The thread in which a scripted server listens."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ._http import Endpoint
from ._lines import LineConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._script import Script

HOST: Final = "127.0.0.1"
RELAY: Final = str(Path(__file__).with_name("_relay.py"))


class Home:
    """Runs Trio in a thread, so that a test on any event loop, or on none, can use the server.

    Args:
        script: what the server does.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._secret = secrets.token_hex(8)
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"scripted server {script.name}", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close all connections, and wait for the thread."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._nursery.start_soon, self._close)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def relay(self) -> tuple[str, tuple[str, ...]]:
        """Return the command and the arguments of a process that speaks for the server over stdio."""
        return sys.executable, ("-S", "-E", RELAY, str(self._relay_port), self._secret)

    def url(self, path: str) -> str:
        """Return the URL of an endpoint."""
        return f"http://{HOST}:{self.endpoint.port}{path}"

    def set_down(self, down: bool) -> None:
        """Refuse connections, or take them again; return after the change."""
        done = threading.Event()

        async def set_down() -> None:
            try:
                await self.endpoint.set_listening(not down)
            finally:
                done.set()

        # Not `trio.from_thread.run`, which refuses the thread of a test that runs on Trio.
        self._token.run_sync_soon(self._nursery.start_soon, set_down)
        done.wait()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
        finally:
            self._opened.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as self._nursery:
                [relays] = await trio.open_tcp_listeners(0, host=HOST)
                self._relay_port: int = relays.socket.getsockname()[1]
                self._nursery.start_soon(trio.serve_listeners, self._serve_relay, [relays])
                self.endpoint = Endpoint(self._script)
                await self._nursery.start(self.endpoint.run, HOST)
                self._opened.set()

    async def _close(self) -> None:
        await self.endpoint.close()
        self._scope.cancel("the scripted server is closed")

    async def _serve_relay(self, stream: trio.SocketStream) -> None:
        greeting = b""
        while not greeting.endswith(b"\n"):
            if not (byte := await stream.receive_some(1)):
                return
            greeting += byte
        token, pid = greeting.decode().split()
        if token == self._secret and not self._script.refusing:
            await _RelayConnection(self._script, *_lenient(stream), int(pid)).serve()


def _lenient(stream: trio.SocketStream) -> tuple[Callable[[], Awaitable[bytes]], Callable[[bytes], Awaitable[None]]]:
    """Return the reading and the writing side of a stream whose other side may be killed at any time."""

    async def read() -> bytes:
        try:
            return bytes(await stream.receive_some())
        except trio.BrokenResourceError:
            return b""

    async def write(data: bytes) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)

    return read, write


class _RelayConnection(LineConnection):
    """A connection through a process, which is what crashes and freezes."""

    def __init__(
        self, script: Script, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]], pid: int
    ) -> None:
        super().__init__(script, read, write)
        self._pid = pid

    def crash(self) -> None:
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # Its socket is open, so its pid is not used again yet: a zombie keeps it.
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)
