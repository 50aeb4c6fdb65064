"""Notify a client of changed lists and resources, and of log messages.

A legacy client subscribes to one resource per request, sets one log level, and, once initialized, is notified of all
changed lists. A modern client opens streams of notifications, and may name a log level in each request.

Owns: a client's log level; subscriptions; URL elicitations; notification streams and their tasks.
Writes: listeners in servers' records; requests to servers; notifications to the client; the log.
Calls: servers, _calls, _output.
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
from ._calls import RelayedRequest, RequestRefused, not_sent, resource_of, written
from ._output import LogLine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mcp.types import LoggingMessageNotificationParams

    from ..config import CallbackContext
    from ..servers import ServerRef
    from ._calls import Client, Id, Json
    from ._front import Changed, Front

logger = Log("mcp_actors.gateway")

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")  # lowest first

MAX_WATCHED: Final = 200
"""The most subscriptions of one client to resources. A thousand would block the event loop for 0.3 s."""

MAX_URI: Final = 64 * 1024  # characters of the URI of a subscription

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"

LIST_CHANGES: Final[Mapping[Changed, tuple[str, str]]] = {
    kind: (f"notifications/{kind}/list_changed", f"{kind}ListChanged") for kind in ("tools", "prompts", "resources")
}
"""Kind → notification of a changed list, and the member of ``subscriptions/listen`` that asks for it."""


class RerunTask:
    """Runs a function in at most one task, and once more if asked during a run.

    Args:
        start: starts the task.
        fn: reads the latest state each time.
    """

    def __init__(self, start: Callable[..., object], fn: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self._fn = fn
        self._wanted = self._runs = False

    def run_soon(self) -> None:
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
        failure: why there is no subscription.
        waiting: how many requests wait for `ready`.
    """

    scope: trio.CancelScope = field(factory=trio.CancelScope)
    ready: trio.Event = field(factory=trio.Event)
    failure: Exception | None = None
    waiting: int = 0


@define(eq=False)
class _ModernStream:
    honored: Json
    request: object


def log_line(context: CallbackContext, params: LoggingMessageNotificationParams) -> LogLine:
    name = context.server if params.logger is None else f"{context.server}/{params.logger}"
    message = {"level": params.level, "logger": name, "data": params.data}
    return LogLine(written({"jsonrpc": "2.0", "method": "notifications/message", "params": message}) + b"\n")


class News:
    """The notifications that one client wants.

    Attributes:
        level: the lowest log level requested by a legacy client; None for none.
    """

    def __init__(self, session: Client) -> None:
        self._session = session
        self.level: str | None = None
        self._levels: dict[ServerRef, RerunTask] = {}
        self._watched: dict[str, _Watch] = {}
        self._streams: dict[Id, _ModernStream] = {}
        self._pages: dict[tuple[str, str], None] = {}
        self._heard: dict[ServerRef, Callable[[], None]] = {}

    def close(self) -> None:
        for remove in self._heard.values():
            remove()

    # --- pages that a person opens ----------------------------------------------------------------------------------

    def expect(self, ref: ServerRef, refusal: MCPError) -> None:
        """Notify a legacy client when the pages required by an error are completed.

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
            self._pass_done(ref.name, notice)  # a notice may have come with the error

    def _pass_done(self, server: str, notice: ElicitCompleteNotification) -> None:
        page = notice.params.elicitation_id
        if (server, page) in self._pages:
            del self._pages[server, page]
            self._session.notify(notice.method, {"elicitationId": page})

    # --- log messages -----------------------------------------------------------------------------------------------

    def set_level(self, level: Any, servers: Iterable[ServerRef], lowest: Callable[[], str]) -> None:
        """Set the level of a legacy client, and ask `servers` for the `lowest` level of all clients.

        Raises:
            RequestRefused: there is no such level.
        """
        if level not in LOG_LEVELS:
            raise RequestRefused(INVALID_PARAMS, f"unknown level {level!r:.80}; known: {', '.join(LOG_LEVELS)}")
        self.level = level
        seen = tuple(servers)
        self._levels = {ref: self._levels[ref] for ref in seen if ref in self._levels}  # forget removed servers
        for ref in seen:
            self._ask_for_level(ref, lowest)

    def renew_level(self, servers: Iterable[ServerRef], lowest: Callable[[], str]) -> None:
        """Ask servers that were missing or not connected when the level was set."""
        if self.level is not None:
            for ref in servers:
                if ref not in self._levels:
                    self._ask_for_level(ref, lowest)

    def _ask_for_level(self, ref: ServerRef, lowest: Callable[[], str]) -> None:
        if ref._record.life.wanted.mode == "rest":
            self._levels.pop(ref, None)
            return
        if ref not in self._levels:
            self._levels[ref] = RerunTask(self._session.start, partial(self._send_level, ref, lowest))
        self._levels[ref].run_soon()

    async def _send_level(self, ref: ServerRef, lowest: Callable[[], str]) -> None:
        try:
            await ref.set_log_level(lowest())  # type: ignore[arg-type]  # one of `LOG_LEVELS`
        except (ServerUnavailable, ConnectionLost):
            self._levels.pop(ref, None)  # asked again once connected
        except (McpActorsError, MCPError):
            pass  # a server without log messages

    def wants_log(self, level: str) -> bool:
        if self._session.modern is False and self._session.initialized.is_set():
            return LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.level or "info")
        wanted = [each.level for each in self._session.calls.values() if isinstance(each, RelayedRequest)]
        return any(LOG_LEVELS.index(level) >= LOG_LEVELS.index(each) for each in wanted if each in LOG_LEVELS)

    # --- lists ------------------------------------------------------------------------------------------------------

    def note_changed(self, kind: Changed) -> None:
        method, wish = LIST_CHANGES[kind]
        if self._session.modern is False and self._session.initialized.is_set():
            self._session.notify(method)
        for request_id in self.streams():
            if wish in self._streams[request_id].honored:
                self._session.notify(method, {"_meta": {SUBSCRIPTION: request_id}}, request_id)

    # --- resources, as a legacy client subscribes to them -----------------------------------------------------------

    async def subscribe(self, ref: ServerRef, uri: str) -> None:
        """Subscribe to a resource, and pass changes on in another task until the client unsubscribes or leaves.

        **Cancellation**: ends the subscription, unless it is established or another request waits for it.

        Raises:
            RequestRefused: the client has too many subscriptions.
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
            # Two requests may wait for one subscription, and this one may be cancelled. So end the subscription only if
            # no other request waits and the server has not answered yet, and only if `_watched` still has this one:
            # `_keep` may have ended, and the client may have subscribed again.
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
        if (watch := self._watched.pop(uri, None)) is not None:
            watch.scope.cancel("the client has unsubscribed")

    def _check_watched(self, more: list[Any]) -> None:
        streams = sum(len(each.honored.get("resourceSubscriptions", ())) for each in self._streams.values())
        if any(len(uri) > MAX_URI for uri in more if isinstance(uri, str)):
            limit = f"the URI of a subscription has at most {MAX_URI} characters"
            raise not_sent(f"{limit}; nothing was sent", "LimitExceeded")
        if len(self._watched) + streams + len(more) > MAX_WATCHED:
            raise not_sent(f"too many subscriptions ({MAX_WATCHED}); nothing was sent; end some", "LimitExceeded")

    async def _pass_changes(self, ref: ServerRef, uri: str, meta: Json | None, ready: Callable[[], object]) -> None:
        """Pass the changes of a resource on, across restarts of its server."""
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
        """Return the server of each resource in the wishes, or raise `RequestRefused`."""
        uris = wishes.get("resourceSubscriptions") or []
        if type(uris) is not list:
            raise RequestRefused(INVALID_PARAMS, "notifications.resourceSubscriptions is not an array")
        self._check_watched(uris)
        return {uri: resource_of(front, uri) for uri in uris if isinstance(uri, str)}

    async def stream(self, refs: Mapping[str, ServerRef], request_id: Id, wishes: Json) -> None:
        """Keep a stream of notifications until cancelled. Raises `RequestRefused` for too many subscriptions."""
        await trio.lowlevel.checkpoint_if_cancelled()  # see `GatewaySession._dispatch_after`
        self._check_watched(list(refs))
        honored: Json = {name: True for _, name in LIST_CHANGES.values() if wishes.get(name) is True}
        if refs:
            honored["resourceSubscriptions"] = list(refs)
        meta = {SUBSCRIPTION: request_id}
        acknowledged = {"notifications": honored, "_meta": meta}
        self._session.notify("notifications/subscriptions/acknowledged", acknowledged, request_id)
        self._streams[request_id] = stream = _ModernStream(honored, self._session.calls[request_id])
        self._session.note_stream()
        try:
            async with trio.open_nursery() as nursery:
                for uri, ref in refs.items():
                    nursery.start_soon(self._pass_changes_if_possible, ref, uri, meta)
                await trio.sleep_forever()
        finally:
            if self._streams.get(request_id) is stream:  # not a later stream with the same id
                del self._streams[request_id]

    async def _pass_changes_if_possible(self, ref: ServerRef, uri: str, meta: Json) -> None:
        try:
            await self._pass_changes(ref, uri, meta, lambda: None)
        except (McpActorsError, MCPError) as exc:  # the other wishes hold
            logger.info("the changes of %.200r are not passed on: %s", uri, exc)

    def streams(self) -> tuple[Id, ...]:
        """Return the request ids of open streams. A cancelled stream does not count while its task ends."""
        calls = self._session.calls
        return tuple(each for each, stream in self._streams.items() if calls.get(each) is stream.request)


async def _wait_possible(ref: ServerRef) -> None:
    """Wait until a stopped or failed server may come back. Raises `ServerUnavailable` if removed."""
    while ref._caller.error_if_given_up() is not None:
        await ref._record.life.wait_change()
