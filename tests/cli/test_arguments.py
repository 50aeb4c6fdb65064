"""Convert words to arguments, typed by the schema of the tool."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_actors.cli._call import explained, given_as_json, parse_arguments, signature
from mcp_actors.cli._output import Misuse
from tests.messages import Said

SCHEMA = {
    "type": "object",
    "$defs": {"Order": {"type": "string"}},
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
        "order": {"$ref": "#/$defs/Order"},
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
        (["flag=True"], {"flag": True}),
        (["maybe=None"], {"maybe": None}),
        (["order=1"], {"order": "1"}),
    ],
)
def test_a_value_has_the_type_of_its_property(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("word", "row"),
    [
        ("count", "word without ="),
        ("=3", "word without a key"),
        ("cuont=3", "unknown argument"),
        ("count=x", "not an integer"),
        ("count=1.5", "a fraction for an integer"),
        ("count=true", "a boolean for an integer"),
        ("flag=yes", "not a boolean"),
        ("maybe=x", "not an integer or null"),
        ("numbers=x", "an item that is not an integer"),
        ("options=x", "not an object"),
        ("numbers=[1, 2", "a list that is not closed"),
        ('options={"a": 1', "an object that is not closed"),
    ],
)
def test_an_invalid_argument_is_refused(word: str, row: str, said: Said) -> None:
    with pytest.raises(Misuse) as caught:
        parse_arguments([word], SCHEMA)
    said(row, str(caught.value))


@pytest.mark.parametrize("words", [("count=1", "count=2"), ("other=1", "other=1"), ("count=1", "flag=true", "count=1")])
def test_an_argument_that_is_not_a_list_is_given_once(words: tuple[str, ...]) -> None:
    """One of the values would have been dropped without a word."""
    with pytest.raises(Misuse, match="is given more than once; write it once, or all arguments as one JSON object"):
        parse_arguments(words, {**SCHEMA, "additionalProperties": True})


def test_json_that_is_nested_too_deeply_is_refused(said: Said) -> None:
    deep = "[" * 100_000
    with pytest.raises(Misuse) as caught:
        given_as_json(['{"a":' + deep])
    said("JSON nested too deeply", str(caught.value))
    with pytest.raises(Misuse, match=r"argument 'options': .* is not of type object"):
        parse_arguments([f"options={deep}"], SCHEMA)


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
def test_the_schema_decides_about_other_arguments(schema: dict[str, Any], fine: bool) -> None:
    with contextlib.nullcontext() if fine else pytest.raises(Misuse, match="has no argument 'other'"):
        assert parse_arguments(["other=1"], schema) == {"other": 1}


@given(
    st.lists(st.text()),
    st.dictionaries(
        st.sampled_from(["type", "properties", "anyOf", "items", "$ref", "allOf", "enum"]),
        st.none() | st.text() | st.dictionaries(st.text(), st.none()) | st.lists(st.none() | st.lists(st.none())),
    ),
)
def test_any_input_gives_arguments_or_a_misuse_and_a_signature(words: list[str], schema: dict[str, Any]) -> None:
    with contextlib.suppress(Misuse):
        assert isinstance(parse_arguments(words, schema), dict)
    assert signature("any", {"properties": {"a": schema}})
    assert signature("any", schema)
    explained(schema)
