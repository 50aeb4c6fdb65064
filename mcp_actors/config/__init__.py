"""Configuration of servers as frozen, validated data, and its loaders.

Start with `ServerConfig`: a name, a transport and policies. `load_config` reads the files of many clients. A group can
follow a `Source`, for example a file or a database table. Nothing here starts or contacts an MCP server. Only
`PostgresSource` and `SqliteSource` write, to their database.
"""

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

# Imported at the first use. Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__ = fetch_later(
        globals(),
        {
            ".formats": "Ask Input check_overrides dump_config load_config",
            "._sources": "DirectorySource FileSource",
            "._tables": "PostgresSource SqliteSource TableSource",
        },
    )
