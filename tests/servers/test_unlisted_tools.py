"""Calls of tools that the server does not list."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, Final, Literal

import pytest
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from mcp_actors import (
    InProcess,
    ServerConfig,
    ServerUnavailable,
    ToolFailed,
    ToolFilter,
    bridge,
    open_servers,
    result_value,
)

Era = Literal["legacy", "2026-07-28"]
ERAS: Final[list[Era]] = ["legacy", "2026-07-28"]
HINT: Final = "server 'a' does not list a tool 'ecoh'; did you mean 'echo'?"


def refusing(era: Era = "legacy", **options: Any) -> ServerConfig:
    """Configure a server that refuses unknown tools by a result, as those made with the SDK do."""
    made = MCPServer("a")

    @made.tool()
    def echo(text: str) -> str:
        return text

    @made.tool()
    def secret() -> str:
        return "hidden"

    return ServerConfig("a", InProcess(made), protocol=era, **options)


def raising(era: Era) -> ServerConfig:
    """Configure a server that refuses unknown tools by an error, but for one that it does not list."""

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])

    async def call(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        if params.name == "unlisted":
            return CallToolResult(content=[TextContent(type="text", text="done")])
        if params.name == "unlisted_failing":
            return CallToolResult(content=[], is_error=True)
        raise MCPError(INVALID_PARAMS, f"no tool {params.name}")

    return ServerConfig("a", InProcess(Server("a", on_list_tools=list_tools, on_call_tool=call)), protocol=era)


def texts(result: CallToolResult) -> list[str]:
    """Return the texts of a result."""
    return [block.text for block in result.content if isinstance(block, TextContent)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_by_a_result_is_logged_with_the_nearest_listed_names(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """C-53: the call is sent, and its result is as the server has sent it."""
    async with open_servers(refusing(era)) as servers:
        result = await servers["a"].call_tool("ecoh", {"text": "x"})
        assert result.is_error
        assert texts(result) == ["Unknown tool: ecoh"]
        await servers["a"].call_tool("zzz")
        await servers["a"].call_tool("a__echo")
        await servers["a"].call_tool("a/echo")
        await servers["a"].call_tool("echo", {"text": "x"})
    assert [each for each in caplog.messages if "does not list" in each] == [
        "server 'a' does not list a tool 'ecoh'; did you mean 'echo'; it was called, and its result is an error",
        "server 'a' does not list a tool 'zzz'; its other tools: 2; it was called, and its result is an error",
        "server 'a' does not list a tool 'a__echo'; did you mean 'echo'; it was called, and its result is an error",
        "server 'a' does not list a tool 'a/echo'; did you mean 'echo'; it was called, and its result is an error",
    ]


async def test_an_error_of_call_names_the_server_the_tool_and_the_nearest_name() -> None:
    """D-34: the result keeps its JSON, and is equal to one without these words."""
    async with open_servers(refusing()) as servers:
        with pytest.raises(ToolFailed) as caught:
            await servers["a"].call("ecoh", text="x")
        assert str(caught.value) == f"tool 'ecoh' of server 'a' failed: 'Unknown tool: ecoh'; {HINT}"
        result = await servers["a"].call_tool("ecoh")
        plain = CallToolResult(content=[TextContent(type="text", text="Unknown tool: ecoh")], is_error=True)
        assert (result, repr(result), result.model_dump_json()) == (plain, repr(plain), plain.model_dump_json())
        with pytest.raises(ToolFailed, match=r"^tool 'ecoh' of server 'a' failed: "):
            result_value(pickle.loads(pickle.dumps(result)))
        with pytest.raises(ToolFailed, match=r"^the tool failed: "):
            result_value(plain)


def test_a_refusal_on_asyncio_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    """C-53."""

    async def main() -> None:
        async with bridge.open_servers(refusing()) as servers:
            assert texts(await servers["a"].call_tool("ecoh", {"text": "x"})) == ["Unknown tool: ecoh"]

    asyncio.run(main())
    assert any("did you mean 'echo'" in each for each in caplog.messages)


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_by_an_error_has_them_as_a_note(era: Era) -> None:
    """C-53, S4-01: the message, the code and the data are the server's."""
    async with open_servers(raising(era)) as servers:
        with pytest.raises(MCPError) as caught:
            await servers["a"].call_tool("ecoh")
        assert (caught.value.message, caught.value.code) == ("no tool ecoh", INVALID_PARAMS)
        assert caught.value.__notes__ == [HINT]
        with pytest.raises(MCPError) as caught:
            await servers["a"].call_tool("echo")
        assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_is_not_listed_can_be_called(era: Era) -> None:
    """C-53."""
    async with open_servers(raising(era)) as servers:
        assert texts(await servers["a"].call_tool("unlisted")) == ["done"]


async def test_without_a_connection_the_error_has_them_as_a_note() -> None:
    """C-53: by the last list."""
    async with open_servers(refusing()) as servers:
        await servers["a"].stop()
        with pytest.raises(ServerUnavailable) as caught:
            await servers["a"].call_tool("ecoh")
        assert caught.value.__notes__ == [HINT]


async def test_tools_that_are_hidden_are_not_suggested(caplog: pytest.LogCaptureFixture) -> None:
    """C-53."""
    async with open_servers(refusing(tool_filter=ToolFilter(deny=["secret"]))) as servers:
        await servers["a"].call_tool("secrets")
    [said] = [each for each in caplog.messages if "does not list" in each]
    assert "; its other tools: 1; " in said
