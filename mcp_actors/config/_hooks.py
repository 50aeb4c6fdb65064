"""The user's own code in a configuration: callbacks, extensions, middleware.

The user's functions may be async or not, may raise, and may return the wrong thing. This module validates and combines
them; `mcp_actors.servers` calls them.

Owns: nothing.
Writes: nothing.
Calls: _validators.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine, iscoroutinefunction, unwrap
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import attrs
from mcp import Client
from mcp.client import ClientExtension, NotificationBinding, ResultClaim, Transport
from mcp.client.session import IncomingMessage
from mcp.types import (
    CallToolResult,
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
    Result,
    SamplingCapability,
)

from .._errors import ConfigError
from .._foreign import always_async
from .._misuse import explained
from . import _validators as check

# --- Callbacks --------------------------------------------------------------------------------------------------------


T = TypeVar("T")


@attrs.frozen(kw_only=True)
class CallbackContext:
    """The server and the message for which a callback is called.

    Attributes:
        server: the server's configured name.
        request_id: the id of the server's request; None for a notification.
        meta: the ``_meta`` of the message, or None.
    """

    server: str
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = attrs.field(default=None, hash=False)


Answer: TypeAlias = Awaitable[T] | T
"""The result of a function, async or not."""

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], Answer[None]]
"""``progress(progress, total, message)``, async or not: receive a report on a request in progress."""

SamplingCallback: TypeAlias = Callable[
    [CallbackContext, CreateMessageRequestParams],
    Answer[CreateMessageResult | CreateMessageResultWithTools | ErrorData],
]
"""``sampling(context, params)``: let a model write a message."""

ElicitationCallback: TypeAlias = Callable[[CallbackContext, ElicitRequestParams], Answer[ElicitResult | ErrorData]]
"""``elicitation(context, params)``: ask the user, in a form or through a URL (``params.mode``)."""

RootsCallback: TypeAlias = Callable[[CallbackContext], Answer[ListRootsResult | ErrorData]]
"""``roots(context)``: list the folders that the server may access."""

LoggingCallback: TypeAlias = Callable[[CallbackContext, LoggingMessageNotificationParams], Answer[None]]
"""``logging(context, params)``: receive a log message of the server."""

MessageCallback: TypeAlias = Callable[[CallbackContext, IncomingMessage], Answer[None]]
"""``message(context, message)``: receive every notification and every error of the transport."""


def _check_called_with(*parameters: str) -> check.Validator:
    """Make a validator for a function with these parameters. None and False pass."""
    remedy = f"give a function ({', '.join(parameters)}), async or not, or None"

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and value is not False:
            check.check_function(instance, attribute.name, value, parameters, remedy)

    return validate


def _shown(value: object) -> str:
    return repr(value) if value is None or value is False else f"<{check.name_of(value)}>"


_check_level: Final = attrs.validators.optional(check.one_of(*get_args(LoggingLevel)))
_check_question: Final = _check_called_with("context", "params")
_check_roots: Final = _check_called_with("context")
_check_message: Final = _check_called_with("context", "message")
_check_capabilities: Final = check.kind(
    SamplingCapability, type(None), remedy="give an mcp.types.SamplingCapability(...), or None"
)


@explained
@check.brief
@attrs.frozen(kw_only=True)
class Callbacks:
    """Functions that answer requests of servers and receive their notifications.

    A callback may be async; a plain function runs in the event loop and must not block. A server learns which callbacks
    exist, and may send only requests that they answer. Each call has its own task and timeout. If a callback raises or
    times out, the server gets an error. To refuse a request, return an `mcp.types.ErrorData`. Callbacks may call any
    server.

    Callbacks passed to ``open_servers`` apply to all servers of the group. ``ServerConfig.callbacks`` override them
    field by field; False disables the group's callback for that server.

    Args:
        sampling: ``(context, params)``: let a model write a message; returns an `mcp.types.CreateMessageResult`.
        elicitation: ``(context, params)``: ask the user, in a form or through a URL (``params.mode``); returns an
            `mcp.types.ElicitResult`.
        roots: ``(context)``: list the folders that the server may access; returns an `mcp.types.ListRootsResult`.
        logging: ``(context, params)``: receive a log message.
        message: ``(context, message)``: receive any notification of the server and any error of its transport, after
            this library has handled it.
        log_level: the lowest level to request. Lower messages are dropped, also from a server without levels. Needs
            ``logging`` or ``message``, of the server or the group. None (default) uses the group's level, or ``"info"``
            with a ``logging`` callback.
        sampling_capabilities: what ``sampling`` supports beyond a plain message (tools, context), to announce.
        timeout: seconds for one call; `math.inf` disables the limit. None (default) uses the group's limit, or 300.

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
    sampling_capabilities: SamplingCapability | None = attrs.field(
        default=None, validator=_check_capabilities, hash=False
    )
    timeout: float | None = attrs.field(default=None, validator=check.seconds(unlimited=True, optional=True))


@attrs.frozen(kw_only=True)
class EffectiveCallbacks:
    """The callbacks in effect for one server; the attributes are those of `Callbacks`.

    Attributes:
        log_level: the level to request; None requests no log messages.
    """

    sampling: SamplingCallback | None = None
    elicitation: ElicitationCallback | None = None
    roots: RootsCallback | None = None
    logging: LoggingCallback | None = None
    message: MessageCallback | None = None
    log_level: LoggingLevel | None = None
    sampling_capabilities: SamplingCapability | None = None
    timeout: float = 300.0  # enough for a person to read a form and fill it in


def effective_callbacks(
    own: Callbacks | None, default: Callbacks | None = None, *, server: str = ""
) -> EffectiveCallbacks:
    """Merge a server's own callbacks with the group's; the server's own take precedence.

    Raises:
        ConfigError: there is a log level, but no callback to receive log messages, and ``logging`` is not False.
    """
    effective: dict[str, Any] = {}
    for callbacks in (default, own):
        if callbacks is not None:
            effective |= attrs.asdict(callbacks, recurse=False, filter=lambda _, value: value is not None)
    declines = effective.get("logging") is False
    # False has disabled the group's callback.
    effective = {name: value for name, value in effective.items() if value is not False}
    if "logging" in effective:
        effective.setdefault("log_level", "info")
    elif "message" not in effective and (level := effective.pop("log_level", None)) is not None and not declines:
        problem = f"Callbacks(log_level={level!r}) has no callback that receives the log messages"
        remedy = "add logging=…, a function (context, params), or logging=False for a server that needs none"
        what = f"server {server!r}: {problem}; {remedy}"
        raise ConfigError(what, source="Callbacks", path="log_level")
    return EffectiveCallbacks(**effective)


# --- Extensions of the protocol ---------------------------------------------------------------------------------------


Adapt: TypeAlias = Callable[[Any], Any]
"""Return the replacement of a function."""


def to_extensions(value: Iterable[ClientExtension]) -> tuple[ClientExtension, ...]:
    return check.as_tuple(value)


_check_tuple: Final = check.tuple_of(
    lambda each: isinstance(each, ClientExtension),
    "give a tuple of mcp.client.ClientExtension objects, such as mcp.client.advertise('com.example/thing')",
)


def check_extensions(
    instance: Any, attribute: attrs.Attribute[tuple[ClientExtension, ...]], value: tuple[ClientExtension, ...]
) -> None:
    _check_tuple(instance, attribute, value)
    try:
        # The SDK validates extensions only when a client is made, so make one that is never used.
        Client(cast("Transport", None), extensions=value)
    except (TypeError, ValueError) as exc:
        raise check.refused_text(instance, attribute.name, f"<{len(value)} of them>", str(exc)) from exc


class AdaptedExtension(ClientExtension):
    """An extension with replaced functions, by default async versions of its own.

    ``__init__`` reads settings, claims and notifications once; the SDK would read them at every connect.
    """

    def __init__(
        self, extension: ClientExtension, adapt_claim: Adapt = always_async, adapt_handler: Adapt = always_async
    ) -> None:
        self.identifier: str = extension.identifier
        self._settings = extension.settings()
        self._claims = [replace(claim, resolve=adapt_claim(claim.resolve)) for claim in extension.claims()]
        self._notifications = [replace(each, handler=adapt_handler(each.handler)) for each in extension.notifications()]

    def settings(self) -> dict[str, Any]:
        return self._settings

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return self._claims

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return self._notifications


# --- Middleware -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ToolRequest:
    """A tool call on its way to the server. ``attrs.evolve(request, meta={...})`` makes a modified copy.

    Attributes:
        server: the server's configured name.
        name: the tool's name, as listed by the server.
        arguments: the arguments, or None.
        meta: the request's ``_meta``, or None.
    """

    server: str
    name: str
    arguments: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    meta: Mapping[str, Any] | None = attrs.field(default=None, hash=False)


CallNext: TypeAlias = Callable[[ToolRequest], Awaitable[CallToolResult]]
"""Called by a middleware to pass a request on; returns the result."""

Middleware: TypeAlias = Callable[[ToolRequest, CallNext], Awaitable[CallToolResult] | CallToolResult]
"""``async def middleware(request, call_next)``: return a result, its own or that of ``await call_next(request)``.

A plain function returns a result of its own, or ``call_next(request)``.
"""


def to_middleware(value: Iterable[Middleware]) -> tuple[Middleware, ...]:
    return check.as_tuple(value)


check_middleware: Final = check.tuple_of(check.is_function, "give a tuple of functions (request, call_next)")


def wrapped(call: CallNext, middleware: Iterable[Middleware]) -> CallNext:
    """Wrap a call in middleware; the first is outermost."""
    for each in reversed(tuple(middleware)):
        call = _around(each, call)
    return call


def _around(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(request: ToolRequest) -> CallToolResult:
        answer: object = middleware(request, call_next)
        if isawaitable(answer):  # as `answer_of`, without a coroutine of its own for each call
            answer = await answer
        if not isinstance(answer, Result):
            if iscoroutine(answer):
                answer.close()  # or Python would warn that it was never awaited
            own = unwrap(middleware)  # the bridge and `sync` wrap functions
            write = f"{'await ' if iscoroutinefunction(own) else ''}call_next(request)"
            raise TypeError(
                f"server {request.server!r}: middleware {getattr(own, '__name__', type(own).__name__)} returned "
                f"{check.a_type(answer)} for tool {request.name!r}; return the result of `{write}`, or one of its own"
            )
        return answer  # type: ignore[return-value]  # or an InputRequiredResult, if the call is passed on

    return call
