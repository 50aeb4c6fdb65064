"""One table of results, as `call` returns them and as each framework shows them to its model."""

from __future__ import annotations

import asyncio
import base64
import copy
import pickle
from contextlib import nullcontext, suppress
from typing import Any, Final

import pytest
from attrs import frozen
from mcp.server import Server
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from mcp_actors import InProcess, ServerConfig, ServerUnavailable, ToolFailed, adapters, result_value
from mcp_actors.adapters._offer import binary_of, parts_of
from mcp_actors.bridge import open_servers

from .frameworks import FRAMEWORKS

PIXEL: Final = base64.b64encode(b"a picture").decode()
PICTURE: Final = BlobResourceContents(uri="file:///p", blob=PIXEL, mime_type="image/png")
NOTE: Final = TextResourceContents(uri="file:///n", text="a note", mime_type="application/json")


@frozen
class Row:
    """A result.

    Attributes:
        result: what the server returns.
        value: what `call` returns; the words of its error for a failure.
        shown: what each model is shown at least.
    """

    result: CallToolResult
    value: Any
    shown: tuple[str, ...]


def result(*content: Any, data: Any = None, **more: Any) -> CallToolResult:
    return CallToolResult(content=list(content), structured_content=data, **more)


ROWS: Final = {
    "data only": Row(result(data={"tables": [1]}), {"tables": [1]}, ("tables",)),
    "data of nothing": Row(result(data={}), {}, ("{}",)),
    "data with a shorter text": Row(
        result(TextContent(text="1 row"), data={"rows": [7]}), {"rows": [7]}, ("rows", "7")
    ),
    "data with a picture": Row(
        result(ImageContent(data=PIXEL, mime_type="image/png"), data={"rows": [7]}), {"rows": [7]}, ("rows", "picture")
    ),
    "a picture as a blob": Row(result(EmbeddedResource(resource=PICTURE)), b"a picture", ("picture",)),
    "a picture of a data URL": Row(
        result(ImageContent(data=f"data:image/png;base64,{PIXEL.rstrip('=')}", mime_type="image/png")),
        b"a picture",
        ("picture",),
    ),
    "an embedded text": Row(result(EmbeddedResource(resource=NOTE)), "a note", ("a note",)),
    "a link": Row(
        result(ResourceLink(name="report", uri="file:///r")),
        {"type": "resource_link", "name": "report", "uri": "file:///r"},
        ("file:///r",),
    ),
    "nothing": Row(result(), None, ("the tool returned nothing",)),
    "a failure with a text and data": Row(
        result(TextContent(text="disk full"), data={"code": 7}, is_error=True),
        "the tool failed: 'disk full\\n{\"code\":7}'",
        ("disk full", "code"),
    ),
    "a failure with an embedded text": Row(
        result(EmbeddedResource(resource=NOTE), is_error=True), "the tool failed: 'a note'", ("a note",)
    ),
    "a failure of nothing": Row(
        result(is_error=True), "the tool failed without a text; see the error's result", ("gave no reason",)
    ),
}

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "langchain": {"handle_tool_error": True},
    "langchain-agents": {"handle_tool_error": True},
}


def serving(answer: CallToolResult) -> ServerConfig:
    """Configure a server in this process with one tool, which returns a result."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="tool", input_schema={"type": "object", "properties": {}})])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        return answer

    return ServerConfig("here", InProcess(Server("here", on_list_tools=list_tools, on_call_tool=call_tool)))


async def think(turn: int, offered: list[str], heard: list[str]) -> Any:
    """Call the tool, and then say what was heard."""
    return ("mcp__here__tool", {}) if turn == 1 else heard[0]


@pytest.mark.parametrize("name", ROWS)
def test_every_presentation_of_a_result_has_what_it_has(name: str) -> None:
    """D-17: the value is that of `call`, and no model is shown nothing where there is something."""
    row = ROWS[name]

    async def main() -> dict[str, str]:
        async with open_servers(serving(row.result)) as servers:
            with suppress(ToolFailed) if row.result.is_error else nullcontext():
                assert await servers["here"].call("tool") == row.value
            return {each: await FRAMEWORKS[each].run(servers, think, **OPTIONS.get(each, {})) for each in FRAMEWORKS}

    if row.result.is_error:
        with pytest.raises(ToolFailed) as caught:
            result_value(row.result)
        assert str(caught.value) == row.value
    for framework, heard in asyncio.run(main()).items():
        for words in row.shown:
            assert words in heard.replace(PIXEL, "a picture"), (framework, heard)


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ({"a": 1}, ['{"a": 1}']),
        ({"result": "hi"}, ["hi"]),
        ({"result": 3}, ["3"]),
        ({"result": [3, "x"]}, ["3", "x"]),
        ({"result": [3]}, ["[3]"]),
    ],
)
def test_structured_content_is_not_shown_twice(data: Any, texts: list[str]) -> None:
    """D-17: most servers repeat it as text; those of the Python SDK write a text for each item of a list."""
    found = result(*(TextContent(text=text) for text in texts), data=data)
    assert [part.text for part in parts_of(found) if part.type == "text"] == texts
    assert len(parts_of(result(*found.content[1:], data=data))) == len(texts)


def test_the_metadata_of_a_result_reaches_what_a_framework_has_for_it() -> None:
    """D-25: but not what the protocol puts there."""
    import pydantic_ai
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    meta = {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}, "trace": 7}
    shared = {"trace": 7}
    seen: dict[str, Any] = {}

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        seen["pydantic-ai"] = [part.metadata for part in parts]
        return ModelResponse(parts=[TextPart("done") if parts else ToolCallPart("mcp__here__tool", {})])

    async def main() -> None:
        async with open_servers(serving(result(TextContent(text="hi"), _meta=meta))) as servers:
            await pydantic_ai.Agent(FunctionModel(model), toolsets=[adapters.PydanticAIToolset(servers)]).run("hello")
            [tool] = await adapters.langchain_tools(servers)
            called = await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": {}})
            seen["langchain"] = called.artifact["_meta"]
            seen["openai-agents"] = (await adapters.OpenAIAgentsServer(servers).call_tool(tool.name, {})).meta
            seen["client"] = (await adapters.McpClient(servers).call_tool(tool.name, {})).meta
            if "agent-framework" in FRAMEWORKS:
                from mcp_actors.adapters._agent_framework import _contents

                found = await servers["here"].call_tool("tool")
                assert [each.additional_properties["_meta"] for each in _contents(found)] == [shared]

    asyncio.run(main())
    assert seen == {"pydantic-ai": [shared], "langchain": meta, "openai-agents": meta, "client": meta}


def blob(data: str, mime_type: str | None = None) -> EmbeddedResource:
    return EmbeddedResource(resource=BlobResourceContents(uri="x:a", blob=data, mime_type=mime_type))


@pytest.mark.parametrize("given", ["aGk=", "data:image/png;base64,aGk=", "aGk", "aG\nk="])
@pytest.mark.parametrize("kind", ["image", "blob of an image", "blob"])
def test_binary_parts_of_any_form_are_valid_base64(kind: str, given: str) -> None:
    """D-17."""
    part = ImageContent(data=given, mime_type="image/png")
    found = parts_of(result({"image": part, "blob": blob(given)}.get(kind, blob(given, "image/png"))))
    expected = ("aGk=", "application/octet-stream" if kind == "blob" else "image/png")
    assert [binary_of(each) for each in found] == [expected]
    assert found[0].type == ("resource" if kind == "blob" else "image")


@pytest.mark.parametrize("broken", ["", "???", "data:image/png;base64,"])
@pytest.mark.parametrize("kind", ["image/png", "application/pdf"])
def test_a_binary_part_without_bytes_is_a_text_that_says_so(kind: str, broken: str) -> None:
    """D-17: the provider of a model refuses a conversation with an empty picture."""
    [shown] = parts_of(result(blob(broken, kind)))
    assert isinstance(shown, TextContent)
    assert shown.text == f"[a part of the type '{kind}' that is empty or is not base64]"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_picture_that_is_not_base64_does_not_cost_the_other_parts(framework: str) -> None:
    """D-17."""
    broken = ImageContent(data="???", mime_type="image/png")

    async def main() -> str:
        async with open_servers(serving(result(TextContent(text="hi"), broken))) as servers:
            return await FRAMEWORKS[framework].run(servers, think)

    heard = asyncio.run(main())
    assert "hi" in heard
    assert "'image/png' that is empty or is not base64" in heard


def test_a_tool_of_langchain_can_be_pickled() -> None:
    """D-25: it can be shown to a model, but has no connection."""

    async def main() -> None:
        async with open_servers(serving(result(TextContent(text="hi")))) as servers:
            [tool] = await adapters.langchain_tools(servers)
            again = pickle.loads(pickle.dumps(tool))
            assert (again.name, again.args_schema, again.metadata) == (tool.name, tool.args_schema, tool.metadata)
            with pytest.raises(ServerUnavailable, match=r"was pickled, .* again by langchain_tools\(group\)$"):
                await again.ainvoke({})
            assert await tool.ainvoke({}) == await copy.deepcopy(tool).ainvoke({}) == "hi"

    asyncio.run(main())
