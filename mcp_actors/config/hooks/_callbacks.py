"""Code of the user's that answers what a server asks, and hears what it tells."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

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

from .. import _validators as check

DEFAULT_TIMEOUT: Final = 300.0
"""Seconds: a person has read a form and filled it in by then, or is not there."""

DEFAULT_LOG_LEVEL: Final[LoggingLevel] = "info"


@attrs.frozen(kw_only=True)
class CallbackContext:
    """What a callback is called for: which server, and which message of its.

    Attributes:
        server: the server's configured name.
        request_id: the id of its request; None if it only tells something.
        meta: the ``_meta`` of its message; None if there is none.
    """

    server: str
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = None


SamplingCallback: TypeAlias = Callable[
    [CallbackContext, CreateMessageRequestParams],
    Awaitable[CreateMessageResult | CreateMessageResultWithTools | ErrorData],
]
"""``async def sampling(context, params)``: has a model write a message."""

ElicitationCallback: TypeAlias = Callable[[CallbackContext, ElicitRequestParams], Awaitable[ElicitResult | ErrorData]]
"""``async def elicitation(context, params)``: asks the user, in a form or by way of a URL (``params.mode``)."""

RootsCallback: TypeAlias = Callable[[CallbackContext], Awaitable[ListRootsResult | ErrorData]]
"""``async def roots(context)``: says which folders the server may look at."""

LoggingCallback: TypeAlias = Callable[[CallbackContext, LoggingMessageNotificationParams], Awaitable[None]]
"""``async def logging(context, params)``: hears what the server logs."""

MessageCallback: TypeAlias = Callable[[CallbackContext, IncomingMessage], Awaitable[None]]
"""``async def message(context, message)``: hears of every notification, and of faults of the transport."""

_check_timeout: Final = check.seconds(unlimited=True, optional=True)


def _check_called_with(*parameters: str) -> check.Validator:
    """Make a validator for an async function that takes these parameters; None and False mean that there is none."""
    called = f"({', '.join(parameters)})"
    remedy = f"give an async function {called}, or None"

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None or value is False:
            return
        problem = None
        if not callable(value):
            problem = check.shown(value)
        elif not _is_async(value):
            problem = f"<{_name_of(value)}, which is not async>"
        elif not _takes(value, len(parameters)):
            problem = f"<{_name_of(value)}, which cannot be called with {called}>"
        if problem is not None:
            raise check.refused_text(instance, attribute.name, problem, remedy)

    return validate


def _is_async(value: Any) -> bool:
    """Whether calling it makes a coroutine; an object may have an async ``__call__``, a class is none."""
    return inspect.iscoroutinefunction(value) or (
        not isinstance(value, type) and inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004 - its kind matters
    )


def _takes(value: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments by position."""
    try:
        inspect.signature(value).bind(*range(count))
    except TypeError:
        return False
    return True


def _name_of(value: object) -> str:
    """How a function is called. Not its `repr`: that of a method shows the object that it is of."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def _shown(value: object) -> str:
    return repr(value) if value is None or value is False else f"<{_name_of(value)}>"


def _check_level(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        check.one_of(*get_args(LoggingLevel))(instance, attribute, value)


_check_question: Final = _check_called_with("context", "params")
_check_roots: Final = _check_called_with("context")
_check_message: Final = _check_called_with("context", "message")
_check_capabilities: Final = check.kind(
    SamplingCapability, type(None), remedy="give an mcp.types.SamplingCapability(...), or None"
)


@attrs.frozen(kw_only=True)
class Callbacks:
    """What a program does for servers that ask it something, or tell it something.

    A server is told that it may ask only for what there is a callback for. Each call runs in a task of its own, beside
    everything else, and within its own time; what is asked is answered with an error if its callback raises, or takes
    too long. To refuse, return an `mcp.types.ErrorData`. Callbacks may call any server.

    Given to ``open_servers`` they are for all servers of the group; what a server has of its own
    (``ServerConfig.callbacks``) wins, field by field, and False there means: none, whatever the group has.

    Args:
        sampling: ``async (context, params)``: the server wants a model to write a message. Returns an
            `mcp.types.CreateMessageResult`.
        elicitation: ``async (context, params)``: the server wants to know something of the user, in a form or by way of
            a URL; ``params.mode`` says which. Returns an `mcp.types.ElicitResult`.
        roots: ``async (context)``: the server wants to know which folders it may look at. Returns an
            `mcp.types.ListRootsResult`.
        logging: ``async (context, params)``: the server logs something.
        message: ``async (context, message)``: any notification of the server, and any fault of its transport, after
            this library itself has dealt with it.
        log_level: from which level on a server is to log, if there is a ``logging``. None (default): that of the
            group's callbacks, or ``"info"``.
        sampling_capabilities: what ``sampling`` can do beyond a plain message (tools, context), for servers to know.
        timeout: seconds for one call of one of them; `math.inf`: no bound. None (default): that of the group's
            callbacks, or 300.

    Raises:
        ConfigError: a value cannot be used; the message names the field, the value and the remedy.
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
    """What holds for one server; its attributes are those of `Callbacks`."""

    sampling: SamplingCallback | None = None
    elicitation: ElicitationCallback | None = None
    roots: RootsCallback | None = None
    logging: LoggingCallback | None = None
    message: MessageCallback | None = None
    log_level: LoggingLevel = DEFAULT_LOG_LEVEL
    sampling_capabilities: SamplingCapability | None = None
    timeout: float = DEFAULT_TIMEOUT


def effective_callbacks(own: Callbacks | None, default: Callbacks | None = None) -> EffectiveCallbacks:
    """What holds for a server: its own callbacks; what is not given there, of its group's; else the defaults."""
    effective: dict[str, Any] = {}
    for callbacks in (default, own):
        if callbacks is not None:
            effective |= attrs.asdict(callbacks, recurse=False, filter=lambda _, value: value is not None)
    # False was there to hide what the group has.
    return EffectiveCallbacks(**{name: value for name, value in effective.items() if value is not False})
