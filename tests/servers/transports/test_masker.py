"""Masking every form of every value, and nothing else."""

from __future__ import annotations

import base64
import copy
import pickle
import traceback
from itertools import pairwise
from typing import Final

import pytest
from mcp import MCPError

from mcp_actors import ConnectionLost
from mcp_actors.transports import Masker
from mcp_actors.transports._credentials import MIN_LENGTH, PATTERNS, RECENT_VALUES

from ...processor_time import takes_less_than

BASIC: Final = "Basic " + base64.b64encode(b"me:a-token-of-old").decode()


def masker(value: str, name: str = "<auth>", *, own_url: bool = False) -> Masker:
    """Return a masker for one value."""
    made = Masker()
    made.add(name, value, own_url=own_url)
    return made


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Bearer abcdefgh", "abcdefgh is invalid"),
        ("Basic " + base64.b64encode(b"me:a-password").decode(), "a-password is invalid"),
        ("postgres://me:a-password@db/x?sslkey=another-key", "a-password is invalid"),
        ("postgres://me:a-password@db/x?sslkey=another-key", "another-key is invalid"),
        ("first line\nsecond line", "second line is invalid"),
        ("a&b<c>d\"e'f", "a&amp;b&lt;c&gt;d&quot;e&#x27;f is invalid"),
        ("\ud800 half a pair", "\ud800 half a pair is invalid"),
        ("abcd/efgh", r"abcd\/efgh is invalid"),
        ("ABCDEFGH", "abcdefgh is invalid"),
        ("İstanbul-1453", "İstanbul-1453 is invalid"),
        ("İstanbul-1453", "i\u0307STANBUL-1453 is invalid"),
        ("passwordΣ", "passwordΣ is invalid"),
    ],
)
def test_a_value_is_masked_as_a_whole_and_in_its_parts(value: str, words: str) -> None:
    """B-18."""
    assert masker(value)(words) == "<auth> is invalid"


@pytest.mark.parametrize("value", ["abcd/efgh+1234567", "Σabcdefgh123", "İabcdefgh123"])
def test_a_value_that_was_cut_is_masked(value: str) -> None:
    """B-18: a text may be shortened before it is masked."""
    masks = masker(value)
    for cut in range(MIN_LENGTH, len(value)):
        assert masks(f"'{value[:cut]}… and '{value[:cut].casefold()}…") == "'<auth>… and '<auth>…"
    assert masks(f"{value[: MIN_LENGTH - 1]}…") == f"{value[: MIN_LENGTH - 1]}…"
    assert masks(f"{value[:MIN_LENGTH]}!…") == f"{value[:MIN_LENGTH]}!…"


def test_two_values_with_the_same_beginning_that_were_cut_are_masked_once() -> None:
    """B-18."""
    masks = masker("abcdefgh-1", "<one>")
    masks.add("<two>", "abcdefgh-2")
    assert masks("abcdefgh-…") in ("<one>…", "<two>…")


def test_a_value_with_a_final_sigma_is_masked_within_a_word() -> None:
    """B-18: the small sigma."""
    assert masker("passwordΣ")("passwordΣa") == "<auth>a"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("token=abcd\u200befgh!", "token=<auth>!"),
        ("\x1b[1mtoken=\x1b[0mab\x1b[0mcd\u2060efg\u00adh\x1b[1m!", "\x1b[1mtoken=\x1b[0m<auth>\x1b[1m!"),
        ("abcdefgh abcd\u200befgh \u200b\u200bAB\u200bCDEFGH.", "<auth> <auth> \u200b\u200b<auth>."),
        ("two\u200b words of a\tkey\u00a0of mine", "<auth>"),
        ("ab\u200bcd efgh", "ab\u200bcd efgh"),
    ],
)
def test_a_value_is_masked_that_the_text_has_only_when_it_is_shown(text: str, masked: str) -> None:
    """B-18: all else stays as it is."""
    mask = masker("abcdefgh")
    mask.add("<auth>", "two words of a key\nof mine")
    assert mask(text) == masked


def test_masking_what_is_hidden_takes_time_in_proportion_to_the_length() -> None:
    """B-18."""
    mask = masker("abcdefgh")
    for part in ("\u200b", "\x1b[", "abcd\u200befgh ", "\x1b]0;"):
        text = part * 100_000
        with takes_less_than(2):  # quadratic, it would be minutes
            mask(text)


def test_a_long_value_takes_no_time_in_texts_without_it() -> None:
    """B-18: the authorization server decides how long tokens are."""
    mask = masker("abcdefgh")
    mask.add("<token>", "".join(map(chr, range(33, 127))) * 4_000)
    with takes_less_than(2):  # to compile a pattern of it takes ten seconds
        assert mask("abcdefgh is invalid") == "<auth> is invalid"
        assert mask("abcd\u200befgh is invalid") == "<auth> is invalid"
        assert mask.place_to_cut("x abcdefgh", 5) == 2


def test_few_patterns_are_kept_however_many_sets_of_values_texts_have() -> None:
    mask = Masker()
    values = [f"value-number-{number:03}" for number in range(150)]
    for value in values:
        mask.add("<auth>", value)
    assert {mask(f"{one} {two}") for one, two in pairwise(values)} == {"<auth> <auth>"}
    assert len(mask._patterns) <= PATTERNS


@pytest.mark.parametrize("value", ["", "short", "1234567"])
def test_short_values_are_not_masked(value: str) -> None:
    """B-18."""
    assert masker(value)(f"it is {value}") == f"it is {value}"


def test_the_host_and_path_of_a_url_are_not_masked() -> None:
    """B-18."""
    mask = masker("https://someone:pass@example.com/mcp/path?key=a-secret-key", "<url>", own_url=True)
    assert (
        mask("https://example.com/mcp/path: a-secret-key of someone")
        == "https://example.com/mcp/path: <url> of someone"
    )
    assert mask(base64.b64encode(b"someone:pass").decode()) == "<url>"


def test_a_text_is_not_cut_within_a_value() -> None:
    """B-18."""
    mask = masker("abcdefgh")
    text = "-- abcdefgh --"
    assert [mask.place_to_cut(text, at) for at in (0, 3, 4, 10, 11, 14)] == [0, 3, 3, 3, 11, 14]


def test_an_mcp_error_is_unchanged_except_for_masked_values() -> None:
    """B-18: its code and the shape of its data stay, and data without the value is the same object."""
    mask = masker("abcdefgh")
    data = {"tokens": ["abcdefgh", 1, None], "of": "abcdefgh"}
    error = mask.clean(MCPError(-32001, "abcdefgh is invalid", data))
    assert isinstance(error, MCPError)
    assert (error.code, error.message, str(error)) == (-32001, "<auth> is invalid", "<auth> is invalid")
    assert error.data == {"tokens": ["<auth>", 1, None], "of": "<auth>"}
    assert pickle.loads(pickle.dumps(error)).data == copy.copy(error).data == error.data
    untouched = MCPError(-32001, "no", ["data"])
    assert mask.clean(untouched) is untouched
    assert untouched.error.data == ["data"]


def test_causes_groups_and_notes_are_masked_and_our_own_text_is_not() -> None:
    """B-18, B-19."""
    mask = masker("abcdefgh")
    ours = ConnectionLost("server 'abcdefgh': gone", server="abcdefgh")
    inner = RuntimeError("abcdefgh is invalid")
    inner.add_note("abcdefgh again")
    ours.__cause__ = ExceptionGroup("two", [inner, UnicodeError("fine")])
    inner.__context__ = inner  # a circle
    assert mask.clean(ours) is ours
    assert str(ours) == "server 'abcdefgh': gone"
    assert (str(inner), inner.__notes__) == ("<auth> is invalid", ["<auth> again"])


def test_a_masker_forgets_tokens_that_were_replaced_long_ago() -> None:
    masker = Masker()
    masker.add("<auth.client_secret>", "the client secret")
    for number in range(100):
        masker.add_recent("<token>", f"Bearer token-number-{number:03}")
    assert masker("token-number-099 token-number-092") == "<token> <token>"
    assert masker("token-number-000") == "token-number-000"
    assert masker("the client secret") == "<auth.client_secret>"
    assert len(masker._names) < 100


@pytest.mark.parametrize(("name", "later"), [("<auth>", "Bearer a-token-of-old"), ("<token>", BASIC)])
def test_a_masker_knows_a_token_as_long_as_any_recent_value_has_it(name: str, later: str) -> None:
    """B-18: a token is learnt when issued, and again within a header when sent."""
    masker = Masker()
    masker.add_recent("<token>", "a-token-of-old")
    for number in range(RECENT_VALUES - 1):
        masker.add_recent("<token>", f"token-number-{number}")
    masker.add_recent(name, later)
    masker.add_recent("<token>", "token-number-9")
    assert masker("a-token-of-old") in ("<token>", "<auth>")
    for number in range(RECENT_VALUES):
        masker.add_recent(name, f"another-token-{number}")
    assert masker("a-token-of-old") == "a-token-of-old"


DEEP: Final = 5000


def test_an_error_with_data_that_is_nested_too_deeply_is_cleaned_and_loses_its_data() -> None:
    """B-18: a server in this process can raise it."""
    data: object = "a-password"
    for _ in range(DEEP):
        data = [data]
    error = MCPError(1, "a-password is wrong", data)
    assert masker("a-password").clean(error) is error
    assert str(error) == "<auth> is wrong"
    assert error.data == "nested too deeply to be masked"
    assert error.args == (1, "<auth> is wrong", error.data)


def test_data_that_contain_themselves_are_dropped() -> None:
    data: list[object] = ["a-password"]
    data += [data, data]
    assert masker("a-password").data(data) == "nested too deeply to be masked"


def test_long_chains_and_deep_groups_of_errors_are_cleaned() -> None:
    """B-18."""
    chain: Exception = OSError("a-password is wrong")
    group: Exception = OSError("a-password is wrong")
    for _ in range(DEEP):
        error = OSError("it failed")
        error.__cause__ = chain
        chain, group = error, ExceptionGroup("it failed", [group])
    mask = masker("a-password")
    for each in (mask.clean(chain), mask.clean(group)):
        deepest: BaseException = each
        while inner := deepest.exceptions[0] if isinstance(deepest, BaseExceptionGroup) else deepest.__cause__:
            deepest = inner
        assert str(deepest) == "<auth> is wrong"
    _dismantle(chain)
    _dismantle(group)


def _dismantle(error: BaseException | None) -> None:
    """Free a chain from its end: to free all of it in one step would recurse."""
    errors = []
    while error is not None:
        errors.append(error)
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    while errors:
        errors.pop().__cause__ = None


def test_an_error_in_a_group_whose_text_cannot_be_changed_is_replaced() -> None:
    """B-18: a traceback of the group has its text."""

    class Stubborn(Exception):
        def __str__(self) -> str:
            return "a-password is wrong"

    cause = Stubborn()
    group = ExceptionGroup("it failed", [OSError("no"), ExceptionGroup("inner", [Stubborn()])])
    group.add_note("while connecting")
    group.__cause__ = cause
    cleaned = masker("a-password").clean(group)
    assert isinstance(cleaned, ExceptionGroup)
    shown = "".join(traceback.format_exception(cleaned))
    assert "a-password" not in shown
    assert shown.count("Stubborn: <auth> is wrong") == 2
    assert "OSError: no" in shown
    assert "while connecting" in shown
