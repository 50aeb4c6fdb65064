"""Approvals, streams and results of Agent Framework; the other tests run it with all of `FRAMEWORKS`."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
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
)

from mcp_actors import InProcess, RequestTimedOut, ServerConfig, adapters
from mcp_actors.bridge import AsyncioServerGroup, open_servers
from mcp_actors.config import ToolContext, ToolFilter
from tests.servers.groups import server

from ..messages import Said
from .frameworks import Think
from .later import Later
from .test_tool_names import DELETE, PUBLIC, Shop

if TYPE_CHECKING:
    import agent_framework as af
else:
    af = Later("agent_framework")

if importlib.util.find_spec("agent_framework") is None:
    pytest.skip("needs agent-framework-core", allow_module_level=True)

PIXEL = base64.b64encode(b"a picture").decode()
ECHO = "mcp__a__echo"


def played(*thoughts: Any, heard: list[str] | None = None, offered: list[list[str]] | None = None) -> Any:
    """A model that has these thoughts, one at each turn."""

    async def think(turn: int, tools: list[str], results: list[str]) -> Any:
        if heard is not None:
            heard[:] = results
        if offered is not None:
            offered.append(tools)
        return thoughts[turn - 1]

    return think


def PlayedClient(think: Think, **options: Any) -> Any:  # noqa: N802 - it stands for a class on the framework
    from .agent_framework_client import PlayedClient

    return PlayedClient(think, **options)


def in_group(use: Callable[[AsyncioServerGroup], Awaitable[Any]], *configs: ServerConfig, **options: Any) -> Any:
    async def main() -> Any:
        async with open_servers(*(configs or (server("a"),)), **options) as servers:
            return await use(servers)

    return asyncio.run(main())


def agent(servers: AsyncioServerGroup, client: Any, *, tools: Any = None, **options: Any) -> af.Agent:
    return af.Agent(client, tools=tools, context_providers=[adapters.AgentFrameworkProvider(servers, **options)])


def test_a_stream_sees_the_tools_of_each_turn() -> None:
    offered: list[list[str]] = []

    async def use(servers: AsyncioServerGroup) -> str:
        async def think(turn: int, tools: list[str], results: list[str]) -> Any:
            offered.append(tools)
            if turn == 1:
                await servers["b"].stop()
                return ECHO, {"text": "x"}
            return f"heard {results}"

        words = [str(update.text) async for update in agent(servers, PlayedClient(think)).run("hello", stream=True)]
        return "".join(words)

    assert in_group(use, server("a"), server("b")) == "heard ['x']"
    assert [any(name.startswith("mcp__b__") for name in turn) for turn in offered] == [True, False]


def test_an_agent_whose_first_server_starts_in_its_run_gets_the_tools() -> None:
    """The framework has no list of tools then, which the provider has to make."""
    offered: list[list[str]] = []

    async def use(servers: AsyncioServerGroup) -> str:
        await servers["a"].stop()
        client = PlayedClient(played("done", offered=offered))
        who = agent(servers, client)
        await who.run("hello")
        await servers["a"].start()
        return str((await agent(servers, PlayedClient(played((ECHO, {"text": "x"}), "done"))).run("hello")).text)

    assert in_group(use) == "done"
    assert offered == [[]]


@pytest.mark.parametrize(
    ("details", "words"),
    [(False, "Error: Function failed."), (True, "Error: Function failed. Exception: failed as asked")],
)
def test_a_failed_tool_is_shown_as_the_framework_shows_its_own(details: bool, words: str) -> None:
    heard: list[str] = []

    async def use(servers: AsyncioServerGroup) -> None:
        client = PlayedClient(played(("mcp__a__fail", {}), "done", heard=heard), details=details)
        await agent(servers, client).run("hello")

    in_group(use)
    assert heard == [words]


def test_an_error_of_a_call_reaches_the_programs_middleware_as_it_is() -> None:
    seen: list[Exception] = []

    class Watch(af.FunctionMiddleware):
        async def process(self, context: af.FunctionInvocationContext, call_next: Any) -> None:
            try:
                await call_next()
            except Exception as exc:
                seen.append(exc)
                raise

    async def use(servers: AsyncioServerGroup) -> None:
        client = PlayedClient(played(("mcp__a__sleep", {"seconds": 600}), "done"))
        who = af.Agent(client, context_providers=[adapters.AgentFrameworkProvider(servers)], middleware=[Watch()])
        await who.run("hello")

    in_group(use, server("a", request_timeout=0.1))
    assert [type(exc) for exc in seen] == [RequestTimedOut]


@pytest.mark.parametrize("approval", ["always", [ECHO]])
def test_a_call_that_needs_approval_waits_for_it_and_is_made_in_the_next_run(approval: Any) -> None:
    async def use(servers: AsyncioServerGroup) -> list[str]:
        heard: list[str] = []
        client = PlayedClient(played((ECHO, {"text": "x"}), "done", heard=heard))
        who = agent(servers, client, approval=approval)
        session = who.create_session()
        asked = await who.run("hello", session=session)
        [request] = asked.user_input_requests
        assert (request.function_call.name, client.turn) == (ECHO, 1)
        answer = af.Message("user", [request.to_function_approval_response(approved=True)])
        assert (await who.run(answer, session=session)).text == "done"
        return heard

    assert in_group(use) == ["x"]


def test_other_tools_than_those_named_need_no_approval() -> None:
    async def use(servers: AsyncioServerGroup) -> str:
        client = PlayedClient(played((ECHO, {"text": "x"}), "done"))
        return str((await agent(servers, client, approval=["mcp__a__sleep"]).run("hello")).text)

    assert in_group(use) == "done"


@pytest.mark.parametrize(
    ("approval", "kind"),
    [
        (ECHO, ValueError),
        ("Always", ValueError),
        ({"always_require_approval": ["echo"]}, TypeError),
        ({"echo": "always"}, TypeError),
        ([ECHO, 3], TypeError),
        (b"always", TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_another_approval_is_refused(approval: Any, kind: type[Exception], said: Said) -> None:
    """D-02. A mapping was a collection of its keys, once."""

    async def use(servers: AsyncioServerGroup) -> None:
        with pytest.raises(kind) as caught:
            adapters.AgentFrameworkProvider(servers, approval=approval)
        row = "approval is another text" if kind is ValueError else "approval is no collection of names"
        said(row, str(caught.value), approval=repr(approval))

    in_group(use)


@pytest.mark.parametrize(
    ("approval", "asked"),
    [
        ([DELETE], [False, True]),
        ([PUBLIC], [False, True]),
        ((DELETE, PUBLIC), [False, True]),
        ({DELETE}, [False, True]),
        ([DELETE.upper()], [True, True]),
        (["delete_everythin", "add"], [True, True]),
        ([], [False, False]),
        ("always", [True, True]),
    ],
    ids=["own", "public", "both", "set", "another case", "misspelled", "no name", "all"],
)
def test_an_approval_names_tools_by_either_name_and_until_each_matches_all_are_asked_about(
    approval: Any, asked: list[bool], caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-02. The tool is in no ledger while a person is asked."""
    shop = Shop()

    async def use(servers: AsyncioServerGroup) -> list[bool]:
        found = []
        for name in "mcp__mine__add", PUBLIC:
            run = await agent(servers, PlayedClient(played((name, {}), "done")), approval=approval).run("hello")
            found.append(bool(run.user_input_requests))
        return found

    assert in_group(use, shop.config) == asked
    called = [name for name, needs in zip(("add", DELETE), asked, strict=True) if not needs]
    assert [tool for tool, _ in shop.ledger] == [f"mine.{name}" for name in called]
    lines = {each.getMessage() for each in caplog.records if each.name == "mcp_actors.adapters"}
    misspelled = [name for name in approval if name not in (DELETE, PUBLIC, "add")] if asked[0] else []
    assert len(lines) == (len(misspelled) if approval != "always" else 0)
    for line in lines:
        facts = {"option": "AgentFrameworkProvider: approval", "name": repr(misspelled[0]), "near": DELETE}
        said("an approval names no tool", line, **facts)


def test_with_own_names_an_approval_does_not_lapse_when_a_second_server_has_the_tool() -> None:
    """D-02."""
    ledger: list[Any] = []

    async def use(servers: AsyncioServerGroup) -> None:
        [tool] = [tool for tool in servers.tools if tool.name == DELETE and tool.server == "yours"]
        assert tool.public_name != DELETE
        run = await agent(servers, PlayedClient(played((tool.public_name, {}))), approval=[DELETE]).run("hello")
        assert len(run.user_input_requests) == 1

    shops = [Shop(ledger=ledger).config, Shop("yours", DELETE, ledger=ledger).config]
    in_group(use, *shops, naming="{tool}")
    assert ledger == []


def test_of_two_tools_of_one_name_the_agents_own_is_offered() -> None:
    offered: list[list[str]] = []
    heard: list[str] = []

    def mine(text: str) -> str:
        return f"mine: {text}"

    async def use(servers: AsyncioServerGroup) -> None:
        client = PlayedClient(played((ECHO, {"text": "x"}), "done", heard=heard, offered=offered))
        await agent(servers, client, tools=[af.tool(mine, name=ECHO)]).run("hello")

    in_group(use)
    assert heard == ["mine: x"]
    assert [turn.count(ECHO) for turn in offered] == [1, 1]


def test_the_predicate_gets_the_agent_and_its_session_and_may_be_async() -> None:
    seen: set[Any] = set()

    async def predicate(tool: Any, context: ToolContext) -> bool:
        await asyncio.sleep(0)
        seen.add((context.agent.name, context.run.session_id))
        return bool(tool.name == "echo")

    async def use(servers: AsyncioServerGroup) -> None:
        offered: list[list[str]] = []
        client = PlayedClient(played("done", offered=offered))
        who = af.Agent(client, name="waiter", context_providers=[adapters.AgentFrameworkProvider(servers)])
        session = who.create_session()
        await who.run("hello", session=session)
        assert offered == [[ECHO]]
        assert seen == {("waiter", session.session_id)}

    in_group(use, server("a", tool_filter=ToolFilter(predicate=predicate)))


@pytest.mark.parametrize("include", [False, True])
def test_instructions_of_servers_are_added_if_that_is_wanted(include: bool) -> None:
    async def use(servers: AsyncioServerGroup) -> Any:
        client = PlayedClient(played("done"))
        await agent(servers, client, include_instructions=include).run("hello")
        return client.instructions

    shop: Server[Any] = Server("shop", instructions="Be polite.", on_list_tools=listing)
    [text] = in_group(use, ServerConfig("shop", InProcess(shop)))
    assert ("Be polite." in (text or "")) is include


async def listing(context: Any, params: Any) -> ListToolsResult:
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in ("self", "ctx", "arguments")}}
    return ListToolsResult(tools=[Tool(name="tool", input_schema=schema)])


@pytest.mark.parametrize(
    "result",
    [
        CallToolResult(content=[TextContent(text="hi")]),
        CallToolResult(content=[TextContent(text="hi"), ImageContent(data=PIXEL, mime_type="image/png")]),
        CallToolResult(content=[AudioContent(data=PIXEL, mime_type="audio/wav")]),
        CallToolResult(content=[TextContent(text="hi")], structured_content={"a": [1]}),
        CallToolResult(content=[]),
        CallToolResult(content=[ResourceLink(name="r", uri="file:///r", mime_type="text/plain")]),
        CallToolResult(content=[EmbeddedResource(resource=TextResourceContents(uri="file:///n", text="a note"))]),
        CallToolResult(content=[EmbeddedResource(resource=BlobResourceContents(uri="file:///b", blob=PIXEL))]),
    ],
)
def test_results_are_those_of_the_frameworks_own_tool(result: CallToolResult) -> None:
    """Arguments arrive as they were given, also those with names of the framework."""
    called: list[Any] = []
    arguments = {"self": "s", "ctx": "c", "arguments": "a"}

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        called.append(params.arguments)
        return result

    async def use(servers: AsyncioServerGroup) -> None:
        async with af.MCPStdioTool(
            "theirs", "unused", session=adapters.McpClient(servers), tool_result_content="content_first"
        ) as theirs:
            [expected] = theirs.functions
            wanted = await expected.invoke(arguments={})
        who = adapters.AgentFrameworkProvider(servers)
        [ours] = who._functions(await who._offer.known_tools(None), ())
        found = await ours.invoke(arguments=arguments)
        shown = [
            [(each.type, (each.text or "").replace(" ", ""), each.uri, each.media_type) for each in parts]
            for parts in (found, wanted)
        ]
        assert shown[0] == shown[1]
        assert "provider" not in ours.to_dict()

    shop: Server[Any] = Server("shop", on_list_tools=listing, on_call_tool=call_tool)
    in_group(use, ServerConfig("shop", InProcess(shop)))
    assert called == [{}, arguments]
