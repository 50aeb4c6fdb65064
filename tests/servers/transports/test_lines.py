"""Cutting bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcp_actors.servers.transports._lines import LineSplitter, LineTooLong
from mcp_actors.servers.transports._values import TooManyValues


def lines_of(splitter: LineSplitter) -> list[bytes]:
    lines = []
    while (line := splitter.pop()) is not None:
        lines.append(bytes(line))
    return lines


@given(st.lists(st.text(alphabet="ab\n").map(str.encode)))
def test_however_the_bytes_come_the_lines_are_the_same(pieces: list[bytes]) -> None:
    splitter = LineSplitter(max_line_bytes=1000, max_values=1000)
    lines = []
    for piece in pieces:
        splitter.feed(piece)
        lines += lines_of(splitter)
    assert lines == b"".join(pieces).split(b"\n")[:-1]


def test_a_line_may_be_as_long_as_the_limit() -> None:
    splitter = LineSplitter(max_line_bytes=3, max_values=1000)
    splitter.feed(b"abc\nabc")
    assert splitter.pop() == b"abc"
    assert splitter.pop() is None


@pytest.mark.parametrize("end", [b"", b"\n", b"\nmore"])
def test_lines_before_one_that_is_too_long_are_given_first(end: bytes) -> None:
    splitter = LineSplitter(max_line_bytes=3, max_values=1000)
    splitter.feed(b"a\nb\nlong" + end)
    assert splitter.pop() == b"a"
    assert splitter.pop() == b"b"
    with pytest.raises(LineTooLong):
        splitter.pop()


@pytest.mark.parametrize("end", [b"", b"\n", b"1\nmore"])
def test_lines_before_one_with_too_many_values_are_given_first(end: bytes) -> None:
    """Values are counted where a line comes in several pieces: one piece holds few."""
    splitter = LineSplitter(max_line_bytes=1000, max_values=3)
    splitter.feed(b"[1,1,1,1,1]\n[1,1,")
    assert splitter.pop() == b"[1,1,1,1,1]"
    assert splitter.pop() is None
    splitter.feed(b"1,1," + end)
    with pytest.raises(TooManyValues):
        splitter.pop()
