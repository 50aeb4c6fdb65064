"""Send plain requests that have a task without the SDK's models.

A request over HTTP, in process or over a custom transport has a task, and needs the ids, spans and cancellation of the
SDK's dispatcher. It does not need what `mcp.Client` does before and after: two models of the request, three more
functions that wait, and a second validation of the result. In process that is a fifth of the cost of a call.

Since 2026-07-28 the SDK connects a server in this process by two dispatchers that call each other. There are no ids and
headers, the handler runs in the task of its caller, and the end of that task ends it. So the handler is called at once.

The SDK has no public names for the dispatcher of a client's session, for the function that stamps a request with the
``_meta`` and headers of the protocol version, and for the handler. A version without these names costs speed only: all
requests then go through the session.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.shared.direct_dispatcher import DirectDispatcher
from mcp.types import HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, InputRequiredResult
from pydantic_core import ValidationError, from_json

from ..._foreign import Log
from ...config import Http
from ..policy import is_modern
from ..requests import ListRequest, PlainRequest, Probe, is_traced
from ..transports.wire import FIRST_ID
from ._sdk import carry_on, unchecked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import Client
    from mcp.shared.dispatcher import CallOptions, Dispatcher, OnRequest

    from ..record import ServerRecord
    from ..requests import PastSession, Request
    from ..transports import DirectPosts

    Json = dict[str, Any]
    Dispatch = Callable[[str, Json], Awaitable[Json]]
    Stamp = Callable[[Json, CallOptions], None]

logger = Log("mcp_actors.servers")


class DispatchedRequests:
    """The requests of one connection that have a task.

    Attributes:
        dispatch: sends a request past the session; None if the SDK has other names.

    Args:
        client: the SDK's client for the connection.
        record: the record of the server.
        posts: sends requests past the dispatcher; None if the transport cannot.
    """

    def __init__(self, client: Client, record: ServerRecord, posts: DirectPosts | None) -> None:
        self._client = client
        self._record = record
        self._version = client.protocol_version
        self.dispatch = _way_past(client, record.config.name, posts)
        self._http = isinstance(record.config.transport, Http)

    async def send(self, message: Request[Any]) -> Any:
        """Send a request and return its result: a plain one through the dispatcher, any other through the session.

        **Cancellation**: the SDK asks the server to cancel a request that was sent.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
            pydantic_core.ValidationError: the result does not conform to the protocol.
            Exception: as for the `send` of the request.
        """
        if isinstance(message, ListRequest | Probe):
            return await message.send_past(self._client, self._record, self.past(message.operation))
        if self.dispatch is None or not isinstance(message, PlainRequest) or (params := self._params(message)) is None:
            return await message.send(self._client, self._record)
        try:
            result = await self.dispatch(message.method, params)
        except MCPError as exc:
            if exc.code == HEADER_MISMATCH:
                return await message.send(self._client, self._record)  # which lists the tools again if that may help
            explained = message.explain(exc, self._record)
            raise explained from explained.__cause__
        value = message.read(self._version, result)
        if type(value) is not InputRequiredResult:
            return value
        return await carry_on(self._client, self._record, message, value)

    def _params(self, message: PlainRequest[Any]) -> Json | None:
        """Return the params of a request, parsed anew, because a server in this process may change what it is given.

        None means that the request has to go through the session, because its params cannot be parsed, for example.
        """
        members = message.plain(self._client, self._record)
        if members is None:
            return None
        try:
            params: Json = from_json(b"{%b}" % members)
        except ValueError:  # nested too deeply, or a number is too long
            return None
        return params

    def past(self, method: str) -> PastSession | None:
        """Return the function that requests a page of a list; None if that has to go through the session.

        The session notes from its pages of tools which arguments are headers over HTTP, since 2026-07-28.
        """
        noted = self._http and is_modern(self._version)
        return None if method == "tools/list" and noted else self.dispatch

    def past_at_first(self, method: str) -> PastSession | None:
        """Return the same for the first request of a connection, which goes through the session over HTTP.

        The SDK sends it after ``notifications/initialized`` and with the id of the HTTP session. A request of our own
        would overtake that notification, and know no id before the notification is sent.
        """
        return None if self._http else self.past(method)


def _way_past(client: Client, server: str, posts: DirectPosts | None) -> Dispatch | None:
    """Return the function that sends a request past the models of a session; None if the SDK has other names."""
    session = client.session
    dispatcher: Dispatcher[Any] | None = getattr(session, "_dispatcher", None)
    stamp: Stamp | None = getattr(session, "_stamp", None)
    if dispatcher is None or stamp is None:
        return None
    if isinstance(dispatcher, DirectDispatcher):
        peer = getattr(dispatcher, "_peer", None)
        handle, make_context = getattr(peer, "_on_request", None), getattr(peer, "_make_context", None)
        if handle is not None and make_context is not None:
            return _Handler(server, stamp, handle, make_context)
    if posts is not None:
        return partial(_post_stamped, posts, dispatcher, stamp, not is_modern(client.protocol_version))
    return partial(_send_stamped, dispatcher, stamp)


async def _post_stamped(
    posts: DirectPosts, dispatcher: Dispatcher[Any], stamp: Stamp, notify: bool, method: str, params: Json
) -> Json:
    # A post may overtake what the SDK sends, and a legacy server refuses a request before the end of the handshake.
    if is_traced() or (notify and not posts.initialized):
        return await _send_stamped(dispatcher, stamp, method, params)
    request: Json = {"method": method, "params": params}
    options: CallOptions = {}
    stamp(request, options)
    params = request["params"]

    def pass_on(request_id: int) -> Awaitable[Json]:
        options["request_id"] = request_id
        return unchecked(dispatcher)(method, params, options)

    return await posts.ask(method, params, options.get("headers") or {}, pass_on, notify=notify)


async def _send_stamped(dispatcher: Dispatcher[Any], stamp: Stamp, method: str, params: Json) -> Json:
    request: Json = {"method": method, "params": params}
    options: CallOptions = {}
    stamp(request, options)
    return await unchecked(dispatcher)(method, request["params"], options)


class _Handler:
    """The handler of a server in this process. Called like `_send_stamped`, and raises what the SDK's dispatcher would.

    Args:
        server: the name of the server.
        stamp: stamps a request.
        handle: the function that handles a request.
        make_context: returns the context of a request for that.
    """

    def __init__(self, server: str, stamp: Stamp, handle: OnRequest, make_context: Callable[..., Any]) -> None:
        self._server = server
        self._handle = handle
        self._make_context = make_context
        self._ids = count(FIRST_ID)
        blank: Json = {"method": "", "params": {}}
        stamp(blank, {})  # without headers, all requests have the same stamp
        self._meta: Json = blank["params"]["_meta"]

    async def __call__(self, method: str, params: Json) -> Json:
        params["_meta"] = dict(self._meta)
        try:
            return await self._handle(self._make_context(request_id=next(self._ids)), method, params)
        except MCPError:
            raise
        except ValidationError as exc:
            raise MCPError(INVALID_PARAMS, "Invalid request parameters", "") from exc
        except Exception:
            logger.exception("server %r: its handler of %s raised", self._server, method)
            raise MCPError(INTERNAL_ERROR, "Internal server error") from None
