"""Send requests over a pipe without starting a task, and end connections.

Most requests (`PlainRequest`) need only a line in each direction. The step of the caller, or the step that frees a
slot, gives the line to the `Pipe`; the step that reads the answer settles the caller's message. A pipe may *refuse* a
line, *begin* to write it, or *collect* lines and write them together later. `WindDown` waits until sent requests have
finished before it ends a connection.

====================  ===================================================  =============================================
a line is             the caller leaves, or its deadline expires           the connection is lost
====================  ===================================================  =============================================
refused by the pipe   the message is withdrawn from the mailbox            the message stays in the mailbox
collected             the line is dropped; the server learns nothing       the message returns to its old place
begun                 the server is asked to cancel                        the kernel answers: outcome unknown
====================  ===================================================  =============================================

Owns: plain requests; the `WindDown`; tasks of requests that need several answers.
Writes: deadlines of requests; replies to callers; answers kept for gateways; the actor's mailbox; the `Pipe`; the log.
Calls: kernel, servers, servers.requests, transports.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

import trio
from attrs import define, field
from mcp import MCPError
from pydantic_core import ValidationError, to_json

from ..._collapse import caused_by
from ..._foreign import Log
from ...kernel import NotSent
from ...transports import CLOSED, WITHDRAWN, CancelLine, RequestUnderWay
from .._dispatcher import RequestSpan, is_traced
from .._failures import answer_not_read, of_answer
from ..requests import NO_EXTRAS, PlainRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ..._tasks import Background
    from ...kernel import Later
    from ...transports import Pipe
    from .._dispatcher import Reports
    from .._session import ConnectionSession
    from ..record import ConnectionRecord
    from ..requests import Extras


logger = Log("mcp_actors.servers")


NO_PARAMS: Final[dict[str, Any]] = {}
"""Stands for the params, which the line has as text."""


@cache
def _line_of(method: str) -> bytes:
    """Return the line of a request, with places for the id, the params, and further params."""
    return b'{"jsonrpc":"2.0","id":%%d,"method":"%b","params":{%%b%%b}}\n' % method.encode()


@define(eq=False, repr=False)
class DirectRequests:
    """The plain requests of one connection.

    A line bypasses the dispatcher. A pipe that is full, or in the middle of a line, refuses the next (`NotSent`), so
    only the mailbox grows. The pipe's background task writes collected lines together, as soon as the pipe takes them.
    For a legacy server in this process, the pipe is a queue. Requests that cannot be written as JSON have a task.

    Args:
        wind_down: the end of the connection, which waits for requests.
        send: waits for a request in the session; returns the result, or raises the error for the caller.
        answered: the reports of answered requests whose callers have not seen all progress.
    """

    pipe: Pipe
    session: ConnectionSession
    record: ConnectionRecord
    wind_down: WindDown
    _tasks: Background
    _send: Callable[[PlainRequest[Any], Callable[[], Awaitable[Any]]], Awaitable[Any]]
    answered: dict[Reports, None]
    _members: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        stamp = self.session.stamp.members
        self._members = b"" if stamp is None else b",%b" % stamp

    def take(self, later: Later[Any]) -> bool:
        """Send a plain request. Return False if the message needs a task.

        Raises:
            NotSent: the pipe is full, or the server is gone.
            Exception: the request must not be sent.
        """
        request = later.message
        if not isinstance(request, PlainRequest):
            return False
        request.check(self.session, self.record)
        if (text := request.members or request.written()) is None:
            return False
        extras = request.extras(self.session, self.record)
        method, deadline = request.method, request.deadline
        sent = RequestUnderWay(method, NO_PARAMS, deadline)
        # `add` assigns the id, which the line needs. From `offer` on the server may act, so checks that may refuse the
        # request come before. A line that is not taken leaves the table again (`_forget`). `under_way` and `on_cancel`
        # are set for a taken line only, because `_forget` undoes neither.
        self.pipe.table.add(sent)
        sent.on_outcome, sent.later, sent.extras = self.settled, later, extras
        more = self._members if extras is None and not is_traced() else self._complete(sent, request)
        sent.line = _line_of(method) % (sent.id, text, more)
        try:
            offered = self.pipe.offer(sent)
        except ValueError:  # an in-process server gets objects, which need no parser
            self._forget(sent)
            return False
        if not offered:
            self._forget(sent)
            raise NotSent
        self.wind_down.under_way += 1
        later.on_cancel = sent.caller_left
        if deadline is not None and deadline.observed is not None:  # `handed_over`, without a call per request
            if deadline.sent_at is None:
                deadline.sent_at = deadline.began if deadline.call is None else trio.current_time()
            deadline.replica, deadline.request_id = self.record.name, sent.id
        return True

    def _complete(self, sent: RequestUnderWay, request: PlainRequest[Any]) -> bytes:
        """Return an uncommon ``_meta`` as JSON text, to follow the given params. Begin the span and the reports."""
        extras: Extras = sent.extras or NO_EXTRAS
        meta: dict[str, Any] = dict(extras.meta or {})
        if is_traced():
            try:
                sent.span = RequestSpan(sent, request.target, self.record.describe)
                sent.span.inject(meta)
            except BaseException as exc:  # raised by a tracer: nothing was sent, so nothing may wait for an answer
                self._forget(sent, exc if isinstance(exc, Exception) else None)
                raise
        if extras.reports is not None:
            sent.report = extras.reports
            extras.reports.starts(self.session.dispatcher.start_soon, sent.later.context)
            if request.deadline is not None:
                request.deadline.renew()
            meta["progressToken"] = sent.id
        params = {"_meta": meta} if meta else {}
        self.session.stamp.stamp(request.method, params, extras.capabilities)
        return b"," + to_json(params, inf_nan_mode="null")[1:-1] if params else b""

    def _forget(self, sent: RequestUnderWay, failure: Exception | None = None) -> None:
        self.pipe.table.remove(sent.id)
        if sent.span is not None:
            sent.span.end(None if failure is None else self.record.session.masker.clean(failure))
        if sent.report is not None and sent.attempt is not None:
            sent.attempt.suspend()

    def settled(self, sent: RequestUnderWay) -> None:
        """Settle a message with its result, unless the request continues. See `RequestUnderWay.on_outcome`."""
        later, result = sent.later, sent.outcome
        reports: Any = sent.report
        if type(result) is not dict:
            self._fail(sent, result)
            return
        request: PlainRequest[Any] = later.message
        later.on_cancel = None  # else cyclic garbage
        try:
            value = request.read(self.session, result)
            if request.kept is not None:
                request.kept.keep(result, value)
        except Exception as exc:  # even a defect of this package: here it would end the connection
            self._fail(sent, exc)
            return
        if sent.span is not None:
            sent.span.end()
        if type(value) is not request.model and not request.is_result(value):
            self.carry_on(later, value, sent.extras or NO_EXTRAS)
        else:
            try:
                value = request.finish(value, self.record)
            except Exception as exc:
                if reports is not None:
                    reports.cancel()
                later.fail(exc)
            else:
                if reports is None:
                    later.reply(value)
                else:
                    reports.answered(later, value, self.answered)
        self.wind_down.note_ended()

    def _fail(self, sent: RequestUnderWay, outcome: object) -> None:
        """Settle a message without a result."""
        later: Any = sent.later
        failure = outcome if isinstance(outcome, Exception) else None
        self._forget(sent, failure)
        if outcome is CLOSED:
            return  # the kernel answers the callers of an ended connection
        later.on_cancel = None
        if failure is not None:
            failure = self.explain(later.message, failure)
        if isinstance(failure, MCPError) and later.message.names_pages(failure):
            self.carry_on(later, failure, sent.extras or NO_EXTRAS)
            self.wind_down.note_ended()
            return
        # Three outcomes: a failure; the connection ended before the line was begun (requeue); the caller has left. In
        # the last case, a line not begun is taken back, and the slot is free at once. A begun line must be completed,
        # or the server would read garbage; the slot is free only once the notice is begun, or a frozen server would be
        # sent ever more requests.
        if sent.report is not None:
            sent.extras.reports.cancel()
        if failure is not None:
            later.fail(failure)
        elif outcome is WITHDRAWN:
            if sent.attempt is not None:
                sent.attempt.put_back()
            later.fail(NotSent())  # for the next connection
        elif sent.sent is None:
            self.pipe.withdraw(sent)
            later.reply(None)  # only frees the slot: the caller has left
        else:
            self.pipe.collect(CancelLine(sent.id, partial(later.reply, None)))
        self.wind_down.note_ended()

    def explain(self, request: PlainRequest[Any], exc: Exception) -> Exception:
        """Return the caller's error for an answer that is an error, or unreadable."""
        name, link = self.record.config.name, self.session.link
        if not isinstance(exc, MCPError | ValidationError):
            logger.error("server %r: %s: reading the response failed", name, request.operation, exc_info=exc)
            return caused_by(answer_not_read(name, request.operation, exc), link.masker.clean(exc))
        answer = of_answer(name, request.operation, link, exc)
        return request.explain(answer, self.record) if isinstance(answer, MCPError) else answer

    def carry_on(self, later: Later[Any], value: Any, extras: Extras) -> None:
        """Continue after an answer that is not the result, in a task with the caller's context variables."""
        name, scope = f"{self.record.config.name}:input", trio.CancelScope()
        later.on_cancel = lambda _: scope.cancel("its caller has left")  # perhaps before the task has begun
        later.context.run(partial(self._tasks.start_soon, self._go_on, later, value, extras, scope, name=name))

    async def _go_on(self, later: Later[Any], value: Any, extras: Extras, scope: trio.CancelScope) -> None:
        request, reports = cast("PlainRequest[Any]", later.message), extras.reports
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                result = await self._send(request, partial(request.go_on, self.session, self.record, value, extras))
            except Exception as exc:
                later.fail(exc)
            else:
                if reports is not None:
                    reports.answered(later, result, self.answered)
                    return
                later.reply(result)
        if reports is not None:
            reports.cancel()
        if scope.cancelled_caught:
            later.reply(None)  # only frees the slot: the caller has left


# --- End a connection without losing its requests ---------------------------------------------------------------------

# Sent requests end first. Requests without effect, and all that the mailbox hands over, wait until then. Afterwards the
# waiting requests are requeued, and the last of these ends the incarnation.


WIND_DOWN_TIMEOUT: Final = 60.0
"""Seconds for which sent requests may delay waiting requests. Few take longer, and a server that never answers must
not delay the waiting requests forever."""


class WindDown:
    """The end of one connection, from the first sign to the last request.

    Attributes:
        under_way: the number of sent requests that have not ended.

    Args:
        end: ends the incarnation, with the cause given to `begin` or `wait`.
    """

    def __init__(self, end: Callable[[Exception], None]) -> None:
        self.end: Callable[[Exception], None] = end
        self._cause: Exception | None = None
        self.under_way: int = 0
        self._waiting = 0
        self._over = trio.Event()

    @property
    def begun(self) -> bool:
        """True once no more requests may be sent."""
        return self._cause is not None

    def note_ended(self) -> None:
        self.under_way -= 1
        if self._cause is not None:
            self._end_if_done()

    def begin(self, cause: Exception) -> None:
        """Begin to wind down; end at once if no request is under way. The first cause counts."""
        self._cause = self._cause or cause
        self._end_if_done()

    async def wait(self, cause: Exception | None = None) -> None:
        """Wait for all sent requests, at most `WIND_DOWN_TIMEOUT`. Then the caller raises `NotSent`.

        A `cause` begins to wind down.

        **Cancellation**: leaves at once; other requests keep waiting.
        """
        # All waiting requests must be requeued in one tick, in which the mailbox cannot hand any over again. The last
        # request ends the incarnation: an earlier end would make the rest count as sent.
        if self._over.is_set():
            return  # a checkpoint would miss that tick
        self._waiting += 1
        try:
            if cause is not None:
                self.begin(cause)
            with trio.move_on_after(WIND_DOWN_TIMEOUT):
                await self._over.wait()
            if not self._over.is_set():
                # Timed out: this task wakes the others, and the checkpoint puts it into the same tick.
                self._over.set()
                await trio.lowlevel.checkpoint()
        finally:
            self._waiting -= 1
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._cause is None or (self.under_way and not self._over.is_set()):
            return
        self._over.set()
        if not self._waiting:
            self.end(self._cause)
