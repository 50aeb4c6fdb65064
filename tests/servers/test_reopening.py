"""How streams of events over HTTP are opened again, and what else a server may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mcp_actors import ConnectionLost, Http, HttpStatusError, ServerConfig, ServerRef, open_servers
from mcp_actors.servers.transports.http._client import MAX_COOKIE_BYTES, MAX_COOKIES
from mcp_actors.servers.transports.http.streamable._replies import MAX_FRUITLESS, MAX_RESUMED, REOPENING, Reopening

from ..idle_clock import IdleClock
from .faults.http_faults import FaultyServer, Raw, answer, faulty_server, response, stream
from .fleet import calls
from .groups import NEVER
from .links import text_of

pytestmark = pytest.mark.own_way

NOTHING = "id: 1\nretry: {}\ndata:\n\n"
"""An event without a message."""


@asynccontextmanager
async def faulty(scripts: dict[str, Raw] | None = None) -> AsyncIterator[tuple[FaultyServer, ServerRef]]:
    """Connect to a faulty server, which must stay connected."""
    with faulty_server("legacy") as server:
        server.scripts.update(scripts or {})
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restart=NEVER, request_timeout=None)
        async with open_servers(config) as servers:
            yield server, servers["web"]
            assert (servers["web"].state, servers["web"].statistics().incarnation) == ("ready", 1)


async def raw(ref: ServerRef, text: str) -> str:
    """Call a tool that answers with these bytes."""
    return text_of(await ref.call_tool("raw", Raw(text)._asdict()))


@pytest.mark.parametrize("retry", ["-5", "nan", "1e9", ""])
async def test_a_retry_field_that_is_not_a_number_is_ignored(retry: str) -> None:
    """The stream cannot be resumed, which concerns its caller alone."""
    async with faulty() as (server, ref):
        server.scripts["GET"] = Raw(stream(f"data: {answer()}\n\n"))
        async with calls(1, ref.call_tool, "hold") as [held]:
            await server.held()
            assert await raw(ref, stream("id: 1\nretry: 1\n" + NOTHING.format(retry))) == "fine"
            server.release()
        assert text_of(await held.result()) == "released"


async def test_a_stream_that_is_resumed_in_vain_fails_its_call(idle_clock: IdleClock) -> None:
    """It waits ever longer, and not for ever."""
    async with faulty() as (server, ref):
        await trio.sleep(10)  # the SDK has given up the stream of notifications
        server.scripts["GET"] = Raw(stream(NOTHING.format(0)))
        before = trio.current_time()
        with pytest.raises(ConnectionLost, match=f"although it was resumed {MAX_FRUITLESS} times") as caught:
            await raw(ref, stream(NOTHING.format(0)))
        assert trio.current_time() - before >= REOPENING.total(MAX_FRUITLESS)
        assert caught.value.outcome == "unknown"
        resumed = [request for request in server.requests if "last-event-id" in request.headers]
        assert len(resumed) == MAX_FRUITLESS
        assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("event", ["", NOTHING.format(0), NOTHING.format(-5)], ids=["empty", "at once", "negative"])
async def test_a_notification_stream_that_ends_at_once_is_opened_again_ever_later(
    event: str, idle_clock: IdleClock
) -> None:
    async with faulty({"GET": Raw(stream(event))}) as (server, _):
        await trio.sleep(10 * REOPENING.maximum)
        assert 10 <= server.methods().count("GET") <= 20


def test_streams_with_messages_are_opened_again_soon_and_not_for_ever() -> None:
    """The SDK recurses, so there is a bound for them, too."""
    streams = Reopening()
    assert streams.delay(0.0) == 0.0
    for now in range(MAX_RESUMED):
        assert not streams.exhausted
        streams.open(now)
        assert REOPENING.first <= streams.delay(now) <= 1.1 * REOPENING.first
        assert streams.delay(now + 1.0) == 0.0
        streams.deliver()
    streams.open(MAX_RESUMED)
    assert streams.exhausted


@pytest.mark.parametrize("size", [1, 1000])
async def test_a_server_cannot_make_requests_ever_longer(size: int) -> None:
    """The newest of its cookies are sent back, within limits."""
    async with faulty() as (server, ref):
        for begin in (0, 60):
            given = [f"Set-Cookie: c{number}={'v' * size}" for number in range(begin, begin + 60)]
            result = response(200, answer(), *given)
            assert text_of(await ref.call_tool("raw", Raw(result, "keep")._asdict())) == "fine"
        await ref.call_tool("sleep")
        names = [each.partition("=")[0] for each in server.requests[-1].headers["cookie"].split("; ")]
        assert len(server.requests[-1].headers["cookie"]) <= MAX_COOKIE_BYTES
        assert "c119" in names
        assert "c0" not in names
        assert len(names) == (MAX_COOKIES if size == 1 else MAX_COOKIE_BYTES // 1004)


async def test_redirects_in_a_loop_end() -> None:
    async with faulty() as (server, ref):
        loop = response(307, "", "Location: /mcp")
        with pytest.raises(HttpStatusError, match=r"redirects go on after 5, probably in a loop\); check the logs"):
            await ref.call_tool("raw", Raw(loop, "keep")._asdict())
        assert server.methods().count("tools/call") == 6
