"""Record what happens when a server is killed: the screens of ``mcp-actors watch``, and the outcomes of four calls.

Both recordings are of real processes, and are kept as JSON next to the pictures that ``_pictures.py`` draws of them::

    python docs/_recording.py

records them again, and keeps the old one if the new one differs in times and process ids only. ``nox -s docs`` does
this and draws the pictures again, so they show the present program.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio
import trio.testing

from mcp_actors import ConnectionLost, ServerConfig, ServerGroup, ServerUnavailable, StateChanged, Stdio, open_servers
from mcp_actors.kernel import Event, RequestStarted

ROOT: Final = Path(__file__).parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
SCRIPTS: Final = Path(sys.executable).parent

COLUMNS: Final = {"watch": 80, "watch-narrow": 46}
"""The recordings of ``mcp-actors watch``, and the width of the terminal of each."""

ROWS: Final = 12
PATIENCE: Final = 90.0
"""Seconds for a step that takes one or two: a machine may be busy with other things."""

SERVERS: Final = {
    "time": {"command": "mcp-server-time"},
    "git": {"command": "mcp-server-git"},
    "docs": {"command": "docs-server"},
}

Run: TypeAlias = tuple[str, str]
"""Some characters of a screen that have one style, and that style: a few words of ``bold``, ``green`` …"""

Row: TypeAlias = list[Run]
Screen: TypeAlias = list[Row]


# --- A terminal -------------------------------------------------------------------------------------------------------


class Emulator:
    """The screen of a terminal that knows the few sequences that the command line writes, and refuses others.

    It has endless height, so its rows are also those that have scrolled away.

    Args:
        columns: the width, at which text continues in the next row; None for no limit.
    """

    _STYLES: Final = {1: "bold", 2: "dim", 31: "red", 32: "green", 33: "yellow"}
    _TOKEN: Final = re.compile(
        r"\x1b\[(?P<numbers>[?\d;]*)(?P<letter>[A-Za-z])|(?P<other>[\x00-\x1f])|(?P<text>[^\x00-\x1f]+)"
    )

    def __init__(self, columns: int | None = None) -> None:
        self._columns = columns
        self._rows: list[list[tuple[str, str]]] = [[]]
        self._row = self._column = 0
        self._style: tuple[str, ...] = ()

    def feed(self, written: str) -> None:
        """Take what a program has written.

        Raises:
            ValueError: a sequence is not known.
        """
        end = 0
        for token in self._TOKEN.finditer(written):
            if token.start() != end:
                break
            end = token.end()
            if token["letter"]:
                self._control(token["letter"], token["numbers"])
            elif token["other"]:
                self._move(token["other"])
            else:
                self._write(token["text"])
        if end != len(written):
            raise ValueError(f"the terminal does not know {written[end : end + 20]!r}; add it to Emulator")

    def screen(self) -> Screen:
        """Return the rows, each as runs of one style, without spaces and empty rows at the end."""
        rows = [_runs(row) for row in self._rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def _control(self, letter: str, numbers: str) -> None:
        if letter == "m":
            for code in map(int, numbers.split(";") if numbers else ["0"]):
                self._style = () if code == 0 else (*self._style, self._STYLES[code])
        elif letter == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif letter == "K" and numbers == "2":
            self._rows[self._row] = []
        elif (letter, numbers) not in {("l", "?25"), ("h", "?25")}:  # the cursor is not drawn
            raise ValueError(f"the terminal does not know ESC [ {numbers}{letter}; add it to Emulator")

    def _move(self, control: str) -> None:
        if control == "\r":
            self._column = 0
        elif control == "\n":
            self._down()
        else:
            raise ValueError(f"the terminal does not know {control!r}; add it to Emulator")

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _write(self, text: str) -> None:
        style = " ".join(self._style)
        for character in text:
            if self._column == self._columns:
                self._column = 0
                self._down()
            row = self._rows[self._row]
            row += [(" ", "")] * (self._column - len(row))
            row[self._column : self._column + 1] = [(character, style)]
            self._column += 1


def _runs(cells: list[tuple[str, str]]) -> Row:
    """Return the cells of a row as runs of one style. Spaces have none."""
    runs: Row = []
    for character, style in cells:
        if runs and (character == " " or runs[-1][1] == style):
            runs[-1] = (runs[-1][0] + character, runs[-1][1])
        else:
            runs.append((character, style if character != " " else ""))
    if runs:
        runs[-1] = (runs[-1][0].rstrip(), runs[-1][1])
    return [run for run in runs if run[0]]


def plain(screen: Screen) -> list[str]:
    """Return the text of a screen, one string for each row."""
    return ["".join(text for text, _ in row) for row in screen]


# --- ``mcp-actors watch``, and a server that is killed ----------------------------------------------------------------


class Watching:
    """``mcp-actors watch`` in a terminal, with all screens that it has shown since it knew its servers."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._emulator = Emulator()
        self._began = 0.0
        self.frames: list[dict[str, Any]] = []

    def until(self, shows: Callable[[list[str]], object]) -> None:
        """Read until the screen shows something.

        Raises:
            RuntimeError: it never did.
        """
        deadline = time.monotonic() + PATIENCE
        while not (self.frames and shows(plain(self.frames[-1]["screen"]))):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the screen never came; the last one is {plain(self._emulator.screen())}")
            self._read(0.2)

    def rest(self, seconds: float) -> None:
        """Read for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._read(left)

    def note(self, key: str, value: Any) -> None:
        """Add a frame with the same screen and something else that happened."""
        frame = {"at": self._now(), "screen": self.frames[-1]["screen"], key: value}
        self.frames.append(frame)

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 2)

    def _read(self, seconds: float) -> None:
        written = b""
        # A refresh is written in pieces, so it is read until the program rests.
        while select.select([self._master], [], [], 0.03 if written else seconds)[0]:
            written += os.read(self._master, 65536)
        self._emulator.feed(written.decode())
        screen = self._emulator.screen()
        if not plain(screen) or plain(screen)[0].startswith("connecting to"):
            return
        if not self.frames:
            self._began = time.monotonic()
        if not self.frames or screen != self.frames[-1]["screen"]:
            self.frames.append({"at": self._now(), "screen": screen})


@contextmanager
def watching(folder: Path, columns: int) -> Iterator[Watching]:
    """Run ``mcp-actors watch`` for the servers of a folder in a terminal of this many columns."""
    environment = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder), "LC_ALL": "C.UTF-8"}
    environment["PATH"] = f"{SCRIPTS}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = str(ROOT)
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        command = [sys.executable, "-m", "mcp_actors", "watch", "--config", ".mcp.json"]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        ) as process:
            os.close(slave)
            try:
                yield Watching(master)
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    _drain(master, process)
                finally:
                    process.kill()
    finally:
        os.close(master)


def _drain(master: int, process: subprocess.Popen[bytes]) -> None:
    """Read the rest, for which the program waits, until it has ended."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                os.read(master, 65536)
            except OSError:  # on Linux: the other side is closed
                process.wait(PATIENCE)


def row_of(server: str, rows: list[str]) -> list[str]:
    """Return the words in the row of a server: its name, its state, its run and more."""
    return next((row.split() for row in rows if row.startswith(f"{server} ")), [server, "", ""])


def record_watch(columns: int, *, before: float = 2.2, after: float = 4.2) -> dict[str, Any]:
    """Kill a server while it is watched; return the screens, each with the seconds since the first one.

    Args:
        columns: the width of the terminal.
        before: how many seconds it is watched before the kill.
        after: the same for the time since it is ready again.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
        (folder / ".mcp.json").chmod(0o600)
        with watching(folder, columns) as shown:
            shown.until(lambda rows: row_of("time", rows)[1] == "ready" and row_of("git", rows)[1] == "ready")
            shown.rest(before)
            pid = int(row_of("time", plain(shown.frames[-1]["screen"]))[3])
            shown.note("typed", f"kill -9 {pid}")
            os.kill(pid, signal.SIGKILL)
            shown.until(lambda rows: row_of("time", rows)[1:3] == ["ready", "2"])
            shown.rest(after)
    return {"columns": columns, "frames": shown.frames}


# --- Four calls while a server dies -----------------------------------------------------------------------------------


class Calls:
    """Four calls to a server: what happened, in order."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin now, and forget what was before."""
        self.steps: list[dict[str, Any]] = []
        self._began = trio.current_time()
        self._number = 0

    def note(self, what: str, **more: Any) -> None:
        """Note that something has happened now."""
        self.steps.append({"at": round(trio.current_time() - self._began, 4), "what": what, **more})

    def observe(self, event: Event) -> None:
        """Note the events of the server: requests that are sent, and states."""
        if isinstance(event, StateChanged):
            self.note(event.new)
        elif isinstance(event, RequestStarted) and event.message == "CallTool":
            self.note("sent", call=self._number)

    async def call(self, servers: ServerGroup) -> None:
        """Call a tool, and note the outcome."""
        self._number += 1
        number = self._number
        self.note("called", call=number)
        try:
            await servers["time"].call("get_current_time", timezone="Europe/Paris")
        except ConnectionLost as error:
            self.note("raised", call=number, text=f"ConnectionLost, {error.outcome}")
        except ServerUnavailable as error:
            self.note("raised", call=number, text=f"ServerUnavailable, {error.state}")
        else:
            self.note("returned", call=number, text="the time")


async def _four_calls() -> list[dict[str, Any]]:
    """As in ``examples/pages/tutorial_dying_server.py``: normally, while it dies, before it is back, after a stop."""
    calls = Calls()
    time_server = ServerConfig("time", Stdio(SCRIPTS / "mcp-server-time"))
    async with open_servers(time_server, observers=[calls.observe]) as servers:
        calls.begin()
        await calls.call(servers)
        pid = servers.status()["time"].pid
        assert pid is not None
        async with trio.open_nursery() as nursery:
            os.kill(pid, signal.SIGSTOP)  # so it cannot answer
            nursery.start_soon(calls.call, servers)
            await trio.testing.wait_all_tasks_blocked()
            calls.note("killed")
            os.kill(pid, signal.SIGKILL)
        await calls.call(servers)
        await servers["time"].stop()
        await calls.call(servers)
        return calls.steps


def record_calls() -> dict[str, Any]:
    """Make four calls to a server that is killed; return the steps, each with the seconds since the first one."""
    return {"steps": trio.run(_four_calls)}


# --- The committed recordings -----------------------------------------------------------------------------------------


def masked_frames(recording: dict[str, Any]) -> list[list[str]]:
    """Return the screens of a recording without times and process ids, each as long as it stays the same once.

    The state before the restart is left out: the restart follows at once, so the screen may show it or not.
    """
    masked: list[list[str]] = []
    for frame in recording["frames"]:
        rows = [_mask(row) for row in plain(frame["screen"])]
        if "typed" in frame:
            rows.append(_mask(frame["typed"]))
        elif row_of("time", rows)[1] == "backoff":
            continue
        if not masked or rows != masked[-1]:
            masked.append(rows)
    return masked


def _mask(row: str) -> str:
    """Replace process ids and times, and the spaces that depend on their width."""
    row = re.sub(r"\b\d+ s\b", "N s", row)
    row = re.sub(r"(N s|for)\b.*…$", r"\1 …", row)  # a long id leaves less room to what follows
    return re.sub(r" +", " ", re.sub(r"\b\d{2,}\b", "PID", row))


def masked_steps(recording: dict[str, Any]) -> dict[str, list[str]]:
    """Return the steps of a recording without times: those of the program, and those of the server.

    They are two lists, because the program may call while the server is being restarted, earlier or later.
    """
    sides: dict[str, list[str]] = {"program": [], "server": []}
    for step in recording["steps"]:
        side = "program" if step["what"] in {"called", "returned", "raised", "killed"} else "server"
        sides[side].append(" ".join(str(value) for key, value in step.items() if key != "at"))
    return sides


def committed(name: str) -> dict[str, Any]:
    """Return a committed recording."""
    recording: dict[str, Any] = json.loads((PICTURES / f"{name}.json").read_text())
    return recording


def write(name: str, recording: dict[str, Any], masked: Callable[[dict[str, Any]], object]) -> bool:
    """Write a recording, unless only times and process ids have changed; return True if it was written."""
    file = PICTURES / f"{name}.json"
    # As read back from JSON, which has no tuples.
    recording = json.loads(json.dumps(recording))
    if file.exists() and masked(committed(name)) == masked(recording):
        return False
    [(key, items)] = [(key, value) for key, value in recording.items() if isinstance(value, list)]
    more = "".join(f'  "{name}": {json.dumps(value)},\n' for name, value in recording.items() if name != key)
    lines = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in items)
    file.write_text(f'{{\n{more}  "{key}": [\n{lines}\n  ]\n}}\n')
    return True


def main() -> None:
    """Record everything again."""
    logging.disable()  # a server that dies is no news here
    write("calls", record_calls(), masked_steps)
    for name, columns in COLUMNS.items():
        write(name, record_watch(columns), masked_frames)


if __name__ == "__main__":
    main()
