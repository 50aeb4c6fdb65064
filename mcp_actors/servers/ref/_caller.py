"""Send a request: attempts, retries, and the caller's errors.

A request is one or more *attempts* to get an answer from the server's actor. The server's state and circuit breaker
decide whether an attempt is made; ``_rules`` decides whether another follows. Retries and middleware run in the
caller's task, and end if it is cancelled. For isolated retries, the caller's task opens temporary actors.

Owns: attempts of requests; actors for isolated retries; their tasks.
Writes: the server's retry tokens, breaker and latency; wishes to connect; deadlines of requests; notes on errors;
mailboxes of the server actor and the lifecycle actor; the log.
Calls: catalog, kernel, servers, servers.connection, servers.record, servers.requests, _facts, _operations.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar

import outcome
import trio
from attrs import frozen
from mcp import MCPError
from mcp.types import CallToolResult, TextContent

from ..._errors import (
    ActorCrashed,
    ActorError,
    ActorStartError,
    ActorStopped,
    ConnectFailed,
    ConnectionLost,
    MailboxFull,
    ServerError,
    ServerUnavailable,
    ToolNotFound,
)
from ..._foreign import Log
from ..._pickling import Handle
from ..._tasks import fan_out, open_background
from ...catalog import note_call
from ...kernel import open_actor
from .._failures import mailbox_full, request_lost, stopped_under, unavailable, would_deadlock
from .._rules import NoRetry, Retries
from ..connection import ServerActor
from ..record import ACTIVE, CONNECTED, PARKED, server_of, used, verdict_of_ready
from ..requests import Around, LastAnswer, Passing
from ._facts import ServerFacts
from ._operations import CarryOut, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...config import ProgressCallback, ServerConfig
    from ...kernel import ActorRef, Event, PendingCall
    from .._deadlines import Deadline
    from .._rules import Breaker, Ticket
    from ..record import ConnectionRecord, ServerRecord
    from ..requests import CallTool, PlainRequest, Request
    from ._operations import ServerEntry


T = TypeVar("T")

logger = Log("mcp_actors.servers")


class Caller:
    """Sends requests to one server; `lifecycle` is the actor that connects a lazy server."""

    def __init__(self, server: ServerEntry, lifecycle: ActorRef) -> None:
        self._server = server
        self._record = server.record
        self._life = server.record.life
        self._calls = server.record.calls
        self._actor = server.actor(server.name)
        self._lifecycle = lifecycle

    def at(self, connection: ConnectionRecord) -> Caller:
        """Return a caller that sends requests only over this connection."""
        other = copy(self)
        other._actor = self._server.actor(connection.name)
        return other

    @property
    def name(self) -> str:
        return self._actor.name

    @property
    def _config(self) -> ServerConfig:
        return self._record.config

    async def ask(self, request: Request[T], deadline: Deadline, failure: Exception | None = None) -> T:
        """Send a request, retry as the policy allows, and return the result.

        `failure` is the translated failure of a first attempt that was already made. The caller must call
        `deadline.end`.

        **Cancellation**: ends the attempts and returns at once; an isolated retry first closes its connection, within
        the ``stop_timeout``.

        Raises:
            ServerError, mcp.MCPError: the last attempt failed, or none was made.
            Exception: a middleware raised it.
        """
        # A retry is a new message, behind those that wait in the mailbox.
        retries: Retries | None = None
        try:
            if failure is None and self._life.leaving == "signal":
                deadline.end()  # or the end of the group would wait for this request
                await self._wait_end()
            while True:
                if failure is None:
                    ticket: Ticket | None = None
                    try:
                        ticket = None if self._calls.breaker is None else self._admit(self._calls.breaker, deadline)
                        if retries is None or request.of_the_session or not self._config.retry.isolated:
                            # Between the admission and the send, the last moment to notice a cancellation: a cancelled
                            # caller must not put a message into the mailbox, because the server may act on it. And
                            # inside this `try`, because only the handlers below give the ticket of a probe back.
                            await trio.lowlevel.checkpoint_if_cancelled()
                            result = await self.send(request, deadline).wait()
                        else:
                            result = await self._send_isolated(request, deadline)
                    except Exception as exc:
                        failure = self.translate(exc, request)
                        self._settle(ticket, failure)
                    except BaseException as exc:
                        # Otherwise the ticket of a cancelled probe would keep the breaker half-open forever.
                        self._settle(ticket, exc)
                        raise
                    else:
                        if ticket is not None:
                            self._settle(ticket, None)
                        self.succeeded(request, deadline, result)
                        return result
                # Outside the except blocks, so that no failure becomes the `__context__` of the next one.
                if retries is None:
                    retries = Retries(self._config.retry, self._calls.tokens, request.repeatable(self._record))
                await self._wait_to_retry(retries, request, deadline, failure)
                failure = None
        finally:
            del failure  # breaks the reference cycle: its traceback refers to this frame

    async def _wait_end(self) -> None:
        """Wait until a signal has ended the group."""
        await self._life.wait_while(lambda: self._life.leaving == "signal")

    def succeeded(self, request: Request[T], deadline: Deadline, result: T) -> None:
        """Count a result, and add suggestions if the server has refused the call of an unlisted tool."""
        is_error = request.is_tool_call and getattr(result, "is_error", False)  # a middleware may return anything
        if is_error:
            # Most servers refuse an unknown tool with an error result. The caller gets the result unchanged.
            suggestion = request.suggestion(self._record)
            if isinstance(result, CallToolResult):
                said = " ".join(block.text for block in result.content if isinstance(block, TextContent))
                asked = self._record.note_old_question(request.operation, said)
                remedy = suggestion if asked is None else str(asked)
                note_call(result, self._config.name, request.subject or "", remedy)
            if suggestion is not None:
                logger.warning("%s; it was called, and its result is an error", suggestion.removesuffix("?"))
        self._calls.tokens.succeeded()
        if self._record.health.failing:
            self._record.answered(deadline)
        now = self._calls.deadlines.timer.now()
        self._calls.latency.done(now - deadline.began)
        if (observed := deadline.observed) is not None:
            deadline.observed = None
            observed.succeeded(deadline, now, request.is_tool_call, is_error)

    async def _wait_to_retry(
        self, retries: Retries, request: Request[Any], deadline: Deadline, failure: Exception
    ) -> None:
        """Wait until the next attempt is due, or raise the failure of the last attempt if final."""
        try:
            if isinstance(failure, ServerError) and failure.server != self._config.name:
                raise failure  # from a middleware, about another server
            # ConnectFailed comes only from an isolated attempt that sent nothing; a trusted gateway can say "not_sent",
            # too. A middleware may still have sent an earlier call, so `possible_effects` counts.
            unsent = isinstance(failure, ConnectFailed) or getattr(failure, "outcome", "unknown") == "not_sent"
            sent = deadline.possible_effects > 0 or not unsent
            retries.deadline = deadline.at  # it moves while a person signs in
            verdict = retries.failed(failure, trio.current_time(), sent=sent, random=random.random)
            if isinstance(verdict, NoRetry):
                if retries.attempts > 1:
                    failure.add_note(f"this was attempt {retries.attempts}; no further attempt ({verdict.reason})")
                    if isinstance(failure, ServerUnavailable):
                        failure.outcome = "unknown"  # this attempt was not sent, but an earlier one may have been
                raise failure
            deadline.wait_again(failure, verdict.delay)
            await self._pause(verdict.delay)
            if deadline.expired:
                raise deadline.keeper.failure(deadline) from failure
        except Exception as exc:
            self._calls.latency.failed()
            _note_suggestion(request, exc, self._record)
            if isinstance(exc, MCPError) and self._record.health.failing:
                self._record.answered(deadline)
            deadline.fail(exc)
            raise
        finally:
            del failure  # breaks the reference cycle: its traceback refers to this frame

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, at most until the server stops or leaves."""
        life = self._life
        with trio.move_on_after(seconds):
            await life.wait_while(lambda: life.state in ACTIVE or (self._is_wanted() and not life.leaving))

    def _admit(self, breaker: Breaker, deadline: Deadline) -> Ticket:
        ticket = breaker.admit(trio.current_time())
        if ticket is None:
            raise breaker.refusal(self._life.state, trio.current_time(), datetime.now(UTC), again=deadline.tries > 1)
        return ticket

    def _settle(self, ticket: Ticket | None, error: BaseException | None) -> None:
        if ticket is not None and self._calls.breaker is not None:
            serves = len(self._record.connections) > 1 and self._life.state in ACTIVE
            self._calls.breaker.settle(ticket, trio.current_time(), error, serves=serves)

    def guards(self, request: Request[Any]) -> bool:
        """Return True if a request may wait or fail before it becomes a message."""
        if self._calls.breaker is not None or self._life.leaving == "signal":
            return True
        return request.is_tool_call and bool(self._record.config.middleware)

    def send(self, request: Request[T], deadline: Deadline, isolated: ActorRef | None = None) -> PendingCall[T]:
        """Put a request into the mailbox of the actor; tool calls go through the middleware first.

        `isolated` is the actor of an isolated attempt, in place of the server's.

        Raises:
            ActorError, ServerUnavailable, RequestTimedOut: the request was not accepted.
        """
        if deadline.expired:  # the keeper reports a timeout by answering the message, which does not exist yet
            raise deadline.keeper.failure(deadline)
        if self._life.state not in ACTIVE and isolated is None:
            self._fail_or_wake()
        # No checkpoint since the first test: the deadline could expire without a message to answer.
        if request.is_tool_call and self._record.config.middleware:
            call: CallTool = request  # type: ignore[assignment]  # the only request that is a tool call
            pass_on = partial(self._pass_on, deadline, isolated)
            deadline.call = around = Around(call, deadline, self._record.config, pass_on, self.translate)
            return around  # type: ignore[return-value]  # its `on_answer` is never called; see `guards`
        deadline.call = pending = (isolated or self._actor).send_request(request)
        return pending

    def _pass_on(self, deadline: Deadline, isolated: ActorRef | None, request: CallTool) -> PendingCall[CallToolResult]:
        """Send a call that middleware passes on, also to a server that is draining."""
        if deadline.expired:
            raise deadline.keeper.failure(deadline)
        if self._life.state not in ACTIVE and not self._life.draining and isolated is None:
            self._fail_or_wake()
        return (isolated or self._actor).send_request(request)

    def translate(self, exc: Exception, request: Request[Any]) -> Exception:
        """Translate the kernel's error about this server's actor; return any other exception unchanged."""
        if not isinstance(exc, ActorError) or server_of(exc.actor) != self._config.name:
            return exc  # about an actor that a middleware has called
        reason: BaseException | None = self._life.error or self._life.end_of_group()
        failure: ServerError
        match exc:
            case ActorCrashed():
                reason = _root_of(exc.__cause__)
                tails = (each.read_stderr() for each in self._record.connections if each.name == exc.actor)
                failure = request_lost(self._config.name, request.operation, reason, "\n".join(tails))
            case ActorStopped(handed_over=True):
                failure = stopped_under(self._config.name, request.operation, self._life)
            case ActorStopped():
                failure = self.unavailable()
            case MailboxFull():
                failure, reason = mailbox_full(self._config), None
            case _:  # the kernel refused a call that would deadlock; its text says who waits for whom
                failure, reason = would_deadlock(self._config), exc
        failure.__cause__ = reason
        return failure

    async def _send_isolated(self, request: Request[T], deadline: Deadline) -> T:
        """Send a request over a new connection, then close the connection within ``stop_timeout``.

        The attempt ends early when the server is stopped or the group is closed.
        """
        if self._life.leaving or not self._is_wanted():
            raise self.unavailable() from self._life.error
        spare = self._record.spare()
        name, actor = spare.name, ServerActor(spare.config, lambda _: spare)
        try:
            with trio.move_on_at(deadline.at) as connecting:
                async with open_background() as background:
                    background.start_soon(self._cancel_with_server, connecting, name=f"{name}:connect")
                    async with open_actor(actor, name=name, observers=[IsolatedFollower(spare)]) as ref:
                        # `cancel` reaches only the tasks started so far: `_cancel_with_server` ends, `_end_with_server`
                        # lives. From here on the server's `Deadlines` answer the call at the deadline. The deadline of
                        # the scope would also cut off the close of the connection.
                        background.cancel("the isolated attempt is connected")
                        connecting.deadline = math.inf
                        call = self.send(request, deadline, ref)
                        background.start_soon(self._end_with_server, request, call, name=f"{name}:end")
                        return await call.wait()
            if not self._is_wanted():
                raise self.unavailable() from self._life.error
            raise deadline.keeper.failure(deadline)
        except ActorStartError as exc:
            if isinstance(exc.__cause__, ConnectFailed):
                raise exc.__cause__ from exc.__cause__.__cause__
            raise
        except (ActorCrashed, ActorStopped) as exc:
            if exc.actor != name:
                raise
            reason = _root_of(exc.__cause__)
        raise request_lost(self._config.name, request.operation, reason, spare.read_stderr()) from reason

    def _is_wanted(self) -> bool:
        return self._life.wanted.mode in ("run", "rest") and self._lifecycle.state == "running"

    async def _cancel_with_server(self, connecting: trio.CancelScope) -> None:
        await self._life.wait_while(self._is_wanted)
        connecting.cancel("the server was stopped, or its group was closed")

    async def _end_with_server(self, request: Request[Any], call: PendingCall[Any]) -> None:
        await self._life.wait_while(self._is_wanted)
        call.expire(stopped_under(self._config.name, request.operation, self._life))

    # --- a server that does not serve -------------------------------------------------------------------------------

    def _fail_or_wake(self) -> None:
        """Wake a lazy server, fail at once, or return to let the request wait.

        Raises:
            ServerUnavailable: the server is configured with ``when_down="fail"``, needs a person to sign in, or is
                draining.
        """
        if self._life.leaving:
            raise self._life.gone()
        if self._life.wanted.mode == "rest":
            self.wake()
        elif self._life.best.signed_out or (self._config.when_down == "fail" and self._life.error is not None):
            raise self.unavailable() from self._life.error

    def wake(self) -> None:
        """Start connecting a lazy server and return at once. Requests wait in the mailbox meanwhile."""
        self._life.want(used(self._life.wanted))
        try:
            tell(self._lifecycle, CarryOut(self._server))
        except ActorStopped:
            raise self._life.gone() from None

    def error_if_given_up(self) -> ServerUnavailable | None:
        """Return the error for a subscription to a server that will not come back by itself; otherwise None.

        Also None while the group is closing, which ends subscriptions with an error of its own.
        """
        if self._life.state not in (*PARKED, "stopped") or self._life.leaving in ("block", "signal"):
            return None
        gone = self.verdict_of_ready in ("failed", "superseded")
        return self.unavailable() if gone and self._lifecycle.state == "running" else None

    @property
    def verdict_of_ready(self) -> str:
        return verdict_of_ready(self._life.wanted, self._record.seen, current=self._record.current)

    def unavailable(self) -> ServerUnavailable:
        if self._life.leaving or self._lifecycle.state != "running":
            # Perhaps the group is closed, but the wish that the server leaves has not been made yet.
            return self._life.gone()
        return unavailable(self._config, self._life)


def _note_suggestion(request: Request[Any], failure: Exception, record: ServerRecord) -> None:
    if isinstance(failure, (ServerError, MCPError)) and not isinstance(failure, ToolNotFound):
        suggestion = request.suggestion(record)
        if suggestion is not None and suggestion not in getattr(failure, "__notes__", ()):
            failure.add_note(suggestion)


def _root_of(reason: BaseException | None) -> BaseException | None:
    if isinstance(reason, ConnectionLost) and reason.__cause__ is not None:
        return reason.__cause__
    return reason


@frozen
class IsolatedFollower:
    """Updates the state of an isolated connection: health checks need a connected server."""

    spare: ConnectionRecord
    wants_requests: ClassVar[bool] = False

    def __call__(self, event: Event) -> None:
        self.spare.life.follow(event)


# --- A request sent from outside any Trio task (the asyncio bridge) ---------------------------------------------------


class PendingRequest(Handle, Generic[T]):
    """A request whose result goes to a function instead of a waiting task; see `ServerRef.send_tool_call`.

    The first attempt is a message and needs no task, which saves a tenth of the cost of a small request. Retries,
    middleware and errors need a task, which runs `finish`. So call `send` once; the request is over when its function
    got a result, when `finish` has ended, or after `withdraw`.
    """

    __slots__ = ("_caller", "_deadline", "_failure", "_request")

    def __init__(self, caller: Caller, request: PlainRequest[Any], deadline: Deadline) -> None:
        self._caller = caller
        self._request = request
        self._deadline = deadline
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<PendingRequest {self.operation}>"

    @property
    def operation(self) -> str:
        """The protocol's method and the main argument, for errors."""
        return self._request.operation

    def pass_on(self, passing: Passing | None) -> None:
        """Keep the answer as parsed, for `result_of`. Call this before the request is sent.

        Args:
            passing: the answers and capabilities of another client, if the request is passed on for one. A question of
                a server since 2026-07-28 is then the result, an ``InputRequiredResult``, also for middleware; questions
                of older servers go to the callbacks. None: all questions go to the callbacks.
        """
        request = self._request
        request.kept, request.passing = LastAnswer(), passing
        if passing is not None and passing.answers:
            request.members = None  # written again, with the answers

    def result_of(self, value: Any) -> dict[str, Any]:
        """Return a result of this request as JSON, to pass on. Do not change the value.

        After `pass_on`, the ``result`` of the answer as parsed, with nulls and members unknown to the SDK; without
        members of later protocol versions, and with the default ``resultType`` since 2026-07-28. Without `pass_on`, or
        for a value that middleware has made or changed, the value itself is written.
        """
        kept = self._request.kept
        if kept is not None and (raw := kept.raw_of(value)) is not None:
            return raw
        dumped: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
        return dumped

    def send(self, on_answer: Callable[[outcome.Value[T] | None], object]) -> None:
        """Send the request in the current context; `on_answer` is called once, with the result or None.

        None means that `finish` must be awaited for the outcome. The function must not raise, and may be called before
        `send` returns.
        """
        if self._caller.guards(self._request):
            on_answer(None)
            return
        try:
            call = self._caller.send(self._request, self._deadline)
        except Exception as exc:
            self._failure = exc
            on_answer(None)
        else:
            call.on_answer(partial(self._take, on_answer))

    def _take(
        self, on_answer: Callable[[outcome.Value[T] | None], object], answer: outcome.Value[T] | outcome.Error
    ) -> None:
        if isinstance(answer, outcome.Value):
            try:
                self._caller.succeeded(self._request, self._deadline, answer.value)
            finally:  # an observer may raise SystemExit
                self._deadline.end()
                on_answer(answer)
        else:
            assert isinstance(answer.error, Exception)
            self._failure = answer.error
            on_answer(None)

    def withdraw(self) -> None:
        """Cancel the request, as if its waiting task were cancelled; `on_answer` is not called any more."""
        if self._deadline.call is not None:
            self._deadline.call.withdraw()
        self._deadline.end()

    async def finish(self) -> T:
        """Retry or translate the failure of the first attempt, or make the first attempt; return the result.

        **Cancellation**: leaves at once and ends the retries.

        Raises:
            Exception: as for the request itself.
        """
        with self._deadline:
            failure, self._failure = self._failure, None
            if failure is not None:
                # Here, not in `_take`: only after that step do the records know why the connection was lost.
                failure = self._caller.translate(failure, self._request)
            try:
                return await self._caller.ask(self._request, self._deadline, failure)
            finally:
                del failure  # the traceback refers to this frame


# --- The base of `ServerRef`: send one request ------------------------------------------------------------------------


class RequestOptions(TypedDict, total=False):
    """Options of a request, for type checkers; see `ServerRef.call_tool`."""

    progress: ProgressCallback | None
    meta: Mapping[str, Any] | None


class ServerRequests(ServerFacts):
    def __init__(self, server: ServerEntry, lifecycle: ActorRef) -> None:
        self._record = server.record
        self._caller = Caller(server, lifecycle)

    async def _ask(self, request: Request[T], caller: Caller | None = None) -> T:
        """Send a request and return the result, within the server's `request_timeout` from now on."""
        with self._record.calls.deadlines.begin(request) as deadline:
            return await (caller or self._caller).ask(request, deadline)

    async def _ask_each(self, make: Callable[[], Request[None]]) -> None:
        """Send a request about the session over each open connection; without any, to the server.

        Raise the first failure at the end.
        """
        failures: list[Exception] = []

        async def ask(caller: Caller) -> None:
            try:
                await self._ask(make(), caller)
            except Exception as exc:
                failures.append(exc)

        connected = [each for each in self._record.connected if each.life.state in CONNECTED]
        await fan_out(ask, map(self._caller.at, connected) if connected else [self._caller], "request")
        if failures:
            raise failures[0]

    def _prepare(self, request: PlainRequest[Any]) -> PendingRequest[Any]:
        """Prepare a request for a caller outside Trio. The deadline starts now."""
        return PendingRequest(self._caller, request, self._record.calls.deadlines.begin(request))
