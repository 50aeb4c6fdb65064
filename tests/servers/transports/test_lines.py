"""Splitting bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcp_actors.transports._messages import LineSplitter, LongLine


def lines_of(splitter: LineSplitter) -> list[bytes | str]:
    """Return the lines that have arrived, without blank ones; for a line over a limit, the limit."""
    lines: list[bytes | str] = []
    while (line := splitter.pop()) is not None:
        if isinstance(line, LongLine):
            lines.append(f"{line.size} bytes: too many {line.excess}")
        elif line.strip() and not splitter.put_back(line):
            lines.append(line)
    return lines


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at these places."""
    ends = sorted(place for place in places if place < len(data))
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.text(alphabet="ab\n").map(str.encode)))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(pieces: list[bytes]) -> None:
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    lines = []
    for piece in pieces:
        splitter.feed(piece)
        lines += lines_of(splitter)
    *whole, rest = b"".join(pieces).split(b"\n")
    assert lines == [line for line in whole if line]
    assert splitter.take_rest() == rest
    assert splitter.take_rest() == b""


MESSAGES = [b'{"a":{"b":[]}}', b'{"a":"\\"}{"}', b'[{"a":1}]', b"{}"]


@given(
    st.lists(st.tuples(st.sampled_from(MESSAGES), st.sampled_from([b"\n", b"\r\n", b"\r", b"\r\r", b" \n\n\t\n"]))),
    st.lists(st.integers(0, 200)),
)
def test_any_line_end_ends_a_message_however_it_is_cut(sent: list[tuple[bytes, bytes]], places: list[int]) -> None:
    """C-08: also a carriage return alone."""
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    lines: list[bytes | str] = []
    for piece in cut(b"".join(message + end for message, end in sent), places):
        splitter.feed(piece)
        lines += lines_of(splitter)
    assert [line.strip() for line in lines if isinstance(line, bytes)] == [message for message, _ in sent]


@given(st.lists(st.integers(0, 60)))
def test_a_carriage_return_within_a_message_does_not_end_it(places: list[int]) -> None:
    message = b'{"a":{"b":1}\r,\r"c":[[]\r\r]\r}'
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    for piece in cut(message + b"\n", places):
        splitter.feed(piece)
    assert lines_of(splitter) == [message]


def test_thousands_of_blank_lines_are_one() -> None:
    """C-04."""
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    splitter.feed(b"{}" + b"\n \r\n\t" * 10_000 + b"{}\n")
    assert list(splitter.whole) == [b"{}", b"{}"]


@given(st.lists(st.text(alphabet="a\n", max_size=9).map(str.encode)), st.integers(1, 5))
def test_a_line_over_the_limit_is_skipped_in_its_place_and_others_are_returned(pieces: list[bytes], limit: int) -> None:
    """B-14."""
    splitter = LineSplitter(max_line_bytes=limit, max_values=1000)
    lines = []
    for piece in pieces:
        splitter.feed(piece)
        lines += lines_of(splitter)
        assert splitter.partial._data.tell() <= limit
    assert lines == [
        line if len(line) <= limit else f"{len(line)} bytes: too many bytes"
        for line in b"".join(pieces).split(b"\n")[:-1]
        if line
    ]


def test_a_line_may_be_as_long_as_the_limit() -> None:
    splitter = LineSplitter(max_line_bytes=3, max_values=1000)
    splitter.feed(b"abc\nabc")
    assert lines_of(splitter) == [b"abc"]
    assert splitter.partial.skipped is None


@pytest.mark.parametrize("end", [b"\nb\n", b"1\nb\n"])
def test_a_line_with_too_many_values_is_skipped_in_its_place(end: bytes) -> None:
    """Values are counted only in a line that arrives in several pieces; a single piece holds few."""
    splitter = LineSplitter(max_line_bytes=1000, max_values=3)
    splitter.feed(b"[1,1,1,1,1]\n[1,1,")
    assert lines_of(splitter) == [b"[1,1,1,1,1]"]
    splitter.feed(b"1,1,")
    assert splitter.partial.skipped
    splitter.feed(end)
    assert lines_of(splitter) == [f"{len(b'[1,1,1,1,' + end) - 3} bytes: too many values", b"b"]
    assert splitter.partial.skipped is None
