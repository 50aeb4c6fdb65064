"""How streams of events over HTTP are opened again, and what else a server may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import httpx2
import pytest
import trio

from mcp_actors import ConnectionLost, Http, HttpStatusError, ServerConfig, ServerRef, open_servers
from mcp_actors.transports.http._client import MAX_COOKIE_BYTES, MAX_COOKIES
from mcp_actors.transports.http._link import NOTIFICATION_TIMEOUT
from mcp_actors.transports.http._session import MAX_FRUITLESS, MAX_RESUMED, REOPENING, Reopening

from ..idle_clock import IdleClock
from .faults.http_faults import FaultyServer, Raw, answer, faulty_server, response, stream
from .fleet import calls
from .groups import BOUND, NEVER
from .links import text_of
from .processes import eventually

pytestmark = pytest.mark.own_way

NOTHING = "id: 1\nretry: {}\ndata:\n\n"
"""An event without a message."""


@asynccontextmanager
async def faulty(scripts: dict[str, Raw] | None = None) -> AsyncIterator[tuple[FaultyServer, ServerRef]]:
    """Connect to a faulty server, which must stay connected."""
    with faulty_server("legacy") as server:
        server.scripts.update(scripts or {})
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restarts=NEVER, request_timeout=None)
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
        await trio.sleep(10)  # the stream of notifications was refused twice
        server.scripts["GET"] = Raw(stream(NOTHING.format(0)))
        before = trio.current_time()
        limit = 2 * REOPENING.total(MAX_FRUITLESS)
        with pytest.raises(ConnectionLost, match=f"resumed {MAX_FRUITLESS} times") as caught, trio.fail_after(limit):
            await raw(ref, stream(NOTHING.format(0)))
        assert trio.current_time() - before >= REOPENING.total(MAX_FRUITLESS)
        assert caught.value.outcome == "unknown"
        resumed = [request for request in server.requests if "last-event-id" in request.headers]
        assert len(resumed) == MAX_FRUITLESS
        assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize(
    ("given", "sent"), [(" abc ", "abc"), ("\tabc", "abc"), ("a\0b", "first"), ("a\x01b", "first"), ("  ", "first")]
)
async def test_an_id_that_no_header_can_have_does_not_prevent_that_a_stream_goes_on(
    given: str, sent: str, idle_clock: IdleClock
) -> None:
    events = f"id: first\nretry: 1\ndata:\n\nid: {given}\ndata:\n\n"
    async with faulty() as (server, ref):
        await trio.sleep(10)  # the stream of notifications was refused twice
        server.scripts["GET"] = Raw(stream(f"data: {answer()}\n\n"))
        assert await raw(ref, stream(events)) == "fine"
        assert [each.headers["last-event-id"] for each in server.requests if "last-event-id" in each.headers] == [sent]


class Foreign(FaultyServer):
    """A server whose sessions have names that are not ASCII."""

    def session(self) -> str:
        return "sesi\xf3n"


async def test_the_name_of_a_session_is_sent_back_byte_for_byte() -> None:
    with closing(Foreign("legacy")) as server:
        async with open_servers(ServerConfig("web", Http(server.url()), protocol="legacy", restarts=NEVER)) as servers:
            assert text_of(await servers["web"].call_tool("sleep")) == "slept None"
            assert server.requests[-1].headers["mcp-session-id"] == "sesi\xf3n"


@pytest.mark.parametrize("status", [400, 404, 405, 500, 501])
async def test_a_server_that_refuses_to_be_asked_for_its_versions_is_connected_by_the_older_protocol(
    status: int,
) -> None:
    with faulty_server("legacy") as server:
        server.scripts["server/discover"] = Raw(response(status), "keep")
        async with open_servers(ServerConfig("web", Http(server.url()), restarts=NEVER)) as servers:
            assert text_of(await servers["web"].call_tool("sleep")) == "slept None"


@pytest.mark.parametrize("event", ["", NOTHING.format(0), NOTHING.format(-5)], ids=["empty", "at once", "negative"])
async def test_a_notification_stream_that_ends_at_once_is_opened_again_ever_later(
    event: str, idle_clock: IdleClock
) -> None:
    async with faulty({"GET": Raw(stream(event))}) as (server, _):
        await trio.sleep(10 * REOPENING.maximum)
        assert 10 <= server.methods().count("GET") <= 20


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_a_notification_stream_that_was_open_is_opened_again_after_any_refusals(
    status: int, idle_clock: IdleClock
) -> None:
    """Behind a proxy that restarts, notifications must not end for the rest of the connection."""
    async with faulty({"GET": Raw(stream(""))}) as (server, _):
        await eventually(lambda: server.methods().count("GET") >= 2)
        server.scripts["GET"] = Raw(response(status), "keep")
        await trio.sleep(300)
        refused = server.methods().count("GET")
        assert refused < 20
        server.scripts["GET"] = Raw(stream(""))
        await trio.sleep(70)
        assert server.methods().count("GET") > refused


@pytest.mark.parametrize(("status", "at_least", "most"), [(405, 2, 2), (501, 2, 2), (404, 2, 2), (503, 6, 12)])
async def test_a_server_that_refuses_its_first_stream_for_good_is_asked_no_more(
    status: int, at_least: int, most: int, idle_clock: IdleClock
) -> None:
    async with faulty({"GET": Raw(response(status), "keep")}) as (server, _):
        await trio.sleep(300)
        assert at_least <= server.methods().count("GET") <= most


def test_streams_with_messages_are_opened_again_soon_and_not_for_ever() -> None:
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


async def test_the_paths_of_cookies_do_not_pile_up() -> None:
    made = list[httpx2.AsyncClient]()

    def make() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient(timeout=BOUND))
        return made[-1]

    with faulty_server("legacy") as server:
        config = ServerConfig("web", Http(server.url(), http_client=make), protocol="legacy")
        async with open_servers(config) as servers:
            for call in range(5):
                given = [f"Set-Cookie: c=v; Path=/{call}/{number}" for number in range(60)]
                result = response(200, answer(), *given)
                assert text_of(await servers["web"].call_tool("raw", Raw(result, "keep")._asdict())) == "fine"
            paths = made[-1].cookies.jar._cookies["127.0.0.1"]  # type: ignore[attr-defined]  # of the standard library
            assert 1 <= len(paths) <= MAX_COOKIES


async def test_notices_to_a_server_that_takes_none_do_not_pile_up(idle_clock: IdleClock) -> None:
    async with faulty() as (server, ref):
        await trio.sleep(10)
        before = trio.lowlevel.current_statistics().tasks_living
        server.mute |= {"notifications/cancelled", "tools/call"}
        with trio.move_on_after(BOUND) as scope:
            async with calls(60, ref.call_tool, "sleep"):
                await eventually(lambda: server.methods().count("tools/call") == 60)
                scope.cancel("the callers leave")
        await trio.sleep(NOTIFICATION_TIMEOUT + 1)
        assert trio.lowlevel.current_statistics().tasks_living <= before


async def test_redirects_in_a_loop_end() -> None:
    async with faulty() as (server, ref):
        loop = response(307, "", "Location: /mcp")
        with pytest.raises(HttpStatusError, match=r"redirects go on after 5, probably in a loop\); check the logs"):
            await ref.call_tool("raw", Raw(loop, "keep")._asdict())
        assert server.methods().count("tools/call") == 6
