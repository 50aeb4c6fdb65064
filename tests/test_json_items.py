"""The items of a list are read although one of them, or the text around them, is not what a parser accepts."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st
from mcp.types import ErrorData
from pydantic_core import from_json

from mcp_actors._json import TOKENS, ItemReader, UnparsedText, UnreadableItem

PATH = ("result", "tools")


def read(text: str | bytes) -> Any:
    """Return what the reader makes of a text."""
    reader = ItemReader(text if isinstance(text, bytes) else text.encode(), PATH)
    for _ in reader.steps():
        pass
    return reader.value


def items(text: str) -> Any:
    """Return what the reader makes of the items of a list."""
    return read(f'{{"id":1,"result":{{"tools":[{text}]}}}}')["result"]["tools"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["result", "tools", "name", '"', "\\"]), inner),
)


@given(st.lists(values), st.dictionaries(st.text(), values), values, st.sampled_from([None, 1]), st.booleans())
def test_a_valid_text_is_read_as_by_the_parser(
    tools: list[Any], more: dict[str, Any], before: Any, indent: int | None, alone: bool
) -> None:
    message = {"a": before, "result": {**more, "tools": tools, "b": before}}
    text = json.dumps([message] if alone else message, indent=indent)
    assert read(text) == message == (from_json(text)[0] if alone else from_json(text))


@given(values, st.sampled_from([r'"\ud800"', '"\\x"', "[" * 300 + "]" * 300, '{"a":}', "nul", "[1 2]"]))
def test_only_an_item_that_cannot_be_parsed_is_replaced(value: Any, bad: str) -> None:
    valid = json.dumps(value)
    before, found, after = items(f"{valid},{bad},{valid}")
    assert before == after == value
    assert isinstance(found, UnreadableItem)


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (r'{"name":"a","x":DEEP}', "a"),
        (r'{"x":DEEP,"name":"a"}', "a"),
        (r'{"x":{"name":"b"},"y":DEEP}', None),
        (r'{"name":5,"y":DEEP}', None),
        (r'{"name":["a"],"y":DEEP}', None),
        (r'[{"name":"b"},DEEP]', None),
        ("DEEP", None),
    ],
)
def test_an_unreadable_item_has_its_name(item: str, name: str | None) -> None:
    deep = item.replace("DEEP", "[" * 300 + "]" * 300)
    assert items(f"1,{deep}") == [1, UnreadableItem(name, "its JSON is nested more than 200 levels deep")]


def test_an_item_whose_text_is_not_unicode_is_read_or_has_its_name() -> None:
    """Also in a list that has an item which is nested too deeply."""
    deep = "[" * 300 + "]" * 300
    found = items(rf'{deep},{{"name":"a","title":"\ud800"}},{{"name":"\ud800"}},{{"uri":"\ud800","name":"b"}}')
    assert found[1] == {"name": "a", "title": "\ufffd"}
    assert [each.name for each in (found[2], found[3])] == ["?", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        '{"result":{"tools":[{]',
        '{"result":{"tools":[}]}}',
        '{"result":{"tools":[1 2]}}',
        '{"result":{"tools":[1,]}}',
        '{"result":{"tools":{"a":[1]}}}',
        '{"result":[{"tools":[1]}]}',
        '{"error":{"tools":[1]}}',
        '{"result":{"tools":[1]},"result":{"tools":[2]}}',
        '{"result":{"tools":[1]}} {"result":{"tools":[1]}}',
        '[{"result":{"tools":[1]}},1]',
        '{"x":{"result":{"tools":[1]}}}',
        "}" * 10,
        "]" * 10 + '{"result":{"tools":[1]}}',
    ],
)
def test_a_text_that_is_wrong_outside_of_the_items_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the parser's
        read(text)


@pytest.mark.parametrize("part", ["[", "{", "}", "]", ",", ":", '"",', '{"name":', "[[],", "1 "])
def test_a_long_text_is_searched_in_short_steps(part: str) -> None:
    """Each step takes a bounded number of tokens, whatever they are."""
    number = 100 * TOKENS
    steps = ItemReader(f'{{"result":{{"tools":[{part * number}'.encode(), PATH).steps()
    for _ in range(100):
        next(steps)


def test_a_text_in_an_error_is_neither_shown_nor_pickled() -> None:
    mark = UnparsedText.of("a mark", b"secret")
    data = ErrorData(code=1, message="", data=mark).data
    assert data is mark
    assert data == "a mark"
    assert repr(data) == repr("a mark")
    assert type(pickle.loads(pickle.dumps(data))) is str
    assert b"secret" not in pickle.dumps(data)
