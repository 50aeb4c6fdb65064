"""Parse the command line, run the command, report its errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TextIO

import trio
from cyclopts import App, CycloptsError, UnknownOptionError, UnusedCliTokensError

from .._collapse import collapse
from .._errors import InvalidArguments, McpActorsError
from ._interrupt import INTERRUPTED
from ._output import Failure, Misuse, Output, Signalled
from .commands import EXAMPLES, call, check

FAILED: Final = 1
"""The exit code of a command that failed."""

MISUSED: Final = 2
"""The exit code of a command line that is wrong."""


def make_app() -> App:
    """Make the parser of the command line."""
    app = App(
        name="mcp-actors",
        help="Check and use the MCP servers of a configuration file, as Claude, Cursor, VS Code and others write it.",
        help_epilogue=_examples(*EXAMPLES.values()),
        help_format="plaintext",
        version=version("mcp-actors"),
    )
    for command, example in EXAMPLES.items():
        app.command(command, help_epilogue=_examples(example))
    return app


def _examples(*lines: str) -> str:
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return f"{heading}\n\n" + "\n\n".join(f"    {line}" for line in lines)


def run(words: Sequence[str]) -> int:
    """Run a command, and return the exit code."""
    output = Output(as_json="--json" in words)
    try:
        return _outcome(words, output)
    except OSError as error:
        # An error of the output, because those of files and servers have classes of their own.
        _discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
            _try_to_report(output, f"cannot write the output: {error.strerror}")
    return FAILED


def _outcome(words: Sequence[str], output: Output) -> int:
    try:
        return _run(words, output)
    except CycloptsError as error:
        output.failure(_misuse(words, error))
        return MISUSED
    except (Misuse, InvalidArguments) as error:
        output.failure(error)
        return MISUSED
    except (Failure, McpActorsError) as error:
        output.failure(error)
    except KeyboardInterrupt:
        output.messages.print("cancelled")
        return INTERRUPTED
    except Signalled as signalled:
        return 128 + signalled.number
    return FAILED


def _discard(stream: TextIO) -> None:
    """Send the buffered output of a stream to the null device, or else writing it would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _try_to_report(output: Output, problem: str) -> None:
    try:
        output.error(problem)
    except OSError:  # the terminal is gone
        _discard(sys.stderr)


def _run(words: Sequence[str], output: Output) -> int:
    command, bound, _ = make_app().parse_args(list(words), exit_on_error=False, print_error=False)
    if not inspect.iscoroutinefunction(command):
        command(*bound.args, **bound.kwargs)  # --help and --version
        return 0
    output.as_json = bound.arguments.get("json", False)
    code: Any
    try:
        code = trio.run(partial(command, *bound.args, **bound.kwargs))
    except BaseExceptionGroup as group:
        failure = collapse(group)
    else:
        sys.stdout.flush()
        return int(code)
    raise failure  # outside the handler, so that the group does not become its context


def _misuse(words: Sequence[str], error: CycloptsError) -> str:
    """Return one line that says what is wrong with a command line, and where its help is."""
    command, *_ = words
    if command.startswith("-"):
        return f"option {command} before the command; write the command first, for example: {EXAMPLES[check]}"
    problem = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, UnusedCliTokensError):
        problem = f"too many words: {' '.join(error.unused_tokens or ())}"
    if command == call.__name__ and isinstance(error, UnknownOptionError):
        problem += "; write the tool's arguments as key=value, without dashes"
    known = f" {command}" if any(command == each.__name__ for each in EXAMPLES) else ""
    return f"{problem}; see mcp-actors{known} --help"
