"""Run the command of a command line, and report its errors.

An error becomes a message and an exit code; a signal becomes an exit code.

Owns: the output of a command; its Trio run.
Writes: stdout; stderr. Before the command, runs `gc.freeze` and keeps Ctrl-C out of Trio's starts of tasks.
Calls: _app, _configuration, _interrupt, _output.
"""

from __future__ import annotations

import gc
import inspect
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from shutil import which
from typing import Any, Final, TextIO, get_args

import trio
from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from .._collapse import collapse
from .._errors import InvalidArguments, McpActorsError
from ._app import EXAMPLES, make_app, path_of
from ._interrupt import INTERRUPTED, exit_on_interrupt
from ._output import EXIT_UNUSABLE, Failure, Misuse, Output, Signalled, UnusableFile, unknown

EXIT_FAILED: Final = 1


EXAMPLE_OF: Final = {" ".join(path_of(each)): example for each, (_, example) in EXAMPLES.items()}
"""The words of each command → an example."""

COMMAND_SYNONYMS: Final = {
    "tools": "list list-tools ls describe",
    "call": "run",
    "check": "inspect test",
    "logs": "log tail",
    "status": "ps info",
    "restart": "reconnect",
    "stop": "kill shutdown down",
    "start": "up",
    "reload": "refresh",
    "read": "get",
    "login": "auth",
    "config show": "show print",
    "config convert": "convert export",
    "config attach": "import install detach",
    "pins approve": "approve trust",
    "pins reject": "reject",
    "pins show": "diff",
    "completion": "completions autocomplete",
}
"""Commands → words that people type instead."""

LISTED_BY: Final = {"call": "tools", "read": "resources", "prompt": "prompts", "pins approve": "pins show"}
"""Commands that need a name → the command that lists names."""

INSTEAD: Final = (
    ("logs", "--follow -f", "run logs again for newer lines, or mcp-actors ui, which shows them as they come"),
    ("logs", "--tail --lines -n", "logs prints the last lines; for fewer: mcp-actors logs SERVER | tail -n 20"),
    ("watch", "--interval -n", "the seconds between two looks are --every"),
    (
        "ui",
        "--port --host -p",
        "for a fixed port: mcp-actors serve --config FILE --http 127.0.0.1:8080",
    ),
    ("", "--all -a", "without a server, this is for all"),
    ("", "--output --out -o", "to write to a file, add: > FILE"),
    ("serve attach", "--server --servers", "for one server of the file, write --config FILE#NAME"),
    ("", "--server --servers", "write the name of a server alone, without an option"),
    (
        "",
        "--header --headers -H",
        'write the URL into a file for --config, with "headers": {"Authorization": "Bearer ${TOKEN}"}',
    ),
)
"""Commands (empty: any), options that people type for them, and what to do instead."""

SERVER_RUNNERS: Final = frozenset({"bunx", "deno", "docker", "node", "npm", "npx", "python", "python3", "uv", "uvx"})
"""Programs that run servers; people copy such command lines."""


def run(words: Sequence[str]) -> int:
    """Run a command, report errors, and return the exit code."""
    output = Output(as_json="--json" in words[: [*words, "--"].index("--")])
    try:
        return _outcome(words, output)
    except OSError as error:
        # The output failed: errors of files and servers have other classes. The stream still holds bytes. At exit,
        # Python would write these again, fail again and print a traceback, so discard them.
        _discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
            try:
                output.error(f"cannot write the output: {error.strerror}")
            except OSError:  # the terminal is gone
                _discard(sys.stderr)
    return EXIT_FAILED


def _outcome(words: Sequence[str], output: Output) -> int:
    try:
        return _run(words, output)
    except (CycloptsError, Misuse, InvalidArguments) as error:
        output.failure(_misuse(words, error) if isinstance(error, CycloptsError) else error)
        return 2  # the command line is wrong
    except (Failure, McpActorsError) as error:
        output.failure(error)
        return EXIT_UNUSABLE if isinstance(error, UnusableFile) else EXIT_FAILED
    except KeyboardInterrupt:
        output.messages.print("cancelled")
        return INTERRUPTED
    except Signalled as signalled:
        return 128 + signalled.number


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(words: Sequence[str], output: Output) -> int:
    command, bound, _ = make_app().parse_args(
        _with_typed_command(_with_stdin(words)), exit_on_error=False, print_error=False
    )
    if not inspect.iscoroutinefunction(command):
        command(*bound.args, **bound.kwargs)  # --help and --version
        return 0
    output.as_json = bound.arguments.get("json", False)
    file = "_http" if bound.arguments.get("http") is not None else EXAMPLES[command][0]
    with exit_on_interrupt():
        import_module(f".{file}", __package__)
    gc.freeze()  # or each full collection would traverse all imports, and stop the program for a tenth of a second
    # Otherwise a Ctrl-C in the middle of a start would drop the new coroutine, of which Python warns, or leave a task
    # that never runs, and its nursery would wait for it for ever.
    for method in (trio.Nursery.start_soon, trio.Nursery.start):
        trio.lowlevel.enable_ki_protection(method)
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
    """Replace the ``-`` of ``call`` by ``@-``, because the parser takes ``-`` as an option without a name."""
    end = [*words, "--"].index("--") if words and words[0] == "call" else 0
    return ["@-" if word == "-" and place < end else word for place, word in enumerate(words)]


def _with_typed_command(words: Sequence[str]) -> list[str]:
    if "--" not in words or words[0] == "__complete":  # run by the scripts of `completion`
        return list(words)
    with exit_on_interrupt():
        from ._configuration import typed

    return typed(words)


def _misuse(words: Sequence[str], error: CycloptsError) -> str:
    """Describe the mistake in a command line, with a remedy or the command for help, in one line."""
    command, *_ = words
    if command.startswith("-"):
        return f"option {command} before the command; write the command first, for example: {EXAMPLE_OF['check']}"
    problem = " ".join(str(error).split()).rstrip(".")
    if meant := next((meant for meant, others in COMMAND_SYNONYMS.items() if command in others.split()), None):
        return f"there is no command {command!r}; did you mean {meant!r}? For example: {EXAMPLE_OF[meant]}"
    if isinstance(error, UnknownCommandError):
        return _unknown_command(words, error)
    paths = [each.split() for each in EXAMPLE_OF]
    known = next((path for path in paths if path == list(words[: len(path)])), [command])
    if isinstance(error, MissingArgumentError) and error.argument:
        return _missing(" ".join(known), words[len(known) :], error.keyword or error.argument.name, error.argument.hint)
    if isinstance(error, CoercionError) and error.target_type is float and error.token:
        option, value = error.token.keyword, error.token.value
        problem = f"{option}: {value!r} is not a number; write the seconds alone, as in {option} 5"
    if isinstance(error, UnusedCliTokensError):
        problem = f"too many words: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, UnknownOptionError):
        if separated := _separated(words):
            return f"{problem}; the command of a server follows '--': mcp-actors {separated}"
        problem = _unknown_option(words, problem, error)
    shown = ["", *known] if any(path[: len(known)] == known for path in paths) else [""]
    return f"{problem}; see mcp-actors{' '.join(shown)} --help"


def _separated(words: Sequence[str]) -> str | None:
    """Return the command line with ``--`` before the command of a server; None without a command."""
    start = next(
        (place for place, word in enumerate(words) if word in SERVER_RUNNERS or ("mcp" in word and which(word))), 0
    )
    return shlex.join([*words[:start], "--", *words[start:]]) if start and "--" not in words else None


def _unknown_option(words: Sequence[str], problem: str, error: UnknownOptionError) -> str:
    plain = problem.partition(". Did you mean")[0]
    given = {word.partition("=")[0] for word in words}
    if words[0] == "call" and not {"--header", "-H"} & given:
        return f"{plain}; write the tool's arguments as key=value, without dashes, or as one JSON object"
    for commands, options, remedy in INSTEAD:
        if (not commands or words[0] in commands.split()) and given & {*options.split()}:
            return f"{plain}; {remedy}"
    if "Did you mean" in problem:
        return problem
    names = [name for each in error.argument_collection for name in each.names if name.startswith("-")]
    return f"{problem}; the options are: {', '.join(names)}"


def _unknown_command(words: Sequence[str], error: UnknownCommandError) -> str:
    [word, *_] = error.unused_tokens or words
    group = words[: words.index(word)]
    known = dict.fromkeys(path[len(group)] for path in map(str.split, EXAMPLE_OF) if path[: len(group)] == list(group))
    return str(unknown(f"{' '.join(['mcp-actors', *group])} has no command {word!r}", word, known, "commands"))


def _missing(command: str, given: Sequence[str], missing: str, hint: object) -> str:
    """Return the error for a missing word or value, with choices or an example."""
    if missing.startswith("-"):
        others = {"--http": "HOST:PORT", "--host-name": "NAME", "--origin": "URL"}
        value = others.get(missing, "SECONDS" if "float" in str(hint) else "FILE")
        return f"{command}: {missing} needs a value; write {missing} {value}; see mcp-actors {command} --help"
    choices = get_args(hint)
    problem = f"{command}: {missing} is missing"
    if command == "read" and given and ":" in given[0] and not given[0].startswith("-"):
        return f"read: the server is missing; write mcp-actors read SERVER {given[0]}; mcp-actors resources shows it"
    problem += f"; choose {', '.join(choices)}" if choices else ""
    lists = LISTED_BY.get(command)
    server = [word for word in given[:1] if command in ("read", "prompt") and not word.startswith("-")]
    where = f"; mcp-actors {' '.join([lists, *server])} lists them" if lists else ""
    return f"{problem}; for example: {EXAMPLE_OF[command]}{where}"
