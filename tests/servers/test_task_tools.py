"""Tools that can only be run as tasks: how they are listed, and the error of a call."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, TextContent, Tool, ToolExecution

from mcp_actors import open_servers
from mcp_actors.servers import NotSupported

from ..messages import Said
from .library import TOOL, Library
from .links import text_of

RENDER = Tool(name="render", input_schema={"type": "object"}, execution=ToolExecution(task_support="required"))
INDEX = Tool(name="index", input_schema={"type": "object"}, execution=ToolExecution(task_support="optional"))


async def strict(ctx: Any, params: Any) -> CallToolResult:
    """Answer as the specification requires: without a task, the method of such a tool is not found."""
    if params.name == "render":
        raise MCPError(METHOD_NOT_FOUND, "Tool render requires task augmentation")
    if params.name == "index":
        raise MCPError(INVALID_PARAMS, "nothing to index")
    if params.name == "gone":
        raise MCPError(METHOD_NOT_FOUND, "gone")
    return CallToolResult(content=[TextContent(type="text", text="done")])


def library(**handlers: Any) -> Library:
    made = Library(**handlers)
    made.tools = [TOOL, RENDER, INDEX]
    return made


async def test_tools_that_require_a_task_are_listed_as_such() -> None:
    """S4-34: by the server, and in the catalogue."""
    async with open_servers(library().config(protocol="legacy")) as servers:
        listed = await servers["library"].list_tools()
        assert [tool.execution for tool in listed] == [None, RENDER.execution, INDEX.execution]
        assert [tool.task_support for tool in servers.tools] == ["forbidden", "required", "optional"]


async def test_calling_a_tool_that_requires_a_task_is_not_supported(said: Said) -> None:
    """S4-34: the server's own error is the cause. Other errors pass through."""
    async with open_servers(library(on_call_tool=strict).config(protocol="legacy")) as servers:
        ref = servers["library"]
        with pytest.raises(NotSupported) as caught:
            await ref.call_tool("render")
        with pytest.raises(MCPError, match="nothing to index"):
            await ref.call_tool("index")
        with pytest.raises(MCPError, match="gone"):
            await ref.call_tool("gone")
        assert text_of(await ref.call_tool("search")) == "done"
    said("tool requires a task", str(caught.value))
    assert caught.value.capability == "tasks"
    assert isinstance(caught.value.__cause__, MCPError)


async def test_a_tool_that_works_without_a_task_after_all_works() -> None:
    """S4-34: the server is what knows."""
    async with open_servers(library().config(protocol="legacy")) as servers:
        assert text_of(await servers["library"].call_tool("render")) == "found"
