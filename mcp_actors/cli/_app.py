"""Declare the commands and their help, and make the parser.

A command is a function that returns an exit code. Every command line imports this file, even ``--help``. Importing
MCP's types takes most of a second, so a function imports the command's code only when called.

Owns: the commands, the help, the parser.
Writes: stdout. For ``attach``, replaces this process.
Calls: _attach_hosts, _call, _check, _completion, _config, _control, _gateway, _http, _output, _pins, _read, _sign_in.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from .._python import our_python
from ._completion import files_for, servers_for
from ._output import Misuse, Output, check_exclusive

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

Host: TypeAlias = Literal["claude", "claude-desktop", "cursor", "vscode", "codex"]

Path: TypeAlias = Annotated[str | None, Parameter(show_default=False, completer=files_for)]

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
    """Connect to all servers, and report the version of each, or the error with a remedy.

    Args:
        servers: Servers to check. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
        verbose: Print what the servers write to stderr, as it comes.

    Returns:
        0 if all servers are ready, 3 if some need a sign-in and nothing else is wrong, 1 otherwise.
    """
    from ._check import check_servers

    return await check_servers(servers, config, Output(as_json=json, verbose=verbose))


async def tools(*servers: Server, config: ConfigFile = None, json: AsJson = False, verbose: Verbose = False) -> int:
    """List the tools of all servers, or show one tool with its arguments.

    Args:
        servers: Servers whose tools to list. Default: all that are enabled. Or one tool: SERVER TOOL, SERVER/TOOL, or
            its public name.
        config: The configuration file.
        json: Print JSON; for one tool, in the form of MCP.
        verbose: Print what the servers write to stderr, as it comes.
    """
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
        arguments: key=value, of the type in the tool's schema: text, number, true or false, or JSON. Or one JSON object
            with all; @FILE reads the object from a file, and - from the standard input.
        output: Save the result, for example a picture or sound, to this file.
        seconds: Seconds for the call. Default: the request_timeout of the server, which is 60.
        config: The configuration file.
        json: Print JSON.
        verbose: Print what the servers write to stderr, as it comes.
    """
    if seconds is not None and not 0 < seconds < math.inf:
        raise Misuse(f"--timeout {seconds} is not valid; give a positive number of seconds")
    from ._call import call_tool

    to = Output(as_json=json, file=output, verbose=verbose)
    return await call_tool((server, *arguments), config, to, seconds)


async def resources(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the resources and the templates of all servers.

    Args:
        servers: Servers whose resources to list. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
    """
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
    """
    from ._read import read_resource

    return await read_resource(server, uri, config, Output(as_json=json, file=output, verbose=verbose))


async def prompts(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the prompts of all servers.

    Args:
        servers: Servers whose prompts to list. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
    """
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
    """
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
    """
    if not 0 < every < math.inf:
        raise Misuse(f"--every {every} is not valid; give a positive number of seconds")
    from ._check import watch_servers

    return await watch_servers(servers, config, Output(as_json=json), every=every)


async def graph(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Connect to all servers, and draw the actors behind them as a tree.

    Each line is an actor with its state, its restarts and its last error. Names of supervisors end in a slash.

    Args:
        servers: Servers to connect. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.
    """
    from ._call import draw_graph

    return await draw_graph(servers, config, Output(as_json=json))


async def status(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show the states of the servers in the daemon of a file, which mcp-actors attach starts.

    Args:
        servers: Servers to show. Default: all.
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("status", servers, config, as_json=json)


async def logs(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Print the last lines of the daemon's log, and of what its servers have written to stderr.

    Args:
        servers: Servers whose stderr to print. Default: all, and the log.
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("logs", servers, config, as_json=json)


async def restart(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Connect servers of the daemon anew. Queued requests are kept.

    Args:
        servers: Servers to restart. Default: all.
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("restart", servers, config, as_json=json)


async def stop(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Stop servers of the daemon, or the daemon.

    Args:
        servers: Servers to stop. Default: the daemon, with all its servers.
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("stop", servers, config, as_json=json)


async def start(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Start servers of the daemon that were stopped or have failed.

    Args:
        servers: Servers to start.
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("start", servers, config, as_json=json)


async def reload(*, config: ConfigFile = None, json: AsJson = False) -> int:
    """Read the file of the daemon again. Servers with unchanged entries notice nothing.

    Args:
        config: The configuration file.
        json: Print JSON.
    """
    return await _control("reload", (), config, as_json=json)


async def ui(*, config: ConfigFile = None, browser: Annotated[bool, Parameter(show_default=False)] = True) -> int:
    """Open a page that shows the servers of a daemon live, restarts them and calls their tools.

    Args:
        config: The configuration file. Required if no daemon runs: its servers are started, until Ctrl-C.
        browser: Open the page in a browser; --no-browser prints the address only.
    """
    from ._http import show_page

    return await show_page(config, Output(), browser=browser)


async def _control(do: str, servers: Sequence[str], config: str | None, *, as_json: bool) -> int:
    from ._control import control

    return await control(do, servers, config, Output(as_json=as_json))


async def login(server: Server, /, *, config: ConfigFile = None) -> int:
    """Sign in to a server by OAuth, for all programs of this user.

    The page is opened in a browser, and its URL is printed. If the browser cannot reach this machine (over ssh, in a
    container), paste the URL at which the browser ends.

    Args:
        server: Name of the server in the configuration.
        config: The configuration file.
    """
    from ._sign_in import sign_in_to_server

    return await sign_in_to_server(server, config, Output())


async def logout(*servers: Server, config: ConfigFile = None) -> int:
    """Revoke and forget the tokens of servers.

    Args:
        servers: Servers to sign out of. Default: all that are enabled.
        config: The configuration file.

    Returns:
        0, or 1 if an entry is not valid or a named server has no sign-in.
    """
    from ._sign_in import sign_out_of_servers

    return await sign_out_of_servers(servers, config, Output())


async def whoami(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show which servers are signed in to, by which client and for how long. Connects to no server.

    Args:
        servers: Servers to show. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers that need a sign-in have one, 3 otherwise; 1 if an entry is not valid or a named server has no
        sign-in.
    """
    from ._sign_in import show_sign_ins

    return await show_sign_ins(servers, config, Output(as_json=json))


async def config_show(*servers: Server, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show the servers as they will be run: each value, and the key or the environment variable that sets it.

    Starts no server. Values of variables are not shown, and credentials are masked.

    Args:
        servers: Servers to show. Default: all in the file.
        config: The configuration file.
        json: Print JSON.
    """
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
    """Write the servers in the format of another program, or nothing if the format cannot express a server.

    Args:
        form: The program.
        servers: Servers to convert. Default: all in the file.
        config: The configuration file.
        output: The new file. Default: stdout.
        literals: Also write credentials that are not variables.
    """
    from ._config import convert_config

    return await convert_config(form, servers, config, output, Output(), literals=literals)


async def config_attach(
    host: Host, /, *, file: Path = None, to: Path = None, undo: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Move the servers of a program to a file of mcp-actors, and replace them by one entry, for mcp-actors attach.

    Servers with variables that only the program knows stay. A copy of the program's file is kept in the same folder.

    Args:
        host: The program.
        file: The program's file. Default: the file for all projects of this user.
        to: The file to move the servers to. Default: ~/.config/mcp-actors/HOST.json.
        undo: Move the servers back.
    """
    from ._attach_hosts import attach_host, detach_host

    if undo:
        if to is not None:
            raise Misuse("--to is not for --undo, which finds the file in the entry; leave it out")
        return detach_host(host, file, Output())
    return attach_host(host, file, to, Output())


async def pins_show(*servers: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False) -> int:
    """Show which tools differ from the accepted tools, as remembered by the programs that use the file.

    Starts no server.

    Args:
        servers: Servers to show. Default: all in the file.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all listed tools are accepted, 1 if any is not, or if nothing is remembered.
    """
    from ._pins import show_pins

    return await show_pins(servers, config, store, Output(as_json=json))


async def pins_approve(
    tool: Server, /, *tools: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False
) -> int:
    """Accept changed tools as remembered, and show them. Programs use the tools from their next start.

    Args:
        tool: SERVER/TOOL, or SERVER for all its tools.
        tools: More tools.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.
    """
    from ._pins import decide

    return await decide((tool, *tools), config, store, Output(as_json=json), approve=True)


async def pins_reject(
    tool: Server, /, *tools: Server, store: Store = None, config: ConfigFile = None, json: AsJson = False
) -> int:
    """Accept no definition of tools any more, not even an earlier one. Programs hide the tools from their next start.

    Args:
        tool: SERVER/TOOL, or SERVER for all its tools that have changed.
        tools: More tools.
        store: The catalog_store.
        config: The configuration file.
        json: Print JSON.
    """
    from ._pins import decide

    return await decide((tool, *tools), config, store, Output(as_json=json), approve=False)


async def serve(
    *,
    config: Annotated[str, Parameter(name=["--config", "-c"], completer=files_for)],
    stdio: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    socket: str | None = None,
    secret_file: Path = None,
    control: str | None = None,
    idle: Annotated[float | None, Parameter(name="--idle")] = None,
    http: str | None = None,
    token_file: str | None = None,
    no_token: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    host_name: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    origin: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
) -> int:
    """Serve all servers of a file as one MCP server, each as one process for all clients.

    Args:
        config: The file, or FILE#SERVER for one server, whose tools keep their names. There is no default.
        stdio: Serve one client over stdin and stdout.
        socket: Serve any number of clients over a unix socket at this path; or at HOST:PORT, for programs on
            other machines that reach this process by a Socket.
        secret_file: The file with the secret that clients at HOST:PORT must prove. Other users must not be able to
            read it.
        control: Also listen for the commands status, restart, stop and so on, at this path.
        idle: Seconds without a client until the command ends. Default: never. Only with --socket.
        http: Serve over HTTP at HOST:PORT, or with the word systemd, on the socket of systemd.
        token_file: A file with the tokens of clients, each on a line of its own, perhaps behind a name. A missing
            file is created. Default: a file of this user, whose token is printed.
        no_token: Let everybody on this machine in.
        host_name: A public name of the gateway, as in the URL of clients. May be given several times.
        origin: The origin of pages that may send requests, such as https://example.com. May be given several times.

    Returns:
        0, also after a first SIGTERM or Ctrl-C; 78 if a file cannot be used, 1 if the address cannot.
    """
    for other in ({"socket": socket}, {"idle": idle}, {"secret_file": secret_file}):
        check_exclusive(stdio=stdio, http=http, **other)
    check_exclusive(token_file=token_file, no_token=no_token)
    if http is not None:
        from ._http import HttpOptions, serve_over_http

        return await serve_over_http(config, HttpOptions(http, token_file, no_token, host_name, origin), control)
    if token_file is not None or no_token or host_name or origin:
        raise Misuse("--token-file, --no-token, --host-name and --origin need --http HOST:PORT")
    from ._gateway import serve_file

    return await serve_file(config, stdio=stdio, socket=socket, secret_file=secret_file, control=control, idle=idle)


async def attach(*, config: Annotated[str, Parameter(name=["--config", "-c"], completer=files_for)]) -> int:
    """Connect a client over stdin and stdout to the daemon of a file, which serves all clients; start it if needed.

    For editors that can only start a server themselves: all sessions of all editors then have the same servers.

    Args:
        config: The absolute path of the file, with #SERVER behind it for one server. There is no default.

    Returns:
        0 when the client has closed stdin.
    """
    program = os.path.join(os.path.dirname(os.path.dirname(__file__)), "gateway", "attach.py")
    os.execv(python := our_python("mcp-actors attach", program), [python, "-I", "-S", program, "--config", config])


async def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a script that completes commands, options and the names of servers in a shell.

    Names come from the configuration file, which is only read; no server is started.

    Args:
        shell: The shell.
    """
    script = make_app().generate_completion(shell=shell)
    if shell == "zsh":  # the script is for a folder of functions; this line lets it be evaluated, as in other shells
        script += "compdef _cyclopts_mcp-actors mcp-actors\n"
    Output().text(script)
    return 0


EXAMPLES: Final[Mapping[Callable[..., Any], tuple[str, str]]] = {
    check: ("_check", "mcp-actors check --config ~/.cursor/mcp.json"),
    tools: ("_call", "mcp-actors tools -- npx -y @modelcontextprotocol/server-everything"),
    call: ("_call", "mcp-actors call time get_current_time timezone=Europe/Paris"),
    resources: ("_read", "mcp-actors resources notes"),
    read: ("_read", "mcp-actors read notes note:///shopping"),
    prompts: ("_read", "mcp-actors prompts https://example.com/mcp"),
    prompt: ("_read", "mcp-actors prompt notes plan meal=lunch"),
    watch: ("_check", "mcp-actors watch"),
    graph: ("_call", "mcp-actors graph time"),
    status: ("_control", "mcp-actors status --config ~/.config/mcp-actors/cursor.json"),
    logs: ("_control", "mcp-actors logs time"),
    restart: ("_control", "mcp-actors restart time"),
    stop: ("_control", "mcp-actors stop --config ~/.config/mcp-actors/cursor.json"),
    start: ("_control", "mcp-actors start time"),
    reload: ("_control", "mcp-actors reload"),
    ui: ("_http", "mcp-actors ui --config ~/.config/mcp-actors/cursor.json"),
    login: ("_sign_in", "mcp-actors login linear"),
    logout: ("_sign_in", "mcp-actors logout linear"),
    whoami: ("_sign_in", "mcp-actors whoami"),
    config_show: ("_config", "mcp-actors config show"),
    config_convert: ("_config", "mcp-actors config convert vscode --output .vscode/mcp.json"),
    config_attach: ("_attach_hosts", "mcp-actors config attach cursor"),
    pins_show: ("_pins", "mcp-actors pins show"),
    pins_approve: ("_pins", "mcp-actors pins approve mail/send"),
    pins_reject: ("_pins", "mcp-actors pins reject mail/send"),
    serve: ("_gateway", "mcp-actors serve --config ~/.cursor/mcp.json --stdio"),
    attach: ("_output", "mcp-actors attach --config ~/.cursor/mcp.json"),
    completion: ("_output", 'eval "$(mcp-actors completion bash)"'),
}
"""Every command: the file with its code, which `run` imports first, and an example for the help."""


PANELS: Final = {
    "Look": "check tools call resources read prompts prompt watch graph",
    "Share": "serve attach ui status logs restart stop start reload",
    "Sign in": "login logout whoami",
    "Files": "config pins completion",
}
"""Titles of the panels in the help → the first words of their commands."""

GROUPS: Final = {
    "config": "Show a configuration as it is understood, convert it, or move the servers of another program here.",
    "pins": "Review tools that have changed since they were accepted (on_tool_change).",
}
"""The first word of commands of two words → its help."""


# --- The parser -------------------------------------------------------------------------------------------------------


@cache
def make_app() -> App:
    app = App(
        name="mcp-actors",
        help="Check and use the MCP servers of a configuration file, as Claude, Cursor, VS Code and others write it.",
        help_epilogue=_examples(*(EXAMPLES[each][1] for each in (check, tools, call)), "mcp-actors COMMAND --help"),
        help_format="plaintext",
        version=version("mcp-actors"),
    )
    titles = [Group(title, sort_key=place) for place, title in enumerate((*PANELS, "Options"))]
    panels = {word: title for title, words in zip(titles, PANELS.values(), strict=False) for word in words.split()}
    app["--help"].group = app["--version"].group = (titles[-1],)
    groups = {
        name: App(name=name, help=text, help_format="plaintext", group=panels[name]) for name, text in GROUPS.items()
    }
    for name, group in groups.items():
        group.help_epilogue = _examples(*(line for each, (_, line) in EXAMPLES.items() if path_of(each)[0] == name))
        app.command(group)
    for command, (_, example) in EXAMPLES.items():
        *group_name, name = path_of(command)
        parent = groups[group_name[0]] if group_name else app
        panel = None if group_name else panels[name]
        parent.command(command, name=name, group=panel, help_epilogue=_examples(example))
    return app


def path_of(command: Callable[..., Any]) -> list[str]:
    """Return the words of a command, such as ``pins show``."""
    return command.__name__.split("_")


def _examples(*lines: str) -> str:
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *(f"    {line}" for line in lines)])
