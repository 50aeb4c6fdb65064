"""Random replies of HTTP/1.1: our transport reads them as httpx2's own does, in short steps, and never hangs.

Each reply is sent in pieces, over a real connection, to both. The reply to the request after it shows whether anything
of the first one was left over.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import httpx2
import pytest
import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked

from mcp_actors.transports.http._transport import KeepAliveTransport
from tests.programs import FULL_SIZE, SEED

from ..hostile import LongestStep

REPLIES: Final = 10_000 if FULL_SIZE else 300

LONGEST: Final = 0.02
"""Seconds of processor time that one step may take."""

BOUND: Final = 30.0

LIMITS: Final = httpx2.Limits(max_connections=1, keepalive_expiry=60)
"""With one connection, a place in the pool that is not given back would hold up the next request for ever."""

AFTER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nafter"

FIELDS: Final = (
    (b"Content-Type", b"application/json"),
    (b"X-Empty", b""),
    (b"x-blanks", b" \t a  b \t"),
    (b"Connection", b"close"),
    (b"Connection", b"Keep-Alive, Close"),
    (b"connection", b"keep-alive"),
    (b"X-Folded", b"a\r\n\t b"),
    (b"X-Latin", "ä".encode("latin-1")),
    (b"X-Odd", b"a\x01b"),
    (b"X Bad", b"x"),
    (b"X-Nul", b"a\0b"),
    (b"X-Return", b"a\rb"),
    (b"", b"x"),
)


@frozen
class Reply:
    """The response of a server to one request.

    Attributes:
        pieces: the bytes, as they are written.
        end: what follows: "close", "reset", or "stay" for nothing.
    """

    pieces: tuple[bytes, ...]
    end: str


def framed(draw: random.Random, body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return fields that say how a body is framed, more or less, and the framed body."""
    length, chunked = (b"Content-Length", b"%d" % len(body)), (b"Transfer-Encoding", b"chunked")
    chunks, at = b"", 0
    while at < len(body):
        part = body[at : at + draw.choice([1, 3, 100, 70_000])]
        at += len(part)
        line = draw.choice([b"%x", b"%X", b"%x;a=b", b"%x ", b"000%x"]) % len(part)
        chunks += b"%b\r\n%b\r\n" % (line, part)
    chunks += draw.choice([b"0\r\n\r\n", b"0\r\nX-Sum: 1\r\n\r\n", b"00;x\r\n\r\n", b"0\r\n X\r\n\r\n"])
    return draw.choice(
        [
            *3 * [([length], body)],
            *3 * [([chunked], chunks)],
            ([], body),
            ([length, length], body),
            ([length, chunked], chunks),
            ([chunked, chunked], chunks),
            ([(b"Content-Length", b"+5")], body),
            ([(b"content-length", b"%d, %d" % (len(body), len(body)))], body),
            ([length, (b"Content-Length", b"3")], body),
            ([(b"Transfer-Encoding", b"gzip, chunked")], chunks),
            ([(b"transfer-encoding", b"Chunked")], chunks),
            ([(b"Content-Length", b"%d" % (len(body) + 7))], body),
        ]
    )


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Change a few bytes."""
    for _ in range(draw.choice([1, 1, 3])):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.5 else draw.randrange(min(len(data), 200) + 1)
        cut = draw.choice([0, 1, 1, 2, 20])
        new = draw.choice([b"", b"\r", b"\n", b"\r\n", b"\0", b" ", b":", b"0", b"9", b"\r\n\r\n", draw.randbytes(3)])
        data = data[:at] + new + data[at + cut :]
    return data


def drawn(seed: int) -> Reply:
    """Return a random reply."""
    draw = random.Random(seed)
    body = draw.randbytes(draw.choice([0, 1, 5, 300, 5000])) if draw.random() < 0.9 else bytes(200_000)
    framing, framed_body = framed(draw, body)
    fields = [*framing, *draw.sample(FIELDS[:4], k=draw.randrange(3))]
    fields += draw.sample(FIELDS, k=draw.randrange(2))
    draw.shuffle(fields)
    status = draw.choice([b"200 OK", b"200 OK", b"404 Not Found", b"204 No", b"500", b"200 ", b"304 x", b"299 \xe4"])
    line = draw.choice([*6 * [b"HTTP/1.1 %b"], b"HTTP/1.0 %b", b"HTTP/2.0 %b", b"http/1.1 %b", b"%b"]) % status
    interim = draw.choice([*6 * [b""], b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 x\r\nLink: </>\r\n\r\n" * 2])
    if draw.random() < 0.02:
        interim = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"
    data = interim + b"\r\n".join([line, *(b": ".join(each) for each in fields), b"", b""]) + framed_body
    if draw.random() < 0.1:
        data = data.replace(b"\r\n", b"\n")
    if draw.random() < 0.5:
        data = damaged(draw, data)
    if draw.random() < 0.15:
        data = data[: draw.randrange(len(data) + 1)]
    if draw.random() < 0.1:
        data += draw.choice([AFTER, b"x", b"\r\n"])
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.choice([0, 0, 1, 4])))
    pieces = tuple(data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if begin < end)
    return Reply(pieces, draw.choice(["close", "stay", "stay", "reset"]))


OK: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = OK + b"transfer-encoding: chunked\r\n\r\n"

FLOODS: Final[dict[str, Callable[[], Reply]]] = {
    "headers": lambda: Reply((OK + b"a:\r\n" * 20_000 + b"\r\n",), "close"),
    "a header": lambda: Reply((OK + b"a: " + b"x" * 300_000,), "close"),
    "blanks": lambda: Reply((OK + b"a:" + b" " * 90_000 + b"\0\r\n\r\n",), "close"),
    "blanks in a value": lambda: Reply((OK + b"a: " + b"x " * 45_000 + b"\r\0\r\n\r\n",), "close"),
    "folds": lambda: Reply((OK + b"a: b\r\n" + b" c\r\n" * 20_000 + b"\r\n",), "close"),
    "no end of line": lambda: Reply((b"HTTP/1.1 200 " + b"x" * 300_000,), "close"),
    "interim responses": lambda: Reply((b"HTTP/1.1 100\r\n\r\n" * 20_000 + AFTER,), "stay"),
    "chunks": lambda: Reply((CHUNKED + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n",), "stay"),
    "an extension": lambda: Reply((CHUNKED + b"1;" + b"x" * 300_000,), "close"),
    "trailers": lambda: Reply((CHUNKED + b"0\r\n" + b"a: b\r\n" * 60_000,), "close"),
    "byte by byte": lambda: Reply(tuple(bytes([each]) for each in OK + b"a: " + b"x" * 500 + b"\r\n\r\nx"), "close"),
}


async def has_request(stream: trio.SocketStream) -> bool:
    """Read a request; return False at the end."""
    request = b""
    while not request.endswith(b"\r\n\r\n{}"):
        if not (data := await stream.receive_some()):
            return False
        request += data
    return True


@define
class ReplyServer:
    """Sends a reply to the first request of a client, and `AFTER` to the second one."""

    reply: Reply
    requests: int = 0
    finished: trio.Event = field(factory=trio.Event)
    sent: trio.Event = field(factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await has_request(stream):
                self.requests += 1
                if self.requests > 1:
                    await stream.send_all(AFTER)
                elif not await self.stays_open(stream):
                    break
        await stream.aclose()
        self.sent.set()

    async def stays_open(self, stream: trio.SocketStream) -> bool:
        """Send the reply; return True if another request may follow. A client that wants more of it gets the end."""
        for piece in self.reply.pieces:
            await stream.send_all(piece)
            await wait_all_tasks_blocked()
        if self.reply.end == "reset":
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if self.reply.end != "stay" or not self.finished.is_set():
            return False
        self.sent.set()
        return True


async def ask(transport: httpx2.AsyncBaseTransport, url: str) -> object:
    """Return what becomes of a request: the response, or the class of the error."""
    timeout = httpx2.Timeout(BOUND).as_dict()
    request = httpx2.Request("POST", url, content=b"{}", extensions={"timeout": timeout})
    try:
        response = await transport.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        try:
            body = bytearray()
            async for part in response.stream:
                body += part
                await trio.lowlevel.checkpoint()
        finally:
            await response.stream.aclose()
    except httpx2.TransportError as error:
        return type(error).__name__
    framing = b"content-length", b"transfer-encoding"
    fields = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in framing]
    return response.status_code, response.http_version, response.reason_phrase, fields, bytes(body)


async def exchange(transport: httpx2.AsyncBaseTransport, reply: Reply, *, twice: bool = True) -> list[object]:
    """Return what becomes of a request that is answered with a reply, and of one after it."""
    server = ReplyServer(reply)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        async with transport:
            found = [await ask(transport, url)]
            if twice:
                server.finished.set()
                await server.sent.wait()
                found.append(await ask(transport, url))
        nursery.cancel_scope.cancel("both are answered")
    return found


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    """Settings of TLS, which are not used."""
    return ssl.create_default_context()


async def exchange_in_short_steps(reply: Reply, context: ssl.SSLContext, longest: LongestStep) -> list[object]:
    """Return what becomes of both requests, sent by our transport. Other programs may make a step longer, but once."""
    for _ in range(2):
        longest.seconds = 0.0
        found = await exchange(KeepAliveTransport(context, LIMITS), reply)
        if longest.seconds < LONGEST:
            return found
    pytest.fail(f"a step of {longest.task} took {longest.seconds:.3f} s: {reply}")


async def check(reply: Reply, context: ssl.SSLContext, longest: LongestStep) -> None:
    """Fail if ours takes a reply for something else than httpx2 does, or anything of it for the next one."""
    with trio.fail_after(BOUND):
        (theirs,) = await exchange(httpx2.AsyncHTTPTransport(verify=context, limits=LIMITS), reply, twice=False)
        ours, after = await exchange_in_short_steps(reply, context, longest)
    assert after == (200, "HTTP/1.1", "OK", [], b"after"), reply
    # What cannot become a response is refused here before its end, or its breaking, has come.
    refused = ours == "RemoteProtocolError" and isinstance(theirs, str)
    assert refused or ours == theirs, (reply, ours, theirs)


@pytest.mark.parametrize("part", range(10))
async def test_random_replies_are_read_as_httpx2_reads_them(
    part: int, context: ssl.SSLContext, record_property: Callable[[str, object], None]
) -> None:
    record_property("note", f"{REPLIES // 10} replies, PROGRAMS_SEED={SEED}")
    with LongestStep() as longest:
        for number in range(part * REPLIES // 10, (part + 1) * REPLIES // 10):
            await check(drawn(SEED * 1_000_000 + number), context, longest)


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_reply_of_any_size_is_read_in_short_steps(
    kind: str, context: ssl.SSLContext, record_property: Callable[[str, object], None]
) -> None:
    """httpx2 takes half a minute for one of these."""
    reply = FLOODS[kind]()
    with LongestStep() as longest, trio.fail_after(BOUND):
        ours, after = await exchange_in_short_steps(reply, context, longest)
    record_property("note", f"{kind}: a step took {longest.seconds * 1000:.0f} ms ({longest.task}); {str(ours)[:60]}")
    assert after == (200, "HTTP/1.1", "OK", [], b"after")
    assert (ours == "RemoteProtocolError") == (kind not in ("folds", "chunks", "byte by byte"))
