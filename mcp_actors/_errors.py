"""The error tree of the package.

`McpActorsError` is the base of the errors about actors (`ActorError`), those about servers (`ServerError`), and of
`ToolFailed`, `ConfigError` and `auth.NoBrowser`, which are neither. Some derive from `ValueError`, `TimeoutError` or
`trio.WouldBlock` too. Errors that derive from these elsewhere: `SignInRequired`, `SignInFailed`, `StoreBusy` and
`NoBrowser` in ``auth``, `NoThread` in ``_tasks``. The classes keep facts as attributes; the code that raises an error
writes its message: who failed, what happened and what to do about it. An error that a server answers (`mcp.MCPError`)
is not in this tree. The words for `ChildError.reason`,
`ConnectFailed.phase` and `ServerUnavailable.state` are types here.

Of the package, this file imports ``_pickling``, which copies and pickles errors, and ``_exports``, which it calls to
publish the classes. It imports `mcp` for type checkers only.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

import trio

from . import _pickling
from ._exports import publish

if TYPE_CHECKING:
    from mcp.types import CallToolResult

ChildProblem = Literal["not_found", "already_present", "already_started", "running", "restarting"]
ConnectPhase = Literal["configure", "open", "negotiate", "list_tools"]
ServerState = Literal[
    "pending", "connecting", "ready", "degraded", "unhealthy", "backoff", "failed", "needs_auth", "stopping", "stopped"
]


class McpActorsError(_pickling.Portable):
    """Base of the errors of this package, but not of misuse, which is a `TypeError`, `ValueError` or `RuntimeError`.

    Copies and pickles keep the attributes, the notes and the cause. A cause that cannot be pickled is replaced by an
    exception whose text is the class and the text of that cause. An error that is made anew from its ``args``, as by
    Celery's JSON results, keeps its class and text. Its attributes have their defaults: ``outcome`` is ``"unknown"``.
    """


# --- The kernel: actors ---------------------------------------------------------------------------------------------


class ActorError(McpActorsError):
    """Base of errors about an actor; ``actor`` is its name."""

    def __init__(self, message: str, *, actor: str = "") -> None:
        super().__init__(message)
        self.actor = actor


class ActorStopped(ActorError):
    """The actor has stopped and will not restart by itself.

    ``restart_child`` on its supervisor reopens the same mailbox, if the child is still in the supervisor's table.

    Attributes:
        handed_over: True if the message was being handled when the actor ended, so that it may have had its effect;
            False if it was never handed over.
    """

    def __init__(self, message: str, *, actor: str = "", handed_over: bool = True) -> None:
        super().__init__(message, actor=actor)
        self.handed_over = handed_over


class ActorCrashed(ActorError):
    """The incarnation that handled the message ended before it answered, by a crash or a restart.

    The effect of the message is unknown. ``__cause__`` is the reason of the end, as far as it was known when the caller
    was answered.
    """


class ActorStartError(ActorError):
    """An actor did not start. ``actor`` is its name; ``__cause__`` is the exception from its ``running()``."""


class RestartLimitReached(ActorError):
    """A supervisor gave up: a child needed more restarts than its budget allows. ``__cause__`` is the last crash."""


class MailboxFull(ActorError, trio.WouldBlock):
    """The mailbox is full, and its overflow policy (or ``tell_nowait``) does not wait."""


class ChildError(ActorError):
    """A supervisor refused a change of its child table; ``reason`` is the reason in OTP's terms."""

    def __init__(self, message: str, *, actor: str = "", reason: ChildProblem = "not_found") -> None:
        super().__init__(message, actor=actor)
        self.reason: ChildProblem = reason


# --- The MCP layer: servers -----------------------------------------------------------------------------------------


class ServerError(McpActorsError):
    """Base of errors about a server; ``server`` is its configured name."""

    def __init__(self, message: str, *, server: str = "") -> None:
        super().__init__(message)
        self.server = server


class ConnectFailed(ServerError):
    """A connection could not be made.

    Attributes:
        phase: the step that failed: ``"configure"``, ``"open"`` (process or socket), ``"negotiate"``, ``"list_tools"``.
        exit_code: the exit code of its process, negative for a signal; None if it still ran or has no process.
        stderr_tail: the last text that its process wrote to stderr; empty if it wrote nothing.
        http_status: the HTTP status that refused it, for example 401; None if no such answer came.
        hopeless: True if a retry cannot help until something is changed (a command that does not exist).
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        phase: ConnectPhase = "open",
        exit_code: int | None = None,
        stderr_tail: str = "",
        http_status: int | None = None,
        hopeless: bool = False,
    ) -> None:
        super().__init__(message, server=server)
        self.phase: ConnectPhase = phase
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail
        self.http_status = http_status
        self.hopeless = hopeless


class ConnectionLost(ServerError):
    """The connection was lost after the request was sent. ``__cause__`` is the reason, as far as it is known.

    Over HTTP each request has a connection of its own: it may be lost alone, and an answer that cannot be understood
    counts as lost. Other requests and the session go on.

    Attributes:
        outcome: ``"unknown"``: the server may have acted on the request, so it is not sent again by itself.
            ``"not_sent"``: a gateway that is trusted says that it was not sent there.
    """

    def __init__(self, message: str, *, server: str = "", outcome: Literal["not_sent", "unknown"] = "unknown") -> None:
        super().__init__(message, server=server)
        self.outcome: Literal["not_sent", "unknown"] = outcome


class RequestTimedOut(ServerError, TimeoutError):
    """A request timed out. Its caller has left; the server is asked to cancel a request that was sent to it.

    Attributes:
        operation: the request, in the words of the protocol: ``"tools/call 'search'"``.
        seconds: the limit that has expired.
        limit: which limit: ``"request_timeout"``, from the call to its answer, or ``"progress_timeout"``, without any
            progress since it was sent; or ``"health_timeout"`` for a health check (``HealthPolicy.timeout``).
        outcome: ``"not_sent"``: it waited in the queue all the time; ``"unknown"``: the server may have acted on it.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        operation: str = "",
        seconds: float = 0.0,
        limit: Literal["request_timeout", "progress_timeout", "health_timeout"] = "request_timeout",
        outcome: Literal["not_sent", "unknown"] = "unknown",
    ) -> None:
        super().__init__(message, server=server)
        self.outcome: Literal["not_sent", "unknown"] = outcome
        self.operation = operation
        self.seconds = seconds
        self.limit: Literal["request_timeout", "progress_timeout", "health_timeout"] = limit


class ServerUnavailable(ServerError):
    """The server is not available: its restarts are spent, it was stopped, or its group was closed.

    Or it serves, but its circuit breaker is open: its last requests failed, and this one was not sent.

    Attributes:
        state: the server's state, for example ``"failed"`` or ``"stopped"``.
        last_error: what brought it there, or what opened its breaker, if anything did.
        outcome: ``"not_sent"``, or ``"unknown"`` if it was stopped while the request was with it, or an earlier attempt
            was sent, so that it may have acted on the request.
        retry_at: when its breaker lets a request through again, or a ``failed`` server is tried again, in UTC. It may
            have passed: then one is on its way. None if waiting alone will not help.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        state: ServerState = "failed",
        last_error: BaseException | None = None,
        outcome: Literal["not_sent", "unknown"] = "unknown",
        retry_at: datetime | None = None,
    ) -> None:
        super().__init__(message, server=server)
        self.state: ServerState = state
        self.last_error = last_error
        self.outcome: Literal["not_sent", "unknown"] = outcome
        self.retry_at = retry_at


class HttpStatusError(ServerError):
    """A request was answered with an HTTP status other than success. Other requests and the session go on.

    An error in MCP's own terms stays an `mcp.MCPError`, also where the specification gives it a status.

    Attributes:
        status: the HTTP status, for example 429, or that of a redirect which is not followed.
        retry_after: seconds that the server asks to wait, at most an hour; None if it does not ask.
    """

    def __init__(self, message: str, *, server: str = "", status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message, server=server)
        self.status = status
        self.retry_after = retry_after


class ToolNotFound(ServerError):
    """The tool was not found. ``server`` is the server that was searched, or ``"*"`` for all."""


class NotSupported(ServerError):
    """A feature was requested that one side does not support. It had no effect, and a retry will not help.

    Attributes:
        capability: what is not offered. By the server, one of the attributes of ``ServerInfo.supports``, such as
            ``"resources_subscribe"``; by this side, what the server asks for: ``"sampling"``, ``"elicitation"``,
            ``"roots"`` or ``"tasks"``.
    """

    def __init__(self, message: str, *, server: str = "", capability: str = "") -> None:
        super().__init__(message, server=server)
        self.capability = capability


class InvalidArguments(ServerError):
    """The parameters of a request are not valid: the arguments of a tool, the URI of a resource.

    The request was not sent, and repeating it cannot help.

    Attributes:
        tool: the tool's name as the server lists it; None for other requests.
        path: the path of the invalid value: ``("filter", "rows", 0, "id")``; ``()`` for all arguments together.
            For other requests than tool calls it begins with the name of the parameter: ``("uri",)``.
    """

    def __init__(
        self, message: str, *, server: str = "", tool: str | None = None, path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message, server=server)
        self.tool = tool
        self.path = path


class InvalidResult(ServerError):
    """The result of a tool does not match its output schema. The tool has run; the call is not repeated.

    Attributes:
        tool: the tool's name as the server lists it.
        path: the path of the invalid value in the structured content: ``("rows", 0, "id")``; ``()`` for the whole.
        result: the ``mcp.types.CallToolResult``, as the server sent it.
    """

    # The result is None only in a copy that was made anew from the text.
    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        tool: str = "",
        path: tuple[str | int, ...] = (),
        result: CallToolResult | None = None,
    ) -> None:
        super().__init__(message, server=server)
        self.tool = tool
        self.path = path
        self.result = cast("CallToolResult", result)


class LimitExceeded(ServerError):
    """A limit was exceeded: on the amount that a server may send, or on the number of its requests.

    A caller gets it when the server's mailbox is full and its overflow policy is ``"fail"``, when a request from within
    a request of a server with ``max_in_flight=1`` would wait for itself, when a list has no end, and when an answer
    is too long. As the ``__cause__`` of a lost connection it says that the server sent too much: another message that
    was too long, or too many requests of its own.

    Attributes:
        outcome: ``"not_sent"``: the request was not accepted; ``"unknown"``: the server may have acted on it.
    """

    def __init__(self, message: str, *, server: str = "", outcome: Literal["not_sent", "unknown"] = "unknown") -> None:
        super().__init__(message, server=server)
        self.outcome: Literal["not_sent", "unknown"] = outcome


class ToolFailed(McpActorsError):
    """`result_value` got a result without a value: the tool reports a failure, or the content cannot be decoded.

    It is not a `ServerError`: the server did its work, and a model may need the tool's message to do better.

    Attributes:
        result: the ``mcp.types.CallToolResult``, complete.
    """

    def __init__(self, message: str, *, result: CallToolResult | None = None) -> None:
        super().__init__(message)
        self.result = cast("CallToolResult", result)


# --- Configuration --------------------------------------------------------------------------------------------------


class ConfigError(McpActorsError, ValueError):
    """A configuration is not valid.

    Args:
        message: the problem and its remedy.
        owner: what the message is about, which is written in front of it: a class, a server, a place in a file.
        source: see Attributes.
        path: see Attributes.

    Attributes:
        problem: `message`, without the owner.
        source: where the value was written (a file, or ``"ServerConfig"``); None if unknown.
        path: the field, for example ``"servers.docs.url"``; None for the whole.
    """

    def __init__(
        self, message: str, *, owner: str | None = None, source: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message if owner is None else f"{owner}: {message}")
        self.problem = message
        self.source = source
        self.path = path


publish("mcp_actors.servers", {"NotSupported": NotSupported})
publish("mcp_actors.kernel", globals())
