"""Servers over HTTP that send what is hard to read: what they cost those beside them, and themselves."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from mcp_actors import ConnectionLost, LimitExceeded, open_servers

from .groups import LATER, server as scripted
from .hostile import STEP, LongestStep
from .hostile_http import Over, hostile_http
from .links import text_of

MEGABYTE = 1_000_000

EVENT = {"kind": "text/event-stream"}


async def refuse(over: Over, error: type[Exception], **arguments: Any) -> str:
    """Ask for an answer that is refused, in short steps; return why. Other requests are answered."""
    with hostile_http(over, restart=LATER) as config:
        async with open_servers(config) as servers:
            with LongestStep() as steps, pytest.raises(error) as caught:
                await servers["evil"].call_tool("answer", arguments)
            assert steps.seconds < STEP, steps.task
            assert text_of(await servers["evil"].call_tool("fine")) == "fine"
    return str(caught.value)


@pytest.mark.parametrize("over", ["http", "sse"])
@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
@pytest.mark.parametrize("what", ["nested", "numbers"])
async def test_values_are_counted_in_bodies_and_events(what: str, kind: dict[str, str], over: Over) -> None:
    """B-12: arrays in arrays count, whichever form the server chooses; the request fails alone."""
    assert "JSON values" in await refuse(over, LimitExceeded, what=what, size=7 * MEGABYTE, **kind)


@pytest.mark.parametrize(("over", "kind"), [("http", {}), ("http", EVENT), ("sse", {})], ids=["body", "event", "sse"])
async def test_what_is_nested_too_deeply_for_a_parser_is_refused(over: Over, kind: dict[str, str]) -> None:
    """B-12: with fewer values than it may have."""
    await refuse(over, ConnectionLost, what="deep", size=MEGABYTE // 4, **kind)


@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
@pytest.mark.parametrize("codings", ["gzip", "deflate"])
async def test_what_was_compressed_is_read_in_short_steps(codings: str, kind: dict[str, str]) -> None:
    """B-13: some kilobytes that come to 20 MB."""
    words = await refuse("http", LimitExceeded, what="nested", size=20 * MEGABYTE, codings=codings, **kind)
    assert "JSON values" in words


@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
async def test_what_was_compressed_twice_is_not_read(kind: dict[str, str]) -> None:
    """B-13."""
    words = await refuse("http", ConnectionLost, what="nested", size=20 * MEGABYTE, codings="gzip, gzip", **kind)
    assert "encoded more than once: gzip, gzip" in words


@pytest.mark.parametrize("kind", [{}, EVENT], ids=["body", "event"])
async def test_crumbs_are_read_in_short_steps(kind: dict[str, str]) -> None:
    """B-13: thousands of them come in one read."""
    with hostile_http() as config:
        async with open_servers(config) as servers:
            with LongestStep() as steps:
                result = await servers["evil"].call_tool("answer", {"what": "text", "size": 30_000, "piece": 1, **kind})
            assert text_of(result) == "fine"
            assert steps.seconds < STEP, steps.task


@pytest.mark.parametrize("over", ["http", "sse"])
@pytest.mark.parametrize("what", ["blank", "comments", "tiny", "unknown", "malformed", "endless"])
async def test_a_flood_of_nothing_takes_short_steps(what: str, over: Over, caplog: pytest.LogCaptureFixture) -> None:
    """B-13: on the stream that is open all the time; it fills no log, and others are served."""
    with hostile_http(over, restart=LATER) as config:
        async with open_servers(config, scripted("good"), strict=True) as servers:
            await servers["evil"].call_tool("flood", {"what": what})
            with LongestStep() as steps, trio.move_on_after(0.5):
                while True:
                    assert text_of(await servers["good"].call_tool("add", {"a": 1, "b": 2})) == "3"
            assert steps.seconds < STEP, steps.task
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 20
