"""The instructions of servers, in the system prompt of each framework's agent."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from mcp.server.mcpserver import MCPServer

from mcp_actors import ConfigError, InProcess, ServerConfig, ServerUnavailable, ToolFilter, adapters
from mcp_actors.adapters import server_instructions
from mcp_actors.adapters._offer import Offer
from mcp_actors.bridge import AsyncioServerGroup, open_servers
from mcp_actors.config import ToolContext
from tests.servers.groups import server

from .later import Later

if TYPE_CHECKING:
    import agents
    import pydantic_ai
else:
    agents, pydantic_ai = Later("agents"), Later("pydantic_ai")

KITCHEN = "Instructions of the MCP server 'kitchen':\nCook first, then serve."

HALL = "Instructions of the MCP server 'hall':\nBe polite."


def told(name: str, instructions: str | None, **options: Any) -> ServerConfig:
    """Configure a server with one tool and these instructions."""
    server = MCPServer(name, instructions=instructions)
    server.add_tool(lambda: "done", name="work", description="Work.")
    return ServerConfig(name, InProcess(server), **options)


HOUSE = (told("kitchen", "Cook first, then serve.\n"), told("silent", None), told("hall", "Be polite."))


async def ends(turn: int, offered: list[str], heard: list[str]) -> str:
    return "done"


async def openai_agents(group: AsyncioServerGroup, own: str | None, include: bool) -> list[str]:
    """Return the system prompts that the model reads."""
    from .openai_model import OpenAIModel

    prompts: list[str] = []

    class Reader(OpenAIModel):
        async def get_response(self, system_instructions: Any, *args: Any, **kwargs: Any) -> Any:
            prompts.append(system_instructions or "")
            return await super().get_response(system_instructions, *args, **kwargs)

    server = adapters.OpenAIAgentsServer(group)
    instructions: Any = server.instructions(own or "") if include else own
    who = agents.Agent[Any](name="cook", instructions=instructions, mcp_servers=[server], model=Reader(ends))
    await agents.Runner.run(who, "hello", run_config=agents.RunConfig(tracing_disabled=True))
    return prompts


async def pydantic(group: AsyncioServerGroup, own: str | None, include: bool) -> list[str]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    prompts: list[str] = []

    async def model(messages: Sequence[Any], info: AgentInfo) -> ModelResponse:
        assert isinstance(messages[-1], ModelRequest)
        prompts.append(messages[-1].instructions or "")
        return ModelResponse(parts=[TextPart("done")])

    toolset = adapters.PydanticAIToolset(group, include_instructions=include)
    await pydantic_ai.Agent(FunctionModel(model), name="cook", instructions=own, toolsets=[toolset]).run("hello")
    return prompts


async def langchain(group: AsyncioServerGroup, own: str | None, include: bool) -> list[str]:
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage, SystemMessage

    from .langchain_model import LangChainModel

    prompts: list[str] = []

    class Reader(LangChainModel):
        async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            prompts.append("".join(each.text for each in messages if isinstance(each, SystemMessage)))
            return await super()._agenerate(messages, *args, **kwargs)

    middleware = adapters.LangChainMiddleware(group, include_instructions=include)
    who = create_agent(Reader(think=ends), middleware=[middleware], name="cook", system_prompt=own)
    await who.ainvoke({"messages": [HumanMessage("hello")]})
    return prompts


AGENTS: dict[str, Callable[[AsyncioServerGroup, str | None, bool], Awaitable[list[str]]]] = {
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic,
}
if importlib.util.find_spec("langchain"):  # an environment of the tests need not have it
    AGENTS["langchain-agents"] = langchain

EACH = pytest.mark.parametrize("prompts", AGENTS.values(), ids=AGENTS)


@EACH
def test_a_model_reads_the_instructions_of_servers_if_the_program_says_so(prompts: Any) -> None:
    """S4-08: below those of the agent, and not by default."""

    async def main() -> None:
        async with open_servers(*HOUSE) as servers:
            assert await prompts(servers, "You cook.", True) == [f"You cook.\n\n{KITCHEN}\n\n{HALL}"]
            assert await prompts(servers, None, True) == [f"{KITCHEN}\n\n{HALL}"]
            assert await prompts(servers, "You cook.", False) == ["You cook."]

    asyncio.run(main())


@EACH
def test_an_agent_reads_nothing_of_servers_whose_tools_it_may_not_use(prompts: Any) -> None:
    def shown(tool: Any, context: ToolContext) -> bool:
        return bool(getattr(context.agent, "name", context.agent) != "cook")

    async def main() -> None:
        hidden = told("kitchen", "Cook first.", tool_filter=ToolFilter(predicate=shown))
        async with open_servers(hidden, told("silent", " \n")) as servers:
            assert await prompts(servers, "You cook.", True) == ["You cook."]
            assert await prompts(servers, None, True) == [""]

    asyncio.run(main())


def test_instructions_with_an_id_are_appended_when_they_change() -> None:
    """So the provider's cache stays valid; without an id nothing could be appended."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models.test import TestModel

    context: Any = pydantic_ai.RunContext(deps=None, model=TestModel(), usage=pydantic_ai.RunUsage())

    async def main() -> None:
        async with open_servers(told("hall", "Be polite.")) as servers:
            keyed = adapters.PydanticAIToolset(servers, id="house", include_instructions=True)
            assert await keyed.get_instructions(context) == InstructionPart(HALL, on_change="append")
            free = adapters.PydanticAIToolset(servers, include_instructions=True)
            assert await free.get_instructions(context) == InstructionPart(HALL, dynamic=True)
            await servers["hall"].stop()
            assert await keyed.get_instructions(context) == InstructionPart("", on_change="append")
            assert await free.get_instructions(context) is None

    asyncio.run(main())


def test_instructions_come_with_the_tools_and_go_with_them() -> None:
    async def main() -> None:
        async with open_servers(*HOUSE) as servers:
            assert await server_instructions(servers) == f"{KITCHEN}\n\n{HALL}"
            assert await server_instructions(servers, servers=["hall", "silent"]) == HALL
            await servers["kitchen"].stop()
            assert await server_instructions(servers) == HALL
            await servers.remove("hall")
            assert await server_instructions(servers) == ""

    asyncio.run(main())


def test_a_server_whose_tools_are_only_remembered_has_no_instructions_yet(tmp_path: Any) -> None:
    async def main() -> None:
        async with open_servers(server("a"), catalog_store=tmp_path):
            pass
        async with open_servers(server("a", connect="lazy"), catalog_store=tmp_path) as servers:
            assert servers.tools
            assert await server_instructions(servers) == ""

    asyncio.run(main())


def test_a_server_that_is_removed_while_its_instructions_are_read_is_left_out() -> None:
    async def main() -> None:
        async with open_servers(*HOUSE) as servers:
            tools = servers.tools
            await servers.remove("kitchen")
            assert Offer.of(servers, None).instructions(tools) == HALL

    asyncio.run(main())


def test_instructions_need_a_group_of_the_bridge_and_a_context_for_predicates() -> None:
    async def main() -> None:
        predicate = ToolFilter(predicate=lambda tool, context: True)
        async with open_servers(told("hall", "Be polite.", tool_filter=predicate)) as servers:
            with pytest.raises(TypeError, match="None is not an AsyncioServerGroup"):
                await server_instructions(None)  # type: ignore[arg-type]  # what is tested
            with pytest.raises(KeyError, match="server 'attic' not found"):
                await server_instructions(servers, servers=["attic"])
            with pytest.raises(ConfigError, match="predicate"):
                await server_instructions(servers)
            assert await server_instructions(servers, context=ToolContext("cook")) == HALL
        with pytest.raises(ServerUnavailable, match="this group of servers is stopped"):
            await server_instructions(servers, context=ToolContext("cook"))

    asyncio.run(main())
