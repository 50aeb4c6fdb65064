"""The command line as people use it: in a pseudo-terminal, and with pipes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..forkserver import Program, interpreter, run_python, start_python
from ..servers.processes import processes
from ..servers.scripted_server import command
from ..source import docs_module

COMMAND: Final = ("-m", "mcp_actors")
PATIENCE: Final = 90.0
"""Seconds for what takes one or two: it is for a machine that is busy with other things."""

NAMED: Final = "using .mcp.json\n"
"""What stderr begins with where the configuration was found. It has tests of its own, and is left out for others."""

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def program() -> tuple[str, ...]:
    """Return the words of the command for shells and for other programs."""
    return interpreter(), *COMMAND


def scripted(*flags: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of a scripted server."""
    program, args = command(*flags)
    return {"command": program, "args": args, "mcp_actors": {"protocol": "legacy", **settings}}


def write(folder: Path, servers: dict[str, Any], **more: Any) -> None:
    """Write the configuration that is found in a folder."""
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers, **more}))


def accept_found(folder: Path) -> None:
    """Accept the configuration in a folder, if there is one, as its user does at a terminal."""
    from mcp_actors.cli._configuration import accept

    if (file := folder / ".mcp.json").exists():
        accept(file, file.read_bytes())


def piped(
    folder: Path, *words: str, cold: bool = False, accepted: bool = True, program: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own without a terminal; in a new interpreter if it is to be `cold`.

    The content of the file that it finds was accepted before, unless `accepted` is False.
    """
    if accepted:
        accept_found(folder)
    done = run_python(*program, *words, cwd=folder, timeout=PATIENCE, cold=cold)
    done.stderr = done.stderr.removeprefix(NAMED)
    return done


@contextmanager
def started(folder: Path, *words: str, ignores: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a command in a process of its own, its output in pipes; kill it if it still runs at the end.

    `ignores` names a signal that it ignores from its start, as after ``nohup``.
    """
    accept_found(folder)
    shell = f"trap '' {ignores}; exec \"$@\"" if ignores else 'exec "$@"'
    pipe = subprocess.PIPE
    args = ["sh", "-c", shell, "sh", *program(), *words]
    with subprocess.Popen(args, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_changes(watching: subprocess.Popen[str], count: int) -> list[tuple[str, str]]:
    """Return the next lines of ``watch --json``: a server, and its new state."""
    assert watching.stdout is not None
    changes = [json.loads(watching.stdout.readline()) for _ in range(count)]
    return [(change["server"], change["new"]) for change in changes]


def wait_for_text(file: Path, text: str) -> None:
    """Wait until a file holds a text."""
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{text!r} never came"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return True if there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Terminal:
    """A command in a terminal. `text` is what it has shown, without colours."""

    def __init__(self, master: int, process: Program, columns: int) -> None:
        self._master = master
        self._columns = columns
        self.process = process
        self.raw = b""

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")

    @property
    def screen(self) -> list[str]:
        """The lines that its user sees, and those that have scrolled away."""
        recording = docs_module("_recording")
        emulator = recording.Emulator(self._columns)
        emulator.feed(self.raw.decode(errors="replace"))
        lines: list[str] = recording.plain(emulator.screen())
        return lines

    def type(self, keys: str) -> None:
        """Type some keys, of which the one of code 3 is Ctrl-C."""
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait until something has been shown."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            assert self._read(), f"it ended, and showed: {self.text}"

    def wait_idle(self) -> None:
        """Wait until the command sleeps: it has done all that there was to do, and waits for events."""
        deadline = time.monotonic() + PATIENCE
        while not any(each.pid == self.process.pid and each.state in "SI" for each in processes()):
            assert time.monotonic() < deadline, f"it is always busy, and showed: {self.text}"
            time.sleep(0.02)

    def close(self) -> None:
        """Close the terminal, as people close a window."""
        # The descriptor stays open, because the block that opened it will close it.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, self._master, inheritable=False)
        os.close(nowhere)

    def wait(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], PATIENCE)
        assert ready, f"nothing more came after: {self.text}"
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            return False  # on Linux this means that the other side is closed
        self.raw += piece
        return bool(piece)


@contextmanager
def terminal(
    folder: Path,
    *words: str,
    columns: int = 100,
    deaf: bool = False,
    found: bool = False,
    elsewhere: Sequence[str] = (),
    program: Sequence[str] = COMMAND,
    **variables: str,
) -> Iterator[Terminal]:
    """Run a command in a pseudo-terminal, with these variables in its environment; its file is named if not `found`.

    Who is deaf does not hear the signal that the terminal was closed, as programs under nohup do not. The streams that
    are `elsewhere` are files in the folder: ``stdin`` is empty, ``stdout`` and ``stderr`` have the output.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    environment |= variables
    with ExitStack() as stack:
        stack.callback(os.close, master)
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        streams |= {name: stack.enter_context((folder / name).open("w+")) for name in elsewhere}
        with start_python(
            *(*program, *words, *([] if found else ["--config", ".mcp.json"])),
            cwd=folder,
            env=environment,
            **streams,
            start_new_session=True,
            preexec_fn=partial(take_terminal, os.ttyname(slave), deaf=deaf),
        ) as process:
            os.close(slave)
            try:
                yield Terminal(master, process, columns)
            finally:
                process.kill()


def take_terminal(name: str, *, deaf: bool = False) -> None:
    """Make a terminal that of this session, so that a Ctrl-C in it becomes a signal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN if deaf else signal.SIG_DFL)
    terminal = os.open(name, os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.close(terminal)
