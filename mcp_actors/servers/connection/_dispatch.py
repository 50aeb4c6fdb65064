"""Send plain requests through the SDK's dispatcher, without its models.

A request over HTTP, in process or over a custom transport has a task, and needs the ids, spans and cancellation of the
SDK's dispatcher. It does not need what `mcp.Client` does before and after: two models of the request, three more
functions that wait, and a second validation of the result. In process that is a fifth of the cost of a call.

The SDK has no public names for the dispatcher of a client's session and for the function that stamps a request with the
``_meta`` and headers of the protocol version. A version without these names costs speed only: all requests then go
through the session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.types import HEADER_MISMATCH, InputRequiredResult
from pydantic_core import from_json

from ..requests import PlainRequest
from ._sdk import carry_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import Client
    from mcp.shared.dispatcher import CallOptions, Dispatcher

    from ..record import ServerRecord
    from ..requests import Request

__all__ = ["DispatchedRequests"]


class DispatchedRequests:
    """The requests of one connection that have a task.

    Args:
        client: the SDK's client for the connection.
        record: the record of the server.
    """

    def __init__(self, client: Client, record: ServerRecord) -> None:
        self._client = client
        self._record = record
        self._version = client.protocol_version
        self._dispatcher: Dispatcher[Any] | None = getattr(client.session, "_dispatcher", None)
        self._stamp: Callable[[dict[str, Any], CallOptions], None] | None = getattr(client.session, "_stamp", None)

    async def send(self, message: Request[Any]) -> Any:
        """Send a request and return its result: a plain one through the dispatcher, any other through the session.

        **Cancellation**: the SDK asks the server to cancel a request that was sent.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
            pydantic_core.ValidationError: the result does not conform to the protocol.
            Exception: as for the `send` of the request.
        """
        if self._dispatcher is None or self._stamp is None or not isinstance(message, PlainRequest):
            return await message.send(self._client, self._record)
        members = message.plain(self._client, self._record)
        if members is None:
            return await message.send(self._client, self._record)
        # Parsed anew, because a server in this process may change what it is given.
        request = {"method": message.method, "params": from_json(b"{%b}" % members)}
        options: CallOptions = {}
        self._stamp(request, options)
        try:
            result = await self._dispatcher.send_raw_request(message.method, request["params"], options)
        except MCPError as exc:
            if exc.code == HEADER_MISMATCH:
                return await message.send(self._client, self._record)  # which lists the tools again if that may help
            explained = message.explain(exc, self._record)
            if explained is exc:
                raise
            raise explained from exc
        value = message.read(self._version, result)
        if type(value) is not InputRequiredResult:
            return value
        return await carry_on(self._client, value, partial(message.resume, self._client, self._record))
