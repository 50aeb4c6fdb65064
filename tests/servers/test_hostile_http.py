"""Servers over HTTP that send messages which are expensive to read: the cost for them and for others."""

from __future__ import annotations

import logging
from itertools import product
from typing import Any

import attrs
import pytest
import trio

from mcp_actors import ConnectionLost, Http, LimitExceeded, open_servers
from mcp_actors.transports._messages import ReadingPace, ValueCounter
from mcp_actors.transports.http import _sse
from mcp_actors.transports.http._bodies import EventParser

from .groups import BOUND, LATER, reach, server as scripted
from .hostile import STEP, LongestStep, MostInAStep
from .hostile_http import Over, hostile_http
from .links import text_of
from .processes import eventually
from .test_request_floods import suffer

MEGABYTE = 1_000_000

EVENT = {"kind": "text/event-stream"}


def parts(monkeypatch: pytest.MonkeyPatch, *, of_events: bool) -> MostInAStep:
    """Count how many parts of bodies, or of streams of events, are read in a step at most."""
    return MostInAStep(monkeypatch, (EventParser if of_events else ValueCounter, "feed"))


async def refuse(over: Over, error: type[Exception], **arguments: Any) -> str:
    """Ask for an answer that is refused, in short steps; return why. Other requests are answered."""
    with hostile_http(over, restarts=LATER) as config:
        async with open_servers(config) as servers:
            with (
                pytest.MonkeyPatch.context() as patch,
                LongestStep() as steps,
                parts(patch, of_events=over == "sse" or "kind" in arguments) as read,
                pytest.raises(error) as caught,
            ):
                await servers["evil"].call_tool("answer", arguments)
            assert steps.seconds < STEP, steps.task
            assert read.most["feed"] <= 1
            assert text_of(await servers["evil"].call_tool("fine")) == "fine"
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "kind", "over"),
    [
        pytest.param("nested", {}, "http", id="nested-body-http"),
        pytest.param("numbers", EVENT, "http", id="numbers-event-http"),
        pytest.param("nested", {}, "sse", id="nested-sse"),
        pytest.param("numbers", {}, "sse", id="numbers-sse"),
    ],
)
async def test_values_are_counted_in_bodies_and_events(what: str, kind: dict[str, str], over: Over) -> None:
    """B-12: arrays in arrays count, whichever form the server chooses; the request fails alone."""
    assert "JSON values" in await refuse(over, LimitExceeded, what=what, size=7 * MEGABYTE, **kind)


@pytest.mark.parametrize(("over", "kind"), [("http", {}), ("http", EVENT), ("sse", {})], ids=["body", "event", "sse"])
async def test_a_message_that_is_nested_too_deeply_is_refused(over: Over, kind: dict[str, str]) -> None:
    """B-12: with fewer values than it may have."""
    await refuse(over, ConnectionLost, what="deep", size=MEGABYTE // 4, **kind)


@pytest.mark.parametrize(("codings", "kind"), [("gzip", {}), ("deflate", EVENT)], ids=["gzip-body", "deflate-event"])
async def test_a_compressed_body_is_read_in_short_steps(codings: str, kind: dict[str, str]) -> None:
    """B-13: some kilobytes that come to 20 MB."""
    words = await refuse("http", LimitExceeded, what="nested", size=20 * MEGABYTE, codings=codings, **kind)
    assert "JSON values" in words


@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
async def test_a_body_that_was_compressed_twice_is_refused(kind: dict[str, str]) -> None:
    """B-13."""
    words = await refuse("http", ConnectionLost, what="nested", size=20 * MEGABYTE, codings="gzip, gzip", **kind)
    assert "encoded more than once: gzip, gzip" in words


@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
async def test_crumbs_are_read_in_short_steps(kind: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """B-13: thousands of them come in one read."""
    with hostile_http() as config:
        async with open_servers(config) as servers:
            with parts(monkeypatch, of_events=bool(kind)) as read:
                result = await servers["evil"].call_tool("answer", {"what": "text", "size": 3_000, "piece": 1, **kind})
            assert text_of(result) == "fine"
            assert read.most["feed"] <= 1


@pytest.mark.parametrize(
    ("what", "over"),
    [
        *product(["blank", "comments", "tiny", "unknown", "malformed", "endless"], ["http"]),
        *product(["tiny", "malformed"], ["sse"]),  # the same reader reads all kinds
    ],
)
async def test_a_flood_of_nothing_takes_short_steps(
    what: str, over: Over, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-13: on the stream that is open all the time; it fills no log, and others are served."""
    with hostile_http(over, restarts=LATER) as config:
        async with open_servers(config, scripted("good"), strict=True) as servers:
            await servers["evil"].call_tool("flood", {"what": what})
            with LongestStep() as steps, parts(monkeypatch, of_events=True) as read:
                for _ in range(10):
                    assert text_of(await servers["good"].call_tool("add", {"a": 1, "b": 2})) == "3"
                    await trio.sleep(0.01)
            assert steps.seconds < STEP, steps.task
            assert read.most["feed"] <= 1
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 20


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what a reader has rested after, an hour each time."""
    sizes: list[int] = []

    def rest(self: ReadingPace, now: float, size: int = 0, *, request: bool = False) -> float:
        sizes.append(size)
        return 3600.0

    monkeypatch.setattr(ReadingPace, "unasked", rest)
    monkeypatch.setattr(ReadingPace, "unasked_part", rest)
    return sizes


UNASKED = ("notifications/message", "ping", "tiny", "unknown", "malformed")


@pytest.mark.parametrize(
    ("what", "over", "on"),
    [
        *product(UNASKED, ["http"], ["stream"]),
        *product(["notifications/message", "tiny"], ["sse"], ["stream"]),  # the same reader finds all kinds
        *product(["ping", "unknown"], ["http"], ["answer"]),  # a malformed event is an answer there
    ],
)
async def test_a_reader_of_events_pauses_after_unsolicited_messages(
    what: str, over: Over, on: str, rests: list[int]
) -> None:
    """B-13: over streamable HTTP nothing but that stream has to wait."""
    with hostile_http(over, restarts=LATER, stop_timeout=0.1) as config:
        async with open_servers(config) as servers, trio.open_nursery() as nursery:
            nursery.start_soon(suffer, servers["evil"], {"what": what, "on": on})
            await eventually(lambda: bool(rests))
            await trio.sleep(0.2)
            assert len(rests) == 1
            assert rests[0] < 200_000
            if over == "http":
                assert text_of(await servers["evil"].call_tool("fine")) == "fine"
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("over", "kind"), [("http", {}), ("http", EVENT), ("sse", {})], ids=["body", "event", "sse"])
async def test_a_reader_of_events_does_not_rest_after_answers(
    over: Over, kind: dict[str, str], rests: list[int]
) -> None:
    """However long they are."""
    with hostile_http(over) as config:
        async with open_servers(config) as servers:
            rests.clear()
            for size in (1, MEGABYTE):
                result = await servers["evil"].call_tool("answer", {"what": "text", "size": size, **kind})
                assert text_of(result) == "fine"
            assert rests == []


@pytest.mark.parametrize("over", ["http", "sse"])
async def test_an_event_that_never_ends_loses_the_connection(over: Over, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-14: the error names the limit; an end that never comes is not waited for."""
    limit = 100_000
    monkeypatch.setattr(_sse, "MAX_EVENT_BYTES", limit)
    with hostile_http(over, restarts=LATER) as config:
        if isinstance(config.transport, Http):
            config = attrs.evolve(config, transport=attrs.evolve(config.transport, max_body_bytes=limit))
        async with open_servers(config) as servers, trio.open_nursery() as nursery:
            nursery.start_soon(suffer, servers["evil"], {"what": "endless"})
            with trio.fail_after(BOUND):
                await reach(servers, "evil", "backoff")
            error = servers.errors["evil"]
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, LimitExceeded)
    assert f"{limit} bytes" in str(error.__cause__)
