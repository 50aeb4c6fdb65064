"""Start, watch and stop a server process, and read its stderr.

The process may be a wrapper such as ``npx``, with the real server as its child. So signals go to a whole process group,
which the process leads. The system may reuse the number of an empty group, so the leader is reaped only after the
connection has ended.

Owns: the start thread; the process; its pipes; the task that awaits the exit; the last stderr output.
Writes: signals to the process group; the log. Reads ``/proc``.
Calls: transports, _command.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from subprocess import Popen
from threading import Lock
from typing import TYPE_CHECKING, Final

import trio
from outcome import Outcome, capture

from ..._foreign import Log
from ..._tasks import TimeSlice
from ..._text import own_shortage, plain_text
from .._credentials import Masker
from ._command import confined, environment_of_start, explain_spawn_error, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..._tasks import Background
    from ...config import Stdio


# --- Watch a child process's exit and suspension without reaping the child --------------------------------------------

# Linux reports an exit through a file descriptor (pidfd), macOS through an event (kqueue), so no thread has to wait.


SHORTAGE_WAIT: Final = 0.5
"""Seconds between two checks of a process while no file descriptor is left for a pidfd."""


async def wait_exiting(pid: int) -> bool:
    """Wait until a child has exited and return True; return False at once if the system does not report exits."""
    if sys.platform == "linux":
        return await _wait_pidfd(pid)
    elif sys.platform == "darwin":
        return await _wait_kqueue(pid)
    else:
        await trio.lowlevel.checkpoint()
        return False


if sys.platform == "linux":

    async def _wait_pidfd(pid: int) -> bool:
        try:
            while (descriptor := _open_pidfd(pid)) is None:
                await trio.sleep(SHORTAGE_WAIT)
                if has_exited(pid):
                    return True
        except OSError:  # a kernel before 5.3, or a sandbox that forbids it
            await trio.lowlevel.checkpoint()
            return False
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return True

    def _open_pidfd(pid: int) -> int | None:
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            if own_shortage(error) is None:
                raise
            return None

    def has_exited(pid: int) -> bool:
        """Return True if a child has exited, without reaping it."""
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

elif sys.platform == "darwin":

    async def _wait_kqueue(pid: int) -> bool:
        queue = trio.lowlevel.current_kqueue()

        def event(flags: int) -> select.kevent:
            return select.kevent(pid, select.KQ_FILTER_PROC, flags, select.KQ_NOTE_EXIT)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            queue.control([event(select.KQ_EV_DELETE)], 0)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            queue.control([event(select.KQ_EV_ADD | select.KQ_EV_ONESHOT)], 0)
        except ProcessLookupError:  # just exited: kqueue no longer finds it
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_kevent(pid, select.KQ_FILTER_PROC, abort)
        return True


def is_stopped(pid: int) -> bool:
    """Return True if a child is stopped (SIGSTOP, state T); False if the system does not report stops."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:  # it was reaped, or a sandbox forbids this
        return False


def is_code_known(pid: int) -> bool | None:
    """Return None while a child runs, and then whether the exit code can be known.

    Another waiter may reap the child first, as the system does while SIGCHLD is ignored. `Popen` would report 0 then.
    """
    try:
        return None if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None else True
    except ChildProcessError:
        return False
    except (AttributeError, OSError):  # macOS, before Python 3.13, or a sandbox that forbids it
        return signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN


def has_successor(leader: int, written: int) -> bool:
    """Return True if another process of the leader's session wrote at least `written` bytes, or if unknown. Blocks.

    `written` counts bytes received on stdout. A server that was a child of the exited leader wrote them; a helper that
    only inherited the pipes did not.
    """
    if sys.platform == "linux":
        try:
            return any(_succeeds(process, leader, written) for process in Path("/proc").iterdir())
        except OSError:
            return True  # a shortage of files, for example
    else:
        return True


def _succeeds(process: Path, leader: int, written: int) -> bool:
    try:
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        return int(session) == leader and state != "Z" and _written(process) >= written
    except PermissionError:
        return True  # of ``io``: a process of this session, but of another user
    except OSError as error:
        # Usually not a process, or just exited. In a shortage of files, the answer is unknown.
        return own_shortage(error) is not None


def _written(process: Path) -> int:
    counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    return int(counts["wchar"])


# --- Stop a process and its group -------------------------------------------------------------------------------------


logger = Log("mcp_actors.servers")

EOF_SHARE: Final = 0.4
"""Share of ``stop_timeout`` to exit after stdin is closed: 2 s of the default 5 s, as in the SDK."""

TERM_SHARE: Final = 0.4
"""Share after SIGTERM. The rest is for SIGKILL, which takes milliseconds."""

REAP_FLOOR: Final = 0.5
"""Minimum seconds for a killed process to vanish, or a busy machine would make it look unkillable."""


class ServerProcess:
    """A running server: three pipes and a process group.

    A wrapper that exits while its server serves stays a zombie, which is harmless. A process that leaves the group by
    ``setsid`` has declared itself a daemon and is not stopped.

    Attributes:
        code_unknown: True if the exit code of the leader cannot be known; `poll` and `wait` return 0 then.
    """

    def __init__(self, process: Popen[bytes], pipes: tuple[int, int, int], server: str) -> None:
        self._process = process
        self._server = server
        self._group_ended = False
        self._exited: trio.Event | None = None
        self.code_unknown = False
        self.pid = process.pid
        self.stdin, self.stdout, self.stderr = map(trio.lowlevel.FdStream, pipes)

    def poll(self) -> int | None:
        """Return the exit code; None if the leader is alive. Reaps, so the connection must have ended."""
        if self._process.returncode is None:
            if (known := is_code_known(self.pid)) is None:
                return None
            self.code_unknown = not known
        code = self._process.poll()
        # No checkpoint may come between the reaping and the kill. Once the leader is reaped and its group is empty, the
        # system may give the number of the group to a stranger. So the rest of the group is killed now, and never
        # signaled again.
        if code is not None and not self._group_ended:
            self._signal(signal.SIGKILL)
            self._group_ended = True
        return code

    def watch(self, background: Background, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` when the leader has exited, if the system reports exits. Does not reap."""
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
        return not self._group_ended and is_stopped(self.pid)

    def has_successor(self, written: int) -> bool:
        """See `has_successor`, once the leader has exited. Blocks."""
        return has_successor(self.pid, written)

    async def wait(self) -> int:
        """Wait for the leader to exit and return its code. Reaps, so the connection must have ended."""
        if self._exited is not None:
            await self._exited.wait()
        while (code := self.poll()) is None:  # noqa: ASYNC110 - the system does not report the exit
            await trio.sleep(0.01)
        return code

    def _signal(self, number: signal.Signals) -> None:
        # macOS raises PermissionError for a group of zombies.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def stop(self, seconds: float) -> None:
        """Stop the group: close stdin, then send SIGTERM, then SIGKILL; return once the leader is reaped.

        The caller must read stdout and stderr meanwhile: a server that blocks on a full pipe never sees the end of its
        input.

        Args:
            seconds: the maximum duration (but see `REAP_FLOOR`).
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
        return self.poll() is not None  # the exit may come in the step in which the time is over

    def close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


# --- Start a server process in a single hop to a thread ---------------------------------------------------------------

# The look-up of the program may hang: a directory in PATH may be on a dead file server. So a cancelled start does not
# wait for the thread. A process spawned after that would never be stopped. So thread and owner race for a lock that is
# never released:
#
# - The thread takes the lock just before it spawns: a cancelled owner waits for the process, and stops it as usual.
# - The owner takes the lock when it is cancelled: the thread never spawns.


async def start_process(
    server: str, transport: Stdio, environment: Mapping[str, str], source: str | None = None
) -> ServerProcess:
    """Start the server's process, without a shell.

    **Cancellation:** leaves nothing behind. A process that is being spawned is still returned, and the caller's next
    checkpoint raises `Cancelled`: prepare the clean-up before.

    Raises:
        ConnectFailed: the process cannot be started.
    """
    start = _Start(server, transport, environment, source)
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
    return start.result.unwrap()


class _Start:
    """The state that the thread and the owner of a start share. `spawned` is set after the attempt."""

    def __init__(self, server: str, transport: Stdio, environment: Mapping[str, str], source: str | None) -> None:
        self._server = server
        path = environment.get("PATH")
        self._find = partial(find_program, server, transport.command, cwd=transport.cwd, path=path, source=source)
        self._given: tuple[Stdio, Mapping[str, str]] | None = transport, environment
        self._token = trio.lowlevel.current_trio_token()
        self._decided = Lock()
        self.result: Outcome[ServerProcess]
        self.spawned = trio.Event()

    def run(self) -> None:
        """Find the program and spawn the process, in a thread.

        Raises:
            ConnectFailed: the program does not exist.
        """
        program = self._find()
        if (given := self._given) is None:
            return  # the owner has left
        transport, environment = given
        line = [transport.command, *transport.args]
        if transport.sandbox is not None:
            line = confined(self._server, transport.sandbox, program, line, environment)
            program, environment = line[0], environment_of_start(environment)
        if self._decided.acquire(blocking=False):
            self.result = capture(self._spawn, program, line, environment, transport)
            self._token.run_sync_soon(self.spawned.set)

    def abandon(self) -> bool:
        """Release the configuration. Return False if the process is being spawned."""
        self._given = None  # a thread that hangs in the look-up keeps this object
        return self._decided.acquire(blocking=False)

    def _spawn(self, program: str, line: list[str], environment: Mapping[str, str], transport: Stdio) -> ServerProcess:
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
                    cwd=transport.cwd,
                )
                our_ends.pop_all()
        except (OSError, ValueError) as error:
            raise explain_spawn_error(self._server, transport.command, error) from error
        return ServerProcess(popen, (to_stdin, from_stdout, from_stderr), self._server)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


# --- Read and log the stderr of a server, and keep its end ------------------------------------------------------------


stderr_logger = Log("mcp_actors.servers.stderr")
"""One logger for all servers, because a logger is never freed. ``record.mcp_server`` names the server, for filters."""

TAIL_BYTES: Final = 64 * 1024
"""Kept bytes of the end: a long traceback fits, or a full pipe."""

LINE_BYTES: Final = 8 * 1024
"""Longer lines are logged in pieces: a progress bar may never write a newline."""

PART_BYTES: Final = 4 * 1024  # split into lines in one step: each byte may be a line

LINES_A_SECOND: Final = 200
"""Lines logged per second; the rest is counted. Several long tracebacks fit."""

BYTES_A_SECOND: Final = 256 * 1024
"""Bytes logged per second. In the worst case, cleaning them takes a tenth of a second."""


class StderrReader:
    """Reads and logs the stderr of one server to the end. Unread, stderr would block the server after 64 KiB."""

    def __init__(self, stream: trio.lowlevel.FdStream, server: str, masker: Masker) -> None:
        self._stream = stream
        self._server = server
        self._masker = masker
        self._tail = bytearray()
        self._begun = b""
        self._second = trio.current_time()
        self._lines = 0
        self._bytes = 0
        self._left_out = 0
        self.ended = trio.Event()

    async def run(self) -> None:
        try:
            while data := await self._read():
                self._tail += data
                del self._tail[: -TAIL_BYTES - self._margin]
                if stderr_logger.is_enabled_for(logging.INFO):
                    await self._take(data)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass
        finally:
            if self._begun:
                self._log(self._begun)
            self._report()
            self.ended.set()

    def tail(self) -> str:
        """Return the end of the text, masked."""
        text = self._tail.decode("utf-8", "replace")
        # More than the tail is kept: a credential that begins before the tail is still masked.
        begin = self._masker.place_to_cut(text, len(self._tail[:-TAIL_BYTES].decode("utf-8", "replace")))
        return self._masker(text[begin:]).rstrip()

    async def _read(self) -> bytes:
        """Read the next bytes. Report dropped lines when their second is over, even if nothing comes."""
        if self._left_out:
            await trio.sleep(0.01)  # read slowly while lines are dropped
            with trio.move_on_at(self._second + 1):
                return bytes(await self._stream.receive_some())
            self._report()
        return bytes(await self._stream.receive_some())

    async def _take(self, data: bytes) -> None:
        time_slice = TimeSlice()
        for begin in range(0, len(data), PART_BYTES):
            lines = self._lines_in(data[begin : begin + PART_BYTES])
            while lines and not self._enough():
                self._log(lines.popleft())
                await time_slice.checkpoint()
            self._left_out += len(lines)
            await time_slice.checkpoint()

    def _lines_in(self, part: bytes) -> deque[bytes]:
        *lines, begun = (self._begun + part).split(b"\n")
        if len(begun) > LINE_BYTES + self._margin:
            piece, begun = self._parted(begun)
            lines.append(piece)
        self._begun = begun
        return deque(filter(None, lines))

    @property
    def _margin(self) -> int:
        return 4 * self._masker.longest  # a character has up to 4 bytes

    def _parted(self, line: bytes) -> tuple[bytes, bytes]:
        """Split an endless line before a credential that has arrived in part."""
        text = line.decode("utf-8", "replace")
        end = self._masker.place_to_cut(text, max(len(text) - self._masker.longest, 0))
        return text[:end].encode(), text[end:].encode()

    def _enough(self) -> bool:
        now = trio.current_time()
        if now >= self._second + 1:
            self._report()
            self._second, self._lines, self._bytes = now, 0, 0
        return self._lines >= LINES_A_SECOND or self._bytes >= BYTES_A_SECOND

    def _log(self, line: bytes) -> None:
        self._lines += 1
        self._bytes += len(line)
        # Mask before cutting: the masker does not recognize a credential in pieces.
        masked = self._masker(line.decode("utf-8", "replace"))
        for begin in range(0, len(masked), LINE_BYTES):
            if text := plain_text(masked[begin : begin + LINE_BYTES], limit=LINE_BYTES + 1):
                stderr_logger.info("%s: %s", self._server, text, extra={"mcp_server": self._server})

    def _report(self) -> None:
        if self._left_out:
            stderr_logger.info(
                "%s: %d more lines on stderr were not logged (limit: %d lines or %d bytes per second)",
                self._server,
                self._left_out,
                LINES_A_SECOND,
                BYTES_A_SECOND,
                extra={"mcp_server": self._server},
            )
            self._left_out = 0
