"""Splitting bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcp_actors.servers.transports.wire._lines import LineSplitter, LongLine


def lines_of(splitter: LineSplitter) -> list[bytes | str]:
    """Return the lines that have arrived; for a line over a limit, the limit."""
    lines: list[bytes | str] = []
    while (line := splitter.pop()) is not None:
        lines.append(f"{line.size} bytes: too many {line.excess}" if isinstance(line, LongLine) else bytes(line))
    return lines


@given(st.lists(st.text(alphabet="ab\n").map(str.encode)))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(pieces: list[bytes]) -> None:
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    lines = []
    for piece in pieces:
        splitter.feed(piece)
        lines += lines_of(splitter)
    *whole, rest = b"".join(pieces).split(b"\n")
    assert lines == whole
    assert splitter.take_rest() == rest
    assert splitter.take_rest() == b""


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
