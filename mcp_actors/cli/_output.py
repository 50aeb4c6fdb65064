"""Print results on stdout, and errors and progress on stderr."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import attrs
import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .._misuse import nearest
from .._text import indented, plain_text
from ..config import LoadedConfig, RestartPolicy, ServerConfig, Stdio, Transport, TransportTemplate
from ..config._values import mask_args
from ..servers import ServerGroup, ServerRef, open_servers
from ..transports import Masker

_LONGEST: Final = 1024 * 1024
"""Characters of one text that are written to a terminal."""


class Output:
    """The two streams of a command. Only terminals get colours, and `NO_COLOR` is respected.

    On a terminal, text of servers is shown as plain text, because escape sequences in it could act on the terminal.
    Programs get it unchanged.

    Args:
        as_json: True to print results as JSON, and nothing else on stdout.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.results = Console(highlight=False)
        self.messages = Console(stderr=True, highlight=False)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a text on a terminal as long as the block runs."""
        if not text or not self.messages.is_terminal:
            yield
            return
        # By default rich refreshes it from a thread of its own.
        with Live(Text(text, style="dim"), console=self.messages, auto_refresh=False, transient=True):
            yield

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of a result, in pieces that may have a style. It is never wrapped or shortened."""
        if not self.as_json:
            styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
            pieces = [(_on_one_line(text), style) for text, style in styled]
            self.results.print(Text.assemble(*pieces), soft_wrap=True)

    def text(self, text: str) -> None:
        """Print a result that is a text of any length."""
        if not self.as_json:
            self._write(plain_text(text, limit=_LONGEST, lines=True) if self.results.is_terminal else text)

    def json(self, data: Any) -> None:
        """Print a result as JSON, if `as_json` is set."""
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
        """Print an error and its notes on stderr."""
        self._message("error", "bold red", str(error))
        for note in getattr(error, "__notes__", ()):
            self._message("error", "bold red", str(note))

    def errors(self, errors: Iterable[BaseException]) -> int:
        """Print errors on stderr, and return the exit code: 1 if there are any."""
        found = list(errors)
        for error in found:
            self.error(error)
        return 1 if found else 0

    def failure(self, error: BaseException | str) -> None:
        """Print the error that ends the command on stderr, and as JSON if `as_json` is set."""
        self.error(error)
        self.json({"error": str(error)})

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        self.messages.print(Text(_on_one_line(text), style="dim"), soft_wrap=True)

    def warning(self, text: str) -> None:
        """Print a warning on stderr."""
        self._message("warning", "yellow", text)

    def progress(self, text: str) -> None:
        """Print progress on stderr."""
        self.messages.print(Text(plain_text(text, limit=_LONGEST), "dim"), soft_wrap=True)

    def _message(self, word: str, style: str, text: str) -> None:
        plain = indented(plain_text(text, limit=_LONGEST, lines=True))
        self.messages.print(Text.assemble((f"{word}:", style), " ", plain), soft_wrap=True)


def _on_one_line(text: str) -> str:
    """Return a text without control characters, but with the spaces at its end, which fill a column."""
    return plain_text(text, limit=_LONGEST) + " " * (len(text) - len(text.rstrip(" ")))


# --- Stop the servers of a command on SIGTERM and SIGHUP --------------------------------------------------------------


_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Signalled(Exception):
    """A signal has ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number) or str(number))
        self.number = number


@asynccontextmanager
async def until_signalled() -> AsyncIterator[None]:
    """Cancel the block on SIGTERM and SIGHUP, whose default action would leave the servers behind.

    Raises:
        Signalled: one of these signals has cancelled the block.
    """
    received: list[int] = []
    # A signal that is ignored, as under nohup, must stay ignored.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*handled) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for number in signals:
                    received.append(number)
                    nursery.cancel_scope.cancel(f"signal {number}")

            nursery.start_soon(listen)
            yield
            nursery.cancel_scope.cancel("the command is done")
    if received:
        raise Signalled(received[0])


# --- Connect the servers of a command, all at the same time -----------------------------------------------------------


_ONCE: Final = RestartPolicy(max_restarts=0)

MAX_SERVERS: Final = sys.maxsize
"""No limit: a command has no option for one, and its file says how many servers the user wants."""

REPORT_EVERY: Final = 5.0
"""Seconds between two progress lines about a server that is slow to start."""


@asynccontextmanager
async def open_once(
    loaded: LoadedConfig, output: Output, *, strict: bool = False, **options: Any
) -> AsyncIterator[ServerGroup]:
    """Open a group, and try once to connect each server before the block begins.

    Slow servers may take their whole timeouts, and their progress is printed. SIGTERM and SIGHUP cancel the block and
    stop the servers.

    Raises:
        ConnectFailed: a server failed to connect, and `strict` is True.
    """
    servers = [
        attrs.evolve(server, restart=_ONCE, connect="lazy", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    async with until_signalled(), AsyncExitStack() as stack:
        with output.waiting(connecting(servers)):
            group = await stack.enter_async_context(open_servers(*servers, max_servers=MAX_SERVERS, **options))
            await _connect(group, output)
        if strict:
            for error in group.errors.values():
                raise error
        yield group


async def _connect(group: ServerGroup, output: Output) -> None:
    """Connect all servers, and print the status of those that are still starting every `REPORT_EVERY` seconds."""
    async with trio.open_nursery() as reporting:
        reporting.start_soon(_report_slow_starts, group, output)
        async with trio.open_nursery() as nursery:
            for ref in group.configured:
                nursery.start_soon(_connect_one, ref)
        reporting.cancel_scope.cancel("every server is connected, or has failed")


async def _connect_one(ref: ServerRef) -> None:
    await ref.start()
    await ref.wait_state("ready", "degraded", "failed", "needs_auth", "stopped")


async def _report_slow_starts(group: ServerGroup, output: Output) -> None:
    began = trio.current_time()
    while True:
        await trio.sleep(REPORT_EVERY)
        for name, status in group.status().items():
            if status.state == "connecting":
                output.progress(f"{name}: still starting after {trio.current_time() - began:.0f} s: {status.reason}")


def connecting(servers: Iterable[ServerConfig]) -> str:
    """Return a line that names the servers that are being connected; a first connect may take long."""
    names = [server.name for server in servers if server.enabled]
    return f"connecting to {', '.join(names)} …" if names else ""


def masker_of(ref: ServerRef) -> Masker:
    """Return the masker of a connected server, for text that the server sent."""
    return ref._record.session.masker


def hidden_of(ref: ServerRef) -> tuple[int, str | None]:
    """Return how many tools of a server its filter hides, and the names in the filter that no tool has."""
    admission = ref._record.catalog.admission
    return admission.filtered_out, admission.misnamed()


def describe(transport: Transport) -> str:
    """Return the command line or URL of a server, without credentials."""
    if isinstance(transport, Stdio):
        return " ".join((transport.command, *mask_args(transport.args)))
    if isinstance(transport, TransportTemplate):
        shown = transport.display_options
        words = [shown.get("url") or shown.get("command"), *(shown.get("args") or ())]  # type: ignore[misc]  # a tuple
        return " ".join(map(str, words))
    return getattr(transport, "display_url", type(transport).__name__)


# --- The errors of commands, besides those of the package -------------------------------------------------------------


class Failure(Exception):
    """The command has failed; the message says why."""


class Misuse(Failure):
    """The command line is invalid; the message suggests a valid one."""


def unknown(problem: str, name: str, known: Collection[str], kind: str) -> Misuse:
    """Return the error for a name that does not exist, with the name that is nearly it, or all that exist.

    Args:
        problem: what is wrong, without a remedy.
        name: the name.
        known: the names that exist.
        kind: the kind of these, in the plural.
    """
    near = nearest(name, known)
    hint = f"did you mean {near[0]!r}?" if near else f"its {kind} are: {', '.join(known) or 'none'}"
    return Misuse(f"{problem}; {hint}")
