"""Credentials that expire during a session."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx2
import pytest
import trio

from mcp_actors import Http, HttpStatusError, Secret, ServerConfig, ServerError, ServerGroup, Sse, open_servers
from mcp_actors.transports._credentials import RECENT_VALUES, Credentials, Masker, named_credentials
from tests.idle_clock import IdleClock

from ..faults.http_faults import Era, FaultyServer, Raw, faulty_server, response
from ..fleet import calls
from ..groups import BOUND, NEVER
from ..links import text_of

REFUSED = response(401, '{"error": "the token old-t0ken has expired"}')


class Tokens:
    """Returns tokens, and counts its calls."""

    def __init__(self) -> None:
        self.now: str | None = "old-t0ken"
        self.asked = 0
        self.delay = 0.01
        self.on_ask: Callable[[], None] = lambda: None

    async def __call__(self) -> str:
        self.asked += 1
        self.on_ask()
        await trio.sleep(self.delay)
        if self.now is None:
            raise RuntimeError("signed out: old-t0ken")
        return self.now


@contextmanager
def guarded_server(era: Era) -> Iterator[FaultyServer]:
    """Run a server that requires a token, which the test may change."""
    with faulty_server(era) as server:
        server.token = "old-t0ken"
        yield server


VARIANTS = ["modern", "legacy", "sse"]


@asynccontextmanager
async def connected(
    variant: str, *, connect_timeout: float = 30, **options: Any
) -> AsyncIterator[tuple[FaultyServer, ServerGroup]]:
    """Configure such a server; the options are those of its transport."""
    with guarded_server("modern" if variant == "modern" else "legacy") as server:
        transport = Sse(server.url("/sse"), **options) if variant == "sse" else Http(server.url(), **options)
        config = ServerConfig("web", transport, restarts=NEVER, connect_timeout=connect_timeout)
        async with open_servers(config, strict=True) as servers:
            yield server, servers


@pytest.mark.parametrize("variant", VARIANTS)
async def test_refused_requests_are_sent_again_with_a_token_that_is_resolved_once(variant: str) -> None:
    """B-09: concurrent refusals share one renewal, and the session goes on."""
    tokens = Tokens()
    async with connected(variant, auth=tokens) as (server, servers):
        server.token = tokens.now = "new-t0ken"
        async with calls(7, servers["web"].call_tool, "sleep", {"seconds": 0}) as asking:
            pass
        assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 7
        assert (tokens.asked, len(server.used)) == (2, 7)
        assert servers["web"].statistics().incarnation == 1
        server.token = tokens.now = "newest-t0ken"
        assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
        assert tokens.asked == 3


async def test_a_renewal_that_is_cancelled_is_repeated_by_the_next_request() -> None:
    """B-09: a cancelled renewal does not prove that the credentials are unchanged."""
    tokens = Tokens()
    async with connected("modern", auth=tokens) as (server, servers):
        server.token, tokens.now = "new-t0ken", "new-t0ken"
        with trio.CancelScope() as scope:
            tokens.on_ask = scope.cancel
            await servers["web"].call_tool("sleep", {"seconds": 0})
        assert scope.cancelled_caught
        assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
        assert servers["web"].statistics().incarnation == 1


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_renewal_is_bounded_by_connect_timeout(variant: str, idle_clock: IdleClock) -> None:
    """B-09: so a renewal that outlives its request and its connection delays no others for ever."""
    tokens = Tokens()
    idle_clock.skips = False  # the server may connect in its own time
    async with connected(variant, auth=tokens, connect_timeout=1) as (server, servers):
        server.token = tokens.now = "new-t0ken"
        tokens.delay = math.inf
        idle_clock.skips = True
        with trio.fail_after(BOUND), pytest.raises(HttpStatusError):
            await servers["web"].call_tool("sleep", {"seconds": 0})
        idle_clock.skips = False
        tokens.delay = 0
        await servers["web"].restart()
        assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"


async def test_header_values_that_were_renewed_long_ago_are_forgotten() -> None:
    """A connection may live for months, and each value that is known makes masking slower."""
    values = [f"the-key-number-{number:02}" for number in range(RECENT_VALUES + 1)]
    transport = Http("http://localhost/mcp", headers={"X-Key": iter(values).__next__})
    credentials = Credentials(ServerConfig("web", transport), transport, masker := Masker())
    for _ in values:
        await credentials.resolve()
    assert masker(f"{values[-1]}, {values[1]}, {values[0]}") == f"<headers.X-Key>, <headers.X-Key>, {values[0]}"


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_header_with_a_variable_is_resolved_again(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-09."""
    monkeypatch.setenv("WEB_TOKEN", "old-t0ken")
    async with connected(variant, headers={"Authorization": "Bearer ${WEB_TOKEN}"}) as (server, servers):
        monkeypatch.setenv("WEB_TOKEN", "new-t0ken")
        server.token = "new-t0ken"
        assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
        assert servers["web"].statistics().incarnation == 1


@pytest.mark.parametrize("then", ["old-t0ken", "other-t0ken", None], ids=["the same", "as bad", "none"])
@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_server_leaves_active_if_new_credentials_do_not_help(
    variant: str, then: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """B-09: the error names the credentials without a value; `restart` resolves them again."""
    caplog.set_level(logging.DEBUG)
    tokens = Tokens()
    async with connected(variant, auth=tokens) as (server, servers):
        server.token, tokens.now = "new-t0ken", then
        with pytest.raises(HttpStatusError, match=r"check the credentials \(auth \(a function\)\)") as refused:
            await servers["web"].call_tool("sleep", {"seconds": 0})
        assert refused.value.status == 401
        with trio.fail_after(BOUND):
            await servers["web"].wait_state("failed")
        assert servers.active == ()
        seen = f"{refused.value} {servers.errors['web']} {servers.status()} {caplog.text}"
        assert "t0ken" not in seen
        server.token = tokens.now = "old-t0ken"
        await servers["web"].restart()
        assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_constant_that_is_refused_is_not_sent_twice(variant: str) -> None:
    """B-09: the server also leaves `active`, because it can serve nothing."""
    async with connected(variant, auth=Secret("old-t0ken")) as (server, servers):
        server.token = "new-t0ken"
        with pytest.raises(HttpStatusError, match=r"check the credentials \(auth\)"):
            await servers["web"].call_tool("sleep", {"seconds": 0})
        assert server.methods().count("tools/call") == 1
        with trio.fail_after(BOUND):
            await servers["web"].wait_state("failed")


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_tool_that_requires_another_token_leaves_the_server_active(variant: str) -> None:
    """B-09, A-15: a refusal without a refused ping concerns only the request."""
    tokens = Tokens()
    async with connected(variant, auth=tokens) as (_, servers):
        for _ in range(3):
            with pytest.raises(HttpStatusError):
                await servers["web"].call_tool("raw", Raw(REFUSED, "keep")._asdict())
        assert servers["web"].state == "ready"
        assert servers["web"].statistics().incarnation == 1


async def test_credentials_that_were_never_accepted_are_resolved_once() -> None:
    """B-09: at a connect they are fresh, and resolving may prompt the user for a password."""
    tokens = Tokens()
    with guarded_server("modern") as server:
        server.token = "other"
        config = ServerConfig("web", Http(server.url(), auth=tokens), restarts=NEVER)
        async with open_servers(config) as servers:
            assert "auth (a function)" in str(servers.errors["web"])
    assert tokens.asked == 1


def test_the_names_of_credentials_show_no_value() -> None:
    headers = {"X-Key": "k3y-${A}-${B:-s3cret}", "X-Other": "plain-s3cret"}
    assert named_credentials(Http("http://u:s3cret@127.0.0.1/", headers=headers)) == (
        "the user in url, header X-Key (${A}, ${B}), header X-Other"
    )
    assert named_credentials(Http("http://127.0.0.1/", auth=httpx2.Auth())) == "auth"
    assert named_credentials(Http("http://127.0.0.1/", auth=lambda: "s3cret")) == "auth (a function)"
    assert named_credentials(Http("http://127.0.0.1/")) == ""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", [pytest.fail.Exception, SystemExit])
@pytest.mark.parametrize("when", ["start", "renewal"])
async def test_a_credential_function_that_ends_the_program_ends_it(
    variant: str, kind: type[BaseException], when: str
) -> None:
    """C-41, S1-07: its exception leaves as itself, and is not a failed connect or request."""
    tokens, error = Tokens(), kind("no token here")

    def leave() -> None:
        raise error

    async def program() -> None:
        if when == "start":
            tokens.on_ask = leave
        async with connected(variant, auth=tokens) as (server, servers):
            tokens.on_ask, server.token = leave, "new-t0ken"
            with suppress(ServerError):
                await servers["web"].call_tool("sleep", {"seconds": 0})
            await trio.sleep_forever()

    with pytest.raises(kind) as caught, trio.fail_after(BOUND):
        await program()
    assert caught.value is error
