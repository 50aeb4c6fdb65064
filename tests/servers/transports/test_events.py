"""Parsing server-sent events."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import Self

import httpx2
import pytest
import trio
from hypothesis import given, strategies as st

from mcp_actors import _tasks
from mcp_actors.transports._messages import MessageLimits, ReadingPace
from mcp_actors.transports.http._bodies import (
    ENCODED_PIECE,
    LINES,
    EventParser,
    ServerSentEvent,
    TooMuch,
    pieces_of,
    read_events,
)

from ..hostile import MostInAStep
from ..links import Rounds

ANY = 1 << 30
LIMITS = MessageLimits(ANY, ANY)

lines = st.sampled_from(
    ["data: {}", "data:x", "data", "data:", "data:  y", ": comment", "id: 7", "id", "retry: 10", "event: endpoint"]
    + ["event:", "unknown: x", "datafile: x", "dat", ""] * 2
)

streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"]))).map(
    lambda written: "".join(line + end for line, end in written).encode()
)


def parsed(text: bytes, *cuts: int, max_bytes: float = ANY, max_values: float = ANY) -> list[ServerSentEvent]:
    """Return the events of a stream that arrives in pieces."""
    parser, begin = EventParser(max_bytes, max_values), 0
    events: list[ServerSentEvent] = []
    for cut in [*sorted(cuts), len(text)]:
        events += parser.feed(text[begin : max(begin, cut)])
        begin = max(begin, cut)
    return events


def written(event: ServerSentEvent) -> bytes:
    """Serialize an event as a server does."""
    fields = [(b"id", event.id), (b"retry", event.retry), (b"event", event.name)]
    lines = [b"%s: %s\n" % (name, value) for name, value in fields if value is not None]
    data = [b"data: %s\n" % line for line in event.data.split(b"\n")]
    return b"".join([*lines, *data, b"\n"])


def excesses(events: list[ServerSentEvent]) -> list[str | None]:
    """Return which limits events exceed."""
    return [None if event.skipped is None else event.skipped.excess for event in events]


class Body(httpx2.AsyncByteStream):
    """A body that has arrived, in one piece for each part."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = iter(parts)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for part in self.parts:
            return part
        raise StopAsyncIteration


def stream_of(*parts: bytes, **headers: str) -> httpx2.Response:
    """Return a response that is a stream of events."""
    kind = {"content-type": "text/event-stream; charset=zlib_codec", "content-length": "1", **headers}
    return httpx2.Response(200, headers=kind, stream=Body(*parts), request=httpx2.Request("GET", "http://x/"))


@given(streams, st.lists(st.integers(0, 80)))
def test_events_are_parsed_as_by_httpx_however_the_stream_is_cut(text: bytes, cuts: list[int]) -> None:
    request, headers = httpx2.Request("GET", "http://x/"), {"content-type": "text/event-stream"}
    response = httpx2.Response(200, headers=headers, content=text + b"\n", request=request)
    expected = [(event.event, event.data) for event in httpx2.EventSource(response)]
    events = parsed(text + b"\n", *cuts)
    assert [(event.name.decode(), event.data.decode()) for event in events] == expected


@given(st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"")), st.sampled_from([None, b"7"]))
def test_a_serialized_event_is_parsed_back_unchanged(data: bytes, other: bytes | None) -> None:
    event = ServerSentEvent(b"message", data, other, other)
    assert parsed(written(event)) == [event]


def test_an_event_over_a_limit_is_reported_and_not_kept() -> None:
    """B-12: later events are returned."""
    text = b"data: [[],[]]\n\ndata: [[],\ndata: []\ndata: ]\n\ndata: 12345\n\n"
    assert excesses(parsed(text, max_values=3)) == ["values", "values", None]
    assert excesses(parsed(text, max_values=4)) == [None, None, None]
    first, _, last = parsed(text, max_bytes=5)
    assert first.skipped is not None
    assert (first.data, first.skipped.excess, first.skipped.size) == (b"", "bytes", 7)
    assert last == ServerSentEvent(data=b"12345")


def test_comments_do_not_disturb_the_count_of_values() -> None:
    """B-12: a quotation mark in a comment does not begin a string."""
    text = b': "\nevent: "\ndata: [1,1,1,1]\nid: "\n\n'
    assert excesses(parsed(text, max_values=3)) == ["values"]


def test_only_the_beginning_of_a_long_comment_is_kept() -> None:
    parser = EventParser(ANY, ANY)
    for _ in range(100):
        assert list(parser.feed(b":" * 65536)) == []
    assert len(parser._line) < 2 * 65536
    assert list(parser.feed(b"\ndata: x\n\n")) == [ServerSentEvent(data=b"x")]


@pytest.mark.parametrize(
    ("field", "kept"),
    [("10", b"10"), ("0", b"0"), ("007", b"7"), ("60001", b"60000"), ("9" * 10_000, b"60000"), ("0" * 9_999, b"0")]
    + [(wrong, None) for wrong in ("-5", "+5", "1.5", "1e3", "", " 5", "5 ", "\u0665", "nan", "1_0")],
)
def test_a_retry_field_counts_if_it_is_a_number_and_up_to_a_minute(field: str, kept: bytes | None) -> None:
    """The SDK would sleep for a negative time, which ends the connection, or for a week."""
    assert parsed(f"retry: {field}\ndata: x\n\n".encode()) == [ServerSentEvent(data=b"x", retry=kept)]


@pytest.mark.parametrize("cut", range(5))
def test_a_stream_may_begin_with_a_byte_order_mark(cut: int) -> None:
    mark = "\ufeff".encode()
    assert parsed(mark + b"data: x\n\n", cut) == [ServerSentEvent(data=b"x")]
    assert parsed(mark + mark + b"data: x\n\n" + mark + b"data: y\n\n", cut) == []
    assert parsed(b"\n" + mark + b"data: x\n\n", cut) == []


@pytest.mark.parametrize("skipped", [0, 3])
async def test_an_event_over_the_limit_is_not_read_for_ever(skipped: int) -> None:
    """B-14: how far depends on whether its end could tell anything."""
    limits, parts = MessageLimits(1000, ANY), (b"data: ", *[b"x" * 100] * 100)
    body = Body(*parts)
    response = httpx2.Response(200, stream=body)
    with pytest.raises(TooMuch) as caught:
        await anext(read_events(response, limits, ReadingPace(), skipped=skipped))
    assert caught.value.data.size == max(1000 * skipped, 1000) + 100
    assert len(list(body.parts)) > 0


@pytest.mark.parametrize("end", [b"", b"\n", b"\nid: 1\n", b"\n\n"])
@pytest.mark.parametrize("text", [b'{"a":["}"]}', b'{\ndata: "a": 1\ndata: }'])
async def test_an_event_with_a_whole_object_needs_no_blank_line(text: bytes, end: bytes) -> None:
    """D-15: some servers leave it out, and keep the connection open."""
    parts = [text[cut : cut + 1] for cut in range(len(text))]
    events = read_events(stream_of(b"data: ", *parts, end), LIMITS, ReadingPace())
    assert [each.data async for each in events if each.data] == [text.replace(b"data: ", b"")]


@pytest.mark.parametrize(
    "text",
    [b"\n" * 5_000, b"data:\n\n" * 1_000, b":\n" * 2_000, b"data: 1\n" * 2_000 + b"\n"],
    ids=["blank", "events", "comments", "one event"],
)
async def test_other_tasks_run_while_a_stream_that_has_arrived_is_read(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-13: after each event, and each kilobyte of short lines, whether it is an answer or not."""
    feed = EventParser.feed

    def counted(parser: EventParser, part: bytes) -> Iterable[ServerSentEvent]:
        steps.note("part")
        steps.note("byte", len(part))
        return feed(parser, part)

    monkeypatch.setattr(EventParser, "feed", counted)
    with MostInAStep(monkeypatch) as steps:
        async for _ in read_events(stream_of(text), LIMITS, ReadingPace(), is_expected=lambda _: True):
            steps.note("event")
    assert max(steps.most["part"], steps.most["event"]) == 1
    assert steps.most["byte"] <= LINES


async def test_other_tasks_run_while_a_small_part_is_decoded_that_has_much_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B-13."""
    with MostInAStep(monkeypatch) as steps:
        async for _ in pieces_of(stream_of(gzip.compress(bytes(4_000_000)), **{"content-encoding": "gzip"})):
            steps.note("piece")
    assert steps.most == {"piece": 1}


async def test_other_tasks_run_while_a_large_part_is_decoded_that_has_no_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B-13."""
    head = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 60_000  # the name of a file, which has no end yet
    monkeypatch.setattr(_tasks, "STEP_SECONDS", -1.0)
    rounds = Rounds()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.count)
        await trio.lowlevel.checkpoint()
        assert [each async for each in pieces_of(stream_of(head, **{"content-encoding": "gzip"}))] == []
        nursery.cancel_scope.cancel()
    assert rounds.number >= len(head) // ENCODED_PIECE


async def test_a_body_that_was_encoded_twice_is_refused() -> None:
    """B-13: the first decoder may produce gigabytes that the second reduces to nothing."""
    with pytest.raises(httpx2.DecodingError, match="gzip, gzip"):
        await anext(pieces_of(stream_of(b"", **{"content-encoding": "gzip, gzip"})))
    assert [piece async for piece in pieces_of(stream_of(b"1", **{"content-encoding": "identity, identity"}))] == [b"1"]
