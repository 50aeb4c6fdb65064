"""One cell: a client in a process of its own, and the scripted servers that it uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Literal, Self
from uuid import uuid4

from attrs import frozen

from mcp_actors.testing import ScriptedServer

from .driver import THROWN_OUT

HERE: Final = Path(__file__).parent
LIMIT: Final = 30.0
"""Seconds that anything in a cell may take."""

ENDED: Final = "block is ended"
"""The verdict if a client throws the program out of its block."""

PAUSE: Final = 0.25
TRY: Final = 6.0
"""Seconds that a program waits for a call that it will repeat."""

ECHO: Final = {"echo": {"text": "hello"}}
"""The arguments of a tool by default."""

Kind = Literal["ok", "error", "nothing", "ended"]


@frozen
class Outcome:
    """The outcome of a command: a value, the text of an error, nothing in time, or the end of the program."""

    kind: Kind
    text: str
    seconds: float


@frozen
class Verdict:
    """The behavior of a client: a word of ``faults.toml``, the seconds that it took, and a detail such as an error."""

    word: str
    seconds: float | None = None
    detail: str = ""


class Judged(Exception):
    """The verdict is known before the end of the scenario."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class Client:
    """The process of a client, and its answers.

    Args:
        python: the interpreter of its environment.
        driver: the name of its module in ``drivers``.
        servers: see ``driver.Servers``.
        errors: what it writes to stderr.
    """

    def __init__(self, python: str, driver: str, servers: dict[str, Any], errors: Any) -> None:
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._last = 0
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [python, str(HERE / "driver.py"), driver, json.dumps(servers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # as a terminal has it: Ctrl-C reaches the group, and nothing else
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, do: str, **arguments: object) -> int:
        """Send a command; return its number."""
        self._last += 1
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"id": self._last, "do": do, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
        return self._last

    def wait(self, number: int, limit: float = LIMIT) -> Outcome:
        """Wait for the answer of a command."""
        began = monotonic()
        with self._news:
            found = self._news.wait_for(lambda: number in self._answers or not self._reader.is_alive(), limit)
        answer = self._answers.get(number)
        seconds = monotonic() - began
        if answer is None:
            thrown_out = self._answers.get(THROWN_OUT, {"error": ""})["error"]
            return Outcome("ended", thrown_out, seconds) if found else Outcome("nothing", "no answer", seconds)
        return Outcome("ok" if "ok" in answer else "error", str(answer.get("ok", answer.get("error"))), seconds)

    def ask(self, do: str, limit: float = LIMIT, **arguments: object) -> Outcome:
        """Send a command and wait for its answer."""
        return self.wait(self.send(do, **arguments), limit)

    def kill(self) -> None:
        """Kill the program and its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError), self._news:  # a client may print, too
                answer = json.loads(line)
                self._answers[answer["id"]] = answer
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


class Cell:
    """A client and its servers, around a block; at its end no process of them is left.

    Args:
        python: the interpreter of the client's environment.
        driver: the name of its module in ``drivers``.
    """

    client: Client

    def __init__(self, python: str, driver: str) -> None:
        self._python = python
        self._driver = driver
        self._stack = ExitStack()
        self._servers: dict[str, Any] = {}
        self._tokens: list[str] = []
        self._errors: Any = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if hasattr(self, "client"):
            self.client.kill()
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._stack.close()

    # --- servers ----------------------------------------------------------------------------------------------------

    def add(
        self,
        way: Literal["stdio", "http"],
        habits: Sequence[str] = (),
        *,
        name: str = "a",
        era: Literal["both", "legacy"] = "both",
        timeout: float | None = None,
    ) -> ScriptedServer:
        """Add a server that the client will use; `habits` are those of ``stdio_server.py``."""
        server = self._stack.enter_context(ScriptedServer(name, era=era))
        if way == "http":
            self._servers[name] = {"url": server.http().url, "timeout": timeout}
            return server
        transport = server.stdio()
        command = [transport.command, *transport.args]
        self._tokens.append(command[-1])
        if habits:
            command = [sys.executable, "-S", "-E", str(HERE / "stdio_server.py"), ",".join(habits), *command]
        self._servers[name] = {"command": command[0], "args": command[1:], "timeout": timeout}
        return server

    def add_command(self, *command: str, name: str = "a") -> None:
        """Add a server that is this command."""
        self._servers[name] = {"command": command[0], "args": command[1:], "timeout": None}

    def add_odd(self, *tools: str) -> None:
        """Add a server with the tools of ``odd_server.py``."""
        token = uuid4().hex
        self._tokens.append(token)
        self.add_command(sys.executable, str(HERE / "odd_server.py"), token, *tools)

    # --- the client -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the program, and wait until it has imported its client, which is not part of what is measured."""
        self.client = Client(self._python, self._driver, self._servers, self._errors)
        imported = self.client.wait(0, 60)
        if imported.kind != "ok":
            raise RuntimeError(f"{self._driver} cannot be imported: {self.printed()[-2000:]}")

    def connect(self) -> None:
        """Start the program and make a first call; otherwise the scenario is over."""
        self.start()
        for outcome in (self.client.ask("open", LIMIT), self.call(limit=LIMIT)):
            if outcome.kind != "ok":
                raise Judged(Verdict("cannot connect", outcome.seconds, outcome.text))

    def call_soon(self, tool: str = "echo", **arguments: object) -> int:
        """Start a call; return its number for `wait`."""
        return self.client.send("call", server="a", tool=tool, arguments=arguments or ECHO.get(tool, {}))

    def call(self, tool: str = "echo", limit: float = LIMIT, **arguments: object) -> Outcome:
        """Call a tool of the first server."""
        return self.client.wait(self.call_soon(tool, **arguments), limit)

    def later_works(self, within: float = 15.0) -> Outcome:
        """Call as a program does that tries again after an error; return the first success, or the last failure."""
        began = monotonic()
        while True:
            outcome = self.call(limit=TRY)
            seconds = monotonic() - began
            if outcome.kind != "error" or seconds > within:
                return Outcome(outcome.kind, outcome.text, seconds)
            sleep(PAUSE)

    def recovers(self, within: float = 15.0) -> Verdict:
        """Judge whether the client uses its server again without being opened again."""
        outcome = self.later_works(within)
        word = {"ok": "recovers", "error": "must be reopened", "nothing": "hangs", "ended": ENDED}[outcome.kind]
        return Verdict(word, outcome.seconds, "" if outcome.kind == "ok" else outcome.text)

    # --- what is left -----------------------------------------------------------------------------------------------

    def left(self) -> list[int]:
        """Return the processes of the servers that live."""
        return processes(self._tokens)

    def printed(self) -> str:
        """Return what the program has written to stderr."""
        self._errors.seek(0)
        return str(self._errors.read(), errors="replace")


def processes(tokens: Iterable[str]) -> list[int]:
    """Return the processes that have one of these arguments."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (each / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if not set(tokens).isdisjoint(arguments):
                found.append(int(each.name))
    return found


def wait_until(condition: Callable[[], object], limit: float) -> float | None:
    """Wait for a condition; return the seconds, or None if the limit came first."""
    began = monotonic()
    while not condition():
        if monotonic() - began > limit:
            return None
        sleep(0.05)
    return monotonic() - began
