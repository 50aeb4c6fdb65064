"""Configuration of servers as frozen, validated data, and its readers.

A `ServerConfig` joins a name, a transport (`Stdio`, `Http`, `Sse`, `Socket`, `InProcess`), policies, a `ToolFilter`,
and the callbacks, extensions and middleware of the program. `load_config` reads the files of many clients, and
`dump_config` writes them. A `Source` follows a file, a directory or a table. Nothing here starts a server or connects
to one.
"""

# A `ServerConfig` joins a transport, policies, a filter of tools, and the user's callbacks, extensions and middleware.
# Other files hold values that may be credentials, how they are made and resolved, the settings of a
# sign-in (`OAuth`), and sources of servers: files, directories, tables. ``formats`` reads configuration files, and
# makes the data of one. The sources, the tables and ``formats`` are imported when one of their names is first used.
#
# Nothing here starts a server or connects to one; `mcp_actors.servers` and `mcp_actors.transports` do, by this data.
# The readers and sources block on files and databases; `PostgresSource` is the only one that connects to anything. It
# uses single files of layer 0, and the SDK: its types, and a `Client` that is never connected. `auth`, `transports`,
# `servers`, `bridge`, `adapters`, `testing` and `cli` use it: the names listed here, and some names of its files.

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import fetch_later, publish
from ._hooks import (
    AdaptedExtension as AdaptedExtension,
    CallbackContext,
    Callbacks,
    CallNext,
    EffectiveCallbacks,
    ElicitationCallback,
    LoggingCallback,
    MessageCallback,
    Middleware,
    ProgressCallback,
    RootsCallback,
    SamplingCallback,
    ToolRequest,
    effective_callbacks,
    wrapped,
)
from ._oauth import (
    OAuth as OAuth,
    SignInCallback as SignInCallback,
    TokenStore as TokenStore,
    is_loopback,
    is_not_public,
)
from ._policies import BreakerPolicy, HealthPolicy, Limits, RestartPolicy, RetryBudget, RetryPolicy
from ._server import LoadedConfig, Rank, ServerConfig, Source, check_unique_names
from ._template import Transport, speaks_sse
from ._tools import ToolContext, ToolFilter, ToolPredicate, permitted
from ._transports import Http, InProcess, Sandbox, Socket, Sse, Stdio, is_auth_flow, parse_address
from ._values import (
    ConfigValue,
    Secret,
    expand,
    mask_url,
    resolve,
    resolve_env,
    resolve_headers,
    resolve_secret,
    resolve_token,
)

if TYPE_CHECKING:
    from ._sources import DirectorySource, FileSource
    from ._tables import PostgresSource, SqliteSource, TableSource
    from .formats import Ask, Input, check_overrides, dump_config, load_config

__all__ = [
    "Ask",
    "BreakerPolicy",
    "CallNext",
    "CallbackContext",
    "Callbacks",
    "ConfigValue",
    "DirectorySource",
    "EffectiveCallbacks",
    "ElicitationCallback",
    "FileSource",
    "HealthPolicy",
    "Http",
    "InProcess",
    "Input",
    "Limits",
    "LoadedConfig",
    "LoggingCallback",
    "MessageCallback",
    "Middleware",
    "PostgresSource",
    "ProgressCallback",
    "Rank",
    "RestartPolicy",
    "RetryBudget",
    "RetryPolicy",
    "RootsCallback",
    "SamplingCallback",
    "Sandbox",
    "Secret",
    "ServerConfig",
    "Socket",
    "Source",
    "SqliteSource",
    "Sse",
    "Stdio",
    "TableSource",
    "ToolContext",
    "ToolFilter",
    "ToolPredicate",
    "ToolRequest",
    "Transport",
    "check_overrides",
    "check_unique_names",
    "dump_config",
    "effective_callbacks",
    "expand",
    "is_auth_flow",
    "is_loopback",
    "is_not_public",
    "load_config",
    "mask_url",
    "parse_address",
    "permitted",
    "resolve",
    "resolve_env",
    "resolve_headers",
    "resolve_secret",
    "resolve_token",
    "speaks_sse",
    "wrapped",
]

publish("mcp_actors.auth", {"OAuth": OAuth, "TokenStore": TokenStore})  # users import them from there
publish(__name__, globals())

# The readers of files and tables. Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__ = fetch_later(
        globals(),
        {
            "Ask": ".formats",
            "DirectorySource": "._sources",
            "FileSource": "._sources",
            "Input": ".formats",
            "PostgresSource": "._tables",
            "SqliteSource": "._tables",
            "TableSource": "._tables",
            "check_overrides": ".formats",
            "dump_config": ".formats",
            "load_config": ".formats",
        },
    )
