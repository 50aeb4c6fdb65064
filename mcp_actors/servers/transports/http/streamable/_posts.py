"""Post plain requests past the SDK's transport.

For each request the SDK has a task, a task group, two memory streams and two models, and parses the answer again. A
plain request has a task already, and all it needs is one POST: it is sent through the same client here, with the same
containment and limits, and its answer is taken from the body or from the first event.

If the response is anything else (another message comes first, the stream may be resumed, a redirect), the SDK continues
with it: the same request, with the same id, is passed to the SDK's dispatcher, whose transport finds the response in
place of sending a second request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest

from ....basics import Background, current_trace
from ..._link import Lifeline
from ...credentials import Masker, discreet
from ...wire import CANCELLED, FIRST_ID, LAST_ID
from .._bodies import is_unsent
from ._containment import ContainedClient, handed_over
from ._replies import Answer, Answered, BegunResponse, error_for

IDS: Final = LAST_ID - FIRST_ID + 1

END_WAIT: Final = 0.2
"""Seconds to wait for the end of a stream after its answer. Servers end it at once."""

Json = dict[str, Any]


@define(eq=False, repr=False)
class PlainPosts:
    """Sends plain requests of one connection.

    Args:
        client: sends the requests.
        server: the name of the server.
        lifeline: knows if the connection is being closed.
        background: runs the tasks that must not delay a caller.
        masker: masks credentials in what is logged about the requests.
        configured_url: the URL as it is configured.
    """

    _client: ContainedClient
    _server: str
    _lifeline: Lifeline
    _background: Background
    _masker: Masker
    _configured_url: str
    _numbers: Iterator[int] = field(factory=count, init=False)

    @property
    def initialized(self) -> bool:
        """True once a legacy server knows that the handshake is over."""
        return self._client.initialized

    async def ask(
        self,
        method: str,
        params: Json,
        headers: Mapping[str, str],
        pass_on: Callable[[int], Awaitable[Json]],
        *,
        notify: bool,
    ) -> Json:
        """Send a request, and return the ``result`` of its answer; see `DirectPosts`."""
        request_id = FIRST_ID + next(self._numbers) % IDS
        message = JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method)
        content = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        request = self._client.build_post(headers, content)
        with discreet(self._masker, self._configured_url):
            try:
                reply = await self._client.exchange(request, message)
                answer = reply.answer if isinstance(reply, Answered) else await self._answer_in(reply)
            except trio.Cancelled:
                if notify and not is_unsent(request) and not self._lifeline.closing:
                    self._cancel(request_id)
                raise
        if answer is None:
            assert isinstance(reply, BegunResponse)
            return await _pass_on(reply, partial(pass_on, request_id))
        if isinstance(answer, JSONRPCError):
            if current_trace().begun:
                # A response is closed under a shield, so its caller may have left meanwhile. The kernel logs an error
                # that no caller gets. One that was not begun may still be sent over the next connection.
                await trio.lowlevel.checkpoint_if_cancelled()
            raise MCPError.from_error_data(answer.error)
        return answer.result

    async def _answer_in(self, begun: BegunResponse) -> Answer | None:
        """Return the answer in the first event, or an error if there is no event; None if the SDK has to continue."""
        answer, goes_on = None, False
        try:
            if begun.events is not None:
                answer = await begun.read_first()
            if answer is None:
                # From the next step on, the SDK's dispatcher notices if the caller leaves.
                await trio.lowlevel.checkpoint_if_cancelled()
            goes_on = True
        except Exception as exc:
            self._client.note_end(begun, exc)
            # The text does not matter to the caller, who gets the error of the trace.
            return error_for(begun.message, ErrorData(code=INTERNAL_ERROR, message=str(exc)))
        finally:
            if not goes_on:
                await begun.aclose()
        if answer is not None:
            self._background.start_soon(self._read_end, begun, name=f"{self._server}:end of stream")
        return answer

    async def _read_end(self, begun: BegunResponse) -> None:
        """Read the end of a stream after its answer, so that the connection can be used again."""
        with suppress(httpx2.HTTPError):
            try:
                with trio.move_on_after(END_WAIT):
                    await begun.read_end()
            finally:
                await begun.aclose()  # also if the end is broken: the request would count as in flight forever

    def _cancel(self, request_id: int) -> None:
        """Ask the server to cancel a request."""
        params = {"requestId": request_id, "reason": "caller cancelled"}
        notice = JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params=params)
        self._client.tell(self._client.build_post({}, notice.model_dump()), notice)


async def _pass_on(begun: BegunResponse, pass_on: Callable[[], Awaitable[Json]]) -> Json:
    token = handed_over.set(begun)
    try:
        return await pass_on()
    finally:
        handed_over.reset(token)
        if not begun.taken:
            begun.taken = True  # its caller has left
            await begun.aclose()
