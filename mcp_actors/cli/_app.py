"""Declare the commands, run the chosen one, and report its errors.

The functions under the first heading are the commands, with their help. `make_app` makes the parser (cyclopts). `run`
parses the words, runs the command in `trio.run`, and returns the exit code. An error of the command line, a command or
the package becomes a message on an `Output` and a code, a signal a code; what cannot be written any more is sent to the
null device.

``_start`` imports this file for every command line, also for ``--help``. A command imports the code behind it when it
runs: with the types of the protocol that takes most of a second, too long for help or for the message about a typo.
"""

from __future__ import annotations

import inspect
import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal, TextIO, TypeAlias, get_args

import trio
from cyclopts import App, Argument, CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from .._collapse import collapse
from .._errors import InvalidArguments, McpActorsError
from ._completion import files_for, servers_for
from ._interrupt import INTERRUPTED, exit_on_interrupt
from ._output import Failure, Misuse, Output, Signalled, unknown

# --- The commands and their help --------------------------------------------------------------------------------------

ConfigFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--config", "-c"],
        help="The configuration file. Default: the first that exists of .mcp.json, mcp.json, .vscode/mcp.json and "
        ".cursor/mcp.json.",
        show_default=False,
        completer=files_for,
    ),
]

Server: TypeAlias = Annotated[str, Parameter(completer=servers_for)]

Format: TypeAlias = Literal["claude", "cursor", "vscode", "zed", "codex"]

Store: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="The directory that a program gives to its catalog_store. Default: that of catalog_store=True.",
        show_default=False,
    ),
]

AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.", show_default=False)]

Verbose: TypeAlias = Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)]

Seconds: TypeAlias = Annotated[float | None, Parameter(name="--timeout")]


async def check(*servers: Server, config: ConfigFile = None, json: AsJson = False, verbose: Verbose = False) -> int:
    """Connect to all servers, and report for each its version, or its error with a remedy.

    Args:
        servers: Servers to check. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
        verbose: Print what the servers write to stderr, as it comes.

    Returns:
        0 if all servers are ready, 3 if some need a sign-in and nothing else is wrong, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._check import check_servers

    return await check_servers(servers, config, Output(as_json=json, verbose=verbose))


async def tools(*servers: Server, config: ConfigFile = None, json: AsJson = False, verbose: Verbose = False) -> int:
    """List the tools of all servers, or show one tool with its arguments.

    Args:
        servers: Servers whose tools to list. Default: all that are enabled. Or one tool: SERVER TOOL, SERVER/TOOL, or
            its public name.
        config: The configuration file.
        json: Print JSON; of one tool, as MCP has it.
        verbose: Print what the servers write to stderr, as it comes.

    Returns:
        0 if all servers answered, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._call import list_tools

    return await list_tools(servers, config, Output(as_json=json, verbose=verbose))


async def call(
    server: Server,
    /,
    *arguments: str,
    output: str | None = None,
    seconds: Seconds = None,
    config: ConfigFile = None,
    json: AsJson = False,
    verbose: Verbose = False,
) -> int:
    """Call a tool and print its result.

    On a terminal, progress that the server reports is shown as a bar. Ctrl-C cancels the call on the server too.

    Args:
        server: Name of the server in the configuration, before the name of the tool. Or both as SERVER/TOOL, or the
            public name of the tool.
        arguments: key=value, of the type in the tool's schema: text, number, true or false, or JSON. Or all as one JSON
            object, in a file as @FILE, or on the standard input as -.
        output: Save the result to this file, above all pictures, sound and other binary parts.
        seconds: Seconds for the call. Default: the request_timeout of the server, which is 60.
        config: The configuration file.
        json: Print JSON.
        verbose: Print what the servers write to stderr, as it comes.

    Returns:
        0, or 1 if the tool failed.
    """
    if seconds is not None and not 0 < seconds < math.inf:
        raise Misuse(f"--timeout {seconds} is not valid; give a positive number of seconds")
    with exit_on_interrupt():
        from ._call import call_tool

    to = Output(as_json=json, file=output, verbose=verbose)
    return await call_tool((server, *arguments), config, to, seconds)


async def resources(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the resources and the templates of all servers.

    Args:
        servers: Servers whose resources to list. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers answered, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._read import list_resources

    return await list_resources(servers, config, Output(as_json=json))


async def read(
    server: Server,
    uri: str,
    /,
    *,
    output: str | None = None,
    config: ConfigFile = None,
    json: AsJson = False,
    verbose: Verbose = False,
) -> int:
    """Print a resource.

    Args:
        server: Name of the server in the configuration.
        uri: The URI of the resource.
        output: Save the resource to this file.
        config: The configuration file.
        json: Print JSON.
        verbose: Print what the servers write to stderr, as it comes.

    Returns:
        0, or 1 if it could not be read.
    """
    with exit_on_interrupt():
        from ._read import read_resource

    return await read_resource(server, uri, config, Output(as_json=json, file=output, verbose=verbose))


async def prompts(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the prompts of all servers.

    Args:
        servers: Servers whose prompts to list. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers answered, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._read import list_prompts

    return await list_prompts(servers, config, Output(as_json=json))


async def prompt(server: Server, name: str, /, *arguments: str, config: ConfigFile = None, json: AsJson = False) -> int:
    """Print the messages of a prompt.

    Args:
        server: Name of the server in the configuration.
        name: Name of the prompt.
        arguments: key=value; the values are text.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0, or 1 if the server refused it.
    """
    with exit_on_interrupt():
        from ._read import get_prompt

    return await get_prompt(server, name, arguments, config, Output(as_json=json))


async def watch(*servers: Server, config: ConfigFile = None, json: AsJson = False, every: float = 1.0) -> int:
    """Keep the servers connected and show their states until Ctrl-C.

    On a terminal this is a live table. Otherwise, and with --json, it is one line for each change of a state.

    Args:
        servers: Servers to watch. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
        every: Seconds after which the table is updated even if no state has changed.

    Returns:
        Never; Ctrl-C ends it.
    """
    if not 0 < every < math.inf:
        raise Misuse(f"--every {every} is not valid; give a positive number of seconds")
    with exit_on_interrupt():
        from ._check import watch_servers

    return await watch_servers(servers, config, Output(as_json=json), every=every)


async def graph(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Connect to all servers, and draw the actors behind them as a tree.

    Each line is an actor with its state, its restarts and its last error. Names of supervisors end in a slash.

    Args:
        servers: Servers to connect. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers are ready, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._call import draw_graph

    return await draw_graph(servers, config, Output(as_json=json))


async def login(server: Server, /, *, config: ConfigFile = None) -> int:
    """Sign in to a server by OAuth, for all programs of this user.

    The page is opened in a browser and its URL is printed. Where the browser cannot reach this machine (over ssh, in a
    container), paste the URL that it ends at.

    Args:
        server: Name of the server in the configuration.
        config: The configuration file.

    Returns:
        0, or 1 if the sign-in failed.
    """
    with exit_on_interrupt():
        from ._sign_in import sign_in_to_server

    return await sign_in_to_server(server, config, Output())


async def logout(*servers: Server, config: ConfigFile = None) -> int:
    """Revoke and forget the tokens of servers.

    Args:
        servers: Servers to sign out of. Default: all that are enabled.
        config: The configuration file.

    Returns:
        0, or 1 if an entry is not valid or a server that is named has no sign-in.
    """
    with exit_on_interrupt():
        from ._sign_in import sign_out_of_servers

    return await sign_out_of_servers(servers, config, Output())


async def whoami(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show which servers are signed in to, by which client and for how long. Connects to no server.

    Args:
        servers: Servers to show. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers that need a sign-in have one, 3 otherwise; 1 if an entry is not valid or a server that is named
        has no sign-in.
    """
    with exit_on_interrupt():
        from ._sign_in import show_sign_ins

    return await show_sign_ins(servers, config, Output(as_json=json))


async def config_show(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show the servers as they will be run: each value, and the key or the environment variable that it is from.

    Starts no server. Values of variables are not shown, and credentials are masked.

    Args:
        servers: Servers to show. Default: all in the file.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0, or 1 if an entry is not valid.
    """
    with exit_on_interrupt():
        from ._config import show_config

    return await show_config(servers, config, Output(as_json=json))


async def config_convert(
    form: Format,
    /,
    *servers: Server,
    config: ConfigFile = None,
    output: Annotated[str | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    literals: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Write the servers in the format of another program. If that cannot express one, nothing is written.

    Args:
        form: The program.
        servers: Servers to convert. Default: all in the file.
        config: The configuration file.
        output: The new file. Default: stdout.
        literals: Write credentials that are not variables too.

    Returns:
        0, or 1 if nothing was written.
    """
    with exit_on_interrupt():
        from ._config import convert_config

    return await convert_config(form, servers, config, output, Output(), literals=literals)


async def pins_show(*servers: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show which tools differ from the accepted ones, as the programs that use the file have remembered them.

    Starts no server.

    Args:
        servers: Servers to show. Default: all in the file.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all listed tools are accepted, 1 if one is not, or if nothing is remembered.
    """
    with exit_on_interrupt():
        from ._pins import show_pins

    return await show_pins(servers, config, store, Output(as_json=json))


async def pins_approve(
    tool: Server, /, *tools: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False
) -> int:
    """Accept changed tools as they are remembered, and show them. Programs use them from their next start.

    Args:
        tool: SERVER/TOOL, or SERVER for all its tools.
        tools: More of them.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0, or 1 if it cannot be stored.
    """
    with exit_on_interrupt():
        from ._pins import decide

    return await decide((tool, *tools), config, store, Output(as_json=json), approve=True)


async def pins_reject(
    tool: Server, /, *tools: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False
) -> int:
    """Accept no definition of tools any more, not even an earlier one. Programs hide them from their next start.

    Args:
        tool: SERVER/TOOL, or SERVER for all its tools that have changed.
        tools: More of them.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0, or 1 if it cannot be stored.
    """
    with exit_on_interrupt():
        from ._pins import decide

    return await decide((tool, *tools), config, store, Output(as_json=json), approve=False)


async def serve(
    *,
    config: Annotated[str, Parameter(name=["--config", "-c"], completer=files_for)],
    stdio: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    socket: str | None = None,
    control: str | None = None,
    idle: Annotated[float | None, Parameter(name="--idle")] = None,
) -> int:
    """Serve all servers of a file as one MCP server, each as one process for all clients.

    Args:
        config: The file, or FILE#SERVER for one server of it under its own names. It is not searched for.
        stdio: Serve one client over stdin and stdout.
        socket: Serve any number of clients over a unix socket at this path.
        control: Also listen for the commands status, restart, stop and so on, at this path.
        idle: Seconds without a client after which it ends. Default: never.

    Returns:
        0, or 1 if no server can be loaded.
    """
    with exit_on_interrupt():
        from ._gateway import serve_file

    return await serve_file(config, stdio=stdio, socket=socket, control=control, idle=idle)


async def attach(*, config: Annotated[str, Parameter(name=["--config", "-c"], completer=files_for)]) -> int:
    """Connect a client over stdin and stdout to the process that serves a file to all clients; start that if needed.

    For editors that can only start a server themselves: each session of each then has the same servers.

    Args:
        config: The absolute path of the file, or that and #SERVER for one server of it. It is not searched for.

    Returns:
        0 when the client has closed stdin.
    """
    program = os.path.join(os.path.dirname(os.path.dirname(__file__)), "gateway", "attach.py")
    os.execv(sys.executable, [sys.executable, "-I", "-S", program, "--config", config])  # needs a tenth of the memory


async def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a script that completes commands, options and the names of servers in a shell.

    The names are those in the configuration file, which is only read; no server is started.

    Args:
        shell: The shell.

    Returns:
        0.
    """
    script = make_app().generate_completion(shell=shell)
    if shell == "zsh":  # the parser's is for a folder of functions; this one can be evaluated, as in the other shells
        script += "compdef _cyclopts_mcp-actors mcp-actors\n"
    Output().text(script)
    return 0


EXAMPLES: Final[Mapping[Callable[..., Any], str]] = {
    check: "mcp-actors check --config ~/.cursor/mcp.json",
    tools: "mcp-actors tools -- npx -y @modelcontextprotocol/server-everything",
    call: "mcp-actors call time get_current_time timezone=Europe/Paris",
    resources: "mcp-actors resources notes",
    read: "mcp-actors read notes note:///shopping",
    prompts: "mcp-actors prompts https://example.com/mcp",
    prompt: "mcp-actors prompt notes plan meal=lunch",
    watch: "mcp-actors watch",
    graph: "mcp-actors graph time",
    login: "mcp-actors login linear",
    logout: "mcp-actors logout linear",
    whoami: "mcp-actors whoami",
    config_show: "mcp-actors config show",
    config_convert: "mcp-actors config convert vscode --output .vscode/mcp.json",
    pins_show: "mcp-actors pins show",
    pins_approve: "mcp-actors pins approve mail/send",
    pins_reject: "mcp-actors pins reject mail/send",
    serve: "mcp-actors serve --config ~/.cursor/mcp.json --stdio",
    attach: "mcp-actors attach --config ~/.cursor/mcp.json",
    completion: 'eval "$(mcp-actors completion bash)"',
}
"""Every command, and an example of it for the help."""


GROUPS: Final = {
    "config": "Show a configuration as it is understood, or convert it for another program.",
    "pins": "Review tools that have changed since they were accepted (on_tool_change).",
}
"""The first words of commands that have two, and their help."""


# --- Parse a command line and run its command -------------------------------------------------------------------------

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
    "logs": watch,
    "status": watch,
    "get": read,
    "auth": login,
    "show": config_show,
    "print": config_show,
    "convert": config_convert,
    "export": config_convert,
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


def make_app() -> App:
    app = App(
        name="mcp-actors",
        help="Check and use the MCP servers of a configuration file, as Claude, Cursor, VS Code and others write it.",
        help_epilogue=_examples(*EXAMPLES.values()),
        help_format="plaintext",
        version=version("mcp-actors"),
    )
    groups = {name: App(name=name, help=text, help_format="plaintext") for name, text in GROUPS.items()}
    for name, group in groups.items():
        group.help_epilogue = _examples(*(line for each, line in EXAMPLES.items() if _path(each)[0] == name))
    for command, example in EXAMPLES.items():
        *group_name, name = _path(command)
        parent = groups[group_name[0]] if group_name else app
        parent.command(command, name=name, help_epilogue=_examples(example))
    for group in groups.values():
        app.command(group)
    return app


def _path(command: Callable[..., Any]) -> list[str]:
    """Return the words of a command: ``pins_show`` is ``pins show``."""
    return command.__name__.split("_")


def _examples(*lines: str) -> str:
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return f"{heading}\n\n" + "\n\n".join(f"    {line}" for line in lines)


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
        problem = f"there is no command {command!r}; did you mean {' '.join(_path(OTHERS_SAY[command]))!r}?"
        return f"{problem} For example: {EXAMPLES[OTHERS_SAY[command]]}"
    if isinstance(error, UnknownCommandError):
        return _unknown_command(words, error)
    paths = [_path(each) for each in EXAMPLES]
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
    known = dict.fromkeys(path[len(group)] for path in map(_path, EXAMPLES) if path[: len(group)] == list(group))
    return str(unknown(f"{' '.join(['mcp-actors', *group])} has no command {word!r}", word, known, "commands"))


def _missing(path: Sequence[str], given: Sequence[str], argument: Argument) -> str:
    """Return the error for a word that is missing, with the choices and an example."""
    command = next(each for each in EXAMPLES if _path(each) == list(path))
    choices = get_args(argument.hint)
    problem = f"{' '.join(path)}: {argument.name} is missing"
    problem += f"; choose {', '.join(choices)}" if choices else ""
    lists = LISTED_BY.get(command)
    server = [word for word in given[:1] if command in (read, prompt) and not word.startswith("-")]
    where = f"; mcp-actors {' '.join([*_path(lists), *server])} lists them" if lists else ""
    return f"{problem}; for example: {EXAMPLES[command]}{where}"
