"""Text of a server, made safe for logs and terminals."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, strategies as st

from mcp_actors._text import escaped, one_line, plain_text

from .processor_time import takes_less_than

acting = st.sampled_from(
    ["\x1b", "[", "]", "\x9b", "\x9d", "0;1", "m", "H", "\x07", "\\", "\n", "\r\n", "\u202e", "\u200b"]
)
texts = st.lists(acting | st.text(max_size=3), max_size=30).map("".join)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all is well", "all is well"),
        ("", ""),
        ("  a  \n ", "  a"),
        ("   ", ""),
        ("größer, 日本語, שלום, 👍", "größer, 日本語, שלום, 👍"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4;38;5;3mbold\x1b[m", "red and bold"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x9b31mred", "red"),
        ("\x1b]0;my title\x07text", "text"),
        ("\x1b]52;c;aGVsbG8=\x1b\\clipboard", "clipboard"),
        ("\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d0;my title\x9ctext", "text"),
        ("\x1bP1$q\x1b\\device", "device"),
        ("\x1b(0charset\x1bc", "charset"),
        ("\x1b[31", "31"),
        ("\x1b]0;no end", "0;no end"),
        ("\x1b\x1b[31m[31mx", "[31mx"),
        ("a\x00\x08\x7f\x85b", "a b"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("\u2066a\u2069\u200fb\u061c", "ab"),
        ("pass\u200bw\u200do\u2060r\ufeffd\u00ad", "password"),
        ("hidden\U000e0068\U000e0069\ufe0f\U000e0100\u3164\u115f\u034f", "hidden"),
        ("half \ud83d and \U0010ffff", "half \ufffd and \ufffd"),
        ("a\tb\u00a0c\u3000d", "a b c d"),
    ],
)
def test_what_acts_is_dropped_and_what_says_something_stays(text: str, shown: str) -> None:
    assert plain_text(text) == shown


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_line_end_of_any_kind_cannot_forge_a_log_line(end: str) -> None:
    assert plain_text(f"done{end}ERROR: forged{end}") == "done ERROR: forged"
    assert plain_text(f"done{end}then{end}", lines=True) == "done\nthen"


def test_every_character_that_is_not_drawn_is_known() -> None:
    kept = plain_text("".join(map(chr, range(sys.maxunicode + 1))), limit=sys.maxunicode + 1)
    assert {unicodedata.category(each) for each in kept} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} == set()
    assert {each for each in kept if each.isspace()} == {" "}
    assert not {"\ufe0f", "\u3164", "\u115f", "\u034f", "\uffa0", "\u180b"} & set(kept)


def test_it_is_no_longer_than_asked_for() -> None:
    assert plain_text("x" * 10, limit=10) == "x" * 10
    assert plain_text("x" * 11, limit=10) == "x" * 9 + "…"
    assert plain_text("é" * 11, limit=10) == "é" * 9 + "…"
    assert plain_text("\u200b" * 1000 + "hidden", limit=10) == "…"
    assert len(plain_text("x" * 5000)) == 1000


@given(texts, st.integers(1, 20), st.booleans())
def test_nothing_that_acts_is_left_whatever_is_put_together(text: str, limit: int, lines: bool) -> None:
    shown = plain_text(text, limit=limit, lines=lines)
    assert len(shown) <= limit
    assert all(each.isprintable() for each in shown.split("\n")) if lines else shown.isprintable()
    assert plain_text(shown, limit=limit, lines=lines) == shown
    shown.encode()


@pytest.mark.parametrize("part", ["\x1b]", "\x9d", "\x1b[", "\x9b0", "\x1b]a\x1b", "\u200b", "\x1b \x1b"])
def test_a_long_text_of_beginnings_takes_no_longer_than_any_other(part: str) -> None:
    with takes_less_than(2):  # quadratic, it would be minutes
        plain_text(part * 200_000, limit=100_000)


def test_a_text_that_is_searched_lacks_all_that_is_not_drawn() -> None:
    """B-18: or a credential with such a character in it would not be found, and be shown whole."""
    not_drawn = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
    ]
    assert one_line("".join(not_drawn)) == ""


@given(texts)
def test_a_text_is_searched_as_it_is_shown(text: str) -> None:
    """B-18: in one line, but for the number of spaces."""
    shown = plain_text(text, limit=len(text) + 1)
    assert shown.split() == one_line(text).replace("\ud800", "\ufffd").split() or "\ufffd" in shown


@pytest.mark.parametrize(
    "blank", ["\u2800", "\u2028", "\x85", "\U0001d159", "\u2003", "\t", "\xa0", "\u202e", "\u3164"]
)
def test_no_blank_is_shown_as_one_to_a_person_who_approves(blank: str) -> None:
    """D-50: none can hide a part of a definition, or what separates it from the rest. A space is shown as it is."""
    assert escaped(f"a b{blank}ü") == f"a b{ascii(blank)[1:-1]}ü"
