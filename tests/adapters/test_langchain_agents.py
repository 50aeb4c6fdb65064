"""An agent of LangChain is built once, and at each of its turns has the tools that its group has then."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import (
    CatalogTool,
    ConnectionLost,
    InvalidArguments,
    RequestTimedOut,
    ServerError,
    ToolFilter,
    ToolsChanged,
    adapters,
)
from mcp_actors.bridge import AsyncioServerGroup, open_servers
from mcp_actors.config import ToolContext
from tests.servers.groups import BOUND, lines_of, server

from .frameworks import Call, Think
from .test_failures import CRASH, ERROR, FAIL, MISSING, TIME_OUT, heard_of
from .test_tool_names import DELETE, Shop

if importlib.util.find_spec("langchain") is None:
    pytest.skip("LangChain's agents are not installed", allow_module_level=True)

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def create_agent(think: Think, *middleware: Any, tools: Sequence[Any] = (), **options: Any) -> Any:
    """An agent with a model that thinks so."""
    from langchain.agents import create_agent

    from .langchain_model import LangChainModel

    return create_agent(LangChainModel(think=think), tools, middleware=middleware, **options)


async def say(agent: Any, **options: Any) -> str:
    """Run an agent, and return its last words."""
    return str((await agent.ainvoke(HELLO, **options))["messages"][-1].content)


def once(name: str, **arguments: Any) -> Think:
    """A model that calls one tool, and says what it heard."""

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        return (name, arguments) if turn == 1 else heard[0]

    return think


def in_group(use: Callable[[AsyncioServerGroup], Awaitable[Any]], *configs: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with open_servers(*configs, **options) as servers:
            return await use(servers)

    return asyncio.run(main())


def test_an_agent_that_was_built_once_sees_the_current_tools_in_each_run() -> None:
    """Tools that came since are offered and called; those of a server that was stopped are gone, and come back."""
    seen: list[str] = []

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        seen[:] = offered
        newest = max(name for name in offered if name.startswith("mcp__a__"))
        return (newest, {}) if turn == 1 and newest.startswith("mcp__a__tool_") else " ".join(heard)

    async def use(servers: AsyncioServerGroup) -> None:
        agent = create_agent(think, adapters.LangChainMiddleware(servers))
        await say(agent)
        assert "mcp__a__tool_0" not in seen
        assert "mcp__b__echo" in seen

        async with servers.watch_events() as events:
            for number in range(2):
                await servers["a"].call_tool("grow")
                async with asyncio.timeout(BOUND):
                    while not isinstance(await anext(events), ToolsChanged):
                        pass
                assert await say(agent) == f"tool_{number}"
                assert f"mcp__a__tool_{number}" in seen

        await servers["b"].stop()
        await say(agent)
        assert not any(name.startswith("mcp__b__") for name in seen)
        await servers["b"].start()
        await say(agent)
        assert "mcp__b__echo" in seen

    in_group(use, server("a", "--notices", "1"), server("b"))


def test_the_predicate_is_asked_with_the_agents_name_and_the_runs_context() -> None:
    """S1-24, S3-26: agents share the middleware, and each run is offered what is for it."""

    def shown(tool: CatalogTool, context: ToolContext) -> bool:
        return tool.name == "echo" or (context.agent, context.run.context) == ("chef", "by day")

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        return " ".join(name.removeprefix("mcp__a__") for name in offered if name.endswith(("echo", "pid")))

    async def use(servers: AsyncioServerGroup) -> list[str]:
        middleware = adapters.LangChainMiddleware(servers)
        chef, guest = (create_agent(think, middleware, name=name) for name in ("chef", "b"))
        nobody = create_agent(think, middleware)
        runs = say(chef, context="by day"), say(chef, context="by night"), say(guest, context="by day"), say(nobody)
        return list(await asyncio.gather(*runs))

    found = in_group(use, server("a", tool_filter=ToolFilter(predicate=shown)))
    assert found == ["echo pid", "echo", "echo", "echo"]


@pytest.mark.parametrize("name", ["mcp__a__pid", "mcp__b__pid", "mcp__a__none"])
def test_what_an_agent_is_not_offered_it_cannot_call(name: str, tmp_path: Path) -> None:
    """S1-24: neither what is hidden from it, nor a tool of other servers, nor what the model has invented."""
    log = tmp_path / "log"

    def shown(tool: CatalogTool, context: ToolContext) -> bool:
        return tool.name == "echo"

    async def use(servers: AsyncioServerGroup) -> str:
        middleware = adapters.LangChainMiddleware(servers, servers=["a"])
        return await say(create_agent(once(name), middleware))

    hidden = server("a", "--log-file", str(log), tool_filter=ToolFilter(predicate=shown))
    assert f"{name} is not a valid tool" in in_group(use, hidden, server("b", "--log-file", str(log)))
    assert not lines_of(log, "tools/call")


def test_a_run_goes_on_after_a_call_of_a_tool_that_is_gone() -> None:
    async def use(servers: AsyncioServerGroup) -> str:
        async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
            match turn:
                case 1:
                    assert "mcp__b__echo" in offered
                    await servers["b"].stop()
                    return "mcp__b__echo", {"text": "x"}
                case 2:
                    assert "mcp__b__echo" not in offered
                    return "mcp__a__echo", {"text": "still here"}
                case _:
                    return " / ".join(heard)

        return await say(create_agent(think, adapters.LangChainMiddleware(servers)))

    heard = in_group(use, server("a"), server("b"))
    assert re.search("mcp__b__echo is not a valid tool.* / still here$", heard), heard


def test_an_agent_keeps_its_own_tools() -> None:
    """Of two of one name, its own is offered, and called."""
    from langchain_core.tools import StructuredTool

    async def use(servers: AsyncioServerGroup) -> str:
        async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
            assert sorted(name for name in offered if name in {"own", "mcp__a__echo", "mcp__a__add"}) == [
                "mcp__a__add",
                "mcp__a__echo",
                "own",
            ]
            calls: list[Call] = [("own", {}), ("mcp__a__echo", {"text": "x"}), ("mcp__a__add", {"a": 1, "b": 2})]
            return calls[turn - 1] if turn <= len(calls) else ", ".join(heard)

        async def own(text: str = "") -> str:
            return f"own {text}"

        tools = [StructuredTool.from_function(coroutine=own, name=n, description="") for n in ("own", "mcp__a__echo")]
        agent = create_agent(think, adapters.LangChainMiddleware(servers), tools=tools)
        return await say(agent)

    assert in_group(use, server("a")) == "own , own x, 3"


def test_two_groups_serve_one_agent() -> None:
    """In either order; each is called for its own."""

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        assert len(offered) == len(set(offered))
        calls = ["mcp__a__echo", "mcp__b__echo"]
        return (calls[turn - 1], {"text": calls[turn - 1]}) if turn <= len(calls) else ", ".join(heard)

    async def main() -> None:
        async with open_servers(server("a")) as one, open_servers(server("b"), server("c")) as two:
            # The last two are of one group: what both offer is offered once.
            middleware = [
                adapters.LangChainMiddleware(one, name="one"),
                adapters.LangChainMiddleware(two),
                adapters.LangChainMiddleware(two, servers=["b", "c"]),
            ]
            assert [each.name for each in middleware] == ["one", "mcp_actors", "b-c"]
            for order in middleware, middleware[::-1]:
                agent = create_agent(think, *order)
                assert await say(agent) == "mcp__a__echo, mcp__b__echo"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "flags", "options", "words"),
    [
        (FAIL, (), {"handle_tool_error": True}, "^failed as asked$"),
        (FAIL, ERROR, {"handle_tool_error": True}, "the disk is full"),
        (TIME_OUT, (), {"handle_tool_error": True}, "^server 'a': .* 0.1 s"),
        (CRASH, (), {"handle_tool_error": lambda error: f"told: {error}"}, "^told: server 'a': connection lost"),
        (MISSING, (), {"handle_tool_error": "no"}, "^no$"),
    ],
)
def test_what_the_model_hears_of_a_failure(call: Call, flags: Any, options: dict[str, Any], words: str) -> None:
    """S1-21: it is configurable, in LangChain's words."""
    heard = heard_of("langchain-agents", call, *flags, **options)
    assert re.search(words, heard, re.DOTALL), heard


@pytest.mark.parametrize(
    ("call", "error"),
    [(FAIL, "ToolException"), (CRASH, ConnectionLost), (TIME_OUT, RequestTimedOut), (MISSING, InvalidArguments)],
)
def test_an_unhandled_failure_ends_the_run(call: Call, error: Any) -> None:
    """S1-21: it is raised, as it is."""
    from langchain_core.tools import ToolException

    kind = ToolException if error == "ToolException" else error
    with pytest.raises(kind) as caught:
        heard_of("langchain-agents", call)
    assert type(caught.value) is kind


def test_langchains_own_middleware_for_errors_presents_ours() -> None:
    """S1-21: on either side."""
    from langchain.agents.middleware import ToolErrorMiddleware

    def told(error: Exception, request: Any) -> str | None:
        return f"{request.tool_call['name']}: {error}" if isinstance(error, ServerError) else None

    async def use(servers: AsyncioServerGroup) -> None:
        middleware = [ToolErrorMiddleware(told), adapters.LangChainMiddleware(servers)]
        for order in middleware, middleware[::-1]:
            heard = await say(create_agent(once("mcp__a__add", a=1), *order))
            assert re.search("^mcp__a__add: server 'a': .*'b'", heard), heard

    in_group(use, server("a"))


def test_a_call_that_a_person_has_to_approve_is_made_when_he_has() -> None:
    """The run may be resumed by an agent that was built anew; the tools are those of then."""
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    async def use(servers: AsyncioServerGroup) -> None:
        saved, approve = InMemorySaver(), HumanInTheLoopMiddleware(interrupt_on={"mcp__a__echo": True})

        def agent() -> Any:
            think = once("mcp__a__echo", text="approved")
            return create_agent(think, approve, adapters.LangChainMiddleware(servers), checkpointer=saved)

        thread: Any = {"configurable": {"thread_id": "1"}}
        assert "__interrupt__" in await agent().ainvoke(HELLO, thread)
        answer: Any = Command(resume={"decisions": [{"type": "approve"}]})
        assert (await agent().ainvoke(answer, thread))["messages"][-1].content == "approved"

    in_group(use, server("a"))


def test_human_in_the_loop_means_own_names_with_the_naming_that_keeps_them() -> None:
    """D-02. It is LangChain's, so nothing else could make it do so; the pages say it."""
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.checkpoint.memory import InMemorySaver

    shop = Shop()

    async def use(servers: AsyncioServerGroup) -> None:
        ask = HumanInTheLoopMiddleware(interrupt_on={DELETE: True})
        agent = create_agent(once(DELETE), ask, adapters.LangChainMiddleware(servers), checkpointer=InMemorySaver())
        assert "__interrupt__" in await agent.ainvoke(HELLO, {"configurable": {"thread_id": "1"}})

    in_group(use, shop.config, naming="{tool}")
    assert shop.ledger == []


def test_calls_of_one_turn_are_made_side_by_side_and_a_run_can_be_streamed() -> None:
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, ToolMessage

    from .langchain_model import LangChainModel

    calls = [{"name": "mcp__a__add", "args": {"a": n, "b": 1}, "id": str(n)} for n in range(20)]

    class Model(LangChainModel):
        def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            if len(messages) == 1:
                self.messages = iter([AIMessage("", tool_calls=calls)])
            return super()._generate(messages, *args, **kwargs)

    async def use(servers: AsyncioServerGroup) -> list[str]:
        async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
            return "done"

        agent = create_agent(Model(think=think), middleware=[adapters.LangChainMiddleware(servers)])
        heard: list[str] = []
        async for update in agent.astream(HELLO, stream_mode="updates"):
            messages = update.get("tools", {}).get("messages", [])
            heard += [message.content for message in messages if isinstance(message, ToolMessage)]
        return heard

    assert sorted(in_group(use, server("a")), key=int) == [str(n + 1) for n in range(20)]


def test_a_synchronous_run_is_refused() -> None:
    async def use(servers: AsyncioServerGroup) -> None:
        agent = create_agent(once("x"), adapters.LangChainMiddleware(servers))
        with pytest.raises(NotImplementedError, match=r"ainvoke\(\)"):
            agent.invoke(HELLO)

    in_group(use, server("a"))


def test_the_middleware_offers_what_langchain_tools_gives() -> None:
    async def use(servers: AsyncioServerGroup) -> None:
        async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
            assert offered == [tool.name for tool in await adapters.langchain_tools(servers, servers=["b"])]
            return "done"

        middleware = adapters.LangChainMiddleware(servers, servers=["b"])
        assert repr(middleware).startswith("<LangChainMiddleware 'b': b of <AsyncioServerGroup")
        assert await say(create_agent(think, middleware)) == "done"
        with pytest.raises(TypeError, match=r"give the group that it belongs to, and servers=\['a'\]"):
            adapters.LangChainMiddleware(servers["a"])  # type: ignore[arg-type]  # it is refused
        with pytest.raises(KeyError, match="server 'c' not found in this group"):
            adapters.LangChainMiddleware(servers, servers=["c"])

    in_group(use, server("a"), server("b"))
