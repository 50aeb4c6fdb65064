"""Tell a client what changes, and what its servers log.

`News` is the part of a session that speaks without being asked. It keeps what the client wants to hear, which depends
on the era: a legacy client subscribes to each resource, sets one log level, and hears of changed lists once it is
initialized; since 2026-07-28 a client opens streams of notifications and names its log level in each request. Each
subscription and each stream is a task of the session, and ends with it. `Latest` keeps what a client can change without
end down to one task.

`Session` takes the requests, and gives the notices to the client. It uses the refs of the servers only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import INVALID_PARAMS, ElicitCompleteNotification

from .._errors import ConnectionLost, McpActorsError, ServerUnavailable
from .._foreign import Log
from ..servers._session import pages_of
from ._calls import Call, Refused, not_sent, resource_of, written
from ._output import LogLine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mcp.types import LoggingMessageNotificationParams

    from ..config import CallbackContext
    from ..servers import ServerRef
    from ._calls import Client, Id, Json
    from ._front import Changed, Front

logger = Log("mcp_actors.gateway")

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The log levels, from the lowest to the highest."""

MAX_WATCHED: Final = 200
"""Subscriptions of a client to resources. One more is refused. With a thousand, steps take a third of a second."""

MAX_URI: Final = 64 * 1024
"""Characters in the URI of a subscription, which is kept."""

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"

CHANGES: Final[Mapping[Changed, tuple[str, str]]] = {
    kind: (f"notifications/{kind}/list_changed", f"{kind}ListChanged") for kind in ("tools", "prompts", "resources")
}
"""The notice that a list has changed, and the name of a client's wish for it."""


class Latest:
    """Runs a function in one task at most. Asked to while it runs, it runs once more.

    Args:
        start: starts the task.
        fn: the function, which reads what is the latest when it runs.
    """

    def __init__(self, start: Callable[..., object], fn: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self._fn = fn
        self._wanted = self._runs = False

    def run_soon(self) -> None:
        """Run the function, from its beginning, some time after this."""
        self._wanted = True
        if not self._runs:
            self._runs = True
            self._start(self._run)

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            await self._fn()
        self._runs = False


@define(eq=False)
class _Watch:
    """A subscription of a legacy client.

    Attributes:
        scope: ends it.
        ready: set when the server has answered.
        failure: why there is none.
        waiting: the number of requests for it that wait for the answer.
    """

    scope: trio.CancelScope = field(factory=trio.CancelScope)
    ready: trio.Event = field(factory=trio.Event)
    failure: Exception | None = None
    waiting: int = 0


@define(eq=False)
class _Stream:
    """A stream of a modern client.

    Attributes:
        honored: the notifications that the client has asked for.
        request: its entry in the calls of the session.
    """

    honored: Json
    request: object


def log_line(context: CallbackContext, params: LoggingMessageNotificationParams) -> LogLine:
    """Return the line of a log message of a server."""
    name = context.server if params.logger is None else f"{context.server}/{params.logger}"
    message = {"level": params.level, "logger": name, "data": params.data}
    return LogLine(written({"jsonrpc": "2.0", "method": "notifications/message", "params": message}) + b"\n")


class News:
    """The wishes of one client to hear of changes, and the notices that it gets for them.

    Args:
        session: the session of the client.

    Attributes:
        level: the lowest level of log messages that a legacy client has asked for; None for none.
    """

    def __init__(self, session: Client) -> None:
        self._session = session
        self.level: str | None = None
        self._levels: dict[ServerRef, Latest] = {}
        self._watched: dict[str, _Watch] = {}
        self._streams: dict[Id, _Stream] = {}
        self._pages: dict[tuple[str, str], None] = {}
        self._heard: dict[ServerRef, Callable[[], None]] = {}

    def close(self) -> None:
        """Hear no server any more: the client has left."""
        for remove in self._heard.values():
            remove()

    # --- pages that a person opens ----------------------------------------------------------------------------------

    def expect(self, ref: ServerRef, refusal: MCPError) -> None:
        """Tell a legacy client when the pages are done that the error for its request names. No other client hears it.

        Since 2026-07-28 the protocol has no such notification.
        """
        pages = [page.elicitation_id or "" for page in pages_of(refusal)]
        if self._session.modern or not pages or sum(map(len, pages)) > MAX_URI:
            return
        if ref not in self._heard:
            done = partial(self._pass_done, ref.name)
            self._heard[ref] = ref._record.listeners.add(ElicitCompleteNotification, done)
        self._pages |= dict.fromkeys((ref.name, page) for page in pages)
        while len(self._pages) > MAX_WATCHED:
            del self._pages[next(iter(self._pages))]
        for notice in ref._record.done.latest.values():
            self._pass_done(ref.name, notice)  # it may have come together with the error

    def _pass_done(self, server: str, notice: ElicitCompleteNotification) -> None:
        page = notice.params.elicitation_id
        if (server, page) in self._pages:
            del self._pages[server, page]
            self._session.notify(notice.method, {"elicitationId": page})

    # --- log messages -----------------------------------------------------------------------------------------------

    def set_level(self, level: Any, servers: Iterable[ServerRef], lowest: Callable[[], str]) -> None:
        """Set the level of a legacy client, and ask the servers for the lowest that a client wants.

        Args:
            level: the level as the client has sent it.
            servers: the servers that the client sees.
            lowest: returns the lowest level that a client wants now.

        Raises:
            Refused: there is no such level.
        """
        if level not in LEVELS:
            raise Refused(INVALID_PARAMS, f"unknown level {level!r:.80}; known: {', '.join(LEVELS)}")
        self.level = level
        seen = tuple(servers)
        self._levels = {ref: self._levels[ref] for ref in seen if ref in self._levels}  # others were removed
        for ref in seen:
            self._ask_for_level(ref, lowest)

    def renew_level(self, servers: Iterable[ServerRef], lowest: Callable[[], str]) -> None:
        """Ask those servers for the level that were not there, or not connected, when the client has set it."""
        if self.level is not None:
            for ref in servers:
                if ref not in self._levels:
                    self._ask_for_level(ref, lowest)

    def _ask_for_level(self, ref: ServerRef, lowest: Callable[[], str]) -> None:
        """Ask a server for the level, unless it is lazy and has not been used: then once it is connected."""
        if ref._record.life.wanted.mode == "rest":
            self._levels.pop(ref, None)
            return
        if ref not in self._levels:
            self._levels[ref] = Latest(self._session.start, partial(self._send_level, ref, lowest))
        self._levels[ref].run_soon()

    async def _send_level(self, ref: ServerRef, lowest: Callable[[], str]) -> None:
        try:
            await ref.set_log_level(lowest())  # type: ignore[arg-type]  # one of `LEVELS`
        except (ServerUnavailable, ConnectionLost):
            self._levels.pop(ref, None)  # it is asked once it is connected
        except (McpActorsError, MCPError):
            pass  # it has no log

    def wants_log(self, level: str) -> bool:
        """Return True if the client wants log messages of a level."""
        if self._session.modern is False and self._session.initialized.is_set():
            return LEVELS.index(level) >= LEVELS.index(self.level or "info")
        wanted = [each.level for each in self._session.calls.values() if isinstance(each, Call)]
        return any(LEVELS.index(level) >= LEVELS.index(each) for each in wanted if each in LEVELS)

    # --- lists ------------------------------------------------------------------------------------------------------

    def note_changed(self, kind: Changed) -> None:
        """Tell the client that a list has changed, if it wants to know."""
        method, wish = CHANGES[kind]
        if self._session.modern is False and self._session.initialized.is_set():
            self._session.notify(method)
        for request_id in self.streams():
            if wish in self._streams[request_id].honored:
                self._session.notify(method, {"_meta": {SUBSCRIPTION: request_id}}, request_id)

    # --- resources, as a legacy client subscribes to them -----------------------------------------------------------

    async def subscribe(self, ref: ServerRef, uri: str) -> None:
        """Subscribe to a resource, and pass its changes on in another task until the client unsubscribes or leaves.

        **Cancellation**: ends the subscription, unless it is established or another request waits for it.

        Raises:
            Refused: the client has too many subscriptions.
            McpActorsError, mcp.MCPError: the server could not be asked, or has refused.
        """
        watch = self._watched.get(uri)
        if watch is None:
            self._check_watched([uri])
            watch = self._watched[uri] = _Watch()
            self._session.start(partial(self._keep, watch, ref, uri))
        watch.waiting += 1
        try:
            await watch.ready.wait()
        finally:
            watch.waiting -= 1
            if not watch.waiting and not watch.ready.is_set() and self._watched.get(uri) is watch:
                self.unsubscribe(uri)
        if watch.failure is not None:
            raise watch.failure

    async def _keep(self, watch: _Watch, ref: ServerRef, uri: str) -> None:
        try:
            with watch.scope:
                await self._pass_changes(ref, uri, None, watch.ready.set)
        except (McpActorsError, MCPError) as exc:
            watch.failure = exc
        finally:
            watch.ready.set()
            if self._watched.get(uri) is watch:
                del self._watched[uri]

    def unsubscribe(self, uri: str) -> None:
        """End a subscription, if there is one."""
        if (watch := self._watched.pop(uri, None)) is not None:
            watch.scope.cancel("the client has unsubscribed")

    def _check_watched(self, more: list[Any]) -> None:
        streams = sum(len(each.honored.get("resourceSubscriptions", ())) for each in self._streams.values())
        if any(len(uri) > MAX_URI for uri in more if isinstance(uri, str)):
            raise not_sent(
                f"the URI of a subscription has at most {MAX_URI} characters; nothing was sent", "LimitExceeded"
            )
        if len(self._watched) + streams + len(more) > MAX_WATCHED:
            raise not_sent(f"too many subscriptions ({MAX_WATCHED}); nothing was sent; end some", "LimitExceeded")

    async def _pass_changes(self, ref: ServerRef, uri: str, meta: Json | None, ready: Callable[[], object]) -> None:
        """Pass the changes of a resource on, also after its server was stopped and started again."""
        params, stream = ({}, None) if meta is None else ({"_meta": meta}, meta[SUBSCRIPTION])
        async with ref.subscribe(uri) as changes:
            ready()
            while True:
                try:
                    async for change in changes:
                        self._session.notify("notifications/resources/updated", {"uri": change.uri, **params}, stream)
                except ServerUnavailable:
                    await _wait_possible(ref)
                else:
                    return

    # --- the streams of a modern client -----------------------------------------------------------------------------

    def servers_of(self, front: Front, wishes: Json) -> dict[str, ServerRef]:
        """Return the server of each resource that a client wants to hear of.

        Raises:
            Refused: the wishes are not valid, or the client has too many subscriptions.
        """
        uris = wishes.get("resourceSubscriptions") or []
        if type(uris) is not list:
            raise Refused(INVALID_PARAMS, "notifications.resourceSubscriptions is not an array")
        self._check_watched(uris)
        return {uri: resource_of(front, uri) for uri in uris if isinstance(uri, str)}

    async def stream(self, refs: Mapping[str, ServerRef], request_id: Id, wishes: Json) -> None:
        """Keep a stream of notifications. Does not return.

        **Cancellation**: ends the stream.

        Args:
            refs: the servers of the resources.
            request_id: the request for the stream.
            wishes: what the client wants to hear of.

        Raises:
            Refused: the client has too many subscriptions.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # then the id may be that of another request by now
        self._check_watched(list(refs))
        honored: Json = {name: True for _, name in CHANGES.values() if wishes.get(name) is True}
        if refs:
            honored["resourceSubscriptions"] = list(refs)
        meta = {SUBSCRIPTION: request_id}
        acknowledged = {"notifications": honored, "_meta": meta}
        self._session.notify("notifications/subscriptions/acknowledged", acknowledged, request_id)
        self._streams[request_id] = stream = _Stream(honored, self._session.calls[request_id])
        self._session.note_stream()
        try:
            async with trio.open_nursery() as nursery:
                for uri, ref in refs.items():
                    nursery.start_soon(self._pass_changes_if_possible, ref, uri, meta)
                await trio.sleep_forever()
        finally:
            if self._streams.get(request_id) is stream:  # not of a later stream with the same id
                del self._streams[request_id]

    async def _pass_changes_if_possible(self, ref: ServerRef, uri: str, meta: Json) -> None:
        try:
            await self._pass_changes(ref, uri, meta, lambda: None)
        except (McpActorsError, MCPError) as exc:  # the other wishes of the stream hold
            logger.info("the changes of %.200r are not passed on: %s", uri, exc)

    def streams(self) -> tuple[Id, ...]:
        """Return the requests for the streams that are open. One that was cancelled is not, though its task may run."""
        calls = self._session.calls
        return tuple(each for each, stream in self._streams.items() if calls.get(each) is stream.request)


async def _wait_possible(ref: ServerRef) -> None:
    """Wait until a stopped or failed server may come back.

    Raises:
        ServerUnavailable: it was removed.
    """
    while ref._caller.given_up() is not None:
        await ref._record.life.wait_change()
