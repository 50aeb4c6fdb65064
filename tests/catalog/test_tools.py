"""A tool of the catalogue keeps the listed data, and is immutable."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import mcp.types
import pytest

from mcp_actors import CatalogTool

from ..messages import Said

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"q": {"enum": ["a", "b"]}}, "required": ["q"]}


def listed(**fields: Any) -> mcp.types.Tool:
    return mcp.types.Tool(**{"name": "search.all", "input_schema": copy.deepcopy(SCHEMA), **fields})


def cataloged(**fields: Any) -> CatalogTool:
    return CatalogTool.from_listing("docs", listed(**fields), "mcp__docs__search_all")


def test_it_keeps_what_the_server_listed_and_where_it_comes_from() -> None:
    tool = CatalogTool.from_listing(
        "docs",
        listed(
            title="Search",
            description="Finds things.",
            output_schema={"type": "object"},
            annotations=mcp.types.ToolAnnotations(read_only_hint=True),
            _meta={"example.com/rank": 3},
        ),
        "mcp__docs__search_all",
    )
    assert (tool.server, tool.name, tool.public_name) == ("docs", "search.all", "mcp__docs__search_all")
    assert (tool.title, tool.description, tool.available) == ("Search", "Finds things.", True)
    assert (tool.input_schema, tool.output_schema) == (SCHEMA, {"type": "object"})
    assert (tool.annotations, tool.meta) == ({"readOnlyHint": True}, {"example.com/rank": 3})


def test_fields_that_a_server_left_out_have_the_value_none() -> None:
    tool = cataloged()
    assert (tool.title, tool.description, tool.output_schema, tool.annotations, tool.meta) == (None,) * 5


def test_a_tool_that_a_program_makes_is_available_and_its_annotations_may_be_a_mapping_already() -> None:
    tool = CatalogTool(server="a", name="b", public_name="c", input_schema={}, annotations={"title": "B"})
    assert (tool.annotations, tool.available, tool.deferred) == ({"title": "B"}, True, False)


def test_changing_the_listing_afterwards_changes_nothing() -> None:
    source = listed()
    tool = CatalogTool.from_listing("docs", source, "x")
    source.input_schema["properties"]["q"]["enum"].append("c")
    source.input_schema.clear()
    assert tool.input_schema == SCHEMA


CHANGES: list[Callable[[Any], object]] = [
    lambda schema: schema.__setitem__("type", "array"),
    lambda schema: schema.__delitem__("type"),
    lambda schema: schema.__ior__({"x": 1}),
    lambda schema: schema.update(x=1),
    lambda schema: schema.setdefault("x", 1),
    lambda schema: schema.pop("type"),
    lambda schema: schema.popitem(),
    lambda schema: schema.clear(),
    lambda schema: schema["properties"]["q"].update(x=1),
    lambda schema: schema["required"].append("x"),
    lambda schema: schema["required"].extend("x"),
    lambda schema: schema["required"].insert(0, "x"),
    lambda schema: schema["required"].pop(),
    lambda schema: schema["required"].remove("q"),
    lambda schema: schema["required"].clear(),
    lambda schema: schema["required"].sort(),
    lambda schema: schema["required"].reverse(),
    lambda schema: schema["required"].__setitem__(0, "x"),
    lambda schema: schema["required"].__delitem__(0),
    lambda schema: schema["required"].__iadd__(["x"]),
    lambda schema: schema["required"].__imul__(2),
    lambda schema: setattr(schema, "x", 1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_a_schema_reaches_the_catalogue(change: Callable[[Any], object]) -> None:
    tool = cataloged()
    with pytest.raises((TypeError, AttributeError)):
        change(tool.input_schema)
    assert tool.input_schema == SCHEMA


def test_a_refused_change_says_how_to_get_a_copy(said: Said) -> None:
    schema: Any = cataloged().input_schema
    with pytest.raises(TypeError) as caught:
        schema["type"] = "array"
    said("a shared schema cannot be changed", str(caught.value))


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda schema: schema.copy()])
def test_a_copy_of_a_schema_is_ordinary_and_can_be_changed(make: Callable[[Any], Any]) -> None:
    tool = cataloged()
    copied = make(tool.input_schema)
    assert type(copied) is dict
    assert type(copied["required"]) is list
    copied["required"].append("x")
    copied["properties"]["q"]["x"] = 1
    assert tool.input_schema == SCHEMA


def test_schemas_can_be_used_wherever_a_dict_can() -> None:
    schema = cataloged().input_schema
    assert isinstance(schema, dict)
    assert isinstance(schema["required"], list)
    assert json.loads(json.dumps(schema)) == SCHEMA
    assert mcp.types.Tool(name="again", input_schema=schema).input_schema == SCHEMA


def test_it_is_frozen_hashable_and_stays_frozen_in_a_pickle() -> None:
    tool = cataloged()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tool.name = "other"  # type: ignore[misc]  # that it refuses is what is tested
    assert {tool: 1}[cataloged()] == 1
    thawed: Any = pickle.loads(pickle.dumps(tool))
    assert thawed == tool
    with pytest.raises(TypeError):
        thawed.input_schema["properties"]["x"] = 1


def test_repr_shows_both_names_the_origin_and_whether_it_is_available() -> None:
    """S3-11: origin shown."""
    tool = cataloged()
    assert repr(tool) == "<CatalogTool 'mcp__docs__search_all': 'search.all' of server 'docs'>"
    away = attrs.evolve(tool, available=False)
    assert repr(away) == "<CatalogTool 'mcp__docs__search_all': 'search.all' of server 'docs', unavailable>"
    remembered = attrs.evolve(away, deferred=True)
    assert repr(remembered) == "<CatalogTool 'mcp__docs__search_all': 'search.all' of server 'docs', deferred>"
