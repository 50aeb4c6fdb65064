# The house, and who may import whom: downward only, never sideways (tests/test_layers.py checks it).
#
#   L5  cli       __main__   _pytest_plugin   the command line; fixtures; no other folder imports them
#   L4  bridge    adapters   testing          callers: programs on asyncio, agent frameworks; tools for tests
#   L3  servers                               one MCP server = one actor; groups of them
#   L2  transports                            the ways to a server: pipes, HTTP, in this process
#   L1  kernel    catalog  config             actors without MCP | pure data: tools | pure data: what to connect to
#   L1  auth                                  sign in by OAuth: tokens, their store, the person
#   L0  _errors   _backoff _collapse _exports errors, back-off, one exception per failure, the naming of public things
#   L0  _foreign  _text       _pickling       code of users; text and JSON of servers; exceptions for pickle
#   L0  _misuse   _sdk        _user_files     wrong uses, explained; an SDK that is too old; private files
#   L0  _tasks                                tasks in the background, and the signals that end a program
#
# This file is the façade: it imports nothing by itself, so `import mcp_actors.kernel` loads the kernel alone.
"""Use MCP servers as supervised actors on Trio.

Every connection is owned by one task, restarted when it fails, and never leaked. Programs that use MCP servers start at
`open_servers`, or on asyncio at `mcp_actors.bridge`; agents of other libraries get tools from `mcp_actors.adapters`.
Programs that want actors of their own import `mcp_actors.kernel`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp_actors._backoff import Backoff as Backoff
    from mcp_actors._errors import (
        ConfigError as ConfigError,
        ConnectFailed as ConnectFailed,
        ConnectionLost as ConnectionLost,
        HttpStatusError as HttpStatusError,
        InvalidArguments as InvalidArguments,
        InvalidResult as InvalidResult,
        LimitExceeded as LimitExceeded,
        McpActorsError as McpActorsError,
        RequestTimedOut as RequestTimedOut,
        ServerError as ServerError,
        ServerUnavailable as ServerUnavailable,
        ToolFailed as ToolFailed,
        ToolNotFound as ToolNotFound,
    )
    from mcp_actors.catalog import (
        CatalogSnapshot as CatalogSnapshot,
        CatalogTool as CatalogTool,
        result_value as result_value,
    )
    from mcp_actors.config import (
        BreakerPolicy as BreakerPolicy,
        Callbacks as Callbacks,
        HealthPolicy as HealthPolicy,
        Http as Http,
        InProcess as InProcess,
        Limits as Limits,
        LoadedConfig as LoadedConfig,
        RestartPolicy as RestartPolicy,
        RetryPolicy as RetryPolicy,
        Secret as Secret,
        ServerConfig as ServerConfig,
        Sse as Sse,
        Stdio as Stdio,
        ToolFilter as ToolFilter,
        ToolRequest as ToolRequest,
        load_config as load_config,
    )
    from mcp_actors.servers import (
        ServerGroup as ServerGroup,
        ServerRef as ServerRef,
        ServerState as ServerState,
        ServerStatus as ServerStatus,
        StateChanged as StateChanged,
        ToolsChanged as ToolsChanged,
        open_servers as open_servers,
    )

if sys.platform == "win32":
    raise ImportError("mcp_actors runs on Linux and macOS, not on Windows yet; under Windows, use it inside WSL")

__all__ = [
    "Backoff",
    "BreakerPolicy",
    "Callbacks",
    "CatalogSnapshot",
    "CatalogTool",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "HealthPolicy",
    "Http",
    "HttpStatusError",
    "InProcess",
    "InvalidArguments",
    "InvalidResult",
    "LimitExceeded",
    "Limits",
    "LoadedConfig",
    "McpActorsError",
    "RequestTimedOut",
    "RestartPolicy",
    "RetryPolicy",
    "Secret",
    "ServerConfig",
    "ServerError",
    "ServerGroup",
    "ServerRef",
    "ServerState",
    "ServerStatus",
    "ServerUnavailable",
    "Sse",
    "StateChanged",
    "Stdio",
    "ToolFailed",
    "ToolFilter",
    "ToolNotFound",
    "ToolRequest",
    "ToolsChanged",
    "load_config",
    "open_servers",
    "result_value",
]

__version__: Final = "0.1.0"

_HOMES: Final = {
    "Backoff": "mcp_actors._backoff",
    "BreakerPolicy": "mcp_actors.config",
    "Callbacks": "mcp_actors.config",
    "CatalogSnapshot": "mcp_actors.catalog",
    "CatalogTool": "mcp_actors.catalog",
    "ConfigError": "mcp_actors._errors",
    "ConnectFailed": "mcp_actors._errors",
    "ConnectionLost": "mcp_actors._errors",
    "HealthPolicy": "mcp_actors.config",
    "Http": "mcp_actors.config",
    "HttpStatusError": "mcp_actors._errors",
    "InProcess": "mcp_actors.config",
    "InvalidArguments": "mcp_actors._errors",
    "InvalidResult": "mcp_actors._errors",
    "LimitExceeded": "mcp_actors._errors",
    "Limits": "mcp_actors.config",
    "LoadedConfig": "mcp_actors.config",
    "McpActorsError": "mcp_actors._errors",
    "RequestTimedOut": "mcp_actors._errors",
    "RestartPolicy": "mcp_actors.config",
    "RetryPolicy": "mcp_actors.config",
    "Secret": "mcp_actors.config",
    "ServerConfig": "mcp_actors.config",
    "ServerError": "mcp_actors._errors",
    "ServerGroup": "mcp_actors.servers",
    "ServerRef": "mcp_actors.servers",
    "ServerState": "mcp_actors.servers",
    "ServerStatus": "mcp_actors.servers",
    "ServerUnavailable": "mcp_actors._errors",
    "Sse": "mcp_actors.config",
    "StateChanged": "mcp_actors.servers",
    "Stdio": "mcp_actors.config",
    "ToolFailed": "mcp_actors._errors",
    "ToolFilter": "mcp_actors.config",
    "ToolNotFound": "mcp_actors._errors",
    "ToolRequest": "mcp_actors.config",
    "ToolsChanged": "mcp_actors.servers",
    "load_config": "mcp_actors.config",
    "open_servers": "mcp_actors.servers",
    "result_value": "mcp_actors.catalog",
}
"""Public name → the module that it is fetched from when it is first asked for."""

# Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Fetch a public name from its module, and keep it (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        thing = getattr(import_module(_HOMES[name]), name)
        globals()[name] = thing
        return thing

    def __dir__() -> list[str]:
        """List the public names too, fetched or not."""
        return sorted({*globals(), *__all__})
