# The layers of the package. Imports go downward; the few that go sideways are listed after the docstring.
# tests/test_layers.py checks both.
#
#   L5  cli       __main__   _pytest_plugin   the command line; fixtures; no other folder imports them
#   L5  hosts                                 gateways that a cluster places on its nodes
#   L4  bridge    adapters   sync             asyncio programs; agent frameworks; threads
#   L4  testing   observe    gateway          tools for tests; metrics and health; one server for many clients
#   L3  servers                               one MCP server = one actor; groups of servers
#   L2  transports                            the ways to a server: pipes, sockets, HTTP, in process
#   L1  kernel    catalog    config           actors without MCP; tools; configuration
#   L1  auth                                  OAuth: the sign-in, tokens and token stores
#   L0  _errors   _backoff _collapse _exports errors; delays; exception groups; public names
#   L0  _foreign  _text _json _pickling       users' objects; foreign text; foreign JSON; pickling
#   L0  _misuse   _sdk       _user_files      explained mistakes; the check of the SDK's version; private files
#   L0  _python   _patched                    the search for Python; the check for gevent and eventlet
#   L0  _tasks                                background tasks; signals
#
# Importing this file loads no layer, so `import mcp_actors.kernel` loads the kernel alone.
"""Use MCP servers as supervised actors on Trio.

Programs start at `open_servers`, which connects to MCP servers, restarts failed ones, and leaves nothing behind. On
asyncio use `mcp_actors.bridge.open_servers`, and without an event loop `mcp_actors.sync.open_servers`. Agents of other
libraries get tools from `mcp_actors.adapters`; actors of your own derive from `mcp_actors.kernel.Actor`.
"""

# ``__all__`` lists the public names. Names are imported at first use (PEP 562), but type checkers see plain imports. On
# Windows, and in a program that eventlet has patched, importing the package raises an ``ImportError``.
#
# These imports go sideways: ``adapters`` and ``sync`` import ``bridge``, ``auth`` imports ``config``, ``gateway``
# imports ``observe``, ``__main__`` imports ``cli``, and the files of L0 import each other.

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp_actors._backoff import Backoff
    from mcp_actors._errors import (
        ConfigError,
        ConnectFailed,
        ConnectionLost,
        HttpStatusError,
        InvalidArguments,
        InvalidResult,
        LimitExceeded,
        McpActorsError,
        RequestTimedOut,
        ServerError,
        ServerUnavailable,
        ToolFailed,
        ToolNotFound,
    )
    from mcp_actors.catalog import CatalogSnapshot, CatalogTool, result_value
    from mcp_actors.config import (
        BreakerPolicy,
        Callbacks,
        HealthPolicy,
        Http,
        InProcess,
        Limits,
        LoadedConfig,
        RestartPolicy,
        RetryPolicy,
        Secret,
        ServerConfig,
        Socket,
        Sse,
        Stdio,
        ToolFilter,
        ToolRequest,
        load_config,
    )
    from mcp_actors.servers import (
        ServerGroup,
        ServerRef,
        ServerState,
        ServerStatus,
        StateChanged,
        ToolsChanged,
        open_servers,
    )

if sys.platform == "win32":
    raise ImportError("mcp_actors runs on Linux and macOS, not on Windows yet; under Windows, use it inside WSL")
if "eventlet.patcher" in sys.modules:
    from . import _patched  # now, because with eventlet Trio cannot be imported

    _patched.refuse_patched("mcp_actors", ImportError)

__version__: Final = "0.1.0"

_HOMES: Final[dict[str, str]] = {}
"""Public name → the module that offers it."""


def _fetched_from(module: str) -> None:
    """Note the module of the names added to `__all__` since the last call."""
    for name in __all__:
        _HOMES.setdefault(name, module)


# Type checkers read no table, but they add up lists. So each name is written twice: in an import above, and here.
__all__: list[str] = []
__all__ += ["Backoff"]
_fetched_from("mcp_actors._backoff")
__all__ += [
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "HttpStatusError",
    "InvalidArguments",
    "InvalidResult",
    "LimitExceeded",
    "McpActorsError",
    "RequestTimedOut",
    "ServerError",
    "ServerUnavailable",
    "ToolFailed",
    "ToolNotFound",
]
_fetched_from("mcp_actors._errors")
__all__ += ["CatalogSnapshot", "CatalogTool", "result_value"]
_fetched_from("mcp_actors.catalog")
__all__ += [
    "BreakerPolicy",
    "Callbacks",
    "HealthPolicy",
    "Http",
    "InProcess",
    "Limits",
    "LoadedConfig",
    "RestartPolicy",
    "RetryPolicy",
    "Secret",
    "ServerConfig",
    "Socket",
    "Sse",
    "Stdio",
    "ToolFilter",
    "ToolRequest",
    "load_config",
]
_fetched_from("mcp_actors.config")
__all__ += ["ServerGroup", "ServerRef", "ServerState", "ServerStatus", "StateChanged", "ToolsChanged", "open_servers"]
_fetched_from("mcp_actors.servers")

# Hidden from type checkers: they cannot read a sorted list, and `__getattr__` would let them accept misspelled names.
if not TYPE_CHECKING:
    __all__.sort()

    def __getattr__(name: str) -> object:
        """Fetch a public name from its module, and keep it (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        thing = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return thing

    def __dir__() -> list[str]:
        """List the public names, fetched or not, and the folders that are imported."""
        from ._exports import public_names

        return public_names(globals())
