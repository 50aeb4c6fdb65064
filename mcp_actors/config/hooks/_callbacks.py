"""Functions that answer a server's requests and receive its notifications."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import attrs
from mcp.client.session import IncomingMessage
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    RequestId,
    SamplingCapability,
)

from ..._misuse import explained
from .. import _validators as check

T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 300.0
"""Seconds: enough for a person to read a form and fill it in."""

DEFAULT_LOG_LEVEL: Final[LoggingLevel] = "info"


@attrs.frozen(kw_only=True)
class CallbackContext:
    """The server and the message that a callback is called for.

    Attributes:
        server: the server's configured name.
        request_id: the id of the server's request; None for a notification.
        meta: the ``_meta`` of the message, or None.
    """

    server: str
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = None


Answer: TypeAlias = Awaitable[T] | T
"""What a function returns that may be async or not."""

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], Answer[None]]
"""``progress(progress, total, message)``, async or not: receive a report on a request that is being carried out."""

SamplingCallback: TypeAlias = Callable[
    [CallbackContext, CreateMessageRequestParams],
    Answer[CreateMessageResult | CreateMessageResultWithTools | ErrorData],
]
"""``sampling(context, params)``, async or not: let a model write a message."""

ElicitationCallback: TypeAlias = Callable[[CallbackContext, ElicitRequestParams], Answer[ElicitResult | ErrorData]]
"""``elicitation(context, params)``, async or not: ask the user, in a form or through a URL (``params.mode``)."""

RootsCallback: TypeAlias = Callable[[CallbackContext], Answer[ListRootsResult | ErrorData]]
"""``roots(context)``, async or not: list the folders that the server may access."""

LoggingCallback: TypeAlias = Callable[[CallbackContext, LoggingMessageNotificationParams], Answer[None]]
"""``logging(context, params)``, async or not: receive a log message of the server."""

MessageCallback: TypeAlias = Callable[[CallbackContext, IncomingMessage], Answer[None]]
"""``message(context, message)``, async or not: receive every notification and every error of the transport."""

_check_timeout: Final = check.seconds(unlimited=True, optional=True)


def _check_called_with(*parameters: str) -> check.Validator:
    """Make a validator for a function with these parameters, async or not, None or False."""
    called = f"({', '.join(parameters)})"
    remedy = f"give a function {called}, async or not, or None"

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None or value is False:
            return
        problem = None
        if not callable(value):
            problem = check.shown(value)
        elif isinstance(value, type):
            problem = f"<{_name_of(value)}, which is a class>"
        elif not _takes(value, len(parameters)):
            problem = f"<{_name_of(value)}, which cannot be called with {called}>"
        if problem is not None:
            raise check.refused_text(instance, attribute.name, problem, remedy)

    return validate


def _takes(value: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(value).bind(*range(count))
    except TypeError:
        return False
    return True


def _name_of(value: object) -> str:
    """Return the name of a function; the `repr` of a method would show its object."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def _shown(value: object) -> str:
    return repr(value) if value is None or value is False else f"<{_name_of(value)}>"


_check_level: Final = attrs.validators.optional(check.one_of(*get_args(LoggingLevel)))
_check_question: Final = _check_called_with("context", "params")
_check_roots: Final = _check_called_with("context")
_check_message: Final = _check_called_with("context", "message")
_check_capabilities: Final = check.kind(
    SamplingCapability, type(None), remedy="give an mcp.types.SamplingCapability(...), or None"
)


@explained
@attrs.frozen(kw_only=True)
class Callbacks:
    """Functions that answer requests of servers and receive their notifications.

    Each is async or not; a plain one is called in the event loop, so it must not block. A server learns which callbacks
    exist and may send only the requests that they answer. Each call runs in its own task with its own timeout. If a
    callback raises or times out, the server's request is answered with an error. To refuse a request, return an
    `mcp.types.ErrorData`. Callbacks may call any server.

    Callbacks passed to ``open_servers`` apply to all servers of the group. A server's own (``ServerConfig.callbacks``)
    override them field by field; False disables the group's callback for that server.

    Args:
        sampling: ``(context, params)``: let a model write a message; returns an `mcp.types.CreateMessageResult`.
        elicitation: ``(context, params)``: ask the user, in a form or through a URL (``params.mode``); returns an
            `mcp.types.ElicitResult`.
        roots: ``(context)``: list the folders that the server may access; returns an `mcp.types.ListRootsResult`.
        logging: ``(context, params)``: receive a log message.
        message: ``(context, message)``: receive any notification of the server and any error of its transport,
            after this library has handled it.
        log_level: the lowest level that a server is asked to log, if there is a ``logging`` callback. None (default)
            uses the level of the group's callbacks, or ``"info"``.
        sampling_capabilities: what ``sampling`` supports beyond a plain message (tools, context), as announced to
            servers.
        timeout: seconds for one call; `math.inf` disables the limit. None (default) uses the timeout of the group's
            callbacks, or 300.

    Raises:
        ConfigError: a value is not valid; the message names the field, the value and the remedy.
    """

    sampling: SamplingCallback | Literal[False] | None = attrs.field(
        default=None, validator=_check_question, repr=_shown
    )
    elicitation: ElicitationCallback | Literal[False] | None = attrs.field(
        default=None, validator=_check_question, repr=_shown
    )
    roots: RootsCallback | Literal[False] | None = attrs.field(default=None, validator=_check_roots, repr=_shown)
    logging: LoggingCallback | Literal[False] | None = attrs.field(default=None, validator=_check_question, repr=_shown)
    message: MessageCallback | Literal[False] | None = attrs.field(default=None, validator=_check_message, repr=_shown)
    log_level: LoggingLevel | None = attrs.field(default=None, validator=_check_level)
    sampling_capabilities: SamplingCapability | None = attrs.field(default=None, validator=_check_capabilities)
    timeout: float | None = attrs.field(default=None, validator=_check_timeout)


@attrs.frozen(kw_only=True)
class EffectiveCallbacks:
    """The callbacks in effect for one server; the attributes are those of `Callbacks`."""

    sampling: SamplingCallback | None = None
    elicitation: ElicitationCallback | None = None
    roots: RootsCallback | None = None
    logging: LoggingCallback | None = None
    message: MessageCallback | None = None
    log_level: LoggingLevel = DEFAULT_LOG_LEVEL
    sampling_capabilities: SamplingCapability | None = None
    timeout: float = DEFAULT_TIMEOUT


def effective_callbacks(own: Callbacks | None, default: Callbacks | None = None) -> EffectiveCallbacks:
    """Merge a server's own callbacks with its group's: its own win, and defaults fill the rest."""
    effective: dict[str, Any] = {}
    for callbacks in (default, own):
        if callbacks is not None:
            effective |= attrs.asdict(callbacks, recurse=False, filter=lambda _, value: value is not None)
    # False has overridden the group's callback, and is not needed any more.
    return EffectiveCallbacks(**{name: value for name, value in effective.items() if value is not False})
