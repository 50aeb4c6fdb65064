"""A request that a task sends and whose answer it waits for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias

import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import to_json

from ._request_table import Report, RequestTable
from ._server_requests import CANCELLED

NOTICE_WAIT: Final = 5.0
"""Maximum seconds in which a cancelled request waits for room in the pipe, as in the SDK."""

Json: TypeAlias = dict[str, Any]

Unasked: TypeAlias = JSONRPCRequest | JSONRPCNotification
"""A message of the server that is not an answer."""

Unanswered: TypeAlias = JSONRPCNotification | JSONRPCResponse | JSONRPCError
"""A message to the server that it does not answer."""

Receive: TypeAlias = Callable[[Unasked], Coroutine[Any, Any, None]]
"""Takes a message that the server sends unasked. It has no checkpoint and never raises."""


@define(eq=False, slots=True)
class Exchange:
    """A request on its way, and the place for its answer. One task waits for it.

    Attributes:
        method: the protocol's method.
        params: its params, complete.
        headers: the headers that go with it over HTTP.
        report: takes the server's reports of progress; None if the request asked for none.
        cancellable: whether the server is asked to cancel it if its caller leaves.
        id: its id, once the table has it.
        sent: None before its first byte was offered to the server, then False, and True once all of it was written.
        line: its line, if it is sent over a pipe.
        on_written: called when its first byte was offered to a pipe.
        on_settled: called when it has its outcome.
    """

    method: str
    params: Json
    headers: Mapping[str, str] = field(factory=dict)
    report: Report | None = None
    cancellable: bool = True
    id: RequestId = 0
    sent: bool | None = None
    line: bytes = b""
    on_written: Callable[[], None] | None = None
    on_settled: Callable[[], None] | None = None
    _outcome: Json | ErrorData | None = None
    _task: trio.lowlevel.Task | None = None

    @property
    def message(self) -> Json:
        """The request as it is sent."""
        message: Json = {"jsonrpc": "2.0", "id": self.id, "method": self.method}
        if self.params:
            message["params"] = self.params
        return message

    @property
    def settled(self) -> bool:
        """True once it has its outcome, whether or not its task has taken it."""
        return self._outcome is not None

    @property
    def notice(self) -> JSONRPCNotification:
        """The message that asks the server to cancel it."""
        return notice_of(self.id)

    def succeeded(self, result: Json) -> None:
        """Take the result."""
        self._settle(result)

    def refused(self, error: ErrorData) -> None:
        """Take an error."""
        self._settle(error)

    def closed(self) -> None:
        """Note that the connection has ended."""
        self._settle(CLOSED)

    def written(self) -> None:
        """See `OutgoingLine.written`."""
        if self.on_written is not None:
            self.on_written()

    def withdrawn(self) -> None:
        """See `OutgoingLine.withdrawn`."""
        self._settle(CLOSED)

    def _settle(self, outcome: Json | ErrorData) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None
        if self.on_settled is not None:
            self.on_settled()

    async def wait(self) -> Json:
        """Wait for the answer, and return its result. A checkpoint unless the answer is there.

        Raises:
            mcp.MCPError: the answer is an error, or the connection has ended.
        """
        if self._outcome is None:
            self._task = trio.lowlevel.current_task()
            # Trio calls `_leave` for no task that `_settle` has rescheduled: no cancellation takes away an answer that
            # was read.
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, ErrorData):
            raise MCPError.from_error_data(outcome)
        return outcome

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
"""The outcome of a request whose connection has ended. The SDK has the same error for it."""


def notice_of(request_id: RequestId) -> JSONRPCNotification:
    """Return the message that asks a server to cancel a request."""
    params = {"requestId": request_id, "reason": "caller cancelled"}
    return JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params=params)


class OutgoingLine(Protocol):
    """A line that waits to be written to a pipe.

    Attributes:
        sent: set by the pipe: to False before `written` is called, and to True once all of it was written. None before.
    """

    sent: bool | None

    @property
    def line(self) -> bytes:
        """The line with its newline."""

    def written(self) -> None:
        """Note that its first byte was offered to the pipe: the server may read it. Never raises."""

    def withdrawn(self) -> None:
        """Note that it is not written, because the connection ends. Never raises."""


class CancelLine:
    """The line that asks the server to cancel a request.

    Args:
        request_id: the request.
        done: called once when the line was written, or the connection has ended.
    """

    __slots__ = ("_done", "line", "sent")

    def __init__(self, request_id: RequestId, done: Callable[[], object]) -> None:
        self._done = done
        self.sent: bool | None = None
        self.line: bytes = notice_of(request_id).model_dump_json(exclude_none=True).encode() + b"\n"

    def written(self) -> None:
        """See `OutgoingLine.written`."""
        self._done()

    withdrawn = written


class Pipe(Protocol):
    """Writes lines in the step of the caller.

    Attributes:
        table: the requests that were sent, by id.
        on_room: called when a line can be offered again after `offer` has refused one.
    """

    table: RequestTable
    on_room: Callable[[], None]

    def offer(self, line: OutgoingLine) -> bool:
        """Write a line at once, or with all lines of this tick. Return False if the pipe has no room for it.

        Until its `written` is called the line may be withdrawn. After a False, `on_room` is called once there is room.
        If the server is gone this returns False too, and the connection is marked as lost soon.

        Raises:
            ValueError: the server is in this process, and the line is nested too deeply or has too long a number to be
                parsed.
        """

    def collect(self, line: OutgoingLine) -> None:
        """Write a line with all lines of this tick, or as soon as the pipe has room."""

    def withdraw(self, line: OutgoingLine) -> None:
        """Drop a line that was offered and is not yet written."""

    def withdraw_all(self) -> None:
        """Withdraw all lines that were not written."""

    def count_request(self) -> None:
        """Count a request that was written, for the limits of the server's own requests."""

    def count_cancelled(self) -> None:
        """Count a request that was written and is cancelled; see `ServerRequests.cancelled`."""


async def exchange_lines(pipe: Pipe, request: Exchange) -> Json:
    """Write a request to a pipe, wait for its answer, and return the result. See `Link.exchange`."""
    await trio.lowlevel.checkpoint_if_cancelled()
    request.line = to_json(request.message, inf_nan_mode="null") + b"\n"
    request.on_written = pipe.count_request
    if not pipe.offer(request):
        pipe.collect(request)  # it has a slot already, and no later request may overtake it
    return await wait_for_answer(pipe, request)


async def wait_for_answer(pipe: Pipe, request: Exchange) -> Json:
    """Wait for the answer to a request that was offered to a pipe, and return the result."""
    try:
        return await request.wait()
    except trio.Cancelled:
        if request.sent is None:
            pipe.withdraw(request)
        elif request.cancellable:
            await _cancel(pipe, request)
        raise


async def _cancel(pipe: Pipe, request: Exchange) -> None:
    """Ask the server to cancel a request. Return once that is written, and the slot of the request is free.

    A later answer is dropped. The shield is needed because this runs in a cancelled task.
    """
    pipe.table.remove(request.id)
    pipe.count_cancelled()
    done = trio.Event()
    pipe.collect(CancelLine(request.id, done.set))
    with trio.move_on_after(NOTICE_WAIT, shield=True):
        await done.wait()
