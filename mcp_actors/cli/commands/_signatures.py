"""The signatures of the commands, and their help.

The code behind a command is imported when the command is run. With the types of the protocol that takes most of a
second, too long for help or for the message about a typo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from cyclopts import Parameter

from .._interrupt import exit_on_interrupt
from .._output import Misuse, Output

ConfigFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--config", "-c"],
        help="The configuration file. Default: the first that exists of .mcp.json, mcp.json, .vscode/mcp.json and "
        ".cursor/mcp.json.",
        show_default=False,
    ),
]

AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.", show_default=False)]


async def check(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
    """Connect to all servers, and report for each its version, or its error with a remedy.

    Args:
        servers: Servers to check. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers are ready, 3 if some need a sign-in and nothing else is wrong, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._check import check_servers

    return await check_servers(servers, config, Output(as_json=json))


async def tools(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the tools of all servers.

    Args:
        servers: Servers whose tools to list. Default: all that are enabled.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0 if all servers answered, 1 otherwise.
    """
    with exit_on_interrupt():
        from ._call import list_tools

    return await list_tools(servers, config, Output(as_json=json))


async def call(
    server: str,
    tool: str,
    /,
    *arguments: str,
    args: str | None = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> int:
    """Call a tool and print its result.

    On a terminal, progress that the server reports is shown as a bar. Ctrl-C cancels the call on the server too.

    Args:
        server: Name of the server in the configuration.
        tool: Name of the tool.
        arguments: key=value, of the type in the tool's schema: text, number, true or false, or JSON.
        args: Arguments as a JSON object. Those written as key=value are added to it.
        config: The configuration file.
        json: Print JSON.

    Returns:
        0, or 1 if the tool failed.
    """
    with exit_on_interrupt():
        from ._call import call_tool

    return await call_tool(server, tool, arguments, args, config, Output(as_json=json))


async def watch(*servers: str, config: ConfigFile = None, json: AsJson = False, every: float = 1.0) -> int:
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


async def graph(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
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


async def login(server: str, /, *, config: ConfigFile = None) -> int:
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


async def logout(*servers: str, config: ConfigFile = None) -> int:
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


async def whoami(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
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


EXAMPLES: Final[Mapping[Callable[..., Any], str]] = {
    check: "mcp-actors check --config ~/.cursor/mcp.json",
    tools: "mcp-actors tools time --json",
    call: "mcp-actors call time get_current_time timezone=Europe/Paris",
    watch: "mcp-actors watch",
    graph: "mcp-actors graph time",
    login: "mcp-actors login linear",
    logout: "mcp-actors logout linear",
    whoami: "mcp-actors whoami",
}
"""Every command, and an example of it for the help."""
