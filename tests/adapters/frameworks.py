"""Whole runs of each framework's agent, with a model that a test plays.

Nothing else is played: the frameworks are the real ones, and so is what they find behind an adapter. Each is imported
by the first run of its agent.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import httpx2

from mcp_actors import adapters
from mcp_actors.bridge import AsyncioServerGroup
from mcp_actors.config import ToolContext

Call: TypeAlias = "tuple[str, dict[str, Any]]"

Think: TypeAlias = Callable[[int, list[str], list[str]], Awaitable["Call | str"]]
"""The model: ``think(turn, offered, heard)`` is given the number of the turn, from 1, the names of the tools that it is
offered, and what all its calls so far came to. It returns what to call, or its last words."""


class Framework(Protocol):
    """One framework."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        """Run an agent to its last words; `options` are those of the adapter."""
        ...


class OpenAIAgents:
    """The OpenAI Agents SDK."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        import agents

        from .openai_model import OpenAIModel

        server = adapters.OpenAIAgentsServer(group, **options)
        who: agents.Agent[Any] = agents.Agent(name=agent, mcp_servers=[server], model=OpenAIModel(think))
        config = agents.RunConfig(tracing_disabled=True)
        result = await agents.Runner.run(who, "hello", run_config=config, context="the run")
        return str(result.final_output)


class PydanticAI:
    """Pydantic AI."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        import pydantic_ai
        from pydantic_ai.messages import (
            ModelRequest,
            ModelResponse,
            RetryPromptPart,
            TextPart,
            ToolCallPart,
            ToolReturnPart,
        )
        from pydantic_ai.models.function import AgentInfo, FunctionModel

        turn = 0

        async def model(messages: Sequence[Any], info: AgentInfo) -> ModelResponse:
            nonlocal turn
            turn += 1
            parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
            heard = [words_of(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
            thought = await think(turn, [tool.name for tool in info.function_tools], heard)
            if isinstance(thought, str):
                return ModelResponse(parts=[TextPart(thought)])
            return ModelResponse(parts=[ToolCallPart(*thought)])

        toolset = adapters.PydanticAIToolset(group, **options)
        who: pydantic_ai.Agent[Any, str] = pydantic_ai.Agent(
            FunctionModel(model), name=agent, toolsets=[toolset], deps_type=str
        )
        return str((await who.run("hello", deps="the run")).output)


class LangChain:
    """A loop on langchain-core, as its agents have it, which asks for the tools at each turn."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        from langchain_core.language_models import GenericFakeChatModel
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

        history: list[Any] = [HumanMessage("hello")]
        while True:
            offered = await adapters.langchain_tools(group, context=ToolContext(agent), **options)
            tools = {tool.name: tool for tool in offered}
            heard = [words_of(message.content) for message in history if isinstance(message, ToolMessage)]
            thought = await think(len(heard) + 1, list(tools), heard)
            calls = (
                [] if isinstance(thought, str) else [{"name": thought[0], "args": thought[1], "id": str(len(heard))}]
            )
            reply = AIMessage(content=thought if isinstance(thought, str) else "", tool_calls=calls)
            answer = await GenericFakeChatModel(messages=iter([reply])).ainvoke(history)
            history.append(answer)
            if not answer.tool_calls:
                return str(answer.content)
            history.extend([await tools[call["name"]].ainvoke(call) for call in answer.tool_calls])


class LangChainAgents:
    """An agent of LangChain, which is built once."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        from langchain.agents import create_agent
        from langchain_core.messages import HumanMessage

        from .langchain_model import LangChainModel

        middleware = [adapters.LangChainMiddleware(group, **options)]
        who = create_agent(LangChainModel(think=think), middleware=middleware, name=agent)
        return str((await who.ainvoke({"messages": [HumanMessage("hello")]}))["messages"][-1].content)


class Anthropic:
    """The tool runner of the anthropic SDK, with its helpers for MCP clients."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        from anthropic import AsyncAnthropic
        from anthropic.lib.tools.mcp import async_mcp_tool

        turn = 0

        async def answer(request: httpx2.Request) -> httpx2.Response:
            nonlocal turn
            turn += 1
            asked = json.loads(request.content)
            offered = {tool["name"] for tool in asked["tools"]}
            for change in (part for each in asked["messages"] if each["role"] == "system" for part in each["content"]):
                if change["type"] == "tool_addition":
                    offered.add(change["tool"]["definition"]["name"])
                else:
                    offered.remove(change["tool"]["name"])
            told = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
            parts = [part for content in told for part in content]
            heard = [words_of(part["content"]) for part in parts if part["type"] == "tool_result"]
            thought = await think(turn, sorted(offered), heard)
            if isinstance(thought, str):
                part: dict[str, Any] = {"type": "text", "text": thought}
            else:
                part = {"type": "tool_use", "id": f"t{turn}", "name": thought[0], "input": thought[1]}
            return httpx2.Response(200, json=_message(part))

        client = adapters.McpClient(group, context=ToolContext(agent), **options)
        transport = httpx2.MockTransport(answer)
        async with AsyncAnthropic(
            api_key="none", max_retries=0, http_client=httpx2.AsyncClient(transport=transport)
        ) as anthropic:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            runner = anthropic.beta.messages.tool_runner(
                model="none",
                max_tokens=9,
                thread=False,
                messages=[{"role": "user", "content": "hello"}],
                tools=[async_mcp_tool(tool, client) for tool in tools.values()],
            )
            words = ""
            async for message in runner:
                words = words_of(message.to_dict()["content"])
                await runner.generate_tool_call_response()
                now = {tool.name: tool for tool in (await client.list_tools()).tools}
                runner.remove_tools(*(tools.keys() - now.keys()))
                runner.add_tools(*(async_mcp_tool(now[name], client) for name in now if now[name] != tools.get(name)))
                tools = now
            return words


def _message(part: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "none",
        "content": [part],
        "stop_reason": "tool_use" if part["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


class AgentFramework:
    """An agent of Microsoft's Agent Framework."""

    async def run(self, group: AsyncioServerGroup, think: Think, agent: str = "agent", **options: Any) -> str:
        from agent_framework import Agent

        from .agent_framework_client import PlayedClient

        provider = adapters.AgentFrameworkProvider(group, **options)
        who = Agent(PlayedClient(think), name=agent, context_providers=[provider])
        return str((await who.run("hello")).text)


def words_of(content: Any) -> str:
    """The text of what a framework shows to the model."""
    if isinstance(content, dict):
        return str(content.get("text", content))
    if isinstance(content, list):
        return " ".join(map(words_of, content))
    return str(content)


FRAMEWORKS: dict[str, Framework] = {
    "openai-agents": OpenAIAgents(),
    "pydantic-ai": PydanticAI(),
    "langchain": LangChain(),
    "anthropic": Anthropic(),
}
if importlib.util.find_spec("agent_framework"):  # likewise
    FRAMEWORKS["agent-framework"] = AgentFramework()
if importlib.util.find_spec("langchain"):  # an environment of the tests need not have it
    FRAMEWORKS["langchain-agents"] = LangChainAgents()
