"""The receiver of redirects, and the strangers that it refuses by name."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import httpx2
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_actors.auth import _receiver
from mcp_actors.auth._exchange import AuthorizationRefused
from mcp_actors.auth._receiver import (
    MAX_CONNECTIONS,
    RECEIVER_TIMEOUT,
    Receiver,
    is_stranger,
    open_receiver,
    parameters_of,
    split,
)

STATE = "the-state-of-this-sign-in"
REDIRECT = "http://127.0.0.1:0/callback"


async def get(url: str, **options: object) -> httpx2.Response:
    """Send a request as a browser does."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=90) as client:
        return await client.get(url, **options)  # type: ignore[arg-type]  # the tests give headers


async def test_the_redirect_of_this_sign_in_is_received_and_the_port_closed() -> None:
    async with open_receiver(REDIRECT) as receiver:
        receiver.state = STATE
        answer = await get(f"{receiver.url}?code=abc&state={STATE}&iss=https://issuer.example")
        assert answer.status_code == 200
        assert {name: value for name, value in answer.headers.items() if name != "content-length"} == {
            "content-type": "text/html; charset=utf-8",
            "cache-control": "no-store",
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
            "referrer-policy": "no-referrer",
            "connection": "close",
        }
        assert await receiver.wait() == {"code": "abc", "state": STATE, "iss": "https://issuer.example"}
    with pytest.raises(httpx2.ConnectError):
        await get(receiver.url)


@pytest.mark.parametrize(
    ("path", "headers", "reason"),
    [
        ("/callback?code=stolen&state=another", {}, "state_mismatch"),
        ("/callback?code=stolen", {}, "state_mismatch"),
        (f"/callback?code=a&code=b&state={STATE}", {}, "repeated_parameter"),
        ("/callback?error=access_denied", {}, "state_mismatch"),
        ("/callback?error=access_denied&state=another", {}, "state_mismatch"),
        (f"/elsewhere?code=a&state={STATE}", {}, "wrong_path"),
        (f"/callback?code=a&state={STATE}", {"host": "evil.example"}, "wrong_host"),
    ],
)
async def test_a_stranger_is_refused_by_name_and_ends_nothing(
    path: str, headers: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C-15."""
    async with open_receiver(REDIRECT) as receiver:
        receiver.state = STATE
        answer = await get(str(httpx2.URL(receiver.url).join(path)), headers=headers)
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert "stolen" not in answer.text
        await get(f"{receiver.url}?code=mine&state={STATE}")
        assert (await receiver.wait())["code"] == "mine"
    assert f"({reason})" in caplog.text
    assert "stolen" not in caplog.text


@pytest.mark.parametrize(
    ("redirect", "port"),
    [
        ("http://[::1]:0/callback", "[::1]:PORT/callback"),
        ("http://LOCALHOST:0/callback", "localhost:PORT/callback"),
        ("http://127.0.0.1:0", "127.0.0.1:PORT/"),
        ("http://127.0.0.1:0/callback?kind=x", "127.0.0.1:PORT/callback?kind=x"),
    ],
)
async def test_the_redirect_is_received_as_a_browser_writes_its_url(redirect: str, port: str) -> None:
    async with open_receiver(redirect) as receiver:
        receiver.state = STATE
        url = httpx2.URL(receiver.url)
        assert receiver.url == f"http://{port.replace('PORT', str(url.port))}"
        assert (await get(str(url.copy_merge_params({"code": "abc", "state": STATE})))).status_code == 200
        assert (await receiver.wait())["code"] == "abc"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux, which has a table of connections")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")])
def test_a_process_of_another_user_is_a_stranger_whatever_its_socket_is_for(
    family: socket.AddressFamily, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the tables are real but for the user."""
    rows_of = _receiver._table
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(family) as client:
        client.connect((host, listener.getsockname()[1]))
        with listener.accept()[0] as server:
            assert not is_stranger(server)
            monkeypatch.setattr(_receiver, "_table", lambda path: [as_of("4711", row) for row in rows_of(path)])
            assert is_stranger(server)


def as_of(user: str, row: str) -> str:
    """Return a row of the table of connections as it is for a connection of another user."""
    words = row.split()
    return " ".join([*words[:7], user, *words[8:]])


async def test_the_default_port_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_receiver(REDIRECT) as receiver:
        port = httpx2.URL(receiver.url).port
    monkeypatch.setattr(_receiver, "HTTP_PORT", port)  # a user may not be allowed to listen at port 80
    async with open_receiver(f"http://127.0.0.1:{port}/callback") as receiver:
        assert receiver.url == "http://127.0.0.1/callback"


async def test_nothing_is_received_before_the_sign_in_has_begun() -> None:
    async with open_receiver(REDIRECT) as receiver:
        assert (await get(f"{receiver.url}?code=a&state=")).status_code == 400


async def test_a_connection_that_sends_nothing_is_closed(autojump_clock: MockClock) -> None:
    """C-15."""
    async with open_receiver(REDIRECT) as receiver:
        stream = await connect(receiver)
        began = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - began == RECEIVER_TIMEOUT
        await stream.aclose()


async def connect(receiver: Receiver) -> trio.SocketStream:
    """Connect to a receiver as a stranger does."""
    return await trio.open_tcp_stream("127.0.0.1", httpx2.URL(receiver.url).port or 0)


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/dev/fd"))


async def test_silent_connections_take_few_descriptors_and_keep_no_browser_out() -> None:
    """C-15: also if they come faster than they can be answered, and stay. Sixteen connections are open at most."""
    async with open_receiver(REDIRECT) as receiver, trio.open_nursery() as nursery:
        receiver.state = STATE
        before, most, strangers = descriptors(), 0, list[trio.SocketStream]()
        for _ in range(10 * MAX_CONNECTIONS):
            strangers.append(await connect(receiver))
            await trio.testing.wait_all_tasks_blocked()
            most = max(most, descriptors() - before - len(strangers))
        assert most == 16

        async def flood() -> None:
            while True:
                await (await connect(receiver)).aclose()

        nursery.start_soon(flood)
        assert (await get(f"{receiver.url}?code=mine&state={STATE}")).status_code == 200
        assert (await receiver.wait())["code"] == "mine"
        nursery.cancel_scope.cancel("the redirect has come")
    for each in strangers:
        await each.aclose()


async def test_the_receiver_goes_on_when_no_descriptor_is_left_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C-15: strangers, or the program itself, may have taken all."""
    async with open_receiver(REDIRECT) as receiver:
        receiver.state = STATE
        stream = await connect(receiver)
        accept, refused = socket.socket.accept, trio.Event()

        def fail(listener: socket.socket) -> object:
            if not refused.is_set():
                refused.set()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", fail)
        other = await connect(receiver)
        await refused.wait()
        assert (await get(f"{receiver.url}?code=mine&state={STATE}")).status_code == 200
        for each in (stream, other):
            await each.aclose()


async def test_each_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """C-15: strangers cannot fill the log."""
    async with open_receiver(REDIRECT) as receiver:
        receiver.state = STATE
        for _ in range(3):
            await get(f"{receiver.url}?code=stolen&state=another")
            await get(f"{receiver.url}elsewhere")
    assert (caplog.text.count("(state_mismatch)"), caplog.text.count("(wrong_path)")) == (1, 1)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_localhost_is_received_at_both_of_its_addresses() -> None:
    """C-15: at the one that is free, a stranger could wait for the code."""
    async with open_receiver("http://localhost:0/callback") as receiver:
        receiver.state = STATE
        port = httpx2.URL(receiver.url).port
        for host in ("127.0.0.1", "[::1]"):
            answer = await get(
                f"http://{host}:{port}/callback?code=a&state={STATE}", headers={"host": f"localhost:{port}"}
            )
            assert answer.status_code == 200
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as stranger,
        pytest.raises(AuthorizationRefused, match="end the program that uses it"),
    ):
        async with open_receiver(f"http://localhost:{stranger.getsockname()[1]}/callback"):
            pytest.fail("a stranger waits for the code")


async def test_a_request_that_is_not_http_is_dropped() -> None:
    async with open_receiver(REDIRECT) as receiver:
        stream = await trio.open_tcp_stream("127.0.0.1", httpx2.URL(receiver.url).port or 0)
        await stream.send_all(b"\x16\x03\x01 not HTTP\r\n\r\n")
        assert await stream.receive_some() == b""
        await stream.aclose()


@pytest.mark.parametrize("line", ["GET //[", "GET http://[", f"HEAD /callback?code=a&state={STATE}"])
async def test_a_request_that_a_browser_never_sends_ends_nothing(line: str) -> None:
    async with open_receiver(REDIRECT) as receiver:
        receiver.state = STATE
        url = httpx2.URL(receiver.url)
        stream = await trio.open_tcp_stream("127.0.0.1", url.port or 0)
        await stream.send_all(f"{line} HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n\r\n".encode())
        assert b" 400 " in await stream.receive_some()
        await stream.aclose()
        await get(f"{receiver.url}?code=mine&state={STATE}")
        assert (await receiver.wait())["code"] == "mine"


async def test_a_port_in_use_is_an_error_with_a_remedy() -> None:
    async with open_receiver(REDIRECT) as receiver:
        with pytest.raises(AuthorizationRefused, match="end the program that uses it") as caught:
            async with open_receiver(receiver.url):
                pytest.fail("the port is in use")
    assert caught.value.reason == "port_in_use"


def test_a_pasted_url_must_have_the_state_too() -> None:
    assert parameters_of(f"code=a&state={STATE}", STATE)["code"] == "a"
    with pytest.raises(AuthorizationRefused, match="state of this sign-in"):
        parameters_of("code=a&state=another", STATE)


def test_a_pasted_text_that_is_not_a_url_is_refused() -> None:
    with pytest.raises(AuthorizationRefused, match="not a URL"):
        split("http://[::1?code=a")
