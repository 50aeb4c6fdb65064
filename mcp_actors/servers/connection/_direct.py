"""Send requests over a pipe without a task.

Theory of operation
-------------------
Most requests need nothing but a line in each direction. Such a request (`PlainRequest`) has no task: the step of its
caller, or the step that frees an in-flight slot, writes the line; the step that reads the answer settles the message.
Everything else has a request task, and goes through the SDK's dispatcher (see ``_dispatch``) or through its session.

====================  ===================================================  =============================================
a line is             the caller leaves, or its deadline expires           the connection is lost
====================  ===================================================  =============================================
refused by the pipe   the message is in the mailbox, as if never taken     it stays there
collected             the line is dropped; the server learns nothing       the message returns to its old place
begun                 the server is sent a notice; the slot is free once   the kernel answers: outcome unknown
                      that is written
====================  ===================================================  =============================================

*Collected* lines are written together in the next step of the pipe's background task. A pipe that did not take a whole
line takes no more messages (`NotSent`) until it is empty again, so there is no queue besides the mailbox.

A modern server may answer that it needs input. The request is never sent again as if it was new: a task asks for the
input and carries on from there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import InputRequiredResult
from pydantic_core import ValidationError, to_json

from ..._collapse import caused_by
from ..._errors import ServerError
from ..._foreign import Log
from ...kernel import NotSent
from ..policy import is_modern
from ..requests import PlainRequest, is_traced
from ..transports import refuse_unreadable
from ._failures import answer_not_read, answer_not_understood
from ._sdk import carry_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import Client
    from mcp.types import ErrorData

    from ...kernel import Later
    from ..basics import Background
    from ..record import ServerRecord
    from ..transports import DirectPipe
    from ._drain import Drain

logger = Log("mcp_actors.servers")


@define(eq=False, repr=False)
class DirectRequests:
    """The plain requests of one connection.

    Args:
        pipe: the pipe to the server.
        client: the SDK's client for the same connection.
        record: the record of the server.
        drain: the end of the connection, which waits for requests.
        tasks: runs the tasks of the connection.
        send: waits for a request in the session, and returns its result or raises the error for its caller.
    """

    pipe: DirectPipe
    _client: Client
    _record: ServerRecord
    drain: Drain
    _tasks: Background
    _send: Callable[[PlainRequest[Any], Callable[[], Awaitable[Any]]], Awaitable[Any]]
    version: str = field(init=False)
    _modern: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.version = self._client.protocol_version
        self._modern = is_modern(self.version)

    def take(self, later: Later[Any]) -> bool:
        """Send a message if it is a plain request. Return False if it needs a task.

        Raises:
            NotSent: the pipe is full, or the server is gone.
            Exception: the request must not be sent.
        """
        request = later.message
        if not isinstance(request, PlainRequest) or is_traced():
            return False
        members = request.plain(self._client, self._record)
        if members is None:
            return False
        if self._modern:
            if self.pipe.meta is None:
                return False
            members = b"%b,%b" % (members, self.pipe.meta)
        sent = SentRequest(self, request, later, members)
        try:
            offered = self.pipe.offer(sent)
        except ValueError:  # the session passes objects to a server in this process
            self.pipe.table.remove(sent.id)
            return False
        if not offered:
            self.pipe.table.remove(sent.id)
            raise NotSent
        self.drain.enter()
        later.on_cancel = sent.cancel
        return True

    def explain(self, request: PlainRequest[Any], exc: Exception) -> Exception:
        """Return the error for the caller of a request whose answer is an error, or cannot be read."""
        name, masker = self._record.config.name, self._record.session.masker
        if isinstance(exc, ValidationError):
            misfit = answer_not_understood(name, request.operation, exc, masker)
            return caused_by(misfit, masker.clean(exc))  # which cannot be cleaned in place
        if not isinstance(exc, MCPError):
            logger.error("server %r: %s: reading the response failed", name, request.operation, exc_info=exc)
            return caused_by(answer_not_read(name, request.operation, exc), masker.clean(exc))
        masker.clean(exc)
        try:
            refuse_unreadable(name, request.operation, exc)
        except ServerError as unreadable:
            return unreadable
        return request.explain(exc, self._record)

    def carry_on(self, later: Later[Any], required: InputRequiredResult) -> None:
        """Continue with a request whose answer requires input, in a task with the context variables of its caller."""
        name, scope = f"{self._record.config.name}:input", trio.CancelScope()
        later.on_cancel = lambda _: scope.cancel("its caller has left")  # perhaps before the task has begun
        later.context.run(partial(self._tasks.start_soon, self._resume, later, required, scope, name=name))

    async def _resume(self, later: Later[Any], required: InputRequiredResult, scope: trio.CancelScope) -> None:
        request = cast("PlainRequest[Any]", later.message)
        answer = partial(carry_on, self._client, self._record, request, required)
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                result = await self._send(request, answer)
            except Exception as exc:
                later.fail(exc)
            else:
                later.reply(result)
        if scope.cancelled_caught:
            later.reply(None)  # it frees the slot; its caller has left


class SentRequest:
    """A plain request on its way: the line that is sent, and the answer that is awaited."""

    __slots__ = ("_direct", "_later", "_request", "id", "line", "sent")

    def __init__(self, direct: DirectRequests, request: PlainRequest[Any], later: Later[Any], members: bytes) -> None:
        self._direct = direct
        self._request = request
        self._later = later
        self.sent: bool | None = None
        self.id: int = direct.pipe.table.add(self)
        self.line: bytes = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b}}\n' % (
            self.id,
            request.method.encode(),
            members,
        )

    def written(self) -> None:
        """Note that the server may have read the request."""
        self._direct.pipe.count_request()

    def withdrawn(self) -> None:
        """Return the message to its old place: the next connection serves it."""
        self._direct.pipe.table.remove(self.id)
        self._settling().fail(NotSent())
        self._direct.drain.leave()

    def succeeded(self, result: dict[str, Any]) -> None:
        """Settle the message with a result."""
        try:
            value = self._request.read(self._direct.version, result)
        except Exception as exc:  # a defect of ours too: in this step it would end the connection
            self._fail(exc)
            return
        if isinstance(value, InputRequiredResult):
            self._direct.carry_on(self._settling(), value)
        else:
            self._settling().reply(value)
        self._direct.drain.leave()

    def refused(self, error: ErrorData) -> None:
        """Settle the message with an error of the server."""
        self._fail(MCPError.from_error_data(error))

    def _fail(self, exc: Exception) -> None:
        self._settling().fail(self._direct.explain(self._request, exc))
        self._direct.drain.leave()

    def _settling(self) -> Later[Any]:
        """Return the `Later`, without its way back to this object: the two would be cyclic garbage."""
        self._later.on_cancel = None
        return self._later

    def cancel(self, later: Later[Any]) -> None:
        """Withdraw the request, or ask the server to cancel it."""
        self._direct.pipe.table.remove(self.id)
        if self.sent is None:
            self._direct.pipe.withdraw(self)
            later.reply(None)  # it frees the slot; its caller has left
        else:
            self._direct.pipe.count_cancelled()
            self._direct.pipe.collect(CancelNotice(self.id, later))
        self._direct.drain.leave()


class CancelNotice:
    """Asks the server to cancel a request; the slot of the request is free once it is written."""

    __slots__ = ("_later", "line", "sent")

    def __init__(self, request_id: int, later: Later[Any]) -> None:
        self._later = later
        self.sent: bool | None = None
        params = {"requestId": request_id, "reason": "caller cancelled"}
        self.line: bytes = to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}) + b"\n"

    def written(self) -> None:
        """Free the slot."""
        self._later.reply(None)

    withdrawn = written
