"""Watch the process of a stdio server, and stop its process group.

Theory of operation. The process leads a process group of its own, and signals go to the group, because a wrapper such
as ``npx`` or ``uv run`` is only the leader of the real server. A group can be signaled safely until its leader is
reaped: only then can the system reuse its number. So the leader is reaped only after the connection has ended, and the
rest of the group is killed in the same step. A wrapper that exits while its server still serves stays a zombie, which
is harmless.

A process that leaves the group by calling ``setsid`` has declared itself a daemon and is not stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen
from typing import TYPE_CHECKING, Final

import trio

from ...._foreign import Log
from ._exit import has_successor, is_stopped, wait_exiting
from ._pipes import has_no_reader

if TYPE_CHECKING:
    from ...basics import Background

logger = Log("mcp_actors.servers")

EOF_SHARE: Final = 0.4
"""Share of ``stop_timeout`` in which a server should exit after its stdin is closed: 2 s of the default 5 s, as in the
SDK's own transport."""

TERM_SHARE: Final = 0.4
"""Share of it after SIGTERM. The rest is for SIGKILL, which takes milliseconds."""

REAP_FLOOR: Final = 0.5
"""Minimum seconds for a killed process to vanish, however short ``stop_timeout`` is. Otherwise a process on a busy
machine would be reported as one that cannot be killed."""

LOOK_EVERY: Final = 0.01
"""Seconds between two checks whether a process has exited, on systems that do not report it. Only the end of a
connection waits for it."""


class ServerProcess:
    """A running server: three pipes and a process group.

    Args:
        process: its leader, in a session of its own.
        pipes: our ends of its stdin, stdout and stderr.
        server: the name of the server.
    """

    def __init__(self, process: Popen[bytes], pipes: tuple[int, int, int], server: str) -> None:
        self._process = process
        self._server = server
        self._group_ended = False
        self._exited: trio.Event | None = None
        self.pid = process.pid
        self.stdin, self.stdout, self.stderr = map(trio.lowlevel.FdStream, pipes)

    def poll(self) -> int | None:
        """Return the exit code, or None if the leader is alive. Reaps it, so the connection must have ended."""
        code = self._process.poll()
        # This must follow the reaping without a checkpoint. Once the leader is reaped and its group is empty, the
        # system may give the number of the group to a stranger, so the rest of the group is killed now and the group
        # is never signaled again.
        if code is not None and not self._group_ended:
            self._signal(signal.SIGKILL)
            self._group_ended = True
        return code

    def watch(self, background: Background, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` when the leader has exited, if the system reports that. Does not reap it."""
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
        """True if the leader is suspended (SIGSTOP); False if the system does not report that."""
        return not self._group_ended and is_stopped(self.pid)

    @property
    def input_closed(self) -> bool:
        """Whether every process has closed its end of stdin; False where the system does not tell."""
        return has_no_reader(self.stdin)

    def has_successor(self, written: int) -> bool:
        """Return True if another process may have written so many bytes, now that the leader has exited. Blocks."""
        return has_successor(self.pid, written)

    async def wait(self) -> int:
        """Wait for the leader to exit and return its code. Reaps it, so the connection must have ended."""
        if self._exited is not None:
            await self._exited.wait()
        while (code := self.poll()) is None:  # noqa: ASYNC110 - the system does not report the exit
            await trio.sleep(LOOK_EVERY)
        return code

    def _signal(self, number: signal.Signals) -> None:
        # macOS raises PermissionError for a group in which only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def stop(self, seconds: float) -> None:
        """Stop the group: close stdin, then send SIGTERM, then SIGKILL; return as soon as the leader is reaped.

        The caller must read stdout and stderr meanwhile: a server that blocks on a full pipe never sees the end of its
        input. Takes that many seconds at most (but see `REAP_FLOOR`).
        """
        self.stdin.close()
        if await self._exits_within(seconds * EOF_SHARE):
            return
        logger.info(
            "server %r: process %d is still running after its stdin was closed; sending SIGTERM", self._server, self.pid
        )
        self._signal(signal.SIGTERM)
        if await self._exits_within(seconds * TERM_SHARE):
            return
        logger.warning("server %r: process %d is still running after SIGTERM; sending SIGKILL", self._server, self.pid)
        self._signal(signal.SIGKILL)
        if not await self._exits_within(max(seconds * (1 - EOF_SHARE - TERM_SHARE), REAP_FLOOR)):
            logger.error(
                "server %r: process %d is still running after SIGKILL and was abandoned; check whether it is stuck in "
                "uninterruptible I/O",
                self._server,
                self.pid,
            )

    async def _exits_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.wait()
        return self.poll() is not None  # it may have exited in the step in which the time was over

    def close_pipes(self) -> None:
        """Close our ends of the pipes."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()
