"""Limits on lists, and the items that exceed them."""

from __future__ import annotations

from typing import Any

import attrs
import mcp.types
import pytest
from hypothesis import given, strategies as st

from mcp_actors import CatalogTool, ConfigError, LimitExceeded, Limits
from mcp_actors.servers.requests._lists import ListMeter

from ..messages import Said
from ..processor_time import least_time, takes_less_than

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
TRUST = "to allow more, if you trust the server"


def words(part: str) -> str:
    return part.replace("_", " ")


def tool(name: str = "read", **parts: Any) -> mcp.types.Tool:
    return mcp.types.Tool.model_construct(
        **{"name": name, "title": None, "description": None, "input_schema": SCHEMA, "output_schema": None}
        | {"annotations": None, "meta": None}
        | parts
    )


def nested(depth: int) -> dict[str, Any]:
    """A schema of so many levels, alternately objects and arrays."""
    value: Any = {}
    for level in range(depth - 1):
        value = {"items": value} if level % 2 or level == depth - 2 else [value]
    found: dict[str, Any] = value
    return found


def admitted(limits: Limits, *tools: mcp.types.Tool) -> tuple[list[mcp.types.Tool], list[LimitExceeded]]:
    """Which tools are within the limits, and why the others are not."""
    meter = ListMeter("docs", "tools", limits)
    meter.announce(len(tools))
    return [each for each in tools if meter.admits(each)], meter.left_out


def left_out(limits: Limits, *tools: mcp.types.Tool) -> list[str]:
    return [str(error) for error in admitted(limits, *tools)[1]]


def test_the_defaults_are_far_above_what_servers_list() -> None:
    limits = Limits()
    assert (limits.max_tools, limits.max_text_chars, limits.max_notifications) == (1000, 16_384, 500)
    assert (limits.max_schema_bytes, limits.max_schema_depth, limits.max_list_bytes) == (262_144, 64, 8_388_608)
    assert limits.max_message_values == 250_000


def test_a_tool_within_the_limits_is_kept() -> None:
    tools = [tool("a"), tool("b", output_schema=SCHEMA, annotations={}, meta={"x": [1, None, 2.5, True]}), tool("a")]
    assert admitted(Limits(), *tools) == (tools, [])


def test_a_tool_over_a_limit_is_left_out_and_the_others_are_kept(said: Said) -> None:
    tools = [tool("a"), tool("b", description="x" * 11), tool("c")]
    kept, [error] = admitted(Limits(max_text_chars=10), *tools)
    assert [each.name for each in kept] == ["a", "c"]
    assert isinstance(error, LimitExceeded)
    assert error.server == "docs"
    said("a tool is left out", str(error))


def test_too_many_tools_are_a_failure_of_the_listing(said: Said) -> None:
    """There is no telling which of them are meant."""
    assert len(admitted(Limits(max_tools=3), *[tool()] * 3)[0]) == 3
    with pytest.raises(LimitExceeded) as caught:
        admitted(Limits(max_tools=3), *[tool()] * 4)
    said("too many tools", str(caught.value))
    assert caught.value.server == "docs"


@pytest.mark.parametrize("part", ["input_schema", "output_schema", "annotations", "meta"])
@pytest.mark.parametrize("depth", [65, 20_000])
def test_a_value_that_is_nested_too_deeply_does_not_recurse(part: str, depth: int) -> None:
    [message] = left_out(Limits(), tool("read", **{part: nested(depth)}))
    assert message == (
        f"server 'docs': tool 'read' is left out: the JSON of its {words(part)} is nested {depth} levels deep, and the "
        f"limit is 64; set limits=Limits(max_schema_depth=…) {TRUST}"
    )
    assert left_out(Limits(), tool("read", **{part: nested(64)})) == []


def test_a_value_that_holds_itself_is_nested_too_deeply() -> None:
    mine: dict[str, Any] = {"type": "object"}
    mine["properties"] = {"a": mine, "b": [mine, mine]}
    [message] = left_out(Limits(), tool(input_schema=mine))
    assert "its input schema is nested more than" in message


@pytest.mark.parametrize("part", ["input_schema", "output_schema", "annotations", "meta"])
def test_a_value_of_too_many_bytes_is_reported(part: str) -> None:
    limits = Limits(max_schema_bytes=1000)
    assert left_out(limits, tool("read", **{part: {"a": "x" * 980}})) == []
    [message] = left_out(limits, tool("read", **{part: {"a": "é" * 500}}))
    assert message == (
        f"server 'docs': tool 'read' is left out: the JSON of its {words(part)} takes about 1010 bytes, and the "
        f"limit is 1000; set limits=Limits(max_schema_bytes=…) {TRUST}"
    )


def test_a_huge_value_is_not_looked_at_to_its_end() -> None:
    huge = {"enum": [["x"]] * 3_000_000}
    with takes_less_than(1):
        [message] = left_out(Limits(), tool(input_schema=huge))
    assert "its input schema takes more than 3000012 bytes, and the limit is 262144" in message
    wide = {"a": [["x" * 100] * 100_000]}
    assert "takes more than 5243" in left_out(Limits(), tool(input_schema=wide))[0]
    keys = dict.fromkeys(map(str, range(600_000)))
    assert "takes more than 1200002 bytes" in left_out(Limits(), tool(input_schema=keys))[0]
    assert least_time(lambda: left_out(Limits(), tool(input_schema=keys))) < 0.1


def test_tools_that_are_each_within_the_limits_can_be_too_much_together(said: Said) -> None:
    """The listing fails, as there is no telling which of them are meant."""
    meter = ListMeter("docs", "tools", Limits(max_list_bytes=10_000))
    assert meter.admits(tool("a", description="x" * 9_000))
    with pytest.raises(LimitExceeded) as caught:
        meter.admits(tool("b", description="x" * 1_000))
    said("a list of too many bytes", str(caught.value))


def test_tools_that_are_left_out_count_towards_the_size_of_the_list() -> None:
    """Otherwise a list could go on for ever."""
    meter = ListMeter("docs", "tools", Limits(max_list_bytes=10_000, max_text_chars=100))
    assert not meter.admits(tool("a", description="x" * 9_000))
    with pytest.raises(LimitExceeded, match="its list of tools takes"):
        meter.admits(tool("b", description="x" * 1_000))


def test_a_list_of_very_many_tiny_values_is_too_much() -> None:
    """Each counts for 8 bytes, so that a list has no more than a million of them if it may have 8 MiB."""
    assert Limits().max_list_bytes == 8 * 2**20
    values = [1] * 30_000
    meter = ListMeter("docs", "tools", Limits(max_list_bytes=2**20))
    for number in range(2**20 // (9 * 30_000)):
        meter.admits(tool(str(number), input_schema={"enum": values}))
    with pytest.raises(LimitExceeded, match="max_list_bytes"):
        meter.admits(tool("one more", input_schema={"enum": values}))


@pytest.mark.parametrize(
    ("what", "item", "told"),
    [
        ("tools", tool("a", icons=[mcp.types.Icon(src="x" * 300_000)]), "tool 'a' is left out: the JSON of its icons"),
        ("prompts", mcp.types.Prompt(name="a", description="x" * 20_000), "prompt 'a' is left out: its description"),
        (
            "resources",
            mcp.types.Resource(name="a", uri="file:///" + "x" * 20_000),
            "resource 'a' is left out: its uri has 20008 characters",
        ),
        (
            "resource templates",
            mcp.types.ResourceTemplate(name="a", uri_template="x", _meta={"x": "x" * 300_000}),
            "resource template 'a' is left out: the JSON of its meta takes about 300",
        ),
    ],
)
def test_items_of_every_list_are_measured(what: str, item: Any, told: str) -> None:
    meter = ListMeter("docs", what, Limits())
    assert not meter.admits(item)
    [error] = meter.left_out
    assert str(error).startswith(f"server 'docs': {told}")


def test_a_cursor_that_is_too_long_is_not_sent_back(said: Said) -> None:
    meter = ListMeter("docs", "prompts", Limits(max_text_chars=10))
    meter.follow("x" * 10)
    with pytest.raises(LimitExceeded) as caught:
        meter.follow("x" * 11)
    said("a cursor that is too long", str(caught.value))


def test_a_number_of_many_digits_is_a_number() -> None:
    assert left_out(Limits(), tool(input_schema={"maximum": 10**10_000})) == []


def test_annotations_are_measured_as_the_sdk_gives_them() -> None:
    [message] = left_out(Limits(), tool(annotations=mcp.types.ToolAnnotations(title="x" * 300_000)))
    assert "the JSON of its annotations takes about 300" in message


def test_a_name_cannot_act_in_the_message() -> None:
    [message] = left_out(Limits(max_text_chars=100), tool("\x1b[31m\u202e" + "x" * 200))
    assert message.startswith(f"server 'docs': tool '{'x' * 79}…' is left out: its name has 206 characters")


def test_a_tool_that_just_fits_can_be_worked_with() -> None:
    """The deepest limit there is: nothing that this package does with a schema ends in a recursion error."""
    listed = tool(input_schema=nested(200), meta=nested(200))
    assert left_out(Limits(max_schema_depth=200), listed) == []
    kept = CatalogTool.from_listing("docs", listed, "x")
    assert kept == CatalogTool.from_listing("docs", listed, "x")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_the_depth_is_that_of_objects_and_arrays_within_each_other(schema: dict[str, Any]) -> None:
    depth = depth_of(schema)
    assert left_out(Limits(max_schema_depth=depth), tool(input_schema=schema)) == []
    if depth > 1:
        [message] = left_out(Limits(max_schema_depth=depth - 1), tool(input_schema=schema))
        assert f"is nested {depth} levels deep" in message


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("max_tools", 0, "give a whole number of 1 or more"),
        ("max_text_chars", True, "give a whole number of 1 or more"),
        ("max_schema_bytes", 2.5, "give a whole number of 1 or more"),
        ("max_notifications", None, "give a whole number of 1 or more"),
        ("max_schema_depth", 0, "give a whole number from 1 to 200"),
        ("max_schema_depth", 201, "give a whole number from 1 to 200"),
    ],
)
def test_a_value_out_of_range_is_refused(field: str, value: Any, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Limits(**{field: value})
    assert str(caught.value) == f"Limits: {field}={value!r} is not valid; {remedy}"
    assert (caught.value.source, caught.value.path) == ("Limits", field)


def test_limits_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Limits().max_tools = 1  # type: ignore[misc]  # that it refuses is what is tested
