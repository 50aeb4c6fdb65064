"""Accept HTTP connections, route requests by path, and end gracefully.

The name of a token is an identity. With several identities, each has a `Gateway` and ``per-identity`` servers of its
own, so no log message, notification or subscription crosses identities. At a graceful end, ``/readyz`` fails first, so
balancers send no new requests.

Owns: connections of clients; servers of identities; background tasks; listening sockets; a selector for
connections without a task.
Writes: the set of accepted tokens; the set of gateways; identities noted on requests; replies to probes; the log.
Calls: config, gateway, observe, _access, _streamable, _wire.
"""

from __future__ import annotations

import math
import os
import resource
import selectors
import socket
import time
from collections import deque
from contextlib import ExitStack, suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import evolve, frozen

from ..._errors import ConfigError
from ..._foreign import Log
from ..._tasks import TimeSlice
from ...config import Callbacks, parse_address
from ...observe import Metrics, answer as answer_probe, missing
from .._front import Front
from .._listen import REFUSAL_LOG_PERIOD, Acceptor, drain, listen, name_of, prepare
from .._output import Heart
from .._own import in_background, open_in_background, start_eager
from .._serve import MAX_MESSAGE
from .._session import STOPS
from ._access import ANYBODY, Access
from ._streamable import McpEndpoint, check_media
from ._wire import Head, HttpAnswer, HttpConnection, HttpRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ...config import ServerConfig
    from .._front import Changed
    from .._session import Gateway

logger = Log("mcp_actors.gateway")

MAX_HTTP_CONNECTIONS: Final = 4000
"""Connections at a time. One more replaces an idle one."""

CONNECTIONS_POLL: Final = 1.0
"""Seconds between two looks at all connections."""

PROBE_SECONDS: Final = 10.0
"""The longest time between a balancer's requests for ``/readyz``, and so until it notices the end."""


Answer: TypeAlias = "Callable[[HttpConnection, Head, bytes, HttpAnswer], None]"


@frozen
class Route:
    """A path.

    Attributes:
        check: raises `HttpRefused` for a head with wrong media types, or without a sign-in.
        named: check Host and Origin.
        secret: a request needs a token.
        most: bytes of a body; few by default, because anyone may send one.
    """

    methods: Collection[str]
    answer: Answer
    check: Callable[[HttpConnection, Head], object] = lambda *_: None
    named: bool = True
    secret: bool = True
    most: int = 4096


class HttpDoor:
    """Answers the requests of all connections; a `Site`.

    Attributes:
        find: finds the route of a path that is not in `routes`.
        several: each identity has its own gateway, because there were several identities at the start. Then log
            messages of shared servers reach no client.
        draining: the gateway is about to end.
        on_tokens: called after the tokens have changed.
    """

    def __init__(
        self,
        access: Access,
        gateway: Gateway,
        nursery: trio.Nursery,
        metrics: Metrics | None,
        acceptors: Collection[Acceptor],
    ) -> None:
        assert gateway.front is not None
        self.access = access
        self.front: Front = gateway.front
        self.heart: Heart = Heart()
        self.mcp: McpEndpoint = McpEndpoint(nursery, self.heart)
        self.several: bool = len(access.identities) > 1
        self.draining: bool = False
        self.find: Callable[[str], Route | None] = lambda path: None
        self.on_tokens: Callable[[], object] = lambda: None
        self._gateway = gateway
        self._nursery = nursery
        self._own: dict[str, trio.CancelScope] = {}
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.connections: set[HttpConnection] = set()
        self.strangers: dict[HttpConnection, None] = {}
        self.date: bytes = b""
        self._acceptors = acceptors
        self._number = 0
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._metrics = metrics
        self._probed: deque[float] = deque(maxlen=2)
        self._over = 0
        self._warned = -math.inf
        self.routes: dict[str, Route] = {
            "/mcp": Route(("POST", "GET", "DELETE"), self.mcp.answer, check_media, most=MAX_MESSAGE),
            "/healthz": Route(("GET", "HEAD"), lambda *request: request[-1].send(200), named=False, secret=False),
            "/readyz": Route(("GET", "HEAD"), self._answer_ready, named=False, secret=False),
            "/status": Route(("GET", "HEAD"), self._answer_probe),
            "/metrics": Route(("GET", "HEAD"), self._answer_probe),
        }
        self._set_date()

    def admit(self, connection: HttpConnection, head: Head) -> Answer:
        """Check path, Host, Origin, token, method and media types; return `Head.answer`, or raise `HttpRefused`."""
        route, identity = self.routes.get(head.path) or self.find(head.path), ANYBODY
        if route is None or route.named:
            self.access.check_host_and_origin(head, connection.own_address)
        if route is None or route.secret:
            identity = self.access.identify(head)
        if route is None:
            raise HttpRefused(404, "there is nothing here; clients of MCP use the path /mcp")
        if head.method not in route.methods:
            allowed = ", ".join(route.methods)
            raise HttpRefused(405, f"use {allowed}", b"allow: %b\r\n" % allowed.encode("ascii"))
        if self._gateway.stopping.is_set() and route.named and (head.path, head.method) != ("/mcp", "POST"):
            raise HttpRefused(503, STOPS)  # sessions refuse POSTs themselves, and probes report the state
        route.check(connection, head)
        if head.length is None and route.most < MAX_MESSAGE:
            raise HttpRefused(411, "a body for this path needs Content-Length")
        if (head.length or 0) > route.most:
            raise HttpRefused(413, f"the body has more than {route.most} bytes; send less")
        if route.secret:
            self.strangers.pop(connection, None)
        head.identity, head.answer = identity, route.answer
        connection.output.identity = identity if self.several else ""
        return route.answer

    def _answer_ready(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        self._probed.append(trio.current_time())
        reply.send(200 if self.ready else 503)

    def _answer_probe(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        found = answer_probe(self.front_of(head.identity), head.path, self._metrics)
        reply.send(found.status, found.body, found.content_type)

    async def use(self, tokens: Mapping[str, str], own: Sequence[ServerConfig], each: Sequence[ServerConfig]) -> None:
        """Admit only clients with these tokens, and apply changes to the servers that are not shared.

        Sessions of a removed identity end, and so do streams begun with a former token. Other requests finish.

        **Cancellation**: either the new tokens are valid or the former ones; servers may be as before.

        Args:
            tokens: identity → token.
            own: the servers that each session has for itself.
            each: the servers that each identity has for itself.
        """
        before, gateways, names = self.access.tokens, self.mcp.gateways, tuple(tokens) or (ANYBODY,)
        for name in names:
            if name not in gateways:
                await self.add(name, each)  # the servers come before the token is valid
        self.access.tokens = tokens
        for name in gateways.keys() - names:
            self.mcp.remove(name)
            if name in self._own:
                self._own.pop(name).cancel("its token was removed")
        self.on_tokens()
        if changed := {name for name, token in before.items() if tokens.get(name) != token}:
            for connection in tuple(self.connections):
                connection.forget(changed | {ANYBODY})  # `ANYBODY`: the page's requests, by a cookie of any token
        for gateway in tuple(gateways.values()):
            gateway.per_session, front = own, gateway.front
            if front is not None and front is not self.front:
                await front.group.reload(*map(in_background, each))
                start_eager(self._nursery, front, each)

    async def add(self, identity: str, servers: Sequence[ServerConfig]) -> None:
        gateway = self._gateway
        if self.several:
            gateway = evolve(gateway, sessions=set(), identity=identity)
            self._own[identity] = await self._nursery.start(self._keep, gateway, servers)
        self.mcp.add(identity, gateway)

    async def _keep(
        self, gateway: Gateway, servers: Sequence[ServerConfig], *, task_status: trio.TaskStatus[trio.CancelScope]
    ) -> None:
        observers = () if self._metrics is None else (self._metrics,)
        opening = open_in_background(servers, self.front.naming, Callbacks(logging=gateway.log), observers)
        with trio.CancelScope() as scope:
            async with opening as group, trio.open_nursery() as nursery:
                gateway.front = front = Front(group, self.front.naming, self.front)
                start_eager(nursery, front, servers)
                task_status.started(scope)
                await front.follow(gateway.changed)

    def front_of(self, identity: str) -> Front:
        return self.mcp.gateways[identity].front or self.front

    @property
    def ready(self) -> bool:
        """True if lists are known, no required server is missing, and the end is not near."""
        return self.front.listed and not missing(self.front) and not self.draining

    async def read(self) -> None:
        descriptor = self.selector.fileno()  # type: ignore[attr-defined]  # exists on Linux and macOS
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            ready, time_slice = self.selector.select(0), TimeSlice()
            for key, _ in ready:
                key.data.take_ready()
                if len(ready) > 1:
                    await time_slice.checkpoint()

    async def look(self) -> None:
        while True:
            self._set_date()
            self.heart.look()  # before the checks: a gap does not count
            now = trio.current_time()
            for connection in tuple(self.connections):
                connection.check(now)
            self.mcp.expire(now)
            if self._over and now - self._warned >= REFUSAL_LOG_PERIOD:
                over, self._over, self._warned = self._over, 0, now
                text = "%d connections over the limit %d replaced idle ones or were refused; end some or add a gateway"
                logger.warning(text, over, self._most)
            await trio.sleep(CONNECTIONS_POLL)

    def _set_date(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode("ascii")

    def take(self, client: socket.socket) -> None:
        """Watch one more connection. Its task starts with the first bytes: silent connections cost no tasks."""
        self.heart.look()
        self._number += 1
        try:
            if not self._has_room():
                raise ConnectionRefusedError
            if client.family != socket.AF_UNIX:
                prepare(client)
            HttpConnection(self, client, f"connection {self._number}", self._nursery.start_soon)
        except OSError:  # no room, or the client has left already
            client.close()

    def _has_room(self) -> bool:
        """Return True if one more connection may be open; at the limit, close an idle one, a stranger if possible.

        So a flood without tokens takes the places of strangers, then of idle clients.
        """
        if len(self.connections) < self._most:
            return True
        self._over += 1
        idle = next(iter(self.strangers), None)  # may be busy, but only sending its body
        if idle is None:
            idle = min(self.connections, key=lambda each: each.idle_since)
            if idle.idle_since == math.inf:
                return False
        idle.give_way()
        return True

    def close(self) -> None:
        """Close the connections without a task, once the others are closed."""
        for connection in tuple(self.connections):
            connection.give_way()
        self.selector.close()

    async def drain(self) -> None:
        """Let balancers notice the end, accept nothing more, and finish everything begun."""
        self.draining = True
        asked = [*self._probed, trio.current_time()]
        # A client that probed once, or long ago, is not a balancer, and does not delay the end.
        if len(asked) == 3 and max(asked[1] - asked[0], asked[2] - asked[1]) <= PROBE_SECONDS:
            with trio.move_on_after(PROBE_SECONDS):
                while self._probed[-1] == asked[1]:  # noqa: ASYNC110 - the busiest path sets no event
                    await trio.sleep(0.1)
        await drain(self._gateway.stopping, self._acceptors, self.heart.connections)


# --- Serve ------------------------------------------------------------------------------------------------------------


async def serve_http(
    gateway: Gateway,
    listeners: Sequence[socket.socket],
    access: Access,
    *,
    per_identity: Sequence[ServerConfig] = (),
    metrics: Metrics | None = None,
    follow: bool = True,
    task_status: trio.TaskStatus[HttpDoor] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a group as one MCP server over HTTP. Does not return.

    **Cancellation**: withdraws all requests, and closes all connections. Call `HttpDoor.drain` first to end gracefully.

    Args:
        gateway: has the shared servers.
        listeners: non-blocking sockets, closed at the end.
        access: decides who may send requests.
        per_identity: servers to start anew for each identity.
        metrics: shown by ``/metrics``.
        follow: keep the lists of the gateway up to date. False: another task does, and clients have no path here.
        task_status: started with the door once clients can connect.
    """
    acceptors = [*map(Acceptor, listeners)]
    with ExitStack() as stack:
        for each in acceptors:
            stack.callback(each.close)
        async with trio.open_nursery() as nursery:
            door = HttpDoor(access, gateway, nursery, metrics, acceptors)
            stack.callback(door.close)

            def changed(kind: Changed) -> None:
                for each in door.mcp.gateways.values():
                    each.changed(kind)

            if follow:
                nursery.start_soon(door.front.follow, changed)
            else:
                del door.routes["/mcp"]
            for name in access.identities:
                await door.add(name, per_identity)
            nursery.start_soon(door.heart.beat)
            nursery.start_soon(door.look)
            nursery.start_soon(door.read)
            for acceptor in acceptors:
                nursery.start_soon(acceptor.run, door.take)
            task_status.started(door)


def most_connections(files: int) -> int:
    """Return how many connections may be open, given the limit of open files."""
    # Leave 256 files, at most half, for everything else.
    return MAX_HTTP_CONNECTIONS if files < 0 else min(MAX_HTTP_CONNECTIONS, max(files - 256, files // 2))


async def listen_at(address: str) -> list[socket.socket]:
    """Listen at ``HOST:PORT``, or use systemd's socket for the address ``systemd``.

    Raises:
        ConfigError: systemd has not passed one socket, or the address is not valid.
        OSError: the port is in use.
    """
    if address != "systemd":
        at = None
        with suppress(ValueError):
            at = parse_address(address)
        if not isinstance(at, tuple):
            raise ConfigError(f"--http: {address!r:.100} is not HOST:PORT; write, for example, 127.0.0.1:8000")
        return await listen(*at)
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        raise ConfigError("--http: systemd has not passed one socket; start the .socket unit")
    passed = socket.socket(fileno=3)  # systemd's first descriptor
    passed.setblocking(False)
    return [passed]


def url_of(listener: socket.socket) -> str:
    """Return the address of a listener for a local browser."""
    place = listener.getsockname()
    if not isinstance(place, tuple):
        return f"unix:{name_of(listener)}"
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(place[0])
    return f"http://{name_of(listener) if local is None else f'{local}:{place[1]}'}/"
