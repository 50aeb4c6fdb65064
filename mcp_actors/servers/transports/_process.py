"""The process of a stdio server, and everything it started: begun together, ended together.

Theory of operation. The process leads a process group of its own, and the group is the unit that is ended: a wrapper
such as ``npx`` or ``uv run`` is only its leader. A group can be signaled safely for as long as its leader has not been
reaped, because until then nobody else can get its number. So the leader is reaped only when the connection is over,
and whoever reaps it kills what is left of the group in the same step. A wrapper that dies while the server behind it
serves on stays unreaped, and so does no harm.

A process that left the group by calling ``setsid`` has declared itself a daemon and is not ours to end.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from subprocess import PIPE
from typing import TYPE_CHECKING, Final, cast

import trio

from ._command import explain_spawn_error, find_program
from ._exit import has_successor, is_stopped, wait_exiting

if TYPE_CHECKING:
    from ...config import Stdio
    from .._background import Background

__all__ = ["ServerProcess", "start_process"]

logger = logging.getLogger("mcp_actors.servers")

EOF_SHARE: Final = 0.4
"""Part of the stop time-out in which the end of its input should make a server leave: 2 s of the default 5, which is
what the SDK's own transport waits."""

TERM_SHARE: Final = 0.4
"""Part of it after SIGTERM, likewise. The rest is for SIGKILL, which needs milliseconds."""

REAP_FLOOR: Final = 0.5
"""Seconds that a killed process has to vanish, however short the stop time-out. Only one that the kernel holds on to
needs them; without a floor a busy machine would be taken for that."""


class ServerProcess:
    """A running server: three pipes and a process group."""

    def __init__(self, process: trio.Process, server: str) -> None:
        self._process = process
        self._server = server
        self._group_ended = False
        self._exited: trio.Event | None = None
        self.pid = process.pid
        self.stdin = cast("trio.lowlevel.FdStream", process.stdin)
        self.stdout = cast("trio.lowlevel.FdStream", process.stdout)
        self.stderr = cast("trio.lowlevel.FdStream", process.stderr)

    def poll(self) -> int | None:
        """Return the exit code, or None if the leader lives. The connection must be over: this reaps."""
        return self._reaped(self._process.poll())

    def watch(self, background: Background, on_exit: Callable[[], None]) -> None:
        """Have a function called when the leader has exited, if the system tells that; this does not reap."""
        self._exited = trio.Event()
        background.start_soon(self._watch, self._exited, on_exit, name=f"{self._server}:exit")

    async def _watch(self, exited: trio.Event, on_exit: Callable[[], None]) -> None:
        try:
            if await wait_exiting(self.pid):
                on_exit()
        finally:
            exited.set()

    @property
    def stopped(self) -> bool:
        """Whether the leader is stopped (SIGSTOP); False where the system does not tell."""
        return not self._group_ended and is_stopped(self.pid)

    def has_successor(self, written: int) -> bool:
        """Whether another process may be what wrote so much, now that the leader has exited. Blocks."""
        return has_successor(self.pid, written)

    async def wait(self) -> int | None:
        """Wait for the leader to exit and return its code. The connection must be over: this reaps."""
        if self._exited is not None:
            await self._exited.wait()  # on macOS only one task may wait for the process itself
        return self._reaped(await self._process.wait())

    def _reaped(self, code: int | None) -> int | None:
        if code is not None and not self._group_ended:
            self._signal(signal.SIGKILL)
            self._group_ended = True
        return code

    def _signal(self, number: signal.Signals) -> None:
        # PermissionError is what macOS says of a group in which only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def stop(self, bound: float) -> None:
        """End the group: end of input, then SIGTERM, then SIGKILL; return as soon as the leader is reaped.

        stdout and stderr must be read meanwhile, or a server that is stuck writing never comes to see the end of its
        input. Waits for `bound` seconds at most (but see `REAP_FLOOR`), and only for what is still alive.
        """
        self.stdin.close()
        if await self._exits_within(bound * EOF_SHARE):
            return
        logger.info("server %r (pid %d) stays at the end of its input; sending SIGTERM", self._server, self.pid)
        self._signal(signal.SIGTERM)
        if await self._exits_within(bound * TERM_SHARE):
            return
        logger.warning("server %r (pid %d) ignores SIGTERM; sending SIGKILL", self._server, self.pid)
        self._signal(signal.SIGKILL)
        if not await self._exits_within(max(bound * (1 - EOF_SHARE - TERM_SHARE), REAP_FLOOR)):
            logger.error("server %r: process %d was killed but does not end; it is left behind", self._server, self.pid)

    async def _exits_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.wait()
        return self.poll() is not None

    def close_pipes(self) -> None:
        """Close our ends of the pipes."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


async def start_process(server: str, transport: Stdio, environment: Mapping[str, str]) -> ServerProcess:
    """Start the server's process. It never goes through a shell.

    **Cancellation:** until the process exists there is nothing to clean up, and from then on this returns it, even if
    it was cancelled meanwhile (the cancellation comes out at the next checkpoint). The caller puts up its clean-up
    before that.

    Raises:
        ConnectFailed: it cannot be started.
    """
    # In a thread that may be abandoned: a directory in PATH may be on a file server that does not answer.
    program = await trio.to_thread.run_sync(
        lambda: find_program(server, transport.command, cwd=transport.cwd, path=environment.get("PATH")),
        abandon_on_cancel=True,
    )
    try:
        process = await trio.lowlevel.open_process(
            [transport.command, *transport.args],
            executable=program,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            env=environment,
            cwd=transport.cwd,
        )
    except (OSError, ValueError) as error:
        raise explain_spawn_error(server, transport.command, error) from error
    return ServerProcess(process, server)
