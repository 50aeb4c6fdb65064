"""Start a server process in a single hop to a thread.

The thread finds the program and spawns it. The look-up may hang, because a directory in PATH may be on a file server
that does not respond, so a start that is cancelled does not wait for it. A process that is spawned after that would
never be stopped. So thread and owner race for a lock that is never released:

====================================  ==============================================================================
the lock is taken first by            then
====================================  ==============================================================================
the thread, just before it spawns     an owner that is cancelled waits for the process, and stops it as usual
the owner, when it is cancelled       the thread never spawns
====================================  ==============================================================================
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from subprocess import Popen
from threading import Lock
from typing import TYPE_CHECKING

import trio
from outcome import Outcome, capture

from ...basics import own_shortage
from ._command import explain_spawn_error, find_program
from ._process import ServerProcess
from ._sandbox import confined, environment_of_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....config import Stdio


async def start_process(server: str, transport: Stdio, environment: Mapping[str, str]) -> ServerProcess:
    """Start the server's process, without a shell.

    **Cancellation:** leaves nothing behind. Once the process is being spawned it is returned even if this task was
    cancelled meanwhile; `Cancelled` is raised at the caller's next checkpoint, so the caller must prepare its clean-up
    before.

    Raises:
        ConnectFailed: it cannot be started.
    """
    start = _Start(server, transport, environment)
    try:
        await trio.to_thread.run_sync(start.run, abandon_on_cancel=True)
    except trio.Cancelled:
        if start.abandon():
            raise
        with trio.CancelScope(shield=True):  # bounded by the spawn
            await start.spawned.wait()
    except RuntimeError as error:
        if own_shortage(error) is None:
            raise
        raise explain_spawn_error(server, transport.command, error) from error
    return start.process()


class _Start:
    """One start: what its thread and its owner share.

    Attributes:
        spawned: set once the thread has spawned the process, or failed to.
    """

    def __init__(self, server: str, transport: Stdio, environment: Mapping[str, str]) -> None:
        self._server = server
        self._transport = transport
        self._environment = environment
        self._token = trio.lowlevel.current_trio_token()
        self._decided = Lock()
        self._result: Outcome[ServerProcess]
        self.spawned = trio.Event()

    def run(self) -> None:
        """Find the program and spawn it, in a thread.

        Raises:
            ConnectFailed: there is no such program.
        """
        command, path = self._transport.command, self._environment.get("PATH")
        program = find_program(self._server, command, cwd=self._transport.cwd, path=path)
        line, environment = [command, *self._transport.args], self._environment
        if (sandbox := self._transport.sandbox) is not None:
            line = confined(self._server, sandbox, program, line, self._environment)
            program, environment = line[0], environment_of_start(environment)
        if self._decided.acquire(blocking=False):
            self._result = capture(self._spawn, program, line, environment)
            self._token.run_sync_soon(self.spawned.set)

    def abandon(self) -> bool:
        """Return True if no process will be spawned; False if one is being spawned."""
        return self._decided.acquire(blocking=False)

    def process(self) -> ServerProcess:
        """Return the process, or raise the error of its spawn."""
        return self._result.unwrap()

    def _spawn(self, program: str, line: list[str], environment: Mapping[str, str]) -> ServerProcess:
        command = self._transport.command
        try:
            with ExitStack() as child_ends, ExitStack() as our_ends:
                stdin, to_stdin = _pipe(child_ends, our_ends)
                from_stdout, stdout = _pipe(our_ends, child_ends)
                from_stderr, stderr = _pipe(our_ends, child_ends)
                popen = Popen(
                    line,
                    executable=program,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                    env=environment,
                    cwd=self._transport.cwd,
                )
                our_ends.pop_all()
        except (OSError, ValueError) as error:
            raise explain_spawn_error(self._server, command, error) from error
        return ServerProcess(popen, (to_stdin, from_stdout, from_stderr), self._server)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Open a pipe, each end of which is closed with one of these."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
