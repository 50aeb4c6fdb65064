"""Serve a group over stdin and stdout, or over sockets.

A cancelled request must not begin, so a connection first reads all available data. After a freeze of the process, the
connection also sends a ``ping``, and requests wait for the answer, because earlier cancellations arrive before it.

Owns: waiting messages; the number of clients; tasks of the gateway; tasks of clients; sockets.
Writes: the sets of sessions and connections; lines to clients; the blocking mode of stdin and stdout; the log.
Calls: config, servers, transports, transports.socket, _calls, _daemon, _front, _listen, _network, _output, _session.
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
from ._listen import REFUSAL_LOG_PERIOD, Acceptor, KeptSocket, drain, listen
from ._network import MAX_UNPROVEN, admit, network_of
from ._output import GAP, DescriptorWriter, Heart, poll
from ._session import Gateway, GatewaySession

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ._calls import Id

logger = Log("mcp_actors.gateway")

CLIENT_READ_BYTES: Final = 1024 * 1024
"""Bytes read from a client before any request begins."""

CHUNK: Final = 64 * 1024

BURST: Final = 16  # messages between two looks at the clock; they take a millisecond

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Maximum bytes of a client's message. A larger message ends the connection."""

MAX_MESSAGE_VALUES: Final = 250_000
"""JSON values in one message, as for servers by default: 50 ms of parsing. A larger message ends the connection."""

MAX_CLIENTS: Final = 1000  # at a time; one more is refused

ANSWER_LINGER: Final = 5.0
"""Seconds for the last answers after a client has closed its side."""

FENCE_TIMEOUT: Final = 5.0
"""Seconds for a client to pass a fence, from the last data received."""

FENCE_LIMIT: Final = 20.0
"""Seconds to pass a fence in any case: a client may have much to send before the answer."""


class ClientConnection:
    """The bytes of one client.

    All available data, up to `CLIENT_READ_BYTES`, is read before a request begins. After a gap (the process was frozen,
    or one step took too long) requests wait for a *fence*, behind all earlier cancellations: the client's answer to a
    ``ping``, or the end of the stream. Without an answer within `FENCE_TIMEOUT`, held requests fail as not sent, except
    those that begin a session.

    Args:
        gateway, heart: shared by all connections.
        reads, writes: non-blocking descriptors.
        client: the name in log lines.
        only: the server already named by the client; None if the first line may name a server.
    """

    def __init__(
        self, gateway: Gateway, heart: Heart, reads: int, writes: int, client: str, only: str | None = None
    ) -> None:
        self._gateway = gateway
        self._heart = heart
        self._reads = reads
        self._writes = writes
        self._client = client
        self._lines = LineSplitter(MAX_MESSAGE, MAX_MESSAGE_VALUES)
        self._scope = trio.CancelScope()
        self._output = DescriptorWriter(writes, self._scope.cancel, client, gateway.identity)
        self._nursery: trio.Nursery | None = None
        self._fences = 0
        self._fence = ""
        self._fence_due = self._fence_limit = math.inf
        self._late = trio.current_time() - heart.gap < GAP  # may have connected during the gap
        self._held: dict[object, tuple[Any, int]] = {}
        self._held_size = 0
        self._time_slice = TimeSlice()
        self._awaits_first_line = only is None
        self._refused = False
        self._changed: trio.Event | None = None
        self._null = -1  # opened early: at the end there may be no free descriptor
        self.ended: trio.Event = trio.Event()
        heart.connections.add(self)
        self.session: GatewaySession = GatewaySession(gateway, self, self._start)
        self.session.only = only
        self.session.local = only is None  # others come over TCP, perhaps from another machine

    def _start(self, fn: Callable[..., Any]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(fn)

    async def run(self) -> None:
        """Serve the client until the end. **Cancellation** withdraws all requests."""
        self._gateway.sessions.add(self.session)
        try:
            with ExitStack() as stack, self._scope:
                if self._reads != self._writes:
                    self._null = os.open(os.devnull, os.O_RDONLY)
                    stack.callback(os.close, self._null)
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._output.run)
                    try:
                        if self._gateway.stopping.is_set():
                            self.drain()
                        await self._read()
                        await self._linger()
                        self._nursery.cancel_scope.cancel("the client has left")
                    finally:
                        self._nursery = None  # it closes a step before `ended`, and then starts no more tasks
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
            # Read, then look at the clock, in one step: then data read after a freeze is always seen to be late. In the
            # opposite order a freeze between the two would go unnoticed, and a request could begin although its client
            # gave it up meanwhile.
            late, awaited = (self._heart.look() and data) or self._late, self._awaits_first_line
            if ended and self._has_left:
                return
            self._time_slice.since = self._heart.now
            if not await self._take_in(data, ended):
                return
            # A client that has named a server waits for the reply to its first line, so no fence may come first.
            if late and (not awaited or self._awaits_first_line or self._held or not self._lines.partial.empty):
                self._raise_fence()
            if ended or not self._fence:
                await self._begin(self.session.take)
            elif trio.current_time() >= self._fence_due:
                self._lower_fence()
                await self._begin(self._refuse)
            elif data:
                self._fence_due = min(trio.current_time() + FENCE_TIMEOUT, self._fence_limit)
            if self._fence or self._output.request_bytes or (data and data[-1][-1:] != b"\n"):
                self._output.request_bytes = self._lines.partial.size + self._held_size
            await self._output.wait_drained()
            self._note_change()

    def note_gap(self) -> None:
        self._late = self._late or bool(poll(self._reads, select.POLLIN))

    async def _wait_readable(self) -> None:
        try:
            if not self._fence:
                await trio.lowlevel.wait_readable(self._reads)
                return
            with trio.move_on_at(self._fence_due):
                await trio.lowlevel.wait_readable(self._reads)
        except (PermissionError, trio.ClosedResourceError):  # a regular file, always readable, or `_close_input`
            await trio.lowlevel.checkpoint()

    def _read_all(self) -> tuple[list[bytes], bool]:
        chunks: list[bytes] = []
        while len(chunks) < CLIENT_READ_BYTES // CHUNK:
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
                return chunks, False  # later data makes the descriptor readable again
        return chunks, False

    async def _take_in(self, chunks: list[bytes], ended: bool) -> bool:
        """Parse and hold messages; return False if a message is over a limit."""
        for data in chunks:
            self._lines.feed(data)
            begun = self._lines.partial.size if data[-1:] != b"\n" else 0
            if begun and not self._output.budget.has_room(self.session.identity, len(data)):
                self._lines.partial.skip("room")  # keeps both ends of the line, for the id in the error
            while (line := self._lines.pop()) is not None and (isinstance(line, bytes) or not _is_over(line)):
                self._take_line(line)
                if self._refused:
                    return False
                if (left := len(self._lines.whole)) and not left % BURST:
                    await self._time_slice.checkpoint()
            if line is not None or _is_over(self._lines.partial.skipped):
                limits = f"{MAX_MESSAGE} bytes or {MAX_MESSAGE_VALUES} values"
                logger.warning("%s is disconnected: one of its messages has more than %s", self._client, limits)
                return False
            if len(chunks) > 1:
                await self._time_slice.checkpoint()
        if ended:
            self._take_line(self._lines.take_rest())
        return True

    def _take_line(self, line: bytes | LongLine) -> None:
        if isinstance(line, LongLine):
            self.answer(full_line(line.id), None, 0)
            return
        is_first, self._awaits_first_line = self._awaits_first_line, False
        if is_first and is_ours(line):
            said = REFUSED if (server := server_in(line)) is None else self._gateway.answer_to(server)
            self._refused, self.session.only = said != OK, server
            self.tell(answer_line(said), None)
        elif line and not line.isspace():
            self._hold(parsed(line), len(line) + 500)  # parsed, a message takes as much memory again

    def _hold(self, message: Any, size: int) -> None:
        """Hold a message until everything read is parsed."""
        # Only requests have their id as key. So a cancellation in the same batch finds its request: no server sees the
        # request, and the client, having given up, gets no answer. A second request with a held id is refused at once,
        # or the dict would overwrite the first, which would then never be answered.
        key: object = object()  # never found again
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
        held, self._held, self._held_size = self._held, {}, 0
        for number, (message, size) in enumerate(held.values()):
            if number and not number % BURST:
                await self._time_slice.checkpoint()
            take(message, size)

    def _refuse(self, message: Any, size: int) -> None:
        """Refuse a request, perhaps given up by now; take any other message, and a request that begins a session."""
        method = message.get("method") if type(message) is dict and is_id(message.get("id")) else None
        if method in (None, "initialize", "server/discover"):  # None: not a request; the others reach no server
            self.session.take(message, size)
        else:
            self.session.refuse_late(message["id"])

    def _raise_fence(self) -> None:
        """Send a ``ping``, whose answer comes behind everything that the client has written."""
        self._late = False
        self._fences += 1
        self._fence = f"mcp-actors:fence:{self._fences}"
        now = trio.current_time()
        self._fence_due, self._fence_limit = now + FENCE_TIMEOUT, now + FENCE_LIMIT
        self.tell(b'{"jsonrpc":"2.0","id":"%b","method":"ping"}\n' % self._fence.encode(), None)

    def _lower_fence(self) -> None:
        self._fence, self._fence_due = "", math.inf

    async def _linger(self) -> None:
        with trio.move_on_after(ANSWER_LINGER):
            while (self.session.calls or self._output.waiting) and not self._has_left:  # noqa: ASYNC110 - no event
                await trio.sleep(0.01)

    @property
    def _has_left(self) -> bool:
        """True if the client, having closed its side, waits for no answers."""
        # Over TCP a client that is gone looks like one that still reads. Clients that name a server are groups, which
        # close both sides at once.
        gone = select.POLLERR | select.POLLHUP | select.POLLNVAL
        return (self.session.only is not None and self._changed is None) or bool(poll(self._writes, 0) & gone)

    def drain(self) -> None:
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
        self._close_input()  # explains why in the same step

    def _close_input(self) -> None:
        """Stop the client from writing, and end the stream for the reader.

        On Linux, data that arrives at the last moment is still read, and refused. macOS drops the data, as a pipe does.
        """
        # `_close_when_idle` calls this in the step that found nothing unread. With a checkpoint between, a request
        # could arrive that is neither answered nor refused. A pipe has no shutdown(), so dup2 puts the null device in
        # its place; `notify_closing` comes first, because a task that waits for the pipe would never be woken.
        if self._null < 0:
            client = socket.socket(fileno=self._reads)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            client.detach()
            return
        trio.lowlevel.notify_closing(self._reads)
        os.dup2(self._null, self._reads)

    @property
    def _is_busy(self) -> bool:
        held = self._held or not self._lines.partial.empty
        return bool(self.session.calls or self._output.waiting or held or poll(self._reads, select.POLLIN))

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()

    # --- write ------------------------------------------------------------------------------------------------------

    def answer(self, line: bytes, request_id: Id | None, code: int) -> None:
        self._output.write(line, at_once=len(self.session.calls) < 2)
        self._note_change()

    def tell(self, line: bytes, about: Id | None) -> None:
        self._output.write(line, at_once=len(self.session.calls) < 2)


def _is_over(line: bytes | LongLine | None) -> bool:
    """Return True if a line exceeds a limit of messages, and not only the ``room`` left by the budget."""
    return isinstance(line, LongLine) and (line.excess != "room" or line.size > MAX_MESSAGE)


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

    Return when the client over stdin has left, or after `idle_timeout` seconds without a client. Log messages of the
    group's servers go to the callbacks of the group, not to clients.

    **Cancellation**: withdraws the requests of all clients, and closes their connections.

    Args:
        group: the servers. Clients see their public names.
        stdio: serve the client over stdin and stdout of the process. Nothing else may use them.
        path: the path of a unix socket, absolute if the program changes its working directory. Only the same user may
            connect. A removed socket is created again.
        address: ``"host:port"`` for clients on other machines: groups with a `Socket`. Port 0 lets the system choose.
            ``"0.0.0.0:port"`` or ``"[::]:port"`` are all addresses of the machine.
        secret: the secret for clients to prove, of 16 characters or more. Required with `address`.
        per_session: servers to start anew for each client, in addition to the group. The first request that needs them
            starts them; they may ask the client questions, see its roots, and end with the session. All clients
            together may have 64 processes; a request that needs more is refused.
        idle_timeout: seconds without a client before returning; None (default) waits for ever.
        task_status: started once clients can connect, with the address to connect to if `address` is given.

    Raises:
        OSError: the socket cannot be made, or another process serves there.
        RuntimeError: the event loop is not Trio's.
        TypeError: the group is not from ``mcp_actors.open_servers``.
        ValueError: not exactly one of `stdio`, `path` and `address` is given, or an address without a secret.
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
    """Serve a gateway, as `serve` does. A gateway without servers refuses each request with the reason.

    Args:
        gateway: state shared by all clients.
        acceptors: accept clients, all on the same machine or all on others; closed at the end. Empty serves stdin and
            stdout.
        secret: for clients on other machines to prove; None for the same machine.
        idle_timeout: as for `serve`.
        stop: once set, finish everything begun (`drain`), then return.
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
                    await ClientConnection(gateway, heart, reads, writes, "the client").run()
            nursery.cancel_scope.cancel("no client is left")


@contextmanager
def _unblocked(*descriptors: int) -> Iterator[None]:
    """Make descriptors non-blocking during a block; restore the mode for other processes."""
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
        secret: for clients over TCP to prove; None for a unix socket.
        unproven: a scope for each connection without a proof, oldest first.
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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            for acceptor in acceptors:
                nursery.start_soon(acceptor.run, partial(self._take, nursery))
            idle = False
            while not idle:
                changed = self._changed
                with trio.move_on_after(math.inf if self._present else idle_timeout) as waiting:
                    await changed.wait()
                idle = waiting.cancelled_caught and not self._present  # a client may have come in the same turn
            nursery.cancel_scope.cancel("no client is left")

    @property
    def _present(self) -> int:
        return self.clients + len(self.unproven)

    def _count(self, clients: int = 0) -> None:
        self.clients += clients
        self._changed.set()
        self._changed = trio.Event()

    def _take(self, nursery: trio.Nursery, client: socket.socket) -> None:
        self.heart.look()
        self._number += 1
        name = f"client {self._number}"
        if self.secret is not None:
            if len(self.unproven) >= MAX_UNPROVEN:  # strangers displace each other, never clients
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

    def _connection(self, client: socket.socket, name: str, only: str | None) -> ClientConnection | None:
        if self.clients >= MAX_CLIENTS:
            self._refuse(client, name, f"there are {MAX_CLIENTS} clients")
            return None
        self._count(+1)
        return ClientConnection(self.gateway, self.heart, client.fileno(), client.fileno(), name, only)

    def _refuse(self, client: socket.socket, name: str, why: str) -> None:
        client.close()
        self._refused += 1
        self._refusal = f"{name} is refused: {why}"
        self._has_refused.set()

    async def _report(self) -> None:
        """Log the last refusal, at most once a minute."""
        while True:
            await self._has_refused.wait()
            self._log_refusals()
            try:
                await trio.sleep(REFUSAL_LOG_PERIOD)
            finally:
                self._log_refusals()

    def _log_refusals(self) -> None:
        if self._refused:
            others = f" ({self._refused - 1} others were refused since the last such line)" if self._refused > 1 else ""
            logger.warning("%s%s", self._refusal, others)
        self._refused, self._has_refused = 0, trio.Event()

    async def _serve(self, client: socket.socket, connection: ClientConnection) -> None:
        try:
            with client:
                await connection.run()
        finally:
            self._count(-1)
