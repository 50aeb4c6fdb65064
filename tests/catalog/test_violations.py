"""Violations are described in one line, without secrets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mcp_actors.catalog._schemas import Path, Schema, dotted, kind_of
from tests.programs import number_of


def told(schema: Any, value: Any) -> str:
    found = Schema(schema, "x").violation(value)
    assert found is not None
    violation, _ = found
    expected = "" if violation.expected is None else f"; expected {violation.expected}"
    return f"{dotted('it', violation.path)} {violation.found}{expected}"


ONE_OF_TWO = "that does not fit; expected one of 2 alternatives of the schema"


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"type": "integer"}, "3", "it is a string; expected an integer"),
        ({"type": "integer"}, True, "it is a boolean; expected an integer"),
        ({"type": ["string", "null"]}, 1.5, "it is a number; expected a string or null"),
        ({"type": "object"}, [], "it is an array; expected an object"),
        ({"enum": ["celsius", "fahrenheit"]}, "kelvin", "it is 'kelvin'; expected one of 'celsius', 'fahrenheit'"),
        ({"enum": ["only"]}, None, "it is null; expected 'only'"),
        ({"enum": [1, True, None, {}]}, False, "it is false; expected one of 1, true, null, an object"),
        ({"enum": list(range(20))}, 99, "it is 99; expected one of 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"),
        ({"const": "v1"}, "v2", "it is a string; expected exactly 'v1'"),
        ({"pattern": "^a"}, "b", "it does not match; expected a string that matches ^a"),
        ({"minimum": 1}, 0, "it is 0; expected at least 1"),
        ({"maximum": 1}, 2, "it is 2; expected at most 1"),
        ({"exclusiveMinimum": 1}, 1, "it is 1; expected more than 1"),
        ({"exclusiveMaximum": 1}, 1, "it is 1; expected less than 1"),
        ({"multipleOf": 5}, 7, "it is 7; expected a multiple of 5"),
        ({"minLength": 2}, "a", "it has 1 character; expected at least 2"),
        ({"maxLength": 2}, "abc", "it has 3 characters; expected at most 2"),
        ({"minItems": 2}, [1], "it has 1 item; expected at least 2"),
        ({"maxItems": 0}, [1, 2], "it has 2 items; expected at most 0"),
        ({"minProperties": 1}, {}, "it has 0 members; expected at least 1"),
        ({"maxProperties": 0}, {"a": 1}, "it has 1 member; expected at most 0"),
        ({"uniqueItems": True}, [1, 1], "it is an array that violates the rule 'uniqueItems'"),
        ({"required": ["a", "b"]}, {"a": 1}, "it.b is missing"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, "it.b is not known; expected 'a'"),
        ({"additionalProperties": False}, {"b": 1}, "it.b is not known; expected nothing"),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x": 1, "y": 1}, "it.y is not known"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "it.abc has 3 characters; expected at most 2"),
        (
            {"properties": {"propertyNames": {"type": "null"}}},
            {"propertyNames": "a"},
            "it.propertyNames is a string; expected null",
        ),
        (False, 1, "it contains what is not allowed"),
        ({"properties": {"a": False}}, {"a": 1}, "it contains what is not allowed"),
        ({"not": {"type": "string"}}, "a", "it is not allowed"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", "it is a string; expected an integer or null"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, f"it is an integer {ONE_OF_TWO}"),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, 3, f"it is an integer {ONE_OF_TWO}"),
        (
            {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": True}}},
            {},
            "it.a is an object that violates the rule 'required'; expected required: true",
        ),
    ],
)
def test_what_is_found_and_what_is_expected(schema: Any, value: Any, words: str) -> None:
    assert told(schema, value).startswith(words)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ((), "it"),
        (("filter", "limit"), "it.filter.limit"),
        (("rows", 0, "id"), "it.rows[0].id"),
        (("odd key", "a.b", "x" * 41), f"it['odd key']['a.b']['{'x' * 39}…]"),
        (("line\nbreak",), r"it['line\nbreak']"),
    ],
)
def test_a_path_is_written_as_people_write_it(path: Path, words: str) -> None:
    assert dotted("it", path) == words


def test_a_value_that_json_does_not_have_is_named_by_its_python_type() -> None:
    assert kind_of(object()) == "a Python object"
    assert kind_of((1,)) == "an array"


SECRET = "hunter2-correct-horse-battery-staple-and-so-on-for-ever"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"const": "other"},
        {"pattern": "^a"},
        {"minLength": 100},
        {"maxLength": 3},
        {"not": {"type": "string"}},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"anyOf": [{"maxLength": 3}, {"pattern": "^a"}]},
        {"if": {"type": "string"}, "then": False},
    ],
)
def test_text_is_not_shown(schema: dict[str, Any]) -> None:
    cases: list[tuple[Any, Any]] = [
        (schema, SECRET),
        ({"items": schema}, [SECRET]),
        ({"properties": {"a": schema}}, {"a": SECRET}),
    ]
    for around, value in cases:
        assert "hunter2" not in told(around, value)


LONG = st.text(min_size=1).map(lambda text: text * 200)


@settings(max_examples=number_of(50))
@given(value=LONG | st.integers(min_value=10**200), rules=st.lists(LONG, min_size=1))
def test_words_stay_short_whatever_the_value_and_the_schema_are(value: Any, rules: list[str]) -> None:
    schemas: list[Any] = [{"enum": rules}, {"maximum": 1, "maxLength": 1}, {"const": rules[0] + "x"}, {"not": {}}]
    for schema in schemas:
        if Schema(schema, "x").violation(value) is not None:
            assert len(told(schema, value)) < 500
