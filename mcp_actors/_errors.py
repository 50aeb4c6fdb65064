"""The error tree of the package.

An error in a server's answer is an `mcp.MCPError`, outside this tree. The code that raises an error writes the message:
who failed, what happened and what to do. Facts are attributes, for example an exit code.

Owns: nothing.
Writes: the public names of the error classes.
Calls: _exports, _pickling.
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
    """Base of the errors of this package. Misuse is a `TypeError`, `ValueError` or `RuntimeError` instead.

    A copy or pickle keeps the attributes, the notes and the cause. A cause that cannot be pickled becomes an exception
    with the cause's class and text. An error rebuilt from ``args``, for example by Celery, keeps only its class and
    text; a failed request's ``outcome`` is then ``"unknown"``.
    """


# --- The kernel: actors ---------------------------------------------------------------------------------------------


class ActorError(McpActorsError):
    """Base of errors about an actor; ``actor`` is the actor's name."""

    def __init__(self, message: str, *, actor: str = "") -> None:
        super().__init__(message)
        self.actor = actor


class ActorStopped(ActorError):
    """The actor has stopped and will not restart by itself.

    ``restart_child`` on the supervisor reopens the same mailbox, if the child is still in the supervisor's table.

    Attributes:
        handed_over: True if the message was being handled at the end, and may have had an effect; False if never handed
            over.
    """

    def __init__(self, message: str, *, actor: str = "", handed_over: bool = True) -> None:
        super().__init__(message, actor=actor)
        self.handed_over = handed_over


class ActorCrashed(ActorError):
    """The incarnation that handled the message crashed or was restarted before an answer.

    The effect of the message is unknown. ``__cause__`` is the reason, as known when the caller was answered. The block
    of ``open_actor`` raises this error too.
    """


class ActorStartError(ActorError):
    """An actor did not start. ``__cause__`` is the exception from ``running()``, if any."""


class RestartLimitReached(ActorError):
    """A supervisor gave up: a child needed more restarts than the budget allows. ``__cause__`` is the last crash."""


class MailboxFull(ActorError, trio.WouldBlock):
    """The mailbox is full, and the overflow policy (or ``tell_nowait``) does not wait."""


class ChildError(ActorError):
    """A supervisor refused a change of the child table; ``reason`` is in OTP's terms."""

    def __init__(self, message: str, *, actor: str = "", reason: ChildProblem = "not_found") -> None:
        super().__init__(message, actor=actor)
        self.reason: ChildProblem = reason


# --- The MCP layer: servers -----------------------------------------------------------------------------------------


class ServerError(McpActorsError):
    """Base of errors about a server; ``server`` is the configured name."""

    def __init__(self, message: str, *, server: str = "") -> None:
        super().__init__(message)
        self.server = server


class ConnectFailed(ServerError):
    """A connection could not be made.

    Attributes:
        phase: the failed step: ``"configure"``, ``"open"`` (process or socket), ``"negotiate"``, ``"list_tools"``.
        exit_code: the exit code of the process, negative for a signal; None if still running, or without a process.
        stderr_tail: the last text of the process on stderr; may be empty.
        http_status: the HTTP status of the refusal, for example 401; None without such an answer.
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
    """The connection was lost after the request was sent. ``__cause__`` is the reason, as far as known.

    Over HTTP each request has its own connection: other requests and the session go on. An unreadable answer counts as
    a lost connection.

    Attributes:
        outcome: ``"unknown"``: the server may have acted on the request, so there is no automatic retry.
            ``"not_sent"``: a trusted gateway says that the request was not sent there.
    """

    def __init__(self, message: str, *, server: str = "", outcome: Literal["not_sent", "unknown"] = "unknown") -> None:
        super().__init__(message, server=server)
        self.outcome: Literal["not_sent", "unknown"] = outcome


class RequestTimedOut(ServerError, TimeoutError):
    """A request timed out. The caller has left; the server is asked to cancel a request that was sent.

    Attributes:
        operation: the request in the protocol's words: ``"tools/call 'search'"``.
        seconds: the expired limit.
        limit: ``"request_timeout"``, from the call to the answer; ``"progress_timeout"``, without any progress since
            the request was sent; or ``"health_timeout"`` for a health check (``HealthPolicy.timeout``).
        outcome: ``"not_sent"``: the request waited in the queue all the time; ``"unknown"``: the server may have acted.
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
    """The server is not available: restarts are spent, the server was stopped, or the group was closed.

    An open circuit breaker refuses requests with this error too, because the last requests failed.

    Attributes:
        state: the server's state, for example ``"failed"`` or ``"stopped"``.
        last_error: the error behind the state or the open breaker, if any.
        outcome: ``"not_sent"``; or ``"unknown"`` if the server may have acted: stopped during the request, or after an
            earlier attempt was sent.
        retry_at: when the breaker lets a request through, or a ``failed`` server is tried again, in UTC. A time in the
            past means that an attempt is under way. None if waiting alone will not help.
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
    """A request was answered with an HTTP status that is not success. Other requests and the session go on.

    An MCP error in the response is raised as `mcp.MCPError`, unless the status is about credentials, load, proxies or
    headers.

    Attributes:
        status: the HTTP status, for example 429, or 302 for a redirect not followed.
        retry_after: seconds that the server asks to wait, at most an hour; None if it does not ask.
    """

    def __init__(self, message: str, *, server: str = "", status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message, server=server)
        self.status = status
        self.retry_after = retry_after


class ToolNotFound(ServerError):
    """The tool is missing, hidden or blocked. ``server`` is the server that was searched, or ``"*"`` for all."""


class NotSupported(ServerError):
    """A requested feature is not supported by one side. A retry will not help.

    There was no effect, unless the server asked this side a question.

    Attributes:
        capability: missing at the server: an attribute of ``ServerInfo.supports``, such as ``"resources_subscribe"``,
            or ``"input_required"``. Missing at this side: ``"sampling"``, ``"elicitation"``, ``"roots"`` or
            ``"tasks"``.
    """

    def __init__(self, message: str, *, server: str = "", capability: str = "") -> None:
        super().__init__(message, server=server)
        self.capability = capability


class InvalidArguments(ServerError):
    """The parameters of a request are not valid: the arguments of a tool, the URI of a resource.

    The request was not sent, and a retry cannot help.

    Attributes:
        tool: the tool's name as the server lists it; None for other requests.
        path: the path of the invalid value: ``("filter", "rows", 0, "id")``; ``()`` for all arguments together. Without
            a tool, the name of the parameter comes first: ``("uri",)``.
    """

    def __init__(
        self, message: str, *, server: str = "", tool: str | None = None, path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message, server=server)
        self.tool = tool
        self.path = path


class InvalidResult(ServerError):
    """The result of a tool does not match the output schema. The tool has run; the call is not repeated.

    Attributes:
        tool: the tool's name as the server lists it.
        path: the path of the invalid value in the structured content: ``("rows", 0, "id")``; ``()`` for the whole.
        result: the ``mcp.types.CallToolResult``, as the server sent it.
    """

    # The result is None only in an error made anew from ``args``.
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
        self.result: CallToolResult = cast("CallToolResult", result)


class LimitExceeded(ServerError):
    """A limit was exceeded: on the amount that a server may send, or on the number of requests.

    A caller gets this error if

    - the server's mailbox is full and the overflow policy is ``"fail"``;
    - a request would deadlock, because all ``max_in_flight`` requests of the server wait for it;
    - a list, an answer, the rounds of input or the subscriptions are over a limit.

    As the ``__cause__`` of a lost connection: the server sent too long a message, or too many requests.

    Attributes:
        outcome: ``"not_sent"``: the request was not accepted; ``"unknown"``: the server may have acted.
    """

    def __init__(self, message: str, *, server: str = "", outcome: Literal["not_sent", "unknown"] = "unknown") -> None:
        super().__init__(message, server=server)
        self.outcome: Literal["not_sent", "unknown"] = outcome


class ToolFailed(McpActorsError):
    """`result_value` got a result without a value: the tool reports a failure, or the content cannot be decoded.

    Not a `ServerError`: the server did its work, and the tool's message may help a model.

    Attributes:
        result: the ``mcp.types.CallToolResult``, complete.
    """

    def __init__(self, message: str, *, result: CallToolResult | None = None) -> None:
        super().__init__(message)
        self.result: CallToolResult = cast("CallToolResult", result)


# --- Configuration --------------------------------------------------------------------------------------------------


class ConfigError(McpActorsError, ValueError):
    """A configuration is not valid.

    Args:
        message: the problem and a remedy.
        owner: the subject, in front of the message: a class, a server, a place in a file.
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
