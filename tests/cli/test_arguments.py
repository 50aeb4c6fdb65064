"""Words become arguments, typed by the schema of the tool."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_actors.cli._problems import Misuse
from mcp_actors.cli.commands._arguments import parse_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "options": {"type": "object"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "anything": {},
    },
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["text=3"], {"text": "3"}),
        (["count=3"], {"count": 3}),
        (["count=3.0"], {"count": 3}),
        (["ratio=3"], {"ratio": 3}),
        (["ratio=0.5"], {"ratio": 0.5}),
        (["flag=true"], {"flag": True}),
        (["tags=a", "tags=b c"], {"tags": ["a", "b c"]}),
        (['tags=["a"]'], {"tags": ["a"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (['options={"a": 1}'], {"options": {"a": 1}}),
        (["maybe=null"], {"maybe": None}),
        (["either=3"], {"either": 3}),
        (["either=x"], {"either": "x"}),
        (["anything=[1]"], {"anything": [1]}),
        (["anything=x y"], {"anything": "x y"}),
    ],
)
def test_a_value_has_the_type_of_its_property(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words, None, SCHEMA) == arguments


def test_words_come_on_top_of_json() -> None:
    assert parse_arguments(["count=2"], '{"count": 1, "text": "x"}', SCHEMA) == {"count": 2, "text": "x"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["count"], "'count' is no argument; write key=value, or --args '{…}'"),
        (["=3"], "'=3' is no argument; write key=value, or --args '{…}'"),
        (["cuont=3"], "the tool has no argument 'cuont'; did you mean 'count'?"),
        (["count=x"], "argument 'count': 'x' is no integer"),
        (["count=1.5"], "argument 'count': '1.5' is no integer"),
        (["count=true"], "argument 'count': 'true' is no integer"),
        (["flag=yes"], "argument 'flag': 'yes' is no boolean"),
        (["maybe=x"], "argument 'maybe': 'x' is no integer or null"),
        (["numbers=x"], "argument 'numbers': 'x' is no integer"),
        (["options=x"], "argument 'options': 'x' is no object"),
    ],
)
def test_what_is_no_argument_is_said(words: list[str], problem: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse_arguments(words, None, SCHEMA)
    assert str(caught.value) == problem


def test_json_that_is_nested_too_deeply_is_said() -> None:
    deep = "[" * 100_000
    with pytest.raises(Misuse, match=r"^--args is nested too deeply to be read$"):
        parse_arguments([], deep, SCHEMA)
    with pytest.raises(Misuse, match=r"argument 'options': .* is no object"):
        parse_arguments([f"options={deep}"], None, SCHEMA)


@pytest.mark.parametrize("given", ["1", '"abc"', "null", '{"a": 1}'])
def test_a_word_is_added_to_an_array_only(given: str) -> None:
    with pytest.raises(Misuse, match="argument 'tags' is no array in --args, to which 'x' could be added"):
        parse_arguments(["tags=x"], f'{{"tags": {given}}}', SCHEMA)
    assert parse_arguments(["tags=x"], '{"tags": ["a"]}', SCHEMA) == {"tags": ["a", "x"]}


@pytest.mark.parametrize("text", ["[]", "3", "null"])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="--args is no JSON object"):
        parse_arguments([], text, SCHEMA)


@pytest.mark.parametrize(
    ("schema", "fine"),
    [
        ({}, True),
        ({"additionalProperties": False}, False),
        ({"properties": {"a": {}}}, False),
        ({"properties": {"a": {}}, "additionalProperties": True}, True),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, True),
        ({"properties": None}, True),
    ],
)
def test_whether_other_arguments_are_taken_is_up_to_the_schema(schema: dict[str, Any], fine: bool) -> None:
    with contextlib.nullcontext() if fine else pytest.raises(Misuse, match="has no argument 'other'"):
        assert parse_arguments(["other=1"], None, schema) == {"other": 1}


@given(
    st.lists(st.text()),
    st.none() | st.text(),
    st.dictionaries(
        st.sampled_from(["type", "properties", "anyOf", "items"]),
        st.none() | st.text() | st.dictionaries(st.text(), st.none()) | st.lists(st.none() | st.lists(st.none())),
    ),
)
def test_nothing_else_ever_comes_of_it(words: list[str], as_json: str | None, schema: dict[str, Any]) -> None:
    with contextlib.suppress(Misuse):
        assert isinstance(parse_arguments(words, as_json, schema), dict)
