"""Print results, end a command on a signal, and define commands' errors.

A terminal gets plain text, and never binary data or a server's escape sequences. A program gets the content unchanged.
``--help`` imports this file, so the SDK is imported only when needed.

Owns: the consoles; the last line of the terminal; the task that receives signals.
Writes: signal handlers of the process; stdout; stderr; files for binary results; handlers and level of the logger for
servers' stderr.
Calls: catalog.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .._misuse import nearest
from .._text import indented, plain_text
from .._user_files import replace_file

_REWORDED: Final = {
    r",? await servers\[(?:'([^']*)'|\"([^\"]*)\")\]\.((?:re)?start)\(\)": r": mcp-actors \3 \1\2",
    r", or await servers\[.*?\]\.sign_in\(\)|, or a DirectorySource|, or pass an httpx2\.Auth in Python": "",
    r", or set the approval of an agent's adapter|; set it in Python$": "",
    r"read the file with load_config\(…, ask=…\) to ask for it": "run this at a terminal, or give it a default",
    r"load_config: config (is a URL.*) write ServerConfig.*": r"--config \1 type the URL in the place of its name",
    r"the server's tool_changes and await its approve_tools\(\.\.\.\)": "it with mcp-actors pins show",
    r"change ServerConfig\.tool_filter": "change its lists of tools",
    r"wait longer with wait_state\('ready'\), or raise": "raise",
    r"; check info\.supports\.\w+ first": "; mcp-actors check shows what the server has",
    r"or set allow_insecure=True if": r'or name the server in a file, with "mcp_actors": {"allow_insecure": true}, if',
    r'set auth=OAuth\(\), in a file "auth": "oauth"': r'write "auth": "oauth" into its entry in a file',
    r"; set (\w+) only in Python": r"; a file cannot set \1",
    r" \(servers\[.*\]\.stderr_tail has more until it is started again\):": ":",
}
"""Remedies in messages for Python programs → remedies at the command line."""

_LONGEST_TEXT: Final = 1024 * 1024  # characters of one text on a terminal


@attrs.frozen
class Binary:
    """A part of a result that is not text: the MIME type according to the server, and the data."""

    kind: str
    base64: str

    def data(self) -> bytes:
        from ..catalog import decoded  # here, because only few commands have binary parts

        try:
            return decoded(self.base64)
        except ValueError:
            raise Failure(f"the server sent {self.kind} that is not valid base64; see it with --json") from None

    def __str__(self) -> str:
        from ..catalog import plain_base64

        return f"{self.kind}, {_spaced(len(plain_base64(self.base64).rstrip('=')) * 3 // 4)} bytes"


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


class Output:
    """The two streams of a command. Only terminals get colours, and `NO_COLOR` is respected.

    Args:
        as_json: True to print results as JSON, and nothing else on stdout.
        file: where to save a result instead.
        verbose: True to print the stderr of servers too.
    """

    def __init__(self, *, as_json: bool = False, file: str | None = None, verbose: bool = False) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.file = None if file is None else _writable(file)
        self.results = Console(highlight=False)
        self.messages = Console(stderr=True, highlight=False)
        self._waits: Live | None = None
        self._awaited = ""

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        self.wait_for(text)
        try:
            yield
        finally:
            self.wait_for("")

    def wait_for(self, text: str) -> None:
        """Replace the text at the end of the terminal; an empty text removes it."""
        self._awaited = text
        if self._waits is not None:
            self._waits.stop()
            self._waits = None
        if text and self.messages.is_terminal:
            # No auto_refresh, which takes a thread. A new Live each time: a second start would erase lines above.
            self._waits = Live(Text(text, "dim"), console=self.messages, auto_refresh=False, transient=True)
            self._waits.start(refresh=True)

    def line(self, *parts: str | tuple[str, str], wrap: bool = False) -> None:
        """Print one line of a result, in pieces with optional styles. Never shortened.

        With `wrap`, lines on a terminal break between words, and further lines are indented.
        """
        if not self.as_json:
            styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
            pieces = [(_on_one_line(text), style) for text, style in styled]
            awaited = self._awaited
            self.wait_for("")  # both streams may be the same terminal
            text = Text.assemble(*pieces)
            if wrap and self.results.is_terminal:  # indented, so that no text of a server begins a line
                text = Text("\n  ").join(text.wrap(self.results, self.results.width - 2))
            self.results.print(text, soft_wrap=True)
            self.wait_for(awaited)

    def item(self, server: str, name: str, rest: str, description: str | None) -> None:
        self.line((server, "dim"), " ", (name, "bold"), rest)
        for line in (description or "").strip().splitlines()[:1]:
            self.line(f"    {line.strip()}")

    def text(self, text: str) -> None:
        if not self.as_json:
            self._write(plain_text(text, limit=_LONGEST_TEXT, lines=True) if self.results.is_terminal else text)

    def parts(self, parts: Sequence[str | Binary]) -> None:
        """Print or save the parts of a result. A terminal gets no binary data.

        A program that reads the output gets the data of a lone binary part.
        """
        texts = [part for part in parts if isinstance(part, str)]
        found = [part for part in parts if isinstance(part, Binary)]
        if self.file is not None:
            self._save(self.file, found, "\n".join(texts))
            texts = texts if found else []
        elif len(parts) == len(found) == 1 and not self.as_json and not self.results.is_terminal:
            sys.stdout.flush()
            sys.stdout.buffer.write(found[0].data())
            return
        for part in parts if self.file is None else texts:
            self.text(part if isinstance(part, str) else f"{part}; save it with --output FILE")

    def _save(self, path: Path, found: Sequence[Binary], text: str) -> None:
        contents = [(str(part), part.data()) for part in found]
        for number, (what, data) in enumerate(contents or [("text", f"{text}\n".encode(errors="replace"))], 1):
            target = path.with_name(f"{path.stem}-{number}{path.suffix}") if len(contents) > 1 else path
            try:
                replace_file(target, data, private=False)
            except OSError as error:
                raise Failure(f"cannot write {str(target)!r}: {error.strerror}; the server has answered") from error
            self.note(f"saved {target.name} ({what if found else f'text, {_spaced(len(data))} bytes'})")

    @contextmanager
    def showing_stderr(self, *, named: bool) -> Iterator[None]:
        """Print the stderr of servers while the block runs, if `verbose` is set."""
        if not self.verbose:
            yield
            return
        logger, handler = logging.getLogger("mcp_actors.servers.stderr"), _Printer(self, named=named)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    def json(self, data: Any) -> None:
        if not self.as_json:
            return
        indent = 2 if self.results.is_terminal else None
        text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
        if not text.replace("\n", "").isprintable():
            text = json.dumps(data, indent=indent, default=str)
        self._write(text)

    def _write(self, text: str) -> None:
        # rich would replace tabs.
        self.results.file.write(f"{text}\n")
        self.results.file.flush()

    def error(self, error: BaseException | str) -> None:
        for text in (error, *getattr(error, "__notes__", ())):
            self._message("error", "bold red", str(text))

    def errors(self, errors: Iterable[BaseException]) -> int:
        """Print errors; return the exit code."""
        found = list(errors)
        for error in found:
            self.error(error)
        return 1 if found else 0

    def failure(self, error: BaseException | str) -> None:
        """Print the error that ends the command."""
        self.error(error)
        self.json({"error": at_the_command_line(str(error))})

    def note(self, text: str) -> None:
        self.messages.print(Text(_on_one_line(text), style="dim"), soft_wrap=True)

    def without(self, kind: str, servers: Iterable[str], listed: Iterable[Mapping[str, Any]]) -> None:
        """Print a note for each server without items: empty output looks like a failure."""
        having = {each["server"] for each in listed}
        for server in servers:
            if server not in having and not self.as_json:
                instead = "" if kind == "tools" else "; mcp-actors tools lists its tools"
                self.note(f"server {server!r} has no {kind}{instead}")

    def warning(self, text: str) -> None:
        self._message("warning", "yellow", text)

    def progress(self, text: str) -> None:
        self.messages.print(Text(plain_text(text, limit=_LONGEST_TEXT), "dim"), soft_wrap=True)

    def _message(self, word: str, style: str, text: str) -> None:
        plain = indented(plain_text(at_the_command_line(text), limit=_LONGEST_TEXT, lines=True))
        self.messages.print(Text.assemble((f"{word}:", style), " ", plain), soft_wrap=True)


def at_the_command_line(text: str) -> str:
    for pattern, replacement in _REWORDED.items():
        text = re.sub(pattern, replacement, text)
    return text


class _Printer(logging.Handler):
    def __init__(self, output: Output, *, named: bool) -> None:
        super().__init__()
        self._output = output
        self._named = named

    def emit(self, record: logging.LogRecord) -> None:
        server = getattr(record, "mcp_server", "")
        self._output.progress(record.getMessage().removeprefix("" if self._named else f"{server}: "))


def _writable(file: str) -> Path:
    """Return the file to save a result to, or raise before anything is sent."""
    path = Path(os.path.realpath(file))  # a link stays, and its file is replaced
    if path.exists() and not path.is_file():
        raise Misuse(f"--output {file!r} is not a regular file; give the path of a file")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        problem = f"--output {file!r}: cannot write to the folder {str(path.parent)!r}: {error.strerror}"
        raise Failure(f"{problem}; nothing was sent; create the folder, or choose another one") from None


def _on_one_line(text: str) -> str:
    """Remove control characters, but keep spaces at the end, which fill a column."""
    return plain_text(text, limit=_LONGEST_TEXT) + " " * (len(text) - len(text.rstrip(" ")))


# --- Stop the servers of a command on SIGTERM and SIGHUP --------------------------------------------------------------


class Signalled(Exception):
    """A signal has ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number) or str(number))
        self.number = number


@asynccontextmanager
async def until_signalled(take: Callable[[int], bool] = lambda _: False, *more: int) -> AsyncIterator[None]:
    """Cancel the block on SIGTERM and SIGHUP. Their default action would leave the servers behind.

    Args:
        take: called with each signal; True means that it is handled and does not cancel the block.
        more: further signals to receive, even if ignored.
    """
    received: list[int] = []
    # A signal that is ignored, as under nohup, must stay ignored.
    usual = (signal.SIGTERM, signal.SIGHUP)
    handled = {*more, *(each for each in usual if signal.getsignal(each) is not signal.SIG_IGN)}
    with trio.open_signal_receiver(*handled) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for number in signals:
                    if not take(number):
                        received.append(number)
                        nursery.cancel_scope.cancel(f"signal {number}")

            nursery.start_soon(listen)
            yield
            nursery.cancel_scope.cancel("the command is done")
    # Raised by `listen`, the exception would be part of a group, together with errors of the block.
    if received:
        raise Signalled(received[0])


# --- The errors of commands, besides those of the package -------------------------------------------------------------


class Failure(Exception):
    """The command has failed."""


EXIT_UNUSABLE: Final = os.EX_CONFIG
"""The exit code of a command that serves, if a file cannot be used: another start would not help."""


class UnusableFile(Failure):
    """A file that a command needs to serve cannot be used."""


class Misuse(Failure):
    """The command line is invalid; the message suggests a valid one."""


def check_exclusive(**given: object) -> None:
    """Raise a `Misuse` for options that contradict each other. None and False count as not given."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None and value is not False]
    if len(names) > 1:
        raise Misuse(f"{' and '.join(names)} contradict each other; give one of them")


def unknown(problem: str, name: str, known: Collection[str], kind: str) -> Misuse:
    """Return the error for an unknown name, with the nearest known name, or else with all.

    `problem` has no remedy yet; `kind` is a plural noun.
    """
    near = nearest(name, known)
    hint = f"did you mean {near[0]!r}?" if near else f"its {kind} are: {', '.join(known) or 'none'}"
    return Misuse(f"{problem}; {hint}")
