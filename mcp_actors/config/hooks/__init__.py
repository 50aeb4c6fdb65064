"""The user's own code in a configuration: callbacks, middleware, extensions.

Imported by `ServerConfig` and by the servers, which call it. This room uses the validators of the folder around it and
nothing else of it.
"""

from __future__ import annotations

from ._callbacks import (
    CallbackContext as CallbackContext,
    Callbacks as Callbacks,
    EffectiveCallbacks as EffectiveCallbacks,
    ElicitationCallback as ElicitationCallback,
    LoggingCallback as LoggingCallback,
    MessageCallback as MessageCallback,
    ProgressCallback as ProgressCallback,
    RootsCallback as RootsCallback,
    SamplingCallback as SamplingCallback,
    effective_callbacks as effective_callbacks,
)
from ._extensions import (
    AdaptedExtension as AdaptedExtension,
    check_extensions as check_extensions,
    to_extensions as to_extensions,
)
from ._middleware import (
    CallNext as CallNext,
    Middleware as Middleware,
    ToolRequest as ToolRequest,
    check_middleware as check_middleware,
    to_middleware as to_middleware,
    wrapped as wrapped,
)
