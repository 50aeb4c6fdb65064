"""Configuration of servers as frozen, validated data.

Nothing here connects, starts or decides anything; `mcp_actors.servers` does, by this data. It uses the single files of
the package's ground floor and the types of the SDK. All other folders above the kernel use it. The sources, the tables
and ``formats`` are imported when a program first uses one of their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import fetch_later, publish
from ._hooks import (
    AdaptedExtension as AdaptedExtension,
    CallbackContext as CallbackContext,
    Callbacks as Callbacks,
    CallNext as CallNext,
    EffectiveCallbacks as EffectiveCallbacks,
    ElicitationCallback as ElicitationCallback,
    LoggingCallback as LoggingCallback,
    MessageCallback as MessageCallback,
    Middleware as Middleware,
    ProgressCallback as ProgressCallback,
    RootsCallback as RootsCallback,
    SamplingCallback as SamplingCallback,
    ToolRequest as ToolRequest,
    effective_callbacks as effective_callbacks,
    wrapped as wrapped,
)
from ._oauth import (
    OAuth as OAuth,
    SignInCallback as SignInCallback,
    TokenStore as TokenStore,
    is_loopback as is_loopback,
    is_not_public as is_not_public,
)
from ._policies import (
    BreakerPolicy as BreakerPolicy,
    HealthPolicy as HealthPolicy,
    Limits as Limits,
    RestartPolicy as RestartPolicy,
    RetryBudget as RetryBudget,
    RetryPolicy as RetryPolicy,
)
from ._server import (
    LoadedConfig as LoadedConfig,
    Rank as Rank,
    ServerConfig as ServerConfig,
    Source as Source,
    check_unique_names as check_unique_names,
)
from ._template import Transport as Transport, TransportTemplate as TransportTemplate, speaks_sse as speaks_sse
from ._tools import (
    ToolContext as ToolContext,
    ToolFilter as ToolFilter,
    ToolPredicate as ToolPredicate,
    permitted as permitted,
)
from ._transports import (
    Http as Http,
    InProcess as InProcess,
    Sandbox as Sandbox,
    Sse as Sse,
    Stdio as Stdio,
    is_auth_flow as is_auth_flow,
)
from ._values import (
    ConfigValue as ConfigValue,
    Secret as Secret,
    expand as expand,
    mask_url as mask_url,
    resolve as resolve,
    resolve_env as resolve_env,
    resolve_headers as resolve_headers,
    resolve_token as resolve_token,
)

if TYPE_CHECKING:
    from ._sources import DirectorySource as DirectorySource, FileSource as FileSource
    from ._tables import PostgresSource as PostgresSource, SqliteSource as SqliteSource, TableSource as TableSource
    from .formats import (
        Ask as Ask,
        Input as Input,
        check_overrides as check_overrides,
        dump_config as dump_config,
        load_config as load_config,
    )

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
    "TransportTemplate",
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
    "permitted",
    "resolve",
    "resolve_env",
    "resolve_headers",
    "resolve_token",
    "speaks_sse",
    "wrapped",
]

publish("mcp_actors.auth", {"OAuth": OAuth, "TokenStore": TokenStore})  # users import them from there
publish(__name__, globals())

# The readers of files and tables. Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__, __dir__ = fetch_later(
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
