"""Run the command of a command line, and report its errors.

`run` parses the words, runs the command in `trio.run`, and returns the exit code. An error of the command line, a
command or the package becomes a message on an `Output` and a code, a signal a code; what cannot be written any more is
sent to the null device. ``_start`` imports this file for every command line.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO, get_args

import trio
from cyclopts import Argument, CycloptsError
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from .._collapse import collapse
from .._errors import InvalidArguments, McpActorsError
from ._app import (
    EXAMPLES,
    call,
    check,
    completion,
    config_attach,
    config_convert,
    config_show,
    login,
    logs,
    make_app,
    path_of,
    pins_approve,
    pins_reject,
    pins_show,
    prompt,
    prompts,
    read,
    reload,
    resources,
    restart,
    start,
    status,
    stop,
    tools,
)
from ._interrupt import INTERRUPTED, exit_on_interrupt
from ._output import UNUSABLE, Failure, Misuse, Output, Signalled, Unusable, unknown

FAILED: Final = 1
"""The exit code of a command that failed."""

MISUSED: Final = 2
"""The exit code of a command line that is wrong."""


COMPLETE: Final = "__complete"
"""The command that the scripts of `completion` run."""

OTHERS_SAY: Final[Mapping[str, Callable[..., Any]]] = {
    "list": tools,
    "list-tools": tools,
    "ls": tools,
    "describe": tools,
    "run": call,
    "inspect": check,
    "test": check,
    "log": logs,
    "tail": logs,
    "ps": status,
    "info": status,
    "reconnect": restart,
    "kill": stop,
    "shutdown": stop,
    "down": stop,
    "up": start,
    "refresh": reload,
    "get": read,
    "auth": login,
    "show": config_show,
    "print": config_show,
    "convert": config_convert,
    "export": config_convert,
    "import": config_attach,
    "install": config_attach,
    "detach": config_attach,
    "approve": pins_approve,
    "trust": pins_approve,
    "reject": pins_reject,
    "diff": pins_show,
    "completions": completion,
    "autocomplete": completion,
}
"""Words that people type, and the command that does it here."""

LISTED_BY: Final[Mapping[Any, Any]] = {call: tools, read: resources, prompt: prompts, pins_approve: pins_show}
"""Commands that need a name, and the command that lists the names."""

RUNNERS: Final = frozenset({"bunx", "deno", "docker", "node", "npm", "npx", "python", "python3", "uv", "uvx"})
"""Programs that run servers: people copy their command lines."""


def run(words: Sequence[str]) -> int:
    """Run a command, and return the exit code."""
    output = Output(as_json="--json" in words[: [*words, "--"].index("--")])
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
        return UNUSABLE if isinstance(error, Unusable) else FAILED
    except KeyboardInterrupt:
        output.messages.print("cancelled")
        return INTERRUPTED
    except Signalled as signalled:
        return 128 + signalled.number


def _discard(stream: TextIO) -> None:
    """Send the buffered output of a stream to the null device, or else writing it would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _try_to_report(output: Output, problem: str) -> None:
    try:
        output.error(problem)
    except OSError:  # the terminal is gone
        _discard(sys.stderr)


def _run(words: Sequence[str], output: Output) -> int:
    command, bound, _ = make_app().parse_args(
        _with_typed_command(_with_stdin(words)), exit_on_error=False, print_error=False
    )
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


def _with_stdin(words: Sequence[str]) -> list[str]:
    """Return the words with ``@-`` for the ``-`` of ``call``, which would be an option without a name."""
    end = [*words, "--"].index("--") if words and words[0] == call.__name__ else 0
    return ["@-" if word == "-" and place < end else word for place, word in enumerate(words)]


def _with_typed_command(words: Sequence[str]) -> list[str]:
    if "--" not in words or words[0] == COMPLETE:
        return list(words)
    with exit_on_interrupt():
        from ._configuration import typed

    return typed(words)


def _misuse(words: Sequence[str], error: CycloptsError) -> str:
    """Return one line that says what is wrong with a command line, and where its help is."""
    command, *_ = words
    if command.startswith("-"):
        return f"option {command} before the command; write the command first, for example: {EXAMPLES[check]}"
    problem = " ".join(str(error).split()).rstrip(".")
    if command in OTHERS_SAY:
        problem = f"there is no command {command!r}; did you mean {' '.join(path_of(OTHERS_SAY[command]))!r}?"
        return f"{problem} For example: {EXAMPLES[OTHERS_SAY[command]]}"
    if isinstance(error, UnknownCommandError):
        return _unknown_command(words, error)
    paths = [path_of(each) for each in EXAMPLES]
    known = next((path for path in paths if path == list(words[: len(path)])), [command])
    if isinstance(error, MissingArgumentError) and error.argument and not error.argument.name.startswith("-"):
        return _missing(known, words[len(known) :], error.argument)
    if isinstance(error, UnusedCliTokensError):
        problem = f"too many words: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, UnknownOptionError):
        start = next((place for place, word in enumerate(words) if word in RUNNERS), 0)
        if start and "--" not in words:
            separated = shlex.join([*words[:start], "--", *words[start:]])
            return f"{problem}; the command of a server follows '--': mcp-actors {separated}"
        if command == call.__name__:
            problem += "; write the tool's arguments as key=value, without dashes, or as one JSON object"
        elif "Did you mean" not in problem:
            names = [name for each in error.argument_collection for name in each.names if name.startswith("-")]
            problem += f"; the options are: {', '.join(names)}"
    shown = ["", *known] if any(path[: len(known)] == known for path in paths) else [""]
    return f"{problem}; see mcp-actors{' '.join(shown)} --help"


def _unknown_command(words: Sequence[str], error: UnknownCommandError) -> str:
    """Return the error for a word that is not a command, with the nearest one, or with all."""
    [word, *_] = error.unused_tokens or words
    group = words[: words.index(word)]
    known = dict.fromkeys(path[len(group)] for path in map(path_of, EXAMPLES) if path[: len(group)] == list(group))
    return str(unknown(f"{' '.join(['mcp-actors', *group])} has no command {word!r}", word, known, "commands"))


def _missing(path: Sequence[str], given: Sequence[str], argument: Argument) -> str:
    """Return the error for a word that is missing, with the choices and an example."""
    command = next(each for each in EXAMPLES if path_of(each) == list(path))
    choices = get_args(argument.hint)
    problem = f"{' '.join(path)}: {argument.name} is missing"
    problem += f"; choose {', '.join(choices)}" if choices else ""
    lists = LISTED_BY.get(command)
    server = [word for word in given[:1] if command in (read, prompt) and not word.startswith("-")]
    where = f"; mcp-actors {' '.join([*path_of(lists), *server])} lists them" if lists else ""
    return f"{problem}; for example: {EXAMPLES[command]}{where}"
