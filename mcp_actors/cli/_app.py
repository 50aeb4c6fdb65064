"""The commands, and what becomes of their errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TextIO

import trio
from cyclopts import App, CycloptsError, UnknownOptionError

from .._collapse import collapse
from .._errors import InvalidArguments, McpActorsError
from ._interrupt import INTERRUPTED
from ._output import Output
from ._problems import Failure, Misuse
from ._signals import Told
from .commands import EXAMPLES, call, check

__all__ = ["run"]

FAILED: Final = 1
MISUSED: Final = 2


def make_app() -> App:
    """Make the parser of the command line."""
    app = App(
        name="mcp-actors",
        help="Use the MCP servers of a configuration file as Claude, Cursor, VS Code and others write it.",
        help_epilogue=_examples(*EXAMPLES.values()),
        help_format="plaintext",
        version=version("mcp-actors"),
    )
    for command, example in EXAMPLES.items():
        app.command(command, help_epilogue=_examples(example))
    return app


def _examples(*lines: str) -> str:
    return "Example:\n\n" + "\n\n".join(f"    {line}" for line in lines)


def run(words: Sequence[str]) -> int:
    """Run a command, and return the exit code."""
    output = Output(as_json="--json" in words)
    try:
        return _outcome(words, output)
    except OSError as error:
        # Of the output: for what files and servers do there are errors of our own.
        _give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # else whoever read it has enough
            _try_to_say(output, f"the output cannot be written: {error.strerror}")
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
    except Told as told:
        return 128 + told.number
    return FAILED


def _give_up(stream: TextIO) -> None:
    """Let what is still buffered for a stream go nowhere, for it would fail at exit once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _try_to_say(output: Output, problem: str) -> None:
    try:
        output.error(problem)
    except OSError:  # the terminal is gone
        _give_up(sys.stderr)


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
    """Say in one line what is wrong with a command line, and where its help is."""
    command, *_ = words
    if command.startswith("-"):
        return f"{command} stands before the command; write the command first, as in: {EXAMPLES[check]}"
    said = " ".join(str(error).split()).rstrip(".")
    if command == call.__name__ and isinstance(error, UnknownOptionError):
        said += "; arguments of the tool are written without dashes, as key=value"
    known = f" {command}" if any(command == each.__name__ for each in EXAMPLES) else ""
    return f"{said}; see mcp-actors{known} --help"
