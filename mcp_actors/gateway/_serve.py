"""Serve a group over stdin and stdout, or over sockets.

`serve` accepts clients. A `Connection` has the bytes of one: one task reads and parses, one writes what the client did
not take at once (`Output`), and the session has a nursery of its own. A connection reads until nothing more is there,
or `READ_BYTES`, before it begins anything of that, so a request whose cancellation has arrived is never begun.

After a gap (`Heart`: this process was frozen, or one step took too long) the requests that are read may be given up
already, with the cancellations still on their way. So a connection with something to read when the gap is noticed holds
it until a fence is passed: a ``ping`` whose answer comes behind the cancellations. The end of a stream is a fence, too.
A client that does not answer within `FENCE_TIMEOUT` gets errors that say that nothing was sent.

The first line of a client over a unix socket may name one of the servers, and its session sees only that server then.
Over TCP it must, and must prove the secret (``_network``).

A client that does not read what it is sent is no longer read from (`BACKLOG`), and disconnected if too much waits for
all clients (`Budget`). A client that has closed its side gets the answers to its requests within `LINGER` seconds.

When the gateway stops (``_listen.drain``), a connection ends as soon as nothing is in flight, unread or unwritten.
What it reads until then is refused, so each request that was taken from a client has an answer.
"""

from __future__ import annotations

import math
import os
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field

from .._foreign import Log
from .._misuse import check_flavor, type_of
from .._tasks import TimeSlice
from ..config import Secret, ServerConfig
from ..servers import ServerGroup
from ..transports import LineSplitter, LongLine
from ..transports.socket import OK, REFUSED, NotProven, answer_line, is_ours, server_in
from ._calls import full_line, is_id, parsed
from ._daemon import peer_uid
from ._front import Front
from ._listen import WARN, Acceptor, KeptSocket, drain, listen
from ._network import MAX_UNPROVEN, admit, network_of
from ._output import GAP, Heart, Output, poll
from ._session import Gateway, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ._calls import Id

logger = Log("mcp_actors.gateway")

READ_BYTES: Final = 1024 * 1024
"""Bytes that are read from a client before anything of them is begun."""

CHUNK: Final = 64 * 1024

BURST: Final = 16
"""Messages that are taken between two looks at the clock. They take a millisecond."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message of a client. A longer one ends its connection."""

MAX_VALUES: Final = 250_000
"""JSON values in one message of a client, likewise; as many as a server may send by default. Parsing takes 50 ms."""

MAX_SESSIONS: Final = 1000
"""Clients at a time. One more is disconnected at once."""

LINGER: Final = 5.0
"""Seconds in which a client that has closed its side gets the answers to what it has asked."""

FENCE_TIMEOUT: Final = 5.0
"""Seconds in which a client has to pass a fence, from the last data that it has sent."""

FENCE_LIMIT: Final = 20.0
"""Seconds in which it has to pass it in any case. A client may have much to send before its answer."""


class Connection:
    """The bytes of one client.

    Args:
        gateway: what all sessions share.
        heart: notices gaps.
        reads: the descriptor to read from; it does not block.
        writes: the descriptor to write to, likewise.
        client: what log lines call the client.
        only: the server that it has named already; None if its first line may name one.

    Attributes:
        ended: whether the connection has ended.
    """

    def __init__(
        self, gateway: Gateway, heart: Heart, reads: int, writes: int, client: str, only: str | None = None
    ) -> None:
        self._gateway = gateway
        self._heart = heart
        self._reads = reads
        self._writes = writes
        self._client = client
        self._lines = LineSplitter(MAX_MESSAGE, MAX_VALUES)
        self._scope = trio.CancelScope()
        self._output = Output(writes, self._scope.cancel, client, gateway.identity)
        self._nursery: trio.Nursery | None = None
        self._fences = 0
        self._fence = ""
        self._fence_due = self._fence_limit = math.inf
        self._late = trio.current_time() - heart.gap < GAP  # it may have been connected during the gap
        self._held: dict[object, tuple[Any, int]] = {}
        self._held_size = 0
        self._time_slice = TimeSlice()
        self._begins = only is None
        self._refused = False
        self._changed: trio.Event | None = None
        self._null = -1  # what replaces stdin at the end; descriptors may be used up then
        self.ended: trio.Event = trio.Event()
        heart.connections.add(self)
        self.session: Session = Session(gateway, self, self._start)
        self.session.only = only
        self.session.local = only is None  # a client over TCP, which may be on another machine, has named its server

    def _start(self, fn: Callable[..., Any]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(fn)

    async def run(self) -> None:
        """Serve the client until it has left.

        **Cancellation**: withdraws its requests.
        """
        self._gateway.sessions.add(self.session)
        try:
            with ExitStack() as stack, self._scope:
                if self._reads != self._writes:
                    self._null = os.open(os.devnull, os.O_RDONLY)
                    stack.callback(os.close, self._null)
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._output.run)
                    if self._gateway.stopping.is_set():
                        self.drain()
                    await self._read()
                    await self._linger()
                    self._nursery.cancel_scope.cancel("the client has left")
        except Exception:  # of the session or its own servers; other clients go on
            logger.exception("%s is disconnected: a defect of the gateway", self._client)
        finally:
            self._output.close()
            self._heart.connections.discard(self)
            self._gateway.sessions.discard(self.session)
            self.session.close()
            self.ended.set()

    # --- read -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        ended = False
        while not ended:
            await self._wait_readable()
            data, ended = self._read_all()
            # Look at the clock after reading, in the same step: what is read before the process is frozen was written
            # before, and what is read after that is seen to be late.
            late, begins = (self._heart.look() and data) or self._late, self._begins
            if ended and self._has_left:
                return
            self._time_slice.since = self._heart.now
            if not await self._take_in(data, ended):
                return
            # A client that has named its server sends nothing before the answer, and expects that first.
            if late and (not begins or self._begins or self._held or not self._lines.partial.empty):
                self._raise_fence()
            if ended or not self._fence:
                await self._begin(self.session.take)
            elif trio.current_time() >= self._fence_due:
                self._lower_fence()
                await self._begin(self._refuse)
            elif data:
                self._fence_due = min(trio.current_time() + FENCE_TIMEOUT, self._fence_limit)
            if self._fence or self._output.in_flight or (data and data[-1][-1:] != b"\n"):
                self._output.in_flight = self._lines.partial.size + self._held_size
            await self._output.wait_drained()
            self._note_change()

    def note_gap(self) -> None:
        """Note that the event loop did not run. If there is something to read, it may have been given up since."""
        self._late = self._late or bool(poll(self._reads, select.POLLIN))

    async def _wait_readable(self) -> None:
        """Wait for data, for the end of the stream, or until the time for a fence is over."""
        try:
            if not self._fence:
                await trio.lowlevel.wait_readable(self._reads)
                return
            with trio.move_on_at(self._fence_due):
                await trio.lowlevel.wait_readable(self._reads)
        except (PermissionError, trio.ClosedResourceError):  # a regular file is always readable; or see `_close_input`
            await trio.lowlevel.checkpoint()

    def _read_all(self) -> tuple[list[bytes], bool]:
        """Read until nothing more is there, or `READ_BYTES`; return that, and True at the end of the stream."""
        chunks: list[bytes] = []
        while len(chunks) < READ_BYTES // CHUNK:
            try:
                data = os.read(self._reads, CHUNK)
            except BlockingIOError:
                return chunks, False
            except OSError:
                return chunks, True
            if not data:
                return chunks, True
            chunks.append(data)
            if len(data) < CHUNK:
                return chunks, False  # whatever has come since makes the descriptor readable again
        return chunks, False

    async def _take_in(self, chunks: list[bytes], ended: bool) -> bool:
        """Parse and hold the messages of what was read; return False if one is over a limit."""
        for data in chunks:
            self._lines.feed(data)
            begun = self._lines.partial.size if data[-1:] != b"\n" else 0
            if begun and not self._output.budget.has_room(self.session.identity, len(data)):
                self._lines.partial.skip("room")  # its ends are kept, for the id in the error that answers it
            while (line := self._lines.pop()) is not None and (isinstance(line, bytes) or not _is_over(line)):
                self._take_line(line)
                if self._refused:
                    return False
                if (left := len(self._lines.whole)) and not left % BURST:
                    await self._time_slice.checkpoint()
            if line is not None or _is_over(self._lines.partial.skipped):
                limits = f"{MAX_MESSAGE} bytes or {MAX_VALUES} values"
                logger.warning("%s is disconnected: one of its messages has more than %s", self._client, limits)
                return False
            if len(chunks) > 1:
                await self._time_slice.checkpoint()
        if ended:
            self._take_line(self._lines.take_rest())
        return True

    def _take_line(self, line: bytes | LongLine) -> None:
        """Hold the message in a line; refuse one for which there was no room. Skip a blank line."""
        if isinstance(line, LongLine):
            self.answer(full_line(line.id), None, 0)
            return
        begins, self._begins = self._begins, False
        if begins and is_ours(line):
            said = REFUSED if (server := server_in(line)) is None else self._gateway.answer_to(server)
            self._refused, self.session.only = said != OK, server
            self.tell(answer_line(said), None)
        elif line and not line.isspace():
            self._hold(parsed(line), len(line) + 500)  # a message takes as many bytes of memory in addition

    def _hold(self, message: Any, size: int) -> None:
        """Hold a message until all that was read was looked at; drop a held request that the client has cancelled."""
        key: object = object()  # only requests are found again
        if type(message) is dict:
            given: Any
            given, method, params = message.get("id"), message.get("method"), message.get("params")
            if given == self._fence and self._fence and "method" not in message:
                self._lower_fence()
                return
            if method == "notifications/cancelled" and "id" not in message and type(params) is dict:
                given = params.get("requestId")
                if is_id(given) and (dropped := self._held.pop(given, None)) is not None:
                    self._held_size -= dropped[1]
                    return
            elif "method" in message and is_id(given):
                key = given
                if key in self._held:
                    self.session.refuse_duplicate(given)
                    return
        if self._fence and not self._output.budget.has_room(self.session.identity, size):
            self._refuse(message, size)
        else:
            self._held[key] = message, size
            self._held_size += size

    async def _begin(self, take: Callable[[Any, int], None]) -> None:
        """Take what is held, in several steps if that is much."""
        held, self._held, self._held_size = self._held, {}, 0
        for number, (message, size) in enumerate(held.values()):
            if number and not number % BURST:
                await self._time_slice.checkpoint()
            take(message, size)

    def _refuse(self, message: Any, size: int) -> None:
        """Answer a request that its client may have given up; take any other message."""
        if type(message) is dict and "method" in message and is_id(message.get("id")):
            reason = "the gateway did not run for a while, so this may be given up; nothing was sent; send it again"
            self.session.refuse_unsent(message["id"], reason)
        else:
            self.session.take(message, size)

    def _raise_fence(self) -> None:
        """Ask for a sign behind all that the client has written; for a new one if there was another gap since."""
        self._late = False
        self._fences += 1
        self._fence = f"mcp-actors:fence:{self._fences}"
        now = trio.current_time()
        self._fence_due, self._fence_limit = now + FENCE_TIMEOUT, now + FENCE_LIMIT
        self.tell(b'{"jsonrpc":"2.0","id":"%b","method":"ping"}\n' % self._fence.encode(), None)

    def _lower_fence(self) -> None:
        self._fence, self._fence_due = "", math.inf

    async def _linger(self) -> None:
        """Wait until the client has its answers, or has left altogether."""
        with trio.move_on_after(LINGER):
            while (self.session.calls or self._output.waiting) and not self._has_left:  # noqa: ASYNC110 - no event
                await trio.sleep(0.01)

    @property
    def _has_left(self) -> bool:
        """True if the client, which has closed its side, does not wait for answers."""
        # TCP does not tell a client that is gone from one that still reads. A group closes both sides at once.
        return (self.session.only is not None and self._changed is None) or _is_gone(self._writes)

    def drain(self) -> None:
        """End the connection as soon as nothing is in flight, unread or unwritten."""
        if self._nursery is not None and self._changed is None:
            self._changed = trio.Event()
            self.session.end_streams()
            self._nursery.start_soon(self._close_when_idle)

    async def _close_when_idle(self) -> None:
        assert self._changed is not None
        while self._is_busy:
            await self._output.wait_drained(0)
            if self._is_busy:
                await self._changed.wait()
                self._changed = trio.Event()
        self._close_input()  # nothing is awaited between the last look and this

    def _close_input(self) -> None:
        """Let the client write no more, and the reader come to the end of the stream.

        On Linux, what a socket has received since the last look is still read, and refused. macOS drops it, as a pipe
        does.
        """
        if self._null < 0:
            client = socket.socket(fileno=self._reads)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            client.detach()
            return
        trio.lowlevel.notify_closing(self._reads)  # the reader would wait for the pipe, and not for what replaces it
        os.dup2(self._null, self._reads)

    @property
    def _is_busy(self) -> bool:
        """Whether something is in flight, unwritten or unread."""
        held = self._held or not self._lines.partial.empty
        return bool(self.session.calls or self._output.waiting or held or poll(self._reads, select.POLLIN))

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()

    # --- write ------------------------------------------------------------------------------------------------------

    def answer(self, line: bytes, request_id: Id | None, code: int) -> None:
        """Write the line of an answer."""
        self._output.write(line, at_once=len(self.session.calls) < 2)
        self._note_change()

    def tell(self, line: bytes, about: Id | None) -> None:
        """Write the line of a notification or a question: with others in the next turn if calls are in flight."""
        self._output.write(line, at_once=len(self.session.calls) < 2)


def _is_over(line: bytes | LongLine | None) -> bool:
    """Return True if a line is over a limit of messages, and not only over the ``room`` that the budget has for it."""
    return isinstance(line, LongLine) and (line.excess != "room" or line.size > MAX_MESSAGE)


def _is_gone(descriptor: int) -> bool:
    """Return True if nothing reads what is written to a descriptor."""
    return bool(poll(descriptor, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL))


# --- The door ---------------------------------------------------------------------------------------------------------


async def serve(
    group: ServerGroup,
    *,
    stdio: bool = False,
    path: str | os.PathLike[str] | None = None,
    address: str | None = None,
    secret: str | Secret | None = None,
    per_session: Sequence[ServerConfig] = (),
    idle_timeout: float | None = None,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a group as one MCP server: to one client over stdin and stdout, or to any number over a socket.

    Returns when the client over stdin has left, or when no client has been there for `idle_timeout` seconds. The log
    messages of the group's servers go to the callbacks of the group, and not to clients.

    **Cancellation**: withdraws the requests of all clients, and closes their connections.

    Args:
        group: the servers. Their public names are the names outside.
        stdio: serve the client over this process's stdin and stdout. Nothing else may use them.
        path: the path of a unix socket, absolute if the program changes its working directory. Only this user may
            connect. If the socket is removed, it is created again.
        address: ``"host:port"`` for clients of other machines, which are groups with a `Socket`. With port 0 the system
            chooses one. ``"0.0.0.0:port"`` or ``"[::]:port"`` are all addresses of this machine.
        secret: the secret that these clients must prove, of 16 characters or more. Required with `address`.
        per_session: servers of which each client gets one for itself, besides those of the group. They are started by
            its first request that needs them, may ask it and see its roots, and end with it. They have 64 processes in
            all; a request that needs more is refused.
        idle_timeout: seconds without a client after which it returns; None (default) waits for ever.
        task_status: started once clients can connect, with the address that they connect to if one is given.

    Raises:
        OSError: the socket cannot be made, or another process serves there.
        RuntimeError: it is called on another event loop than Trio's.
        TypeError: the group is not one of ``mcp_actors.open_servers``.
        ValueError: not one of `stdio`, `path` and `address` is given; or an address without a secret.
    """
    check_flavor("serve()", "trio", "run mcp-actors serve, or serve() in a Trio program")
    if not isinstance(group, ServerGroup):
        raise TypeError(f"serve() takes a group of mcp_actors.open_servers, not {type_of(group)}")
    ways = {"stdio=True": stdio, f"path={path!r}": path is not None, f"address={address!r}": address is not None}
    if len(given := [way for way, is_given in ways.items() if is_given]) != 1:
        many = f", not {' and '.join(given)}; call it for each of them" if given else ""
        raise ValueError(f"serve() needs one of stdio=True, path=… and address=…{many}")
    text = secret.reveal() if isinstance(secret, Secret) else secret
    network = None if address is None else network_of(address, text)
    acceptors: list[Acceptor] = [] if path is None else [KeptSocket(os.fspath(path))]
    if network is not None:
        acceptors += map(Acceptor, await listen(network.host, network.port))
    task_status.started(None if network is None else acceptors[0].name)
    await serve_front(
        Gateway(Front(group, group._roster.naming), per_session=per_session),
        acceptors,
        secret=None if network is None else network.secret,
        idle_timeout=idle_timeout,
    )


async def serve_front(
    gateway: Gateway,
    acceptors: Collection[Acceptor] = (),
    *,
    secret: bytes | None = None,
    idle_timeout: float | None = None,
    stop: trio.Event | None = None,
) -> None:
    """Do as `serve` does, also without servers: then each request is refused with the reason.

    Once `stop` is set, it finishes what was begun (`drain`) and returns.

    Args:
        gateway: what all clients share.
        acceptors: of clients, all on this machine or all on others; they are closed. Without any, the client over stdin
            and stdout is served.
        secret: what clients on other machines must prove; None for those on this one.
        idle_timeout: as of `serve`.
        stop: see above.
    """
    with ExitStack() as stack:
        for each in acceptors:
            stack.callback(each.close)
        async with trio.open_nursery() as nursery:
            heart = Heart()
            nursery.start_soon(heart.beat)
            if gateway.front is not None:
                nursery.start_soon(gateway.front.follow, gateway.changed)

            async def end(stop: trio.Event) -> None:
                await stop.wait()
                await drain(gateway.stopping, acceptors, heart.connections)
                nursery.cancel_scope.cancel("the gateway stops")

            if stop is not None:
                nursery.start_soon(end, stop)
            if acceptors:
                reception = Reception(gateway, heart, secret)
                await reception.run(acceptors, math.inf if idle_timeout is None else idle_timeout)
            else:
                reads, writes = sys.stdin.fileno(), sys.stdout.fileno()
                with _unblocked(reads, writes):
                    await Connection(gateway, heart, reads, writes, "the client").run()
            nursery.cancel_scope.cancel("no client is left")


@contextmanager
def _unblocked(*descriptors: int) -> Iterator[None]:
    """Make descriptors non-blocking during a block. Other processes may share them, so they are restored."""
    before = [os.get_blocking(each) for each in descriptors]
    try:
        for each in descriptors:
            os.set_blocking(each, False)
        yield
    finally:
        for each, blocking in zip(descriptors, before, strict=True):
            os.set_blocking(each, blocking)


# --- Clients --------------------------------------------------------------------------------------------------------


@define(eq=False)
class Reception:
    """Accepts clients, and serves each in a task.

    Attributes:
        gateway, heart: what the connections share.
        secret: what clients over TCP must prove; None for a unix socket.
        clients: the number of those that are connected, and have proven it.
        unproven: the scopes of those that have not proven it yet, the oldest first; to cancel one ends its connection.
    """

    gateway: Gateway
    heart: Heart
    secret: bytes | None
    clients: int = field(default=0, init=False)
    unproven: dict[trio.CancelScope, None] = field(factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _changed: trio.Event = field(factory=trio.Event, init=False)
    _refused: int = field(default=0, init=False)
    _refusal: str = field(default="", init=False)
    _has_refused: trio.Event = field(factory=trio.Event, init=False)

    async def run(self, acceptors: Collection[Acceptor], idle_timeout: float) -> None:
        """Serve clients until there has been none for so many seconds."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            for acceptor in acceptors:
                nursery.start_soon(acceptor.run, partial(self._take, nursery))
            idle = False
            while not idle:
                changed = self._changed
                with trio.move_on_after(math.inf if self._present else idle_timeout) as waiting:
                    await changed.wait()
                idle = waiting.cancelled_caught and not self._present  # one may have come in the same turn
            nursery.cancel_scope.cancel("no client is left")

    @property
    def _present(self) -> int:
        return self.clients + len(self.unproven)

    def _count(self, clients: int = 0) -> None:
        """Count a client that comes or leaves."""
        self.clients += clients
        self._changed.set()
        self._changed = trio.Event()

    def _take(self, nursery: trio.Nursery, client: socket.socket) -> None:
        """Serve a client in a task, or refuse it."""
        self.heart.look()
        self._number += 1
        name = f"client {self._number}"
        if self.secret is not None:
            if len(self.unproven) >= MAX_UNPROVEN:  # strangers take places from each other, not from clients
                oldest = next(iter(self.unproven))
                del self.unproven[oldest]
                oldest.cancel("a newer connection takes its place")
            scope = trio.CancelScope()
            self.unproven[scope] = None
            self._count()
            nursery.start_soon(self._admit, client, name, self.secret, scope)
        elif peer_uid(client) != os.geteuid():
            self._refuse(client, name, "it is a process of another user")
        elif (connection := self._connection(client, name, None)) is not None:
            nursery.start_soon(self._serve, client, connection)

    async def _admit(self, client: socket.socket, name: str, secret: bytes, scope: trio.CancelScope) -> None:
        """Serve a client over TCP, if it proves the secret and names a server."""
        only: str | None = None
        try:
            with scope:
                only = await admit(client, secret, self.gateway.answer_to, name)
            if scope.cancelled_caught:
                raise NotProven(f"{MAX_UNPROVEN} newer ones came before it proved the secret; keep strangers out")
        except NotProven as exc:
            self._refuse(client, name, str(exc))
        finally:
            self.unproven.pop(scope, None)
            self._count()
            if only is None:
                client.close()
        if only is not None and (connection := self._connection(client, name, only)) is not None:
            await self._serve(client, connection)

    def _connection(self, client: socket.socket, name: str, only: str | None) -> Connection | None:
        """Return the connection of one more client; None if there are too many."""
        if self.clients >= MAX_SESSIONS:
            self._refuse(client, name, f"there are {MAX_SESSIONS} clients")
            return None
        self._count(+1)
        return Connection(self.gateway, self.heart, client.fileno(), client.fileno(), name, only)

    def _refuse(self, client: socket.socket, name: str, why: str) -> None:
        client.close()
        self._refused += 1
        self._refusal = f"{name} is refused: {why}"
        self._has_refused.set()

    async def _report(self) -> None:
        """Log the last refusal, once a minute at most: strangers can connect as often as they like."""
        while True:
            await self._has_refused.wait()
            self._log_refusals()
            try:
                await trio.sleep(WARN)
            finally:
                self._log_refusals()

    def _log_refusals(self) -> None:
        if self._refused:
            others = f" ({self._refused - 1} others were refused since the last such line)" if self._refused > 1 else ""
            logger.warning("%s%s", self._refusal, others)
        self._refused, self._has_refused = 0, trio.Event()

    async def _serve(self, client: socket.socket, connection: Connection) -> None:
        try:
            with client:
                await connection.run()
        finally:
            self._count(-1)
