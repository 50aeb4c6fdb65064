"""Two listed tools are equal if they are the same JSON."""

from __future__ import annotations

from typing import Any, Final

import pytest
from mcp.types import Icon, Tool, ToolAnnotations, ToolExecution

from mcp_actors.servers.tools import KnownTool

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
