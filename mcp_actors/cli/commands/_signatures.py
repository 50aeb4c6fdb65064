"""The commands as they are typed: their arguments, and their help.

What carries a command out is imported when it is run. With the types of the protocol that takes most of a second, and
nobody waits that long for help, or for being told of a typo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from cyclopts import Parameter

from .._interrupt import leaving_at_once
from .._output import Output
from .._problems import Misuse

__all__ = ["EXAMPLES", "call", "check"]

ConfigFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--config", "-c"],
        help="The configuration file. Default: .mcp.json, mcp.json, .vscode/mcp.json or .cursor/mcp.json, "
        "whichever is there first.",
        show_default=False,
    ),
]

AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.", show_default=False)]


async def check(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
    """Connect to all servers, and say for each what it is, or what is wrong and what to do.

    Args:
        servers: the servers to check. Default: all that are enabled.
        config: the configuration file.
        json: whether to print JSON.

    Returns:
        0 if all is well, 1 if not.
    """
    with leaving_at_once():
        from ._check import check_servers

    return await check_servers(servers, config, Output(as_json=json))


async def tools(*servers: str, config: ConfigFile = None, json: AsJson = False) -> int:
    """List the tools of all servers.

    Args:
        servers: the servers whose tools are listed. Default: all that are enabled.
        config: the configuration file.
        json: whether to print JSON.

    Returns:
        0 if all servers could be asked, 1 if not.
    """
    with leaving_at_once():
        from ._tools import list_tools

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
    """Call a tool, and print what it returns.

    On a terminal the progress that the server reports is a bar. Ctrl-C cancels the call at the server too.

    Args:
        server: the server, as it is called in the configuration.
        tool: the tool, as the server calls it.
        arguments: key=value, typed by the tool's schema: numbers, true and false, JSON for objects and arrays.
        args: all arguments as one JSON object.
        config: the configuration file.
        json: whether to print JSON.

    Returns:
        0, or 1 if the tool failed.
    """
    with leaving_at_once():
        from ._call import call_tool

    return await call_tool(server, tool, arguments, args, config, Output(as_json=json))


async def watch(*servers: str, config: ConfigFile = None, json: AsJson = False, every: float = 1.0) -> int:
    """Keep the servers connected and show their state, until Ctrl-C. On a terminal it is a live table.

    Elsewhere, and with --json, it is one line for each change of a state.

    Args:
        servers: the servers to watch. Default: all that are enabled.
        config: the configuration file.
        json: whether to print JSON.
        every: seconds after which the table is made anew, also if no state has changed.

    Returns:
        Never, but by Ctrl-C.
    """
    if not 0 < every < math.inf:
        raise Misuse(f"--every is {every}; give a number of seconds over 0")
    with leaving_at_once():
        from ._watch import watch_servers

    return await watch_servers(servers, config, Output(as_json=json), every=every)


EXAMPLES: Final[Mapping[Callable[..., Any], str]] = {
    check: "mcp-actors check --config ~/.cursor/mcp.json",
    tools: "mcp-actors tools time --json",
    call: "mcp-actors call time get_current_time timezone=Europe/Paris",
    watch: "mcp-actors watch",
}
"""Every command, with an example for its help."""
