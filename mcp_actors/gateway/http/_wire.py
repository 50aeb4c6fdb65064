"""Read the requests of HTTP connections, and write the replies.

One task, `HttpDoor.read`, watches all connections, and takes a whole request in one step. A request that is incomplete,
chunked, pipelined or invalid goes to the connection's own task. No request begins if its client has left.

Owns: connections of clients; their sockets; their tasks; unfinished replies.
Writes: the HTTP door's list of connections; request bytes in the memory budget; replies to clients; the log.
Calls: gateway, transports.
"""

from __future__ import annotations

import math
import select
import selectors
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

import h11
import trio
from attrs import define, field

from ..._foreign import Log
from ..._tasks import TimeSlice
from ...transports import PartialMessage
from .._calls import full_line
from .._output import GAP, DescriptorWriter, Heart, LogLine
from .._serve import CHUNK, MAX_MESSAGE, MAX_MESSAGE_VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

logger = Log("mcp_actors.gateway")

MAX_HEAD: Final = 32 * 1024
"""Bytes of a head: the request line and the headers."""

HEAD_SECONDS: Final = 10.0
"""Seconds for a head, from the first byte. Also the idle limit of `Site.strangers`."""

BODY_SECONDS: Final = 30.0
"""Seconds for a body, from the end of the head."""

IDLE_SECONDS: Final = 75.0
"""Seconds to keep an idle connection. By default, clients of this package stop using it after 60."""

READ_SECONDS: Final = 60.0
"""Seconds for a client to read some of the waiting bytes."""

REPLY_HEARTBEAT: Final = 15.0
"""Seconds of silence before a reply says something, because a proxy might drop the connection."""

REFUSAL_LINGER: Final = 1.0
"""Seconds for a refused client to go on sending: closing at once could destroy the reply."""

END_OF_HEAD: Final = b"\r\n\r\n"

EVENT_STREAM_HEADERS: Final = (
    b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
)

LEFT: Final = getattr(select, "POLLRDHUP", 0)
"""The poll event of a client that has left, even behind unread bytes; 0 except on Linux."""

STATUS_LINES: Final[Mapping[int, bytes]] = {
    each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode("ascii")) for each in HTTPStatus
}


class HttpRefused(Exception):
    """A request gets an error status and a sentence, or an error of MCP."""

    def __init__(self, status: int, text: str, headers: bytes = b"", kind: str = "text/plain; charset=utf-8") -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status
        self.headers = headers


# --- Heads ------------------------------------------------------------------------------------------------------------


@define(eq=False)
class Head:
    """A request without its body.

    Attributes:
        headers: lower-case name → value; the last value of a repeated header.
        length: the size of the body; None for chunks.
        waits: the client waits for ``100 Continue``.
        lasting: the client keeps the connection open after the reply.
        chunks: the client understands replies in chunks.
        identity: the admitted identity; "" without identities.
        answer: begins the reply of an admitted request. Never waits; may raise `HttpRefused`.
    """

    method: str = "GET"
    path: str = "/"
    query: str = ""
    headers: Mapping[str, str] = field(factory=dict)
    repeated: frozenset[str] = frozenset()
    length: int | None = 0
    waits: bool = False
    lasting: bool = False
    chunks: bool = False
    raw: bytes = b""
    identity: str = ""
    answer: Callable[[HttpConnection, Head, bytes, HttpAnswer], None] | None = None


def parse_head(raw: bytes) -> Head:
    """Parse a head, or raise `HttpRefused` if it is not valid, or the body cannot be read."""
    if raw.count(b"\n") != raw.count(b"\r\n"):  # h11 accepts a bare LF; a balancer may not
        raise HttpRefused(400, "a line of the headers does not end with CR LF")
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
    try:
        parser.receive_data(raw)
        request = parser.next_event()
    except h11.RemoteProtocolError as exc:
        raise HttpRefused(exc.error_status_hint, f"the request is not valid HTTP: {exc}") from None
    assert isinstance(request, h11.Request)
    headers: dict[str, str] = {}
    repeated = set()
    for name, value in request.headers:
        key = name.decode("ascii")
        if key in headers:
            repeated.add(key)
        headers[key] = value.decode("latin-1")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise HttpRefused(400, "the request has Content-Length and Transfer-Encoding; send one of them")
    if request.method == b"POST" and not headers.keys() & {"content-length", "transfer-encoding"}:
        raise HttpRefused(411, "a POST needs Content-Length, or a body in chunks")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise HttpRefused(417, "the only expectation that can be met is 100-continue")
    target = request.target.decode("latin-1")
    if not target.startswith("/"):  # the form for proxies
        target = "/" + target.partition("://")[2].partition("/")[2]
    return Head(
        method=request.method.decode("ascii"),
        path=target.partition("?")[0],
        query=target.partition("?")[2],
        headers=headers,
        repeated=frozenset(repeated),
        length=None if "transfer-encoding" in headers else int(headers.get("content-length", "0")),
        waits=parser.they_are_waiting_for_100_continue,
        lasting=request.http_version != b"1.0" and "close" not in headers.get("connection", "").lower(),
        chunks=request.http_version != b"1.0",
        raw=raw,
    )


# --- Replies ----------------------------------------------------------------------------------------------------------


class HttpAnswer:
    """The reply to one request: one message, or a stream of events.

    Attributes:
        on_gone: called if the client leaves before the end.
        on_drain: called if the gateway stops before the end; None lets the reply finish.
        done: nothing more is written: the reply is complete, or the client has left.
        may_stream: the reply may become a stream of events.
    """

    __slots__ = ("_connection", "_head", "_spoke", "_streams", "done", "headers", "may_stream", "on_drain", "on_gone")

    def __init__(self, connection: HttpConnection, head: Head) -> None:
        self._connection = connection
        self._head = head
        self._streams = False
        self._spoke = connection.site.heart.now
        self.on_gone: Callable[[], object] | None = None
        self.on_drain: Callable[[], object] | None = None
        self.done: bool = False
        self.headers: bytes = b""
        self.may_stream: bool = False

    def send(self, status: int, body: bytes = b"", content_type: str = "application/json") -> None:
        if self.done:
            return
        kind = b"content-type: %b\r\n" % content_type.encode("ascii") if body else b""
        length = b"" if status == HTTPStatus.NO_CONTENT else b"content-length: %d\r\n" % len(body)
        shown = b"" if self._head.method == "HEAD" else body
        begin = self._begin(status, lasting=self._head.lasting)
        if len(shown) <= CHUNK:
            self._connection.write(b"%b%b%b\r\n%b" % (begin, kind, length, shown))
        else:
            self._write(b"%b%b%b\r\n" % (begin, kind, length), shown)
        self._end()

    def refuse(self, refused: HttpRefused) -> None:
        """Write an error status and a sentence; a stream only ends."""
        if self._streams:
            self.end()
            return
        self.headers += refused.headers
        self.send(refused.status, f"{refused}\n".encode(errors="replace"), refused.kind)

    def stream(self) -> None:
        if self._streams or self.done:
            return
        self._streams = True
        coding = b"transfer-encoding: chunked\r\n" if self._head.chunks else b""
        begin = self._begin(200, lasting=self._head.lasting and self._head.chunks)
        self._connection.write(b"%b%b%b\r\n" % (begin, EVENT_STREAM_HEADERS, coding))

    def _begin(self, status: int, *, lasting: bool) -> bytes:
        self._connection.closing |= self._connection.drains or not lasting
        closes = b"connection: close\r\n" if self._connection.closing else b""
        return b"%b%b%b%b" % (STATUS_LINES[status], self._connection.site.date, closes, self.headers)

    def say(self, line: bytes) -> None:
        self.stream()
        self._write_event(b"event: message\ndata: ", line)

    def finish(self, line: bytes, status: int) -> None:
        """Write the last message: as the last event, or as the whole reply with `status`."""
        if self._streams:
            self.say(line)
            self.end()
        else:
            self.send(status, line)

    def end(self) -> None:
        if self._streams and not self.done:
            if self._head.chunks:
                self._connection.write(b"0\r\n\r\n")
            self._end()

    def keep_alive(self, now: float) -> None:
        """Write an SSE comment after `REPLY_HEARTBEAT` seconds of silence."""
        if self.may_stream and not self.done and now - self._spoke >= REPLY_HEARTBEAT:
            self.stream()
            self._write_event(b": in progress")

    def _write_event(self, begin: bytes, text: bytes = b"") -> None:
        if not self.done:
            self._spoke = trio.current_time()
            if isinstance(text, LogLine) and self._head.chunks:
                self._connection.write(text.event)  # serialized once for all clients, dropped as a whole
            elif self._head.chunks:
                self._write(b"%x\r\n%b" % (len(begin) + len(text) + 2, begin), text, b"\n\n\r\n")
            else:
                self._write(begin, text, b"\n\n")

    def _write(self, begin: bytes, text: bytes, end: bytes = b"") -> None:
        if len(text) <= CHUNK:
            self._connection.write(b"%b%b%b" % (begin, text, end))
        else:  # copying megabytes takes longer than separate writes
            for each in (begin, text, end):
                self._connection.write(each)

    def _end(self) -> None:
        self.done = True
        self.on_gone = self.on_drain = None
        self._connection.note_end()

    def abandon(self) -> None:
        gone, self.on_gone, self.on_drain = self.on_gone, None, None
        self.done = True
        if gone is not None:
            gone()


# --- Connections ------------------------------------------------------------------------------------------------------


class Site(Protocol):
    """Answers the requests of all connections.

    Attributes:
        selector: watches the connections.
        strangers: connections without an admitted token, longest idle first.
        date: the Date header.
    """

    heart: Heart
    selector: selectors.BaseSelector
    connections: set[HttpConnection]
    strangers: dict[HttpConnection, None]
    date: bytes

    def admit(
        self, connection: HttpConnection, head: Head
    ) -> Callable[[HttpConnection, Head, bytes, HttpAnswer], None]:
        """Check a head before the body is read; set and return `Head.answer`. Raises `HttpRefused`."""


class HttpConnection:
    """A connection of a client.

    A head with the bytes of the previous head is not parsed again. Before a request begins, and while a reply is due,
    the connection checks whether the client has left.

    Attributes:
        closing: the connection ends after the present reply.
        drains: the connection ends after the next reply.
        memo: an object that the site keeps for later requests.
        late: seconds that the process was frozen while the next request may have arrived; else 0.
    """

    def __init__(self, site: Site, sock: socket.socket, client: str, begin: Callable[..., object]) -> None:
        self.site = site
        self._begin: Callable[..., object] | None = begin
        self._socket = sock
        self._client = client
        self.own_address: Any = sock.getsockname()
        self.closing: bool = False
        self.drains: bool = False
        self.memo: Any = None
        self.late: float = site.heart.silence if trio.current_time() - site.heart.gap < GAP else 0.0
        self.ended: trio.Event = trio.Event()
        self._buffer = b""
        self._head: Head | None = None
        self._reply: HttpAnswer | None = None
        self._answered: trio.Event | None = None
        self._task: trio.lowlevel.Task | None = None
        self._due: float = trio.current_time() + HEAD_SECONDS
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self.output: DescriptorWriter = DescriptorWriter(sock.fileno(), self._scope.cancel, client, "")
        self.write: Callable[..., None] = self.output.write
        self._nursery: trio.Nursery | None = None
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN | LEFT)
        site.selector.register(sock, selectors.EVENT_READ, self)
        site.connections.add(self)
        site.heart.connections.add(self)
        site.strangers[self] = None

    def start(self, fn: Callable[..., Any]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(fn)

    async def run(self) -> None:
        """Answer requests until one side closes the connection. **Cancellation** acts as if the client had left."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self.output.run)
                    try:
                        with self._reading:
                            await self._take_requests()
                        await self._part()
                        self._nursery.cancel_scope.cancel("the connection is closed")
                    finally:
                        self._nursery = None  # it closes a step before `ended`, and then starts no more tasks
        except Exception:
            logger.exception("%s is disconnected: a defect of the gateway", self._client)
        finally:
            self.output.close()
            self._socket.close()
            self._leave_site()
            if self._reply is not None:
                self._reply.abandon()
            self.ended.set()

    # --- read -------------------------------------------------------------------------------------------------------

    async def _take_requests(self) -> None:
        while self.busy or not self.closing:  # `note_end` of the last reply ends the loop
            await self._sleep()
            time_slice = TimeSlice()
            while self._buffer and (self.busy or not self.closing):
                await self._take_request()
                await time_slice.checkpoint()

    async def _sleep(self) -> None:
        """Let `take_ready` take requests, until something needs this task."""
        # While the task sleeps, `take_ready` reads for it, in the task of the site; while the task runs, the socket is
        # not in the selector. So exactly one of the two reads at any time. `_stop_sleeping` changes sides in one step,
        # also when cancelled: if both read, each could get half of a request.
        self.site.selector.register(self._socket, selectors.EVENT_READ, self)
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop_sleeping)

    def _run_soon(self, begin: Callable[..., object]) -> None:
        self._begin = None
        self.site.selector.unregister(self._socket)
        begin(self.run)

    def _stop_sleeping(self, _: object) -> trio.lowlevel.Abort:
        self.site.selector.unregister(self._socket)
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def take_ready(self) -> None:
        if self._begin is not None:
            if self._has_left():
                self.give_way()
            else:
                self._run_soon(self._begin)
            return
        if (task := self._task) is None or not (data := self._receive()):
            return  # already awake, or nothing has arrived
        try:
            is_taken = self._take_whole(data)
        except Exception:  # would end the task that reads for all connections
            logger.exception("%s is disconnected: a defect of the gateway", self._client)
            self._scope.cancel("a defect of the gateway")
            return
        if not is_taken:
            self._buffer = data
            self._stop_sleeping(None)
            trio.lowlevel.reschedule(task)

    def _take_whole(self, data: bytes) -> bool:
        """Take data that is exactly one request; return False if more work is needed."""
        if ((reply := self._reply) is not None and not reply.done) or self.output.waiting:
            return False
        if (head := self._head) is None or not data.startswith(head.raw):
            if not 0 < (end := data.find(END_OF_HEAD)) <= MAX_HEAD:
                return False
            try:
                head = self._head = parse_head(data[: end + len(END_OF_HEAD)])
            except HttpRefused:
                return False
        if head.length is None or len(data) != len(head.raw) + head.length:
            return False
        if self._has_left():
            self._scope.cancel("the client has left")
            return True
        reply = self._reply = HttpAnswer(self, head)
        self._due = math.inf
        try:
            (head.answer or self.site.admit(self, head))(self, head, data[len(head.raw) :], reply)
        except HttpRefused as refused:
            reply.refuse(refused)
        self.late = 0.0
        return True

    async def _take_request(self) -> None:
        if self.busy:
            self._answered = trio.Event()
            await self._answered.wait()
            self._answered = None
            if self.closing:  # begin nothing that cannot be answered
                return
        self._buffer = self._buffer.lstrip(b"\r\n")  # some clients send an empty line after a body
        if not self._buffer:
            return
        reply, is_read = None, False
        try:
            head = await self._read_head()
            reply = self._reply = HttpAnswer(self, head)
            try:
                if head.answer is None:
                    self.site.admit(self, head)
            except HttpRefused:
                if is_read := not head.waits and head.length is not None and head.length <= CHUNK:
                    await self._read_body(head)
                raise
            body = await self._read_body(head)
            is_read = True
            # Look for the end of the stream after the last read and directly before the request begins, without a
            # checkpoint between. A client that gave up has closed the connection, perhaps while this process was
            # frozen; without this look its request would take effect although nothing reads the reply.
            if self._scope.cancel_called or self._has_left():
                self._scope.cancel("the client has left")
                return
            self._due = math.inf
            (head.answer or self.site.admit(self, head))(self, head, body, reply)  # tokens may have changed
        except HttpRefused as refused:
            if reply is None:
                reply = self._reply = HttpAnswer(self, Head())
            self.closing |= not is_read
            reply.refuse(refused)
        self.late = 0.0
        await self.output.wait_drained()

    async def _fill(self) -> None:
        data = b""
        while not data:
            await trio.lowlevel.wait_readable(self._socket)
            data = self._receive()
        self._buffer += data

    def _receive(self) -> bytes:
        """Return available data; end the connection at the end of the stream."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if self.site.heart.look():  # after the read, see `_serve.ClientConnection`
            self.late = self.site.heart.silence
        if not data:
            self._scope.cancel("the client has left")
        return data

    async def _read_head(self) -> Head:
        while (end := self._buffer.find(END_OF_HEAD)) < 0 and len(self._buffer) <= MAX_HEAD:
            self._due = min(self._due, self.site.heart.now + HEAD_SECONDS)
            await self._fill()
        if not -1 < end <= MAX_HEAD:
            raise HttpRefused(431, f"the headers have more than {MAX_HEAD} bytes; send fewer or shorter ones")
        end += len(END_OF_HEAD)
        raw, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._head is None or self._head.raw != raw:
            self._head = parse_head(raw)
        return self._head

    async def _read_body(self, head: Head) -> bytes:
        size = head.length
        if size is not None and size <= len(self._buffer):
            body, self._buffer = self._buffer[:size], self._buffer[size:]
            return body
        if head.waits:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._due = trio.current_time() + BODY_SECONDS
        message = PartialMessage(MAX_MESSAGE, MAX_MESSAGE_VALUES)
        if size is None:
            await self._read_chunks(head, message)
        else:
            while size:
                piece, self._buffer = self._buffer[:size], self._buffer[size:]
                self._append(message, piece)
                size -= len(piece)
                if size:
                    await self._fill()
        self.output.request_bytes = 0
        if message.skipped is not None:
            raise HttpRefused(200, full_line(message.skipped.id).decode(), kind="application/json")
        return bytes(message.value)  # type: ignore[arg-type]  # not over a limit

    async def _read_chunks(self, head: Head, message: PartialMessage) -> None:
        parser, time_slice = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD), TimeSlice()
        parser.receive_data(head.raw)
        try:
            parser.next_event()
            while not isinstance(event := parser.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    self._append(message, bytes(event.data))
                    await time_slice.checkpoint()
                    continue
                if not self._buffer:
                    await self._fill()
                parser.receive_data(self._buffer)
                self._buffer = b""
        except h11.RemoteProtocolError as exc:
            raise HttpRefused(400, f"the body is not valid HTTP: {exc}") from None
        self._buffer = parser.trailing_data[0]

    def _append(self, message: PartialMessage, piece: bytes) -> None:
        message.append(piece)
        if message.size and not self.output.budget.has_room(self.output.identity, len(piece)):
            message.skip("room")
        self.output.request_bytes = message.size
        if message.skipped is not None and message.skipped.excess != "room":
            raise HttpRefused(
                413, f"the body has more than {MAX_MESSAGE} bytes or {MAX_MESSAGE_VALUES} values; send less"
            )

    def _has_left(self) -> bool:
        """Return True if the client has closed the connection, as far as visible without reading."""
        for _, events in self._poll.poll(0):
            if events & (select.POLLERR | select.POLLHUP | LEFT):
                return True
            if not LEFT:
                with suppress(OSError):
                    return not self._socket.recv(1, socket.MSG_PEEK)
        return False

    # --- the end ----------------------------------------------------------------------------------------------------

    def note_end(self) -> None:
        self._due = self.site.heart.now + IDLE_SECONDS
        if self in self.site.strangers:
            self._due = self.site.heart.now + HEAD_SECONDS
            self.site.strangers[self] = self.site.strangers.pop(self)  # moves to the end
        if self._answered is not None:
            self._answered.set()
        if self.closing:
            self._reading.cancel("the last reply is written")

    def note_gap(self) -> None:
        self._due += self.site.heart.silence  # nothing was received in the gap
        self.output.moved += self.site.heart.silence  # reading by the client was not noticed
        if self._poll.poll(0):
            self.late = self.site.heart.silence

    def check(self, now: float) -> None:
        """End what takes too long. Called every second, because no connection has a timer."""
        if self.output.waiting and now - self.output.moved > READ_SECONDS:
            self._scope.cancel("the client does not read")
        elif now > self._due:
            self.closing = True
            reply = self._reply
            if reply is None or reply.done:
                if not self._buffer:
                    self._end_idle("the connection was idle")
                    return
                reply = HttpAnswer(self, Head())
            reply.refuse(HttpRefused(408, "the request did not arrive in time; send it again"))
        elif self._answered is not None and self._has_left():  # a waiting request stops all reading
            self._scope.cancel("the client has left")
        elif self._reply is not None:
            self._reply.keep_alive(now)

    def drain(self) -> None:
        """End the connection after the present reply, or the reply to a request that has arrived."""
        self.drains = True
        reply = self._reply
        if self._head is not None:
            self._head.answer = None
        if reply is not None and not reply.done:
            self.closing = True
            if reply.on_drain is not None:
                reply.on_drain()
        # The poll and the shutdown are one step: a client that has seen the end of the stream sends its next request
        # elsewhere. A request that arrived between them would never be answered, and its client could not know whether
        # it took effect.
        elif not self._buffer and not self._poll.poll(0):
            self.closing = True
            if not self.output.waiting:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)
            self._end_idle("nothing is left to answer")

    def forget(self, identities: Collection[str]) -> None:
        """Check the next head again; if the last head is of one of these identities, end after the present reply."""
        if self._head is not None:
            self._head.answer = None
            if self._head.identity in identities:
                self.drain()

    @property
    def busy(self) -> bool:
        return self._reply is not None and not self._reply.done

    @property
    def idle_since(self) -> float:
        """When the last reply was written; infinity while reading, answering, or writing."""
        is_asleep = self._task is not None or self._begin is not None
        return math.inf if not is_asleep or self.busy or self.output.waiting else self._due - IDLE_SECONDS

    def give_way(self) -> None:
        """Close the connection: another needs the place, or the client has left."""
        self._leave_site()
        self._scope.cancel("another connection takes its place")
        if self._begin is not None:  # without a task
            self._begin = None
            self.site.selector.unregister(self._socket)
            self._socket.close()
            self.ended.set()

    def _leave_site(self) -> None:
        self.site.connections.discard(self)
        self.site.strangers.pop(self, None)
        self.site.heart.connections.discard(self)

    def _end_idle(self, reason: str) -> None:
        self._reading.cancel(reason)
        if self._begin is not None:
            self._run_soon(self._begin) if self._poll.poll(0) else self.give_way()  # closing now could send a reset

    async def _part(self) -> None:
        """Wait until the client has the last reply, and stops sending."""
        await self.output.wait_drained(0)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with trio.move_on_after(REFUSAL_LINGER):
            while True:
                self._buffer = b""
                await self._fill()
