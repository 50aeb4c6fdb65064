"""The way of a request on its caller's side: attempts, and what their failures mean.

Everything here happens in the task of the caller, but for the first attempt of one who has none (``_pending``). A
request is one or more *attempts*; an attempt is one message to the server's actor (or, for a retry that is to be
isolated, to an actor of its own). Whether there is another attempt is decided in ``_retry``, whether one is made at all
in ``_breaker``; the time for all of them together is kept in ``_deadlines``.
"""

from __future__ import annotations

import math
import random
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from mcp import MCPError

from ..._errors import (
    ActorCrashed,
    ActorError,
    ActorStartError,
    ActorStopped,
    ConnectFailed,
    ConnectionLost,
    LimitExceeded,
    MailboxFull,
    ServerError,
    ServerUnavailable,
)
from ...kernel import open_actor
from ..basics import open_background, problem_of
from ..connection import ServerActor
from ..policy import NoRetry, Retries
from ..record import ACTIVE, ServerRecord
from ._lifecycle import Start

if TYPE_CHECKING:
    from ...kernel import ActorRef, PendingCall
    from ..policy import Deadline, Ticket
    from ..requests import Request
    from ._lifecycle import Supervised

__all__ = ["Caller"]

T = TypeVar("T")


class Caller:
    """Sends the requests of one server.

    Args:
        server: whose they are.
        lifecycle: who connects it if it is lazy.
    """

    def __init__(self, server: Supervised, lifecycle: ActorRef) -> None:
        self._server = server
        self._record = server.record
        self._config = server.record.config
        self._actor = server.supervisor.child(server.name)
        self._lifecycle = lifecycle

    async def ask(self, request: Request[T], deadline: Deadline, failure: Exception | None = None) -> T:
        """Send a request, again if that fails and the policy allows it, and return its result.

        **Cancellation**: leaves at once, and ends the attempts.

        Args:
            request: the request.
            deadline: its deadline, which the caller of this function ends.
            failure: the translated failure of the first attempt, if that was made already.

        Raises:
            ServerError, mcp.MCPError: the last attempt failed, or none was made.
            Exception: a middleware raised it.
        """
        retries: Retries | None = None
        try:
            while True:
                if failure is None:
                    ticket: Ticket | None = None
                    try:
                        ticket = self._admit(deadline)
                        if retries is None or not self._is_isolated(request):
                            await trio.lowlevel.checkpoint_if_cancelled()
                            result = await self.send(request, deadline).wait()
                        else:
                            result = await self._send_isolated(request, deadline)
                    except Exception as exc:
                        failure = self.translate(exc, request)
                        self._settle(ticket, failure)
                    except BaseException as exc:
                        self._settle(ticket, exc)  # else a cancelled probe would keep the breaker half open for ever
                        raise
                    else:
                        self._settle(ticket, None)
                        self.succeeded(deadline)
                        return result
                # Outside the handlers, so that no failure becomes the context of another.
                if retries is None:
                    repeatable = request.repeatable(self._record)
                    retries = Retries(self._config.retry, self._record.tokens, repeatable, deadline.at)
                await self._wait_to_retry(retries, deadline, failure)
                failure = None
        finally:
            del failure  # whose traceback refers to this frame

    def succeeded(self, deadline: Deadline) -> None:
        """A request was answered."""
        self._record.tokens.succeeded()
        if self._record.health.failing:
            self._record.health.answered()
        self._record.latency.done(trio.current_time() - deadline.began)

    async def _wait_to_retry(self, retries: Retries, deadline: Deadline, failure: Exception) -> None:
        """Wait until the next attempt is due, or raise the failure of the last one if that is final."""
        try:
            if isinstance(failure, ServerError) and failure.server != self._config.name:
                raise failure  # a middleware's, about another server
            # A failure to connect is that of an attempt on a connection of its own, which did not send anything.
            sent = not isinstance(failure, ConnectFailed)
            verdict = retries.failed(failure, trio.current_time(), sent=sent, random=random.random)
            if isinstance(verdict, NoRetry):
                if retries.attempts > 1:
                    failure.add_note(f"this was attempt {retries.attempts}; there is no other ({verdict.reason})")
                    if isinstance(failure, ServerUnavailable):
                        failure.outcome = "unknown"  # this attempt was not sent, but an earlier one was
                raise failure
            deadline.again = True
            await self._pause(verdict.delay)
            if deadline.expired:
                raise deadline.keeper.failure(deadline) from failure
        except Exception as exc:
            self._record.latency.failed()
            if isinstance(exc, MCPError) and self._record.health.failing:
                self._record.health.answered()
            raise
        finally:
            del failure  # whose traceback refers to this frame

    async def _pause(self, seconds: float) -> None:
        """Wait before another attempt; not for the time of a server that was stopped, which the attempt then says."""
        with trio.move_on_after(seconds):
            await self._wait_unwanted()

    def _admit(self, deadline: Deadline) -> Ticket | None:
        """Ask the breaker, if there is one, for a ticket to send a request.

        Raises:
            ServerUnavailable: the breaker is open.
        """
        breaker = self._record.breaker
        if breaker is None:
            return None
        ticket = breaker.admit(trio.current_time())
        if ticket is None:
            raise breaker.refusal(self._record.state, trio.current_time(), datetime.now(UTC), again=deadline.again)
        return ticket

    def _settle(self, ticket: Ticket | None, error: BaseException | None) -> None:
        """Tell the breaker how an attempt ended."""
        if ticket is not None and self._record.breaker is not None:
            self._record.breaker.settle(ticket, trio.current_time(), error)

    def _is_isolated(self, request: Request[Any]) -> bool:
        """Return True if a retry of the request gets a connection of its own."""
        return self._config.retry.isolated and not request.of_the_session

    @property
    def guarded(self) -> bool:
        """Whether a breaker has to be asked before each attempt, and to be told what became of it."""
        return self._record.breaker is not None

    def send(self, request: Request[T], deadline: Deadline) -> PendingCall[T]:
        """Send a message to the actor.

        Raises:
            ActorError, ServerUnavailable, RequestTimedOut: it was not sent.
        """
        if deadline.expired:  # there was no message yet that could have been answered so
            raise deadline.keeper.failure(deadline)
        if self._record.state not in ACTIVE:
            self._fail_or_wake()
        deadline.call = call = self._actor.send_request(request)
        return call

    def translate(self, exc: Exception, request: Request[Any]) -> Exception:
        """Return the error of a request that failed with an error of the actor, or any other exception as it is."""
        if not isinstance(exc, ActorError) or exc.actor != self._actor.name:
            return exc  # or it is about an actor that a middleware has called
        reason: BaseException | None = self._record.error
        failure: ServerError
        match exc:
            case ActorCrashed():
                reason = _root_of(exc.__cause__)
                failure = self._lost(request, reason)
            case ActorStopped(handed_over=True):
                failure = self._stopped_under(request)
            case ActorStopped():
                failure = self.unavailable()
            case MailboxFull():
                failure, reason = self._full(), None
            case _:  # what else the kernel refuses is a call that would deadlock, and it says who waits for whom
                failure, reason = self._deadlock(), exc
        failure.__cause__ = reason
        return failure

    async def _send_isolated(self, request: Request[T], deadline: Deadline) -> T:
        """Send a request on a connection of its own, which is closed after it, within the ``stop_timeout``.

        The caller waits for that too: whoever wants a connection to himself takes it down. It ends with the server:
        when that is stopped by hand, or its group is left.
        """
        if not self._is_wanted():
            raise self.unavailable() from self._record.error
        record = ServerRecord(self._config, _unheard, required=True, callbacks=self._record.callbacks)
        record.wanted, record.era, record.deadlines = True, self._record.era, self._record.deadlines
        record.catalog = self._record.catalog.copy_for_isolated()
        record.log_level = self._record.log_level
        name = f"{self._config.name}:isolated"
        try:
            with trio.move_on_at(deadline.at) as connecting:
                async with open_background() as background:
                    background.start_soon(self._cancel_with_server, connecting, name=f"{name}:connect")
                    async with open_actor(ServerActor(record), name=name) as actor:
                        background.cancel("it is connected")
                        connecting.deadline = math.inf  # from here on the deadline is kept as any other
                        deadline.call = call = actor.send_request(request)
                        background.start_soon(self._end_with_server, request, call, name=f"{name}:end")
                        return await call.wait()
            if not self._is_wanted():
                raise self.unavailable() from self._record.error
            raise deadline.keeper.failure(deadline)
        except ActorStartError as exc:
            if isinstance(exc.__cause__, ConnectFailed):
                raise exc.__cause__ from exc.__cause__.__cause__
            raise
        except (ActorCrashed, ActorStopped) as exc:
            if exc.actor != name:
                raise
            reason = _root_of(exc.__cause__)
        raise self._lost(request, reason) from reason

    def _is_wanted(self) -> bool:
        """Whether nobody has stopped the server by hand or left its group."""
        return self._record.wanted and self._lifecycle.state == "running"

    async def _wait_unwanted(self) -> None:
        """Wait until it does not stand any more."""
        with suppress(ServerUnavailable):  # its group was left
            while self._is_wanted():
                await self._record.wait_change()

    async def _cancel_with_server(self, connecting: trio.CancelScope) -> None:
        """End the connect of an isolated attempt with the server."""
        await self._wait_unwanted()
        connecting.cancel("the server was stopped, or its group was left")

    async def _end_with_server(self, request: Request[Any], call: PendingCall[Any]) -> None:
        """End an isolated attempt with the server."""
        await self._wait_unwanted()
        call.expire(self._stopped_under(request))

    # --- a server that does not serve -------------------------------------------------------------------------------

    def _fail_or_wake(self) -> None:
        """The server is down: wake it if it is lazy, or fail if that is what is wanted. Otherwise the request waits."""
        if self._record.dormant:
            self.wake()
        elif self._config.when_down == "fail" and self._record.error is not None:
            raise self.unavailable() from self._record.error

    def wake(self) -> None:
        """Have a lazy server connected, and do not wait for it: requests wait in their places, as for any connect."""
        self._record.wanted = True
        try:
            self._lifecycle.tell_nowait(Start((self._server,)))
        except ActorStopped:
            raise self._record.group_left() from None

    def given_up(self) -> ServerUnavailable | None:
        """The error for whoever waits for something of the server, if it does not serve and will not by itself.

        None also if its group is being left: then it has more to say than that.
        """
        gone = self._record.state in ("failed", "stopped") and not self._record.returning
        return self.unavailable() if gone and self._lifecycle.state == "running" else None

    def unavailable(self) -> ServerUnavailable:
        """The error for a request that a server will not get."""
        name, state, error = self._config.name, self._record.state, self._record.error
        if self._lifecycle.state != "running":
            # The block has ended, and the servers are being stopped; `ServerRecord.left` comes after that.
            return self._record.group_left()
        if self._record.overdue is not None:
            message = f"{self._record.overdue}; wait longer with wait_state('ready'), or raise connect_timeout"
            return ServerUnavailable(message, server=name, state=state, last_error=error)
        retry_at = self._record.retry_at
        if error is None:
            what = f"is {state}; await its start() to connect it again"
        elif retry_at is None:
            what = f"is {state}: {problem_of(error)}; fix that, then await servers[{name!r}].restart()"
        else:
            seconds = max(0.0, (retry_at - datetime.now(UTC)).total_seconds())
            what = (
                f"is {state}: {problem_of(error)}; the next attempt is in {seconds:.0f} s, to retry now await "
                f"servers[{name!r}].restart()"
            )
        message = f"server {name!r}: {what}"
        return ServerUnavailable(message, server=name, state=state, last_error=error, retry_at=retry_at)

    # --- errors -----------------------------------------------------------------------------------------------------

    def _lost(self, request: Request[Any], reason: BaseException | None) -> ConnectionLost:
        name = self._config.name
        why = f" ({problem_of(reason)})" if reason is not None else ""
        return ConnectionLost(
            f"server {name!r}: the connection ended{why} while {request.operation} was with the server, "
            "which may have acted on it; send it again only if that does no harm",
            server=name,
        )

    def _stopped_under(self, request: Request[Any]) -> ServerUnavailable:
        name = self._config.name
        return ServerUnavailable(
            f"server {name!r}: was stopped while {request.operation} was with it, and may have acted on it; "
            "send it again only if that does no harm",
            server=name,
            state=self._record.state,
            last_error=self._record.error,
            outcome="unknown",
        )

    def _full(self) -> LimitExceeded:
        name = self._config.name
        return LimitExceeded(
            f"server {name!r}: {self._config.mailbox_size} requests wait already, which is its mailbox_size; "
            "send less at a time, raise mailbox_size, or use overflow='wait'",
            server=name,
        )

    def _deadlock(self) -> LimitExceeded:
        name = self._config.name
        return LimitExceeded(
            f"server {name!r}: this call would deadlock: all requests that the server handles at a time "
            f"(max_in_flight={self._config.max_in_flight}) wait for it, for example in a callback that makes it; raise "
            "max_in_flight, or do not call the server from there",
            server=name,
        )


def _root_of(reason: BaseException | None) -> BaseException | None:
    """Why a connection was lost, where more is known than that it was."""
    if isinstance(reason, ConnectionLost) and reason.__cause__ is not None:
        return reason.__cause__
    return reason


def _unheard(event: object) -> None:
    """An event of a connection of which nobody but its caller knows."""
