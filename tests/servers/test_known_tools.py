"""Two listed tools are equal if they are the same JSON."""

from __future__ import annotations

from typing import Any, Final

import pytest
from mcp.types import Icon, Tool, ToolAnnotations, ToolExecution

from mcp_actors.catalog import pin
from mcp_actors.catalog._snapshot import place_of
from mcp_actors.servers._admission import KnownTool, known_tools

from ..calls import calls_in

TOOL: Final = Tool(name="search", input_schema={"const": 1}, output_schema={"const": 1})

OTHER: Final[dict[str, Any]] = {
    "name": "find",
    "title": "Find",
    "description": "Find a text.",
    "input_schema": {"const": True},
    "output_schema": {"const": True},
    "execution": ToolExecution(task_support="required"),
    "icons": [Icon(src="https://example.org/icon.png")],
    "annotations": ToolAnnotations(read_only_hint=True),
    "meta": {"version": 2},
}


def test_the_same_tool_is_equal() -> None:
    assert KnownTool.of("a", TOOL) == KnownTool.of("a", TOOL.model_copy(deep=True))


@pytest.mark.parametrize("member", Tool.model_fields)
def test_a_tool_that_differs_in_any_member_is_not_equal(member: str) -> None:
    assert KnownTool.of("a", TOOL) != KnownTool.of("a", TOOL.model_copy(update={member: OTHER[member]}))


def remembered(tool: Tool) -> KnownTool:
    return KnownTool.remembered("a", tool, "mcp__{server}__{tool}")


def test_a_remembered_tool_equals_the_same_one_that_is_listed() -> None:
    assert remembered(TOOL) == KnownTool.of("a", TOOL)
    assert remembered(TOOL) != KnownTool.of("a", TOOL.model_copy(update={"description": "Another."}))


def test_a_listed_tool_is_hashed_before_it_is_judged() -> None:
    """The tools of a list are judged in one step."""
    known = KnownTool.of("a", TOOL)
    calls, hashed = calls_in(lambda: known.pin)
    assert (calls, hashed) == (1, pin(TOOL))  # the lambda


async def test_a_remembered_tool_that_is_listed_again_stays_the_same_object_and_is_prepared() -> None:
    before = remembered(TOOL)
    (now,) = await known_tools("a", [TOOL.model_copy(deep=True)], "mcp__{server}__{tool}", [before])
    assert now is before
    assert now.entry.variants[place_of(available=True, deferred=False)] is not None
