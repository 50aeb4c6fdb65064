"""Open a link with the configured transport, within the group's capacity.

A `Capacity` limits how many servers connect at once, and how many processes run. Each opening of a link resolves the
variables in the configuration anew.

Owns: the `Capacity` of a group; HTTP clients for sign-ins.
Writes: the list of credentials to mask; filters of loggers; the log.
Calls: config, transports.http, transports.socket, transports.stdio, _credentials, _in_process, _link, _logs.
"""

from __future__ import annotations

import errno
import math
import os
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from .._errors import ConfigError
from .._foreign import Log
from ..config import Http, ServerConfig, Socket, Sse, Stdio, Transport
from ..config._template import INHERITED, resolved, variables_of, written_at
from . import http
from ._credentials import Masker
from ._in_process import open_in_process_link
from ._link import Certificates, Link, not_open
from ._logs import discreet, install_filters
from .socket import open_socket_link
from .stdio import open_stdio_link

if TYPE_CHECKING:
    from ..auth import AuthorizationClient

logger = Log("mcp_actors.servers")


# --- Limit the concurrent connects and the processes of a group -------------------------------------------------------


class Capacity:
    """The shared capacity of a group.

    Args:
        starting: how many servers connect at a time; more wait for a turn, in configured order.
        processes: the maximum number of processes; more are refused.
    """

    def __init__(self, *, starting: float = math.inf, processes: float = math.inf) -> None:
        self._most_starting = starting
        self._starting = 0
        self._queue: list[Turn] = []
        self._noted = 0  # the log level of the last message that servers wait
        self._places = count()
        self._most_processes = processes
        self._processes = 0

    def new_place(self) -> int:
        return next(self._places)

    @asynccontextmanager
    async def turn(self, place: int, until: float, late: Callable[[str], object], level: int) -> AsyncIterator[Turn]:
        """Wait for the turn to connect, which ends with the block, or earlier with `Turn.end`.

        **Cancellation**: leaves the queue.

        Args:
            place: the place of the server in the configured order.
            until: the Trio time at which `late` is called if the wait goes on.
            late: called with the reason for the wait.
            level: the level at which to log how many servers wait. Until none waits, this is logged again only at a
                higher level.
        """
        turn = Turn(self, place)
        insort(self._queue, turn, key=attrgetter("place"))
        try:
            # The servers of a group begin in one tick, in any order. Only after this checkpoint are all in the queue.
            await trio.lowlevel.checkpoint()
            self._admit()
            with trio.move_on_at(until):
                await turn.begun.wait()
            if not turn.begun.is_set():
                why = f"because other servers are slow to connect (max_starting={self._most_starting})"
                if level > self._noted:
                    self._noted, number = level, len(self._queue)
                    who = "1 server waits for its turn" if number == 1 else f"{number} servers wait for their turn"
                    logger.log(level, "open_servers(): %s, %s; raise max_starting to connect more at a time", who, why)
                late(f"waits for its turn, {why}")
                await turn.begun.wait()
            yield turn
        finally:
            turn.end()

    def end(self, turn: Turn) -> None:
        if turn in self._queue:
            self._queue.remove(turn)
        else:
            self._starting -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._starting < self._most_starting:
            self._starting += 1
            self._queue.pop(0).begun.set()
        if not self._queue:
            self._noted = 0

    @contextmanager
    def process(self, server: str) -> Iterator[None]:
        """Count a process while the block runs.

        Raises:
            ConnectFailed: there are too many already.
        """
        if self._processes >= self._most_processes:
            most = self._most_processes
            # The system raises the same at its own limit. So a refusal is a shortage of this program (`own_shortage`),
            # not evidence against the server.
            shortage = BlockingIOError(errno.EAGAIN, f"max_processes={most}")
            problem = f"not started, because no more processes are allowed (max_processes={most})"
            remedy = "stop a server, set idle_timeout, or raise max_processes"
            raise not_open(server, f"{problem}; {remedy}", hopeless=False) from shortage
        self._processes += 1
        try:
            yield
        finally:
            self._processes -= 1


class Turn:
    """The turn of one server to connect, at its `place` in configured order. `begun` is set when the turn has come."""

    def __init__(self, capacity: Capacity, place: int) -> None:
        self._capacity: Capacity | None = capacity
        self.place: Final = place
        self.begun: Final = trio.Event()

    def end(self) -> None:
        """Let the next server connect; do nothing the second time."""
        if self._capacity is not None:
            capacity, self._capacity = self._capacity, None
            capacity.end(self)


# --- Open a link, or the way to an authorization server ---------------------------------------------------------------


def open_link(
    config: ServerConfig,
    *,
    on_lost: Callable[[], None],
    capacity: Capacity | None = None,
    certificates: Certificates | None = None,
) -> AbstractAsyncContextManager[Link]:
    """Open the transport of a configured server; on leaving, close it and everything it started.

    Leaving takes at most ``config.stop_timeout``, whatever the server does and even if cancelled (but see
    `open_in_process_link`). An exception of the block is raised unchanged.

    **Cancellation:** leaves nothing behind.

    Args:
        config: the configuration of the server.
        on_lost: called synchronously, at most once, by the task that first notices that the other side is gone. Not
            called once this side has begun to close either stream.
        capacity: counts processes; None does not limit processes.
        certificates: the certificates of the group; None reads the files for this link.

    Raises:
        ConnectFailed: the transport cannot be opened; ``hopeless`` if a retry without a change would fail too.
    """
    install_filters()
    transport = _resolved(config)
    if isinstance(transport, Stdio):
        link = open_stdio_link(config, transport, _masker(config), on_lost=on_lost)
        return link if capacity is None else _counted(link, config.name, capacity)
    if isinstance(transport, Socket):
        return open_socket_link(config, transport, _masker(config), on_lost=on_lost)
    certificates = certificates or Certificates()
    if isinstance(transport, Http):
        return http.open_link_over_http(
            http.StreamableHttpLink, config, transport, _masker(config), certificates, on_lost=on_lost
        )
    if isinstance(transport, Sse):
        return http.open_link_over_http(http.SseLink, config, transport, _masker(config), certificates, on_lost=on_lost)
    return open_in_process_link(config, transport, on_lost=on_lost)


@asynccontextmanager
async def _counted(opening: AbstractAsyncContextManager[Link], server: str, capacity: Capacity) -> AsyncIterator[Link]:
    with capacity.process(server):
        async with opening as link:
            yield link


@asynccontextmanager
async def open_exchange(config: ServerConfig) -> AsyncIterator[AuthorizationClient]:
    """Open a client of a server's authorization server, without a connection to the server.

    Raises:
        ConfigError: the server has no `OAuth`.
        ConnectFailed: the client cannot be created.
    """
    transport = _resolved(config)
    oauth = http.oauth_of(config, transport) if isinstance(transport, Http | Sse) else None
    if oauth is None or not isinstance(transport, Http | Sse):
        problem = "has no sign-in, because it is not reached over HTTP; give its credentials in env"
        if isinstance(transport, Http | Sse):
            problem = 'is not configured for a sign-in; set auth=OAuth(), in a file "auth": "oauth"'
        raise ConfigError(f"server {config.name!r} {problem}", source="ServerConfig", path="transport.auth")
    masker = _masker(config)
    client = await http.make_client(config, transport, masker, Certificates())
    install_filters()
    with discreet(masker, transport.url):
        async with client:
            yield await http.authorization_client(config, transport, oauth, client, masker)


def _masker(config: ServerConfig) -> Masker:
    masker = Masker((os.environ.get(name, "") for name in INHERITED), server=config.name)
    for name, value in variables_of(config.transport, os.environ):
        masker.add(name, value)
    return masker


def _resolved(config: ServerConfig) -> Transport:
    """Return the transport with current values of variables. An error is hopeless."""
    try:
        return resolved(config.transport, os.environ, where=written_at(config))
    except ConfigError as error:
        raise not_open(config.name, error, "configure") from error
