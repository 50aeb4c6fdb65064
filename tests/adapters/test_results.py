"""Results in the types of each framework, and arguments that arrive unchanged."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from mcp import ClientSession
from mcp.server import Server
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from mcp.types.version import SUPPORTED_PROTOCOL_VERSIONS

from mcp_actors import InProcess, ServerConfig, adapters
from mcp_actors.bridge import AsyncioServerGroup, open_servers
from tests.servers.groups import server
from tests.servers.library import Library

from .later import Later

if TYPE_CHECKING:
    import agents
    import pydantic_ai
else:
    agents, pydantic_ai = Later("agents"), Later("pydantic_ai")

PIXEL = base64.b64encode(b"a picture").decode()
SOUND = base64.b64encode(b"a sound").decode()

TEXT = TextContent(text="hi")
JSON = TextContent(text='{"a": 1}')
IMAGE = ImageContent(data=PIXEL, mime_type="image/png")
AUDIO = AudioContent(data=SOUND, mime_type="audio/wav")
NOTE = EmbeddedResource(resource=TextResourceContents(uri="file:///note", text="a note"))
PICTURE = EmbeddedResource(resource=BlobResourceContents(uri="file:///p", blob=PIXEL, mime_type="image/png"))
BLOB = EmbeddedResource(resource=BlobResourceContents(uri="file:///b", blob=PIXEL))
LINK = ResourceLink(name="report", uri="file:///report")

TOOL = Tool(
    name="tool",
    title="A tool",
    input_schema={"type": "object", "properties": {"config": {"type": "string"}, "self": {"type": "string"}}},
    output_schema={"type": "object"},
    annotations=ToolAnnotations(read_only_hint=True),
    _meta={"some": {"thing": 1}},
)

Use = Callable[[AsyncioServerGroup], Awaitable[object]]


def with_tool(use: Use, *content: Any, tool: Tool = TOOL, **result: Any) -> tuple[Any, list[Any]]:
    """Use a server whose tool returns something; return what came of it, and what the tool was called with."""
    called = []

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        called.append(params.arguments)
        return CallToolResult(content=list(content), **result)

    async def main() -> object:
        serving: Server[Any] = Server("here", on_list_tools=list_tools, on_call_tool=call_tool)
        async with open_servers(ServerConfig("here", InProcess(serving), validate="off")) as servers:
            return await use(servers)

    return asyncio.run(main()), called


async def by_langchain(servers: AsyncioServerGroup) -> Any:
    [tool] = await adapters.langchain_tools(servers)
    return (await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": {}})).content


async def by_pydantic_ai(servers: AsyncioServerGroup) -> Any:
    toolset, ctx = adapters.PydanticAIToolset(servers), Context()
    [tool] = (await toolset.get_tools(ctx)).values()
    return await toolset.call_tool(tool.tool_def.name, {}, ctx, tool)


def Context() -> Any:  # noqa: N802 - it stands for a class of the framework
    from pydantic_ai.models.test import TestModel

    return pydantic_ai.RunContext(deps=None, model=TestModel(), usage=pydantic_ai.RunUsage())


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        ([TEXT], None, "hi"),
        ([JSON], None, '{"a": 1}'),
        ([TEXT, TEXT], None, [{"type": "text", "text": "hi"}] * 2),
        ([IMAGE], None, [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}]),
        ([AUDIO], None, [{"type": "file", "base64": SOUND, "mime_type": "audio/wav"}]),
        ([NOTE], None, "a note"),
        ([PICTURE], None, [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}]),
        ([BLOB], None, [{"type": "file", "base64": PIXEL, "mime_type": "application/octet-stream"}]),
        ([LINK], None, '{"name":"report","uri":"file:///report","type":"resource_link"}'),
        ([], None, "the tool returned nothing"),
        ([], {"a": 1}, '{"a":1}'),
        ([JSON], {"a": 1}, '{"a": 1}'),
        ([TEXT], {"a": 1}, [{"type": "text", "text": "hi"}, {"type": "text", "text": '{"a":1}'}]),
    ],
)
def test_content_for_langchain(content: list[Any], structured: Any, expected: Any) -> None:
    found, _ = with_tool(by_langchain, *content, structured_content=structured)
    assert found == expected


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        ([TEXT], None, "hi"),
        ([JSON], None, {"a": 1}),
        ([TextContent(text="[not json")], None, "[not json"),
        ([TEXT, TEXT], None, ["hi", "hi"]),
        ([IMAGE], None, (b"a picture", "image/png")),
        ([AUDIO], None, (b"a sound", "audio/wav")),
        ([NOTE], None, "a note"),
        ([PICTURE], None, (b"a picture", "image/png")),
        ([BLOB], None, (b"a picture", "application/octet-stream")),
        ([LINK], None, {"name": "report", "uri": "file:///report", "type": "resource_link"}),
        ([], None, "the tool returned nothing"),
        ([TEXT], {"a": 1}, {"a": 1}),
        ([TEXT], {"result": [1]}, [1]),
        ([TEXT, IMAGE], {"a": 1}, ["hi", (b"a picture", "image/png"), {"a": 1}]),
    ],
)
def test_content_for_pydantic_ai(content: list[Any], structured: Any, expected: Any) -> None:
    found, _ = with_tool(by_pydantic_ai, *content, structured_content=structured)
    seen = [binary_of(part) for part in found] if isinstance(found, list) else binary_of(found)
    assert seen == expected


def binary_of(part: Any) -> Any:
    """Return the data and the type of a binary part of Pydantic AI, where a picture has a class of its own."""
    is_picture = isinstance(part, pydantic_ai.BinaryImage)
    assert is_picture is str(getattr(part, "media_type", "")).startswith("image/")
    return (part.data, part.media_type) if isinstance(part, pydantic_ai.BinaryContent) else part


@pytest.mark.parametrize(
    ("content", "structured", "message"),
    [
        ([TEXT], None, "hi"),
        ([TEXT], {"code": 7}, 'hi\n{"code":7}'),
        ([], None, "tool 'mcp__here__tool' failed and gave no reason"),
        ([TextContent(text="")], None, "tool 'mcp__here__tool' failed and gave no reason"),
    ],
)
def test_what_a_failed_tool_says_to_pydantic_ai(content: list[Any], structured: Any, message: str) -> None:
    """D-25: neither its text nor its data is lost."""
    with pytest.raises(pydantic_ai.ModelRetry) as caught:
        with_tool(by_pydantic_ai, *content, structured_content=structured, is_error=True)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("content", "structured", "message"),
    [
        ([TEXT, TEXT], {"code": 7}, 'hi\nhi\n{"code":7}'),
        ([], {"code": 7}, '{"code":7}'),
        ([], None, "the tool failed and gave no reason"),
    ],
)
def test_what_a_failed_tool_says_to_langchain(content: list[Any], structured: Any, message: str) -> None:
    """D-25."""
    from langchain_core.tools import ToolException

    with pytest.raises(ToolException) as caught:
        with_tool(by_langchain, *content, structured_content=structured, is_error=True)
    assert str(caught.value) == message


def test_the_artifact_of_langchain_is_the_whole_result() -> None:
    async def use(servers: AsyncioServerGroup) -> object:
        [tool] = await adapters.langchain_tools(servers)
        return (await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": {}})).artifact

    found, _ = with_tool(use, TEXT, structured_content={"a": 1})
    assert found["content"] == [{"type": "text", "text": "hi"}]
    assert found["structuredContent"] == {"a": 1}


def test_arguments_may_have_any_name() -> None:
    """LangChain takes ``config`` and others for itself, if it is let."""
    from anthropic.lib.tools.mcp import async_mcp_tool

    arguments = {name: name for name in ("config", "self", "run_manager", "input", "kwargs", "callbacks", "name")}

    async def use(servers: AsyncioServerGroup) -> object:
        [tool] = await adapters.langchain_tools(servers)
        await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": dict(arguments)})
        await tool.ainvoke(dict(arguments))
        client = adapters.McpClient(servers)
        [helper] = [async_mcp_tool(each, client) for each in (await client.list_tools()).tools]
        del arguments["self"]  # which older versions of pydantic, under the helper, take for themselves
        return await helper.call(dict(arguments))

    _, called = with_tool(use, TEXT)
    assert called == [{**arguments, "self": "self"}] * 2 + [arguments]


def test_a_tool_of_langchain_is_awaited() -> None:
    async def use(servers: AsyncioServerGroup) -> None:
        [tool] = await adapters.langchain_tools(servers)
        with pytest.raises(NotImplementedError, match="is async; await its ainvoke"):
            tool.invoke({})

    with_tool(use, TEXT)


def test_tools_without_parameters_are_tools_of_langchain() -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    async def use(servers: AsyncioServerGroup) -> object:
        [tool] = await adapters.langchain_tools(servers)
        assert tool.args == {}
        return convert_to_openai_tool(tool)

    found, _ = with_tool(use, tool=Tool(name="bare", input_schema={"type": "object"}))
    assert found["function"] == {
        "name": "mcp__here__bare",
        "description": "bare",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize("include", [None, False, True])
def test_a_model_of_pydantic_ai_is_shown_what_a_tool_returns_if_that_is_wanted(include: bool | None) -> None:
    from pydantic_ai.capabilities import IncludeToolReturnSchemas
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def use(servers: AsyncioServerGroup) -> tuple[bool, ...]:
        seen: list[Any] = []

        def model(messages: Any, info: AgentInfo) -> ModelResponse:
            seen.extend(info.function_tools)
            return ModelResponse(parts=[TextPart("done")])

        toolset = adapters.PydanticAIToolset(servers, include_return_schema=include)
        for capabilities in [], [IncludeToolReturnSchemas()]:
            await pydantic_ai.Agent(FunctionModel(model), toolsets=[toolset], capabilities=capabilities).run("hello")
        return tuple("Return schema" in (tool.description or "") or tool.return_schema is not None for tool in seen)

    found, _ = with_tool(use)
    assert found == (include is True, include is not False)


def test_what_is_known_of_a_tool_is_known_to_the_frameworks() -> None:
    async def use(servers: AsyncioServerGroup) -> None:
        [listed] = await adapters.OpenAIAgentsServer(servers).list_tools()
        assert listed == TOOL.model_copy(update={"name": "mcp__here__tool"})
        assert (await adapters.McpClient(servers).list_tools()).tools == [listed]
        [offered] = (await adapters.PydanticAIToolset(servers, id="mine").get_tools(Context())).values()
        assert offered.tool_def.return_schema == {"type": "object"}
        assert offered.tool_def.metadata == {
            "meta": {"some": {"thing": 1}},
            "annotations": {"readOnlyHint": True},
            "task": False,
        }
        [tool] = await adapters.langchain_tools(servers)
        assert tool.metadata is not None
        assert tool.metadata["mcp_tool"] == "tool"
        assert tool.metadata["mcp_annotations"] == {"readOnlyHint": True}

    with_tool(use)


def test_a_client_has_what_libraries_look_at_before_they_list_tools() -> None:
    """agent-framework does, and the SDK's own session has it under these names."""

    async def use(servers: AsyncioServerGroup) -> None:
        client = adapters.McpClient(servers)
        assert client.protocol_version in SUPPORTED_PROTOCOL_VERSIONS
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.prompts is None
        assert client.initialize_result is None
        assert {"protocol_version", "server_capabilities", "initialize_result"} <= set(dir(ClientSession))

    with_tool(use)


def test_a_client_is_called_as_a_session_of_the_sdk_is() -> None:
    def names(method: str) -> set[str]:
        return set(inspect.signature(getattr(adapters.McpClient, method)).parameters)

    methods = [name for name, _ in inspect.getmembers(adapters.McpClient, inspect.iscoroutinefunction)]
    assert {"list_tools", "call_tool", "list_prompts", "get_prompt", "list_resources", "read_resource"} <= set(methods)
    for method in methods:
        assert names(method) - {"cursor"} <= set(inspect.signature(getattr(ClientSession, method)).parameters)


def test_what_a_framework_changes_is_its_own_copy() -> None:
    async def use(servers: AsyncioServerGroup) -> object:
        [listed] = await adapters.OpenAIAgentsServer(servers).list_tools()
        listed.input_schema["properties"]["config"]["type"] = "number"
        [offered] = (await adapters.PydanticAIToolset(servers).get_tools(Context())).values()
        offered.tool_def.parameters_json_schema["properties"].clear()
        [tool] = await adapters.langchain_tools(servers)
        assert isinstance(tool.args_schema, dict)
        tool.args_schema["properties"].clear()
        return servers.tools[0].input_schema

    found, _ = with_tool(use)
    assert found == TOOL.input_schema


def test_toolsets_of_one_agent_have_different_ids() -> None:
    from pydantic_ai.models.test import TestModel

    async def main() -> None:
        async with open_servers(server("a"), server("b")) as servers:
            first = adapters.PydanticAIToolset(servers, servers=["a"], id="first")
            assert first.id == "first"
            assert repr(first).startswith("<PydanticAIToolset a of <AsyncioServerGroup")
            model = TestModel(call_tools=["mcp__a__pid", "mcp__b__pid"])
            agent = pydantic_ai.Agent(model, toolsets=[first, adapters.PydanticAIToolset(servers, servers=["b"])])
            assert (await agent.run("hello")).output.count("mcp__") == 2
            one = adapters.OpenAIAgentsServer(servers, servers=["a"])
            two = adapters.OpenAIAgentsServer(servers, servers=["b"], name="two")
            assert [one.name, two.name, adapters.OpenAIAgentsServer(servers).name] == ["a", "two", "mcp_actors"]
            assert repr(two).startswith("<OpenAIAgentsServer 'two': b of")
            assert repr(adapters.McpClient(servers)) == f"<McpClient: {servers!r}>"
            tools = await agents.Agent(name="x", mcp_servers=[one, two]).get_mcp_tools(agents.RunContextWrapper(None))
            assert {"mcp__a__pid", "mcp__b__pid"} <= {tool.name for tool in tools}

    asyncio.run(main())


@pytest.mark.parametrize("name", ["OpenAIAgentsServer", "McpClient"])
def test_prompts_and_resources_are_those_of_the_one_server(name: str) -> None:
    from anthropic.lib.tools.mcp import mcp_message, mcp_resource_to_content

    async def main() -> None:
        async with open_servers(Library().config(), server("b")) as servers:
            one = getattr(adapters, name)(servers, servers=["library"])
            ref = servers["library"]
            assert tuple((await one.list_prompts()).prompts) == await ref.list_prompts()
            assert tuple((await one.list_resources()).resources) == await ref.list_resources()
            templates = await one.list_resource_templates()
            assert tuple(templates.resource_templates) == await ref.list_resource_templates()
            uri = str((await ref.list_resources())[0].uri)
            read = await one.read_resource(uri)
            assert read.contents == (await ref.read_resource(uri)).contents
            assert mcp_resource_to_content(read)
            first = (await ref.list_prompts())[0].name
            prompt = await one.get_prompt(first, {"code": "x", "language": "python"})
            assert mcp_message(prompt.messages[0])["role"] == prompt.messages[0].role

    asyncio.run(main())
