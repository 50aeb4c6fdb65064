"""The strict form of a schema, and the way back from what a model writes in it."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given, strategies as st

from mcp_actors.catalog import CatalogTool, strict_schema
from mcp_actors.catalog._tools import freeze

from ..messages import Said

STRING = {"type": "string"}


def strict(**properties: Any) -> dict[str, Any]:
    """The strict form of an object with these properties, none of which is required."""
    found = strict_schema({"type": "object", "properties": properties})
    assert found.is_strict, found.problem
    return found.schema


def member(schema: Any) -> Any:
    """The strict form of a required member."""
    found = strict_schema({"type": "object", "properties": {"x": schema}, "required": ["x"]})
    assert found.is_strict, found.problem
    return found.schema["properties"]["x"]


def problem(schema: Any) -> str | None:
    return strict_schema({"type": "object", "properties": {"x": schema}}).problem


def test_all_members_are_required_and_no_others_are_allowed() -> None:
    """S1-25: the strict form."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "city": {"type": "string", "title": "City", "description": "Where."},
            "days": {"type": "integer", "default": 3, "description": "How many.", "minimum": 1},
            "unit": {"enum": ["C", "F"], "type": "string", "default": None},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        },
        "required": ["city"],
    }
    found = strict_schema(schema)
    assert (found.is_strict, found.problem) == (True, None)
    assert found.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "title": "City", "description": "Where."},
            "days": {"type": ["integer", "null"], "description": "How many. Default: 3.", "minimum": 1},
            "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
            "place": {
                "type": ["object", "null"],
                "properties": {"lat": {"type": "number"}},
                "required": ["lat"],
                "additionalProperties": False,
            },
        },
        "required": ["city", "days", "unit", "place"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"type": "object", "properties": {}, "title": "noArguments"}]
)
def test_a_tool_without_arguments_takes_none(schema: dict[str, Any]) -> None:
    found = strict_schema(schema)
    assert found.is_strict
    assert found.schema.items() >= {"type": "object", "additionalProperties": False}.items()
    assert (found.schema["properties"], found.schema["required"]) == ({}, [])


@pytest.mark.parametrize(
    ("schema", "converted"),
    [
        ({"type": "string", "maxLength": 3, "examples": ["a"], "x-odd": 1}, STRING),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "uri"}, STRING),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"enum": ["a", 1]}, {"type": ["string", "integer"], "enum": ["a", 1]}),
        ({"const": True}, {"type": "boolean", "enum": [True]}),
        ({"items": STRING, "uniqueItems": True}, {"type": "array", "items": STRING}),
        ({"oneOf": [STRING, {"type": "null"}]}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"allOf": [{"type": "string"}], "title": "T"}, {"type": "string", "title": "T"}),
        ({"allOf": [{**STRING, "title": "of a part"}], "title": "T"}, {"type": "string", "title": "T"}),
        *(
            ({"allOf": [{**STRING, keyword: 1}], keyword: 2}, STRING)
            for keyword in ("examples", "deprecated", "readOnly", "writeOnly", "$comment", "discriminator")
        ),
        ({"anyOf": [{"properties": {"a": STRING}}]}, {"anyOf": [strict(a=STRING)]}),
        ({"type": "string", "default": "x"}, {"type": "string", "description": 'Default: "x".'}),
    ],
)
def test_keywords_that_providers_accept_are_kept(schema: Any, converted: Any) -> None:
    assert member(schema) == converted


@pytest.mark.parametrize(
    ("schema", "converted"),
    [
        (STRING, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"const": 1}, {"type": ["integer", "null"], "enum": [1, None]}),
        ({"anyOf": [STRING]}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"anyOf": [STRING, {"type": "null"}]}, {"anyOf": [STRING, {"type": "null"}]}),
    ],
)
def test_an_optional_member_may_be_null(schema: Any, converted: Any) -> None:
    assert strict(x=schema)["properties"]["x"] == converted


@pytest.mark.parametrize(
    "keyword",
    [
        *("title", "description", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minItems", "maxItems"),
    ],
)
def test_a_keyword_that_providers_accept_is_kept(keyword: str) -> None:
    assert member({"type": "string", keyword: 1}) == {"type": "string", keyword: 1}


@pytest.mark.parametrize(
    "name", ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)
def test_a_format_is_kept_if_providers_accept_it(name: str) -> None:
    assert member({"type": "string", "format": name}) == (
        {"type": "string", "format": name} if name != "uri" else STRING
    )


@pytest.mark.parametrize(
    "keyword",
    [
        *("patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "dependentRequired"),
        *("dependentSchemas", "dependencies", "prefixItems", "additionalItems", "contains"),
        *("not", "if", "then", "else"),
        *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
    ],
)
def test_a_keyword_without_a_strict_form_is_named(keyword: str) -> None:
    found = problem({"type": "object", "properties": {"a": STRING}, "required": ["a"], keyword: {}})
    assert found is not None
    assert found.startswith(f"arguments.x has {keyword}")


@pytest.mark.parametrize("keyword", ["type", "properties", "required", "items", "enum", "const", "oneOf"])
def test_what_restricts_all_alternatives_is_named(keyword: str) -> None:
    found = problem({"anyOf": [STRING], keyword: ["string"]})
    assert found is not None
    assert found.startswith(f"arguments.x has {keyword} next to anyOf")


def test_references_stay_references_also_to_themselves() -> None:
    found = strict_schema(
        {
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/definitions/Node"},
                "first": {"$ref": "#/definitions/Node", "description": "The first."},
                "again": {"$ref": "#"},
            },
            "required": ["tree"],
            "definitions": {
                "Node": {
                    "type": "object",
                    "properties": {
                        "name": STRING,
                        "next": {"allOf": [{"$ref": "#/definitions/Node"}], "default": None},
                    },
                    "required": ["name"],
                }
            },
        }
    )
    node, null = {"$ref": "#/$defs/Node"}, {"type": "null"}
    assert found.schema["properties"] == {
        "tree": node,
        "first": {"description": "The first.", "anyOf": [node, null]},
        "again": {"anyOf": [{"$ref": "#"}, null]},
    }
    assert found.schema["$defs"]["Node"]["properties"]["next"] == {"anyOf": [node, null]}
    assert found.restore(
        {"tree": {"name": "a", "next": {"name": "b", "next": None}}, "first": None, "again": None}
    ) == {"tree": {"name": "a", "next": {"name": "b"}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "arguments.x does not declare a type"),
        (True, "arguments.x accepts anything"),
        (False, "arguments.x accepts nothing"),
        ({"type": "object"}, "arguments.x may have unknown members"),
        (
            {"type": "object", "properties": {"a": STRING}, "additionalProperties": True},
            "arguments.x may have unknown members",
        ),
        ({"type": "object", "additionalProperties": STRING}, "arguments.x may have unknown members"),
        ({"type": "array"}, "arguments.x is an array without items"),
        ({"type": "array", "items": {"type": "object"}}, "arguments.x.items may have unknown members"),
        ({"type": "object", "properties": {"a": {"not": STRING}}}, "arguments.x.a has not"),
        ({"properties": {"a": STRING}, "patternProperties": {}}, "arguments.x has patternProperties"),
        ({"properties": {"a": STRING}, "required": ["b"]}, "arguments.x requires 'b', which it does not define"),
        ({"properties": {"a": STRING}, "required": 3}, "arguments.x has required, which is not an array"),
        ({"allOf": [STRING, {"maxLength": 3}]}, "arguments.x has allOf with several parts"),
        ({"allOf": [STRING], "type": "string"}, "arguments.x has type both next to allOf and in it"),
        ({"anyOf": [{"required": ["a"]}], "type": "object"}, "arguments.x has type next to anyOf"),
        ({"anyOf": []}, "arguments.x has anyOf without alternatives"),
        ({"anyOf": [STRING, {}]}, "arguments.x.anyOf[1] does not declare a type"),
        (
            {"$ref": "https://a.example/schema"},
            "arguments.x refers to 'https://a.example/schema', which it does not define",
        ),
        ({"$ref": "#/$defs/missing"}, "arguments.x refers to '#/$defs/missing', which it does not define"),
        ({"$ref": "#", "type": "object"}, "arguments.x has type next to a $ref"),
        ({"type": "string", "$defs": {}}, "arguments.x has $defs"),
        ({"type": "text"}, "arguments.x does not declare a type"),
        ({"enum": []}, "arguments.x does not declare a type"),
        ({"type": "array", "items": [STRING]}, "arguments.x.items is not an object"),
    ],
)
def test_a_schema_without_a_strict_form_is_unchanged_and_logged(
    schema: Any, words: str, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """S1-25: nothing is lost, and the log says whose schema it is, and why."""
    caplog.set_level(logging.INFO, "mcp_actors.catalog")
    whole = {"type": "object", "properties": {"x": schema, "y": STRING}}
    found = strict_schema(whole, owner="tool 'search' of server 'docs'")
    assert (found.schema, found.is_strict) == (whole, False)
    assert found.problem is not None
    assert found.problem.startswith(words)
    assert found.restore({"x": None}) == {"x": None}
    [record] = caplog.records
    said("a schema cannot be strict", record.getMessage(), problem=found.problem)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"anyOf": [{"type": "object"}]}, "arguments has anyOf at its top level"),
        ({"type": "array", "items": STRING}, "arguments does not describe an object"),
        ({"$ref": "#/$defs/x"}, "arguments has $ref at its top level"),
        ({"$defs": {"a": {}}}, "arguments['$defs'].a does not declare a type"),
        ({"$defs": {"a": STRING}, "definitions": {"a": STRING}}, "arguments has two definitions 'a'"),
        ({"properties": []}, "arguments has properties, which is not an object"),
    ],
)
def test_a_root_without_a_strict_form_is_reported(schema: Any, words: str) -> None:
    found = strict_schema(schema)
    assert (found.schema, found.is_strict, found.problem) == (schema, False, words)


def test_a_schema_that_is_nested_too_deeply_is_used_as_it_is() -> None:
    schema: dict[str, Any] = STRING
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    assert problem(schema) == "it is nested too deeply"


def test_the_schema_of_the_catalogue_is_not_changed_and_not_shared() -> None:
    """S1-25: it is a copy, of a frozen schema too."""
    schema = {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": {"enum": [["a"]]}}}}}
    before = copy.deepcopy(schema)
    tool = CatalogTool(server="a", name="x", public_name="x", input_schema=schema)
    for each in (schema, tool.input_schema):
        for found in (strict_schema(each), strict_schema({**each, "anyOf": []})):
            found.schema["properties"]["x"]["properties"]["y"]["enum"][0].append("mine")
            found.schema["properties"]["x"]["title"] = "mine"
            assert each == before
            json.dumps(found.schema)


class TestRestore:
    def test_a_null_that_says_that_nothing_is_given_is_left_out(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "a": STRING,
                "b": {"type": ["string", "null"]},
                "c": {"type": "array", "items": {"type": "object", "properties": {"d": STRING, "e": {"const": None}}}},
            },
        }
        found = strict_schema(schema)
        given = {"a": None, "b": None, "c": [{"d": None, "e": None}, {"d": "x", "e": None}]}
        before = copy.deepcopy(given)
        assert found.restore(given) == {"b": None, "c": [{"e": None}, {"d": "x", "e": None}]}
        assert given == before

    def test_the_members_tell_which_alternative_is_meant(self) -> None:
        one = {"type": "object", "properties": {"a": STRING, "b": {"type": ["string", "null"]}}}
        other = {"type": "object", "properties": {"b": STRING, "c": STRING}, "required": ["c"]}
        found = strict_schema({"type": "object", "properties": {"x": {"anyOf": [one, other]}}})
        assert found.restore({"x": {"a": None, "b": None}}) == {"x": {"b": None}}
        assert found.restore({"x": {"b": None, "c": "y"}}) == {"x": {"c": "y"}}
        assert found.restore({"x": None}) == {}

    def test_members_that_are_not_in_the_schema_are_left_alone(self) -> None:
        found = strict_schema({"type": "object", "properties": {"a": STRING}, "required": ["a"]})
        assert found.restore({"a": None}) == {"a": None}
        assert found.restore({"a": {"b": None}, "c": None}) == {"a": {"b": None}, "c": None}


# --- any schema -----------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def built(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": sorted(required & properties.keys())}

    return st.builds(built, st.dictionaries(names, inner, min_size=1, max_size=3), st.sets(names))


leaves = st.sampled_from(
    [
        *(STRING, {"type": "integer", "default": 1}, {"enum": ["a", "b"]}, {"type": ["boolean", "null"]}, {"const": 1}),
        *({"$ref": "#/$defs/leaf"}, {"anyOf": [STRING, {"type": "null"}], "default": None}),
    ]
)
schemas = objects(
    st.recursive(
        leaves, lambda inner: objects(inner) | inner.map(lambda each: {"type": "array", "items": each}), max_leaves=8
    )
)


def instances(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that are valid by a strict schema."""
    if "$ref" in schema:
        return instances(root["$defs"]["leaf"], root)
    if "anyOf" in schema:
        return st.one_of([instances(each, root) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "string": lambda: st.text(max_size=2),
        "integer": lambda: st.integers(0, 3),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: st.lists(instances(schema["items"], root), max_size=2),
        "object": lambda: st.fixed_dictionaries(
            {name: instances(each, root) for name, each in schema["properties"].items()}
        ),
    }
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return st.one_of([kinds[each]() for each in types])


@given(schemas, st.data())
def test_whatever_a_model_writes_strictly_the_server_can_read(schema: dict[str, Any], data: st.DataObject) -> None:
    """S1-25: what is valid by the strict form is, restored, valid by the original."""
    original = {**schema, "$defs": {"leaf": {"type": "object", "properties": {"d": STRING}}}}
    before = copy.deepcopy(original)
    found = strict_schema(freeze(original))
    assert found.is_strict, found.problem
    written = data.draw(instances(found.schema, found.schema))
    jsonschema.validate(written, found.schema)
    jsonschema.validate(found.restore(written), original)
    assert original == before


def objects_in(schema: Any) -> list[dict[str, Any]]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    found = [each for part in inner for each in objects_in(part)]
    return [*found, schema] if isinstance(schema, dict) and "additionalProperties" in schema else found


@given(schemas)
def test_the_strict_form_is_strict_everywhere_and_again_converted_the_same(schema: dict[str, Any]) -> None:
    found = strict_schema({**schema, "$defs": {"leaf": {"type": "object", "properties": {"d": STRING}}}})
    for each in objects_in(found.schema):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])
    assert strict_schema(found.schema).schema == found.schema
