"""Streamable HTTP, against the SDK's own server in a real process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND

from mcp_actors._errors import ConnectFailed, ConnectionLost, HttpStatusError
from mcp_actors.config import Http, Secret, ServerConfig
from mcp_actors.transports import Masker, Obituary, open_link
from mcp_actors.transports._link import ConnectionOver
from mcp_actors.transports.http import _link
from tests.idle_clock import IdleClock

from ...messages import Said
from ..groups import BOUND
from ..http_server import TOOLS, Running, reserved_port, run_server
from ..links import MARGIN, call, never_lost, open_session, text_of
from ..processes import freeze


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with run_server() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[Running]:
    with run_server() as running:
        yield running


def http(url: str, *, stop_timeout: float = 5.0, max_in_flight: int = 64, **options: Any) -> ServerConfig:
    return ServerConfig("docs", Http(url, **options), stop_timeout=stop_timeout, max_in_flight=max_in_flight)


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_session_on_a_link_lists_and_calls_tools(server: Running, mode: str) -> None:
    async with open_link(http(server.url), on_lost=never_lost) as link, open_session(link, mode) as session:
        assert {tool["name"] for tool in (await session.ask("tools/list", {}))["tools"]} == TOOLS
        assert text_of(await call(session, "add", {"a": 2, "b": 3})) == "5"
        assert text_of(await call(session, "pid")) == str(server.pid)
        assert link.pid is None
        assert link.endpoint == server.url
    assert not link.lifeline.lost
    assert link.obituary() == await link.wait_obituary() == Obituary()
    assert "closed" in repr(link)


async def test_many_calls_run_concurrently(server: Running) -> None:
    calls = 70
    config = http(server.url, max_in_flight=calls)
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as session:
        # With fewer connections than calls, the calls would deadlock: each waits until all are running.
        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                for _ in range(calls):
                    nursery.start_soon(call, session, "meet", {"number": calls})


async def test_a_long_response_passes(server: Running) -> None:
    text = "x" * 3_000_000
    async with open_link(http(server.url), on_lost=never_lost) as link, open_session(link) as session:
        assert text_of(await call(session, "echo", {"text": text})) == text


async def test_headers_are_resolved_again_at_each_opening_and_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server("--require-header", "Authorization=Bearer second") as server:
        config = http(server.url, headers={"Authorization": "Bearer ${ROTATING}"})
        monkeypatch.setenv("ROTATING", "first")
        async with open_link(config, on_lost=lambda: None) as link:
            with pytest.raises(HttpStatusError):
                async with open_session(link):
                    pytest.fail("it connected with the wrong token")
            assert isinstance(link.lifeline.failure, HttpStatusError)
            assert link.lifeline.failure.status == 401
        monkeypatch.setenv("ROTATING", "second")
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as session:
            assert text_of(await call(session, "echo", {"text": "let in"})) == "let in"


async def test_a_header_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(ConnectFailed, match="'NO_SUCH_TOKEN' is not set") as caught:
        async with open_link(http("http://127.0.0.1:1/", headers={"X-Key": "${NO_SUCH_TOKEN}"}), on_lost=never_lost):
            pytest.fail("it opened")
    assert (caught.value.phase, caught.value.hopeless) == ("configure", True)


async def test_an_invalid_proxy_variable_is_reported_without_its_value(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "nonsense://user:p4ssword@proxy")
    with pytest.raises(ConnectFailed) as caught:
        async with open_link(http("http://example.invalid/", allow_insecure=True), on_lost=never_lost):
            pytest.fail("it opened")
    said("http client cannot be created", str(caught.value))
    assert (caught.value.phase, caught.value.hopeless) == ("configure", True)


async def test_the_package_that_a_socks_proxy_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://user:p4ssword@proxy")
    with pytest.raises(ConnectFailed, match="'socksio' package is not installed") as caught:
        async with open_link(http("http://example.invalid/", allow_insecure=True), on_lost=never_lost):
            pytest.fail("it opened")
    assert "p4ssword" not in str(caught.value)


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_refused_connection_is_one_bare_exception_and_cancels_no_task(mode: str) -> None:
    reported: list[Exception | None] = []
    with reserved_port() as port:
        config = http(f"http://127.0.0.1:{port}/mcp")
        async with open_link(config, on_lost=lambda: reported.append(link.lifeline.failure)) as link:
            with pytest.raises(ConnectionOver, match="could not connect to") as raised:
                async with open_session(link, mode):
                    pytest.fail("it connected")
            # The owner task goes on, because it was not cancelled.
            await trio.lowlevel.checkpoint()
            assert link.lifeline.lost
            assert isinstance(link.lifeline.failure, ConnectionOver)
            assert "(connection refused)" in str(link.lifeline.failure)
            assert reported == [link.lifeline.failure] == [raised.value]


async def test_the_end_of_a_server_fails_its_calls_and_is_noticed_without_further_calls(own_server: Running) -> None:
    """A-03."""
    lost = trio.Event()
    failed: list[ConnectionLost] = []
    async with open_link(http(own_server.url), on_lost=lost.set) as link, open_session(link) as session:

        async def sleep(seconds: float) -> None:
            try:
                await call(session, "sleep", {"seconds": seconds})
            except ConnectionLost as error:
                failed.append(error)

        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(sleep, 60)
                await trio.testing.wait_all_tasks_blocked(0.2)
                own_server.kill()
            await lost.wait()
        assert len(failed) == 5
        assert isinstance(link.lifeline.failure, ConnectionOver)


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_leaving_a_frozen_server_is_bounded(own_server: Running, mode: str, idle_clock: IdleClock) -> None:
    """S4-21."""
    config = http(own_server.url, stop_timeout=0.5)
    async with open_link(config, on_lost=never_lost) as link, open_session(link, mode):
        await freeze(own_server.pid)
        left_at = trio.current_time()
    assert trio.current_time() - left_at < config.stop_timeout + MARGIN


async def test_a_cancelled_block_is_left_in_time(server: Running) -> None:
    with trio.CancelScope() as scope:
        async with (
            open_link(http(server.url), on_lost=never_lost) as link,
            open_session(link) as session,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(call, session, "sleep", {"seconds": 60})
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel("while a call is under way")
            left_at = trio.current_time()
    assert scope.cancelled_caught
    assert trio.current_time() - left_at < MARGIN


@pytest.mark.parametrize("steps", range(4))
async def test_a_start_that_is_cancelled_leaves_nothing(steps: int) -> None:
    async def cancel_soon(scope: trio.CancelScope) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        scope.cancel("while it starts")

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_soon, scope)
            async with open_link(http("http://127.0.0.1:1/mcp"), on_lost=never_lost):
                await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_exception_of_the_block_is_raised_unchanged(server: Running) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_link(http(server.url), on_lost=never_lost):
            raise error
    assert caught.value is error


async def test_a_password_in_the_url_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with run_server("--require-header", "Authorization=Basic dXNlcjpwNHNzd29yZA==") as server:
        url = f"http://user:p4ssword@127.0.0.1:{server.port}/mcp?key=k3y"
        config = http(url, headers={"X-Key": Secret("s3cret")})
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as session:
            assert text_of(await call(session, "echo", {"text": "let in"})) == "let in"
            shown = f"{link!r} {link.endpoint}"
        server.kill()
        async with open_link(config, on_lost=lambda: None) as link:
            with pytest.raises(ConnectionOver) as caught:
                async with open_session(link):
                    pytest.fail("it connected")
            shown += f"{caught.value!r} {link.lifeline.failure!r} {link.lifeline.failure}"
    assert link.endpoint.startswith(f"http://127.0.0.1:{server.port}/mcp?key=")
    for secret in ("p4ssword", "s3cret"):
        assert secret not in shown + caplog.text
    # The log of the HTTP library shows the query as a part of the URL; our log does not.
    assert "k3y" not in shown


def test_of_several_failures_the_first_is_raised_with_notes() -> None:
    first, second = httpx2.ConnectError("refused"), httpx2.ReadError("cut off")
    group = ExceptionGroup("", [ExceptionGroup("", [first]), second])
    assert _link.first_failure(group, Masker()) is first
    assert first.__notes__ == ["also: ReadError: cut off"]


async def test_an_unknown_method_does_not_lose_the_connection(server: Running) -> None:
    async with open_link(http(server.url), on_lost=never_lost) as link, open_session(link, "modern") as session:
        with pytest.raises(MCPError) as caught:
            await session.ask("ping", {})
        assert caught.value.code == METHOD_NOT_FOUND
        assert text_of(await call(session, "echo", {"text": "fine"})) == "fine"
