"""What to connect to, as frozen data: checked when it is written down, resolved only when it is used."""

from __future__ import annotations

from .._exports import publish
from ._breaker import BreakerPolicy as BreakerPolicy
from ._callbacks import (
    CallbackContext as CallbackContext,
    Callbacks as Callbacks,
    EffectiveCallbacks as EffectiveCallbacks,
    ElicitationCallback as ElicitationCallback,
    LoggingCallback as LoggingCallback,
    MessageCallback as MessageCallback,
    RootsCallback as RootsCallback,
    SamplingCallback as SamplingCallback,
    effective_callbacks as effective_callbacks,
)
from ._endpoints import Http as Http, Sse as Sse, is_auth_flow as is_auth_flow, is_loopback as is_loopback
from ._expand import expand as expand
from ._health import HealthPolicy as HealthPolicy
from ._limits import Limits as Limits
from ._list_meter import ListMeter as ListMeter
from ._masking import mask_url as mask_url
from ._middleware import (
    CallNext as CallNext,
    Middleware as Middleware,
    ToolRequest as ToolRequest,
    wrapped as wrapped,
)
from ._restart import RestartPolicy as RestartPolicy
from ._retry import RetryBudget as RetryBudget, RetryPolicy as RetryPolicy
from ._server import ServerConfig as ServerConfig, check_unique_names as check_unique_names
from ._template import Transport as Transport, TransportTemplate as TransportTemplate, speaks_sse as speaks_sse
from ._tool_filter import (
    ToolContext as ToolContext,
    ToolFilter as ToolFilter,
    ToolPredicate as ToolPredicate,
    permitted as permitted,
)
from ._transports import InProcess as InProcess, Stdio as Stdio
from ._values import (
    ConfigValue as ConfigValue,
    Secret as Secret,
    resolve as resolve,
    resolve_env as resolve_env,
    resolve_headers as resolve_headers,
    resolve_token as resolve_token,
)
from .formats import Ask as Ask, Input as Input, LoadedConfig as LoadedConfig, load_config as load_config

__all__ = [
    "Ask",
    "BreakerPolicy",
    "CallNext",
    "CallbackContext",
    "Callbacks",
    "ConfigValue",
    "EffectiveCallbacks",
    "ElicitationCallback",
    "HealthPolicy",
    "Http",
    "InProcess",
    "Input",
    "Limits",
    "ListMeter",
    "LoadedConfig",
    "LoggingCallback",
    "MessageCallback",
    "Middleware",
    "RestartPolicy",
    "RetryBudget",
    "RetryPolicy",
    "RootsCallback",
    "SamplingCallback",
    "Secret",
    "ServerConfig",
    "Sse",
    "Stdio",
    "ToolContext",
    "ToolFilter",
    "ToolPredicate",
    "ToolRequest",
    "Transport",
    "TransportTemplate",
    "check_unique_names",
    "effective_callbacks",
    "expand",
    "is_auth_flow",
    "is_loopback",
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

publish(
    "mcp_actors",
    {
        "BreakerPolicy": BreakerPolicy,
        "Callbacks": Callbacks,
        "HealthPolicy": HealthPolicy,
        "Http": Http,
        "InProcess": InProcess,
        "Limits": Limits,
        "LoadedConfig": LoadedConfig,
        "RestartPolicy": RestartPolicy,
        "RetryPolicy": RetryPolicy,
        "Secret": Secret,
        "ServerConfig": ServerConfig,
        "Sse": Sse,
        "Stdio": Stdio,
        "ToolFilter": ToolFilter,
        "ToolRequest": ToolRequest,
        "load_config": load_config,
    },
)
publish(__name__, globals())
