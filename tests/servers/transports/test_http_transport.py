"""Our transport below httpx2: its connections, its limits, and what a request leaves behind."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import httpx2
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.transports.http._bodies import refuse_surplus
from mcp_actors.transports.http._transport import KeepAliveTransport

from ..groups import BOUND
from ..hostile import LongestStep, MostInAStep
from .test_http_client import self_signed
from .test_http_replies import LONGEST

Serve: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]

MEBIBYTE: Final = 1 << 20
OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"
CLOSES: Final = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nfine"


async def read_request(stream: trio.abc.Stream) -> bytes:
    """Read a request with a declared length; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := await stream.receive_some(65536)):
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    while len(body) < length:
        body += await stream.receive_some(65536)
    return head + b"\r\n\r\n" + body


def answering(*replies: bytes) -> Serve:
    """Answer the requests of each connection with these replies, and close it after the last one."""

    async def serve(stream: trio.abc.Stream) -> None:
        for reply in replies:
            if not await read_request(stream):
                return
            await stream.send_all(reply)

    return serve


class Site:
    """A server, and how many connections it has had and has."""

    def __init__(self, serve: Serve, tls: ssl.SSLContext | None) -> None:
        self.begun = 0
        self.open = 0
        self.url = ""
        self.tls = tls
        self._serve = serve

    async def run(self, stream: trio.SocketStream) -> None:
        """Serve a connection."""
        self.begun += 1
        self.open += 1
        try:
            async with stream:
                secure = self.tls and trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
                await self._serve(secure or stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open -= 1


@asynccontextmanager
async def site(serve: Serve, certificate: Path | None = None) -> AsyncIterator[Site]:
    """Run a server on this machine."""
    tls = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    found = Site(serve, tls)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, found.run, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        found.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}/"
        yield found
        nursery.cancel_scope.cancel("the test is over")


def transport(certificate: Path | None = None, *, connections: int = 1, kept: float = 60.0) -> KeepAliveTransport:
    """Make a transport."""
    context = ssl.create_default_context(cafile=certificate)
    return KeepAliveTransport(context, httpx2.Limits(max_connections=connections, keepalive_expiry=kept))


async def ask(
    client: httpx2.AsyncBaseTransport, url: str, content: bytes = b"{}", **timeouts: float | None
) -> tuple[int, bytes]:
    """Send a request; return the status and the body of the answer."""
    request = httpx2.Request("POST", url, content=content, extensions={"timeout": timeouts})
    response = await client.handle_async_request(request)
    try:
        return response.status_code, await response.aread()
    finally:
        await response.aclose()


@pytest.fixture(params=["plain", "TLS"])
def certificate(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A certificate for this machine, for tests of both."""
    return None if request.param == "plain" else self_signed(tmp_path)


async def test_requests_share_a_connection_until_either_side_closes_it(certificate: Path | None) -> None:
    """An end between two requests is noticed before the second one is written."""
    async with site(answering(OK, OK, OK), certificate) as server, transport(certificate) as client:
        for number in range(7):
            assert await ask(client, server.url) == (200, b"fine")
            await wait_all_tasks_blocked()
            assert server.begun == number // 3 + 1
        assert server.open == 1
    await wait_all_tasks_blocked()
    assert server.open == 0


@pytest.mark.parametrize("reply", [CLOSES, OK.replace(b"1.1", b"1.0"), OK + b"HTTP/1.1 200"])
async def test_a_connection_that_may_not_be_used_again_is_closed(reply: bytes) -> None:
    async with site(answering(reply, reply)) as server, transport() as client:
        for number in range(3):
            assert await ask(client, server.url) == (200, b"fine")
            assert server.begun == number + 1
            await wait_all_tasks_blocked()
            assert server.open == 0


async def test_a_request_that_asks_to_close_the_connection_is_its_last(certificate: Path | None) -> None:
    async with site(answering(OK, OK), certificate) as server, transport(certificate) as client:
        for _ in range(2):
            response = await client.handle_async_request(
                httpx2.Request("GET", server.url, headers={"Connection": "Close"})
            )
            assert await response.aread() == b"fine"
        assert server.begun == 2


async def test_an_idle_connection_expires(mock_clock: MockClock) -> None:
    async with site(answering(*[OK] * 9)) as server, transport(connections=3, kept=10.0) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, client, server.url)
        mock_clock.jump(9.0)
        await ask(client, server.url)
        assert (server.begun, server.open) == (3, 3)
        mock_clock.jump(1.5)
        await ask(client, server.url)  # over the one that was used last; the others have expired
        await wait_all_tasks_blocked()
        assert (server.begun, server.open) == (3, 1)
        mock_clock.jump(10.0)
        await ask(client, server.url)
        await wait_all_tasks_blocked()
        assert (server.begun, server.open) == (4, 1)


async def test_idle_connections_to_other_servers_count_for_the_limit() -> None:
    async with (
        site(answering(OK, OK)) as one,
        site(answering(OK, OK)) as other,
        transport(connections=2) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(2):
            nursery.start_soon(ask, client, one.url)
        await wait_all_tasks_blocked()
        assert (one.open, other.open) == (2, 0)
        await ask(client, other.url)
        await wait_all_tasks_blocked()
        assert (one.open, other.open) == (1, 1)
        await ask(client, one.url)
        assert (one.begun, other.begun) == (2, 1)


async def silent(stream: trio.abc.Stream) -> None:
    """Answer nothing."""
    while await stream.receive_some(65536):
        pass


async def deaf(stream: trio.abc.Stream) -> None:
    """Read nothing in time."""
    await trio.sleep(6.0)
    await silent(stream)


@pytest.mark.parametrize(
    ("phase", "serve", "error"),
    [
        ("connect", deaf, httpx2.ConnectTimeout),
        ("write", deaf, httpx2.WriteTimeout),
        ("read", silent, httpx2.ReadTimeout),
        ("pool", silent, httpx2.PoolTimeout),
    ],
)
async def test_each_phase_of_a_request_has_a_timeout(
    phase: str, serve: Serve, error: type[Exception], autojump_clock: MockClock
) -> None:
    """A request that times out keeps neither its connection nor its place in the pool."""
    async with site(serve) as slow, site(answering(OK)) as quick, transport() as client, trio.open_nursery() as nursery:
        url = slow.url.replace("http:", "https:") if phase == "connect" else slow.url
        if phase == "pool":
            nursery.start_soon(ask, client, slow.url)
            await wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(error):
            await ask(client, url, bytes(16 * MEBIBYTE) if phase == "write" else b"{}", **{phase: 5.0})
        assert trio.current_time() - began == pytest.approx(5.0)
        nursery.cancel_scope.cancel("the first request is not needed")
        with trio.CancelScope(shield=True):
            await trio.sleep(2.0)
            assert slow.open == 0
            assert await ask(client, quick.url, pool=BOUND) == (200, b"fine")


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope after some steps of this task."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._left = steps
        self._scope = scope
        self._task = trio.lowlevel.current_task()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self._left -= task is self._task
        if not self._left:
            self._scope.cancel("it has run long enough")


async def test_a_cancelled_request_leaves_nothing_wherever_it_was(certificate: Path | None) -> None:
    """Cancelled after each of its steps in turn, it has closed its connection, and the next request passes."""
    async with site(answering(OK, OK), certificate) as server, transport(certificate) as client:
        for steps in range(1, 100):
            with trio.CancelScope() as scope:
                trio.lowlevel.add_instrument(instrument := CancelAfter(steps, scope))
                try:
                    await ask(client, server.url)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            if not scope.cancelled_caught:
                break
            await wait_all_tasks_blocked()
            assert server.open == 0
            assert await ask(client, server.url, pool=BOUND) == (200, b"fine")
            await wait_all_tasks_blocked()
            await ask(client, server.url, pool=BOUND)  # the last one of that connection
            await wait_all_tasks_blocked()
        assert steps > 2


async def test_a_cancelled_caller_sends_nothing() -> None:
    """Also over a connection that is there, to which a request is written without a checkpoint."""
    received = list[bytes]()

    async def serve(stream: trio.abc.Stream) -> None:
        while request := await read_request(stream):
            received.append(request)
            await stream.send_all(OK)

    async with site(serve) as server, transport() as client:
        await ask(client, server.url)
        with trio.CancelScope() as scope:
            scope.cancel("at once")
            await ask(client, server.url)
        await wait_all_tasks_blocked()
        assert (server.begun, server.open, len(received)) == (1, 1, 1)


async def test_bodies_of_any_size_pass_in_short_steps(certificate: Path | None) -> None:
    body = bytes(range(256)) * (8 * MEBIBYTE // 256)

    async def serve(stream: trio.abc.Stream) -> None:
        left = len(body)
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some(65536)
        left -= len(data.partition(b"\r\n\r\n")[2])
        while left:
            left -= len(await stream.receive_some(65536))
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
        for begin in range(0, len(body), 65536):
            await stream.send_all(body[begin : begin + 65536])

    async with site(serve, certificate) as server, transport(certificate) as client:
        with LongestStep() as longest:
            response = await client.handle_async_request(httpx2.Request("POST", server.url, content=body))
            pieces = [piece async for piece in response.aiter_raw()]
        assert b"".join(pieces) == body
        assert longest.seconds < LONGEST, longest.task


async def test_other_tasks_run_between_the_chunks_that_came_in_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n"
    async with site(answering(reply)) as server, transport() as client:
        with MostInAStep(monkeypatch) as steps:
            response = await client.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            async for _ in response.aiter_raw():
                steps.note("chunk")
    assert steps.most == {"chunk": 1}


async def test_an_answer_that_comes_before_the_request_was_read_is_the_answer() -> None:
    async def serve(stream: trio.abc.Stream) -> None:
        await stream.receive_some(1)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")

    async with site(serve) as server, transport() as client:
        assert await ask(client, server.url, bytes(16 * MEBIBYTE)) == (413, b"")
        await wait_all_tasks_blocked()
        assert server.open == 0


@pytest.mark.parametrize(
    "headers",
    [
        [("x", "a\r\nx-forged: b")],
        [("x", "a\nx-forged: b")],
        [("x\r\nx-forged", "b")],
        [("x y", "b")],
        [("x", "a\0b")],
        [("content-length", "1")],
        [("content-length", "3")],
        [("content-length", "2"), ("content-length", "2")],
        [("content-length", "2"), ("transfer-encoding", "chunked")],
        [("transfer-encoding", "gzip, chunked")],
    ],
)
async def test_a_request_that_could_be_read_as_another_one_is_not_sent(headers: list[tuple[str, str]]) -> None:
    """A header ends where it ends, and the body is as long as the head says."""
    received = list[bytes]()

    async def serve(stream: trio.abc.Stream) -> None:
        received.append(bytes(await stream.receive_some(1)))

    async with site(serve) as server, transport() as client:
        for _ in range(2):
            with pytest.raises(httpx2.LocalProtocolError):
                await client.handle_async_request(httpx2.Request("POST", server.url, content=b"{}", headers=headers))
    assert received in ([], [b""])


async def test_requests_are_written_as_httpx2_writes_them() -> None:
    """The same bytes, whatever a client of httpx2 makes of a request."""
    received = list[bytes]()

    async def serve(stream: trio.abc.Stream) -> None:
        received.append(await read_request(stream))
        await stream.send_all(CLOSES)

    async def send_all(client: httpx2.AsyncClient, url: str) -> list[bytes]:
        received.clear()
        async with client:
            await client.post(url, json={"text": "ä"}, headers=[("X-Two", "1"), ("x-two", "2"), ("X-Empty", "")])
            await client.get(f"{url}päth/%2f?q=a b&q=ö#part", headers={"Accept": "text/event-stream"})
            await client.post(url, data={"name": "value +"}, auth=("me", "secret"))
            await client.delete(url, headers=[(b"X-Latin", "ä".encode("latin-1"))])
            await client.options(url)
            await client.put(
                url, files={"file": b"content"}, headers={"Content-Type": "multipart/form-data; boundary=b"}
            )
        return received[:]

    async with site(serve) as server:
        limits = httpx2.Limits(max_connections=1, keepalive_expiry=60)
        theirs = await send_all(httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(limits=limits)), server.url)
        ours = await send_all(httpx2.AsyncClient(transport=transport()), server.url)
        assert ours == theirs
        assert len(ours) == 6


async def test_a_body_that_comes_in_parts_is_sent_in_a_chunk() -> None:
    """An auth flow may send one."""
    received = list[bytes]()

    async def serve(stream: trio.abc.Stream) -> None:
        while not received or not received[-1].endswith(b"0\r\n\r\n"):
            received[:] = [b"".join([*received, await stream.receive_some(65536)])]
        await stream.send_all(OK)

    async def parts(*each: bytes) -> AsyncIterator[bytes]:
        for part in each:
            yield part

    async with site(serve) as server, transport() as client:
        for sent, framed in [((b"ab", b"c"), b"3\r\nabc\r\n0\r\n\r\n"), ((), b"0\r\n\r\n")]:
            received.clear()
            response = await client.handle_async_request(httpx2.Request("POST", server.url, content=parts(*sent)))
            assert await response.aread() == b"fine"
            assert received[0].partition(b"\r\n\r\n")[2] == framed
            await wait_all_tasks_blocked()


async def test_only_http_is_spoken() -> None:
    async with transport() as client:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await ask(client, "ftp://127.0.0.1/")
        with pytest.raises(httpx2.ConnectError):
            await ask(client, "http://127.0.0.1:1/", pool=BOUND)
        with pytest.raises(httpx2.ConnectError):
            await ask(client, "http://127.0.0.1:1/", pool=BOUND)


async def test_tls_names_the_host_and_offers_http_1_1_only(tmp_path: Path) -> None:
    named = list[str | None]()
    chosen = list[str | None]()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate := self_signed(tmp_path))
    tls.set_alpn_protocols(["h2", "http/1.1"])
    tls.sni_callback = lambda _, name, __: named.append(name)

    async def serve(stream: trio.abc.Stream) -> None:
        assert isinstance(stream, trio.SSLStream)
        await answering(OK)(stream)
        chosen.append(stream.selected_alpn_protocol())

    async with site(serve, certificate) as server:
        server.tls = tls
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        async with KeepAliveTransport(context, httpx2.Limits(max_connections=1, keepalive_expiry=60)) as client:
            request = httpx2.Request("GET", server.url, extensions={"sni_hostname": "mcp.example"})
            assert await (await client.handle_async_request(request)).aread() == b"fine"
    assert (named, chosen) == (["mcp.example"], ["http/1.1"])


async def test_a_second_response_behind_tls_is_refused(tmp_path: Path) -> None:
    """C-02: both come in one read from the socket, and the second one is decrypted for the next request."""

    async def serve(stream: trio.abc.Stream) -> None:
        assert isinstance(stream, trio.SSLStream)
        await read_request(stream)
        socket, parts = stream.transport_stream, list[bytes]()
        send_all = socket.send_all

        async def collect(data: bytes) -> None:
            parts.append(bytes(data))

        socket.send_all = collect
        for _ in range(2):
            await stream.send_all(OK)
        await send_all(b"".join(parts))
        await trio.sleep_forever()

    certificate = self_signed(tmp_path)
    async with (
        site(serve, certificate) as server,
        httpx2.AsyncClient(transport=transport(certificate), event_hooks={"response": [refuse_surplus]}) as client,
    ):
        assert (await client.post(server.url)).content == b"fine"
        with pytest.raises(httpx2.RemoteProtocolError, match="a response came before the request was sent"):
            await client.post(server.url)
        assert (await client.post(server.url)).content == b"fine"
        assert server.begun == 2
