"""The link to a server process that speaks over stdin and stdout.

The connection ends when stdout ends, when no process can read sent requests, or when the server exceeds a limit. The
process itself may exit before: a wrapper may leave the real server behind as its child.

Owns: the link; its tasks; its worker thread; the server process; its pipes.
Writes: marks of the process's exit and the connection's end; the list of credentials to mask. Stops the process group.
Calls: config, transports, _command, _pipes, _process.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from attrs import evolve

from ..._tasks import Background, open_background
from ..._text import own_shortage
from ...config import resolve_env
from ...config._values import hidden_args
from .._credentials import Masker, resolve_credentials
from .._link import ConnectionOver, Lifeline, Obituary
from .._logs import discreet
from ._command import child_environment, hint
from ._pipes import INPUT_CLOSED, LinesLink, has_no_reader, read_pipe, unread_bytes, wait_no_reader
from ._process import ServerProcess, StderrReader, start_process

if TYPE_CHECKING:
    from ...config import ServerConfig, Stdio


EXIT_WAIT: Final = 0.5
"""Seconds from the end of stdout to the loss of the connection, so that the first error can name the exit code. A
loaded kernel closes pipes many milliseconds before it reports an exit."""

OBITUARY_WAIT: Final = 0.5
"""Seconds for the process to exit and end stderr after a failed connect. The error quotes stderr."""

INPUT_INTERVAL: Final = 0.25
"""Once no process reads stdin: seconds until unread requests end the connection, twice if stdout has unread output."""

STDERR_WAIT: Final = 0.25
"""Seconds for the rest of stderr after the process group was killed."""


class StdioLink(LinesLink):
    """A link to a server process. `close` stops the process and everything in the process group.

    Background tasks keep running when the owner is cancelled, and end when the link is closed:

    - read stderr until its end
    - wait for the exit of the process
    - write to stdin what senders left unwritten
    - notice that no process can read stdin any more
    - drain stdout during the stop (until the stop, the receiving task reads stdout)
    """

    pid: int

    def __init__(
        self,
        config: ServerConfig,
        transport: Stdio,
        process: ServerProcess,
        background: Background,
        lifeline: Lifeline,
        masker: Masker,
    ) -> None:
        pipes = process.stdout, process.stdin
        super().__init__(config, *pipes, partial(_wait_exit, process), transport.max_line_bytes, lifeline, masker)
        self._process = process
        self._background = background
        self._stop_timeout = config.stop_timeout
        env = dict.fromkeys(transport.env, "")  # the obituary outlives the values and needs the names only
        self._transport = evolve(transport, env=env)
        self._stderr = StderrReader(process.stderr, config.name, masker)
        self._exit_code: int | None = None
        self._of_leader = 0
        self._unread: int | None = None
        self._stopping = False
        self.trusted = transport.trust_outcomes
        self.endpoint = f"the command {transport.command!r}"
        self.pid = process.pid
        process.watch(background, self._exited)
        background.start_soon(self._stderr.run, name=f"{config.name}:stderr")
        background.start_soon(self._writer.run, name=f"{config.name}:stdin")
        background.start_soon(self._watch_input, name=f"{config.name}:input")

    def __repr__(self) -> str:
        state = "closed" if self._stopping else "lost" if self.lifeline.lost else "open"
        return f"<StdioLink {self._name!r} pid {self.pid}, {state}>"

    def obituary(self) -> Obituary:
        if self.lifeline.lost and not self._stopping:
            self._look()
        tail = self._stderr.tail()
        return Obituary(self._exit_code, tail, hint(self._transport, tail))

    @property
    def heard(self) -> bool | None:
        unread = self._unread if self._stopping else unread_bytes(self._process.stdin)
        return None if unread is None else self._writer.sent and unread == 0

    @property
    def suspended(self) -> bool:
        return self._process.stopped

    @property
    def input_closed(self) -> bool:
        return has_no_reader(self._process.stdin)

    def _exited(self) -> None:
        self._of_leader = self._reader.received + (unread_bytes(self._process.stdout) or 0)
        self.lifeline.exit()

    async def may_serve_on(self) -> bool:
        """See `Link.may_serve_on`.

        A server that lives on has written at least the bytes received since the exit or, if none were, all received
        bytes. An abandoned helper has not.
        """
        since = self._reader.received - self._of_leader
        written = since if since > 0 else self._reader.received
        try:
            return await trio.to_thread.run_sync(self._process.has_successor, written, abandon_on_cancel=True)
        except RuntimeError as error:
            if own_shortage(error) is None:
                raise
            return True  # unknown: no thread could be started to look

    def _look(self) -> None:
        code = self._process.poll()
        self._exit_code = None if self._process.code_unknown else code
        self._unread = unread_bytes(self._process.stdin)

    async def wait_obituary(self) -> Obituary:
        """Return the obituary, after up to `OBITUARY_WAIT` if stdout has ended."""
        await trio.lowlevel.checkpoint()
        if self.lifeline.lost and self.lifeline.failure is None and not self._stopping:
            with trio.move_on_after(OBITUARY_WAIT):
                await self._process.wait()
                await self._stderr.ended.wait()
        return self.obituary()

    async def close(self) -> None:
        """Stop the process and its group within ``stop_timeout`` (but see `ServerProcess.stop`).

        **Cancellation**: does not interrupt the stop, or a half-stopped process would be left behind.
        """
        self._stopping = True
        # Take the exit code before stdin is closed: a later code is caused by this stop, and must not be reported as
        # the way the server ended.
        self._look()
        self._reader.close()
        self._writer.close()
        # Drain stdout from here on, or a server that blocks on a full pipe would never notice the end of stdin.
        self._background.start_soon(self._drain, name=f"{self._name}:stdout")
        deadline = trio.current_time() + self._stop_timeout
        with trio.CancelScope(shield=True):  # bounded by `stop`, and by the deadline below
            await self._process.stop(self._stop_timeout)
            with trio.move_on_at(min(trio.current_time() + STDERR_WAIT, deadline)):
                await self._stderr.ended.wait()
        self._process.close_pipes()

    async def _watch_input(self) -> None:
        """Lose the connection if requests lie in the pipe and no process can read them any more.

        Answers to requests that were read may still come. A later request finds the closed pipe by itself.
        """
        await wait_no_reader(self._process.stdin)
        for _ in range(2):  # an abandoned process that writes without end does not keep the connection
            await trio.sleep(INPUT_INTERVAL)
            if self._stopping or unread_bytes(self._process.stdin) == 0:
                return
            if not unread_bytes(self._process.stdout):
                break
        # `poll` reaps the process, which only the end of the connection allows. So no checkpoint may come before the
        # loss: a task that signals the group could hit a stranger (see `ServerProcess.poll`).
        exited = self._process.poll() is not None
        self.lifeline.lose(None if exited else ConnectionOver(INPUT_CLOSED))

    async def _drain(self) -> None:
        with suppress(trio.ClosedResourceError):
            while await read_pipe(self._process.stdout):
                pass


async def _wait_exit(process: ServerProcess) -> bool:
    with trio.move_on_after(EXIT_WAIT):
        await process.wait()
        return True
    return False


@asynccontextmanager
@trio.lowlevel.enable_ki_protection  # a Ctrl-C between the start of the process and the `try` would leak the process
async def open_stdio_link(
    config: ServerConfig, transport: Stdio, masker: Masker, *, on_lost: Callable[[], None]
) -> AsyncIterator[StdioLink]:
    """Start the server's process; on leaving, stop it and everything it started.

    Raises:
        ConnectFailed: the process cannot be started, or a value of ``env`` cannot be resolved.
    """
    async with open_background() as background:
        process = await _start(config, transport, masker)
        # No checkpoint between here and the `try`: a cancellation delivered there would leak the process.
        link = StdioLink(config, transport, process, background, Lifeline(on_lost), masker)
        try:
            with discreet(masker):
                yield link
        finally:
            await link.close()


async def _start(config: ServerConfig, transport: Stdio, masker: Masker) -> ServerProcess:
    env = await resolve_credentials(resolve_env, transport.env, config, "env")
    for name, value in env.items():
        masker.add(f"<env.{name}>", value)
    for each in hidden_args(transport.args):
        masker.add(f"<args[{each.place}]>", each.text, own_url=each.is_url)
    environment = child_environment(transport, os.environ, env)
    return await start_process(config.name, transport, environment, config.source)
