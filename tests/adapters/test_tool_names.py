"""Options that name tools mean them by their public names and by their servers' own, with each real framework.

Each spelling is one that a program carries over from the framework's own MCP class. A tool that it names and that was
called unasked is in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from mcp_actors import InProcess, ServerConfig, adapters
from mcp_actors.bridge import AsyncioServerGroup, open_servers

from ..messages import Said
from .frameworks import Think
from .later import Later

if TYPE_CHECKING:
    import agents
    import pydantic_ai
else:
    agents, pydantic_ai = Later("agents"), Later("pydantic_ai")

DELETE = "delete_everything"
PUBLIC = f"mcp__mine__{DELETE}"
OWN_NAMES = {"naming": "{tool}"}


class Shop:
    """A server with an effect.

    Attributes:
        ledger: the tools that were executed, as ``server.tool``, each with the metadata of the call.
        tools: the names of the tools.
    """

    def __init__(self, name: str = "mine", *tools: str, ledger: list[tuple[str, Any]] | None = None) -> None:
        self.name = name
        self.tools = tools or ("add", DELETE)
        self.ledger: list[tuple[str, Any]] = [] if ledger is None else ledger
        self._server: Server[Any] = Server(name, on_list_tools=self.list_tools, on_call_tool=self.call_tool)

    @property
    def config(self) -> ServerConfig:
        return ServerConfig(self.name, InProcess(self._server))

    async def list_tools(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in self.tools])

    async def call_tool(self, context: Any, params: Any) -> CallToolResult:
        meta = {key: value for key, value in (params.meta or {}).items() if key == "tenant"}
        self.ledger.append((f"{self.name}.{params.name}", meta))
        return CallToolResult(content=[TextContent(type="text", text=f"did {params.name}")])


def in_group(use: Callable[[AsyncioServerGroup], Awaitable[Any]], *shops: Shop, **options: Any) -> Any:
    async def main() -> Any:
        async with open_servers(*(shop.config for shop in shops), **options) as servers:
            return await use(servers)

    return asyncio.run(main())


def calls(*names: str) -> Think:
    """A model that calls these tools, and then repeats what it heard."""

    async def think(turn: int, offered: list[str], heard: list[str]) -> Any:
        return (names[turn - 1], {}) if turn <= len(names) else ", ".join(heard)

    return think


# --- OpenAI Agents ----------------------------------------------------------------------------------------------------


async def openai_run(servers: AsyncioServerGroup, *names: str, mcp_config: Any = None, **options: Any) -> Any:
    from .openai_model import OpenAIModel

    server = adapters.OpenAIAgentsServer(servers, **options)
    model = OpenAIModel(calls(*names))
    who: agents.Agent[Any] = agents.Agent(name="a", mcp_servers=[server], model=model, mcp_config=mcp_config or {})
    return await agents.Runner.run(who, "hello", run_config=agents.RunConfig(tracing_disabled=True))


def judges(run: Any, agent: Any, tool: Tool) -> bool:
    return tool.name == DELETE


async def judges_later(run: Any, agent: Any, tool: Tool) -> bool:
    await asyncio.sleep(0)
    return tool.name == DELETE


@pytest.mark.parametrize("public", [False, True], ids=["own name", "public name"])
@pytest.mark.parametrize(
    "approval",
    [
        lambda name: {"always": {"tool_names": [name]}},
        lambda name: {"always": {"tool_names": [name]}, "never": {"tool_names": ["add"]}},
        lambda name: {name: "always"},
        lambda name: {name: True},
        lambda name: lambda run, agent, tool: tool.name == name,
        lambda name: judges_later if name == DELETE else judges_of(name),
    ],
    ids=["list", "two lists", "mapping", "bool", "function", "async function"],
)
def test_openai_agents_asks_before_a_tool_that_is_named_either_way(approval: Any, public: bool) -> None:
    """D-02. The other tool is called at once, and the one that a person approves after that."""
    shop = Shop()

    async def use(servers: AsyncioServerGroup) -> None:
        policy = approval(PUBLIC if public else DELETE)
        result = await openai_run(servers, "mcp__mine__add", PUBLIC, require_approval=policy)
        assert [each.name for each in result.interruptions] == [PUBLIC]
        assert [tool for tool, _ in shop.ledger] == ["mine.add"]
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await agents.Runner.run(result.last_agent, state, run_config=agents.RunConfig(tracing_disabled=True))
        assert result.final_output == f"did add, did {DELETE}"

    in_group(use, shop)


def judges_of(name: str) -> Any:
    async def judge(run: Any, agent: Any, tool: Tool) -> bool:
        return tool.name == name

    return judge


def test_a_function_that_judges_is_asked_with_both_names_and_both_must_permit() -> None:
    """D-02. So a list of own names that need no approval needs the naming that keeps them."""
    asked: list[str] = []

    def judge(run: Any, agent: Any, tool: Tool) -> bool:
        asked.append(tool.name)
        return tool.name != "add"

    async def use(servers: AsyncioServerGroup) -> int:
        [name, _] = [tool.public_name for tool in servers.tools]
        return len((await openai_run(servers, name, require_approval=judge)).interruptions)

    assert in_group(use, Shop()) == 1
    assert in_group(use, Shop(), **OWN_NAMES) == 0
    assert asked == ["add", "mcp__mine__add", "add"]


@pytest.mark.parametrize("option", ["tool_input_guardrails", "tool_output_guardrails"])
@pytest.mark.parametrize("public", [False, True], ids=["own name", "public name"])
def test_a_guardrail_judges_a_tool_by_either_name(option: str, public: bool) -> None:
    """D-02. One that permits both names changes nothing."""
    asked: list[tuple[str, str]] = []

    def judge(data: Any) -> agents.ToolGuardrailFunctionOutput:
        asked.append((data.context.tool_name, data.context.tool_call.name))
        if data.context.tool_name == (PUBLIC if public else DELETE):
            return agents.ToolGuardrailFunctionOutput.reject_content("not today")
        return agents.ToolGuardrailFunctionOutput.allow()

    make: Any = agents.tool_input_guardrail if "input" in option else agents.tool_output_guardrail

    async def use(servers: AsyncioServerGroup) -> str:
        return str((await openai_run(servers, PUBLIC, "mcp__mine__add", **{option: [make(judge)]})).final_output)

    shop = Shop()
    assert in_group(use, shop) == "not today, did add"
    assert (f"mine.{DELETE}" in dict(shop.ledger)) is ("output" in option)
    assert asked == [(each, each) for each in (*((DELETE, PUBLIC) if public else (DELETE,)), "add", "mcp__mine__add")]


def test_a_guardrail_of_a_tool_that_is_not_listed_any_more_rejects() -> None:
    shop = Shop()

    async def judge(data: Any) -> agents.ToolGuardrailFunctionOutput:
        return agents.ToolGuardrailFunctionOutput.allow()

    async def use(servers: AsyncioServerGroup) -> str:
        async def stop(data: Any) -> agents.ToolGuardrailFunctionOutput:
            if data.context.tool_name == PUBLIC:
                await servers["mine"].stop()
            return await judge(data)

        guardrails = [agents.tool_input_guardrail(stop), agents.tool_input_guardrail(judge)]
        return str((await openai_run(servers, PUBLIC, tool_input_guardrails=guardrails)).final_output)

    assert in_group(use, shop) == f"tool {PUBLIC!r} is no longer listed"
    assert shop.ledger == []


def test_guardrails_and_names_that_the_framework_changes_are_refused_together(said: Said) -> None:
    """The guardrails would be asked with names that neither the server nor the group has."""

    def judge(data: Any) -> agents.ToolGuardrailFunctionOutput:
        return agents.ToolGuardrailFunctionOutput.allow()

    shop = Shop()

    async def use(servers: AsyncioServerGroup) -> None:
        own = {"mcp_config": {"include_server_in_tool_names": True}}
        with pytest.raises(ValueError, match="include_server_in_tool_names") as caught:
            await openai_run(
                servers, f"mcp_mcp_actors__{PUBLIC}", tool_input_guardrails=[agents.tool_input_guardrail(judge)], **own
            )
        said("guardrails and include_server_in_tool_names", str(caught.value))
        await openai_run(servers, f"mcp_mcp_actors__{PUBLIC}", **own)

    in_group(use, shop)
    assert [tool for tool, _ in shop.ledger] == [f"mine.{DELETE}"]


@pytest.mark.parametrize("public", [False, True], ids=["own name", "public name"])
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
def test_a_resolver_gives_its_first_answer_that_is_not_none(public: bool, later: bool) -> None:
    """D-02. It is asked with the names of the server and its tool, and then with those of the adapter."""
    shop = Shop()
    asked: list[tuple[str, str]] = []

    def resolve(context: Any) -> Any:
        asked.append((context.server_name, context.tool_name))
        return {"tenant": context.tool_name} if context.tool_name == ("mcp__mine__add" if public else "add") else None

    async def resolve_later(context: Any) -> Any:
        return resolve(context)

    async def use(servers: AsyncioServerGroup) -> list[Any]:
        options = dict.fromkeys(("tool_meta_resolver", "custom_data_extractor"), resolve_later if later else resolve)
        result = await openai_run(servers, "mcp__mine__add", PUBLIC, name="shop", **options)
        return [each.custom_data for each in result.new_items if each.type == "tool_call_output_item"]

    name = "mcp__mine__add" if public else "add"
    assert in_group(use, shop) == [{"tenant": name}, None]
    assert shop.ledger == [("mine.add", {"tenant": name}), (f"mine.{DELETE}", {})]
    assert asked[:2] == [("mine", "add"), ("shop", "mcp__mine__add") if public else ("mine", "add")]


def test_a_resolver_of_a_tool_that_is_gone_gets_the_name_of_the_adapter() -> None:
    asked: list[tuple[str, str]] = []

    async def use(servers: AsyncioServerGroup) -> None:
        async def resolve(context: Any) -> None:
            asked.append((context.server_name, context.tool_name))
            await servers["mine"].stop()

        options = dict.fromkeys(("tool_meta_resolver", "custom_data_extractor"), resolve)
        await openai_run(servers, "mcp__mine__add", name="shop", **options)

    in_group(use, Shop())
    assert asked == [("mine", "add"), ("shop", "mcp__mine__add")]


@pytest.mark.parametrize("policy", ["always", True, "never", False, None])
def test_an_approval_of_all_tools_names_none(policy: Any) -> None:
    async def use(servers: AsyncioServerGroup) -> bool:
        return bool((await openai_run(servers, PUBLIC, require_approval=policy)).interruptions)

    assert in_group(use, Shop()) is (policy in ("always", True))


# --- Names that no tool has, and names that several have --------------------------------------------------------------


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of the adapters."""
    return [each.getMessage() for each in caplog.records if each.name == "mcp_actors.adapters"]


async def asked_by(server: adapters.OpenAIAgentsServer, *names: str) -> list[bool]:
    """Return whether the framework would ask about each of these tools. No tool is called."""
    tools = {tool.name: tool for tool in await server.list_tools(None, agents.Agent(name="a"))}
    verdicts = []
    for name in names:
        judge = server._get_needs_approval_for_tool(tools[name], agents.Agent(name="a"))
        assert callable(judge)
        verdicts.append(await judge(agents.RunContextWrapper(None), {}, "call"))
    return verdicts


@pytest.mark.parametrize(
    ("name", "verdict", "near"),
    [("delete_everythin", "always", DELETE), ("Delete_Everything", True, DELETE), ("ad", "never", "add")],
)
def test_until_each_name_matches_a_tool_every_tool_is_asked_about(
    name: str, verdict: Any, near: str, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-02. The warning, which is logged once, has the nearest name. It comes when the tools are listed."""

    async def use(servers: AsyncioServerGroup) -> None:
        server = adapters.OpenAIAgentsServer(servers, require_approval={name: verdict, "add": "never"})
        await server.list_tools()
        [line] = lines_of(caplog)
        assert await asked_by(server, "mcp__mine__add", PUBLIC) == [True, True]
        assert lines_of(caplog) == [line]
        said(
            "an approval names no tool",
            line,
            option="OpenAIAgentsServer: require_approval",
            name=f"{name!r}",
            near=near,
        )

    in_group(use, Shop())


def test_a_name_matches_as_soon_as_its_server_lists_it() -> None:
    """D-02. Stopping the server asks about all tools again."""

    async def use(servers: AsyncioServerGroup) -> None:
        await servers["late"].stop()
        server = adapters.OpenAIAgentsServer(servers, require_approval={"mcp__late__erase": "always"})
        assert await asked_by(server, "mcp__mine__add") == [True]
        await servers["late"].start()
        assert await asked_by(server, "mcp__mine__add", "mcp__late__erase") == [False, True]
        await servers["late"].stop()
        assert await asked_by(server, "mcp__mine__add") == [True]

    in_group(use, Shop(), Shop("late", "erase"))


def test_an_own_name_of_several_servers_restricts_all_and_permits_none(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-02. A public name permits its tool, whatever else has that name; only the servers that are offered count."""

    async def use(servers: AsyncioServerGroup) -> None:
        erase = "mcp__mine__erase", "mcp__yours__erase"
        server = adapters.OpenAIAgentsServer(servers, require_approval={"erase": "always"})
        assert await asked_by(server, *erase, "mcp__yours__add") == [True, True, False]
        server = adapters.OpenAIAgentsServer(servers, require_approval={"erase": "never"})
        assert await asked_by(server, *erase, "mcp__yours__add") == [True, True, False]
        [required, waived] = lines_of(caplog)
        said("an approval is required for the tools of several servers", required)
        said("an approval is waived for the tools of several servers", waived)
        server = adapters.OpenAIAgentsServer(servers, require_approval={"erase": "never", "mcp__mine__erase": "never"})
        assert await asked_by(server, *erase) == [False, True]
        server = adapters.OpenAIAgentsServer(servers, servers=["mine"], require_approval={"erase": "never"})
        assert await asked_by(server, erase[0]) == [False]

    in_group(use, Shop("mine", "erase"), Shop("yours", "erase", "add"), Shop("his", "x"))


def test_a_server_that_takes_the_public_name_of_another_tool_for_its_own_is_not_permitted_by_it() -> None:
    """D-02."""

    async def use(servers: AsyncioServerGroup) -> None:
        server = adapters.OpenAIAgentsServer(servers, require_approval={"mcp__mine__add": "never"})
        [mimic] = [tool.public_name for tool in servers.tools if tool.server == "bad"]
        assert await asked_by(server, "mcp__mine__add", mimic) == [False, True]

    in_group(use, Shop(), Shop("bad", "mcp__mine__add"))


@pytest.mark.parametrize("naming", ["mcp__{server}__{tool}", "{server}_{tool}", "{tool}_of_{server}"])
def test_a_public_name_permits_no_mimic_while_its_own_server_is_not_listed(naming: str) -> None:
    """D-02."""
    public = naming.format(server="mine", tool="add")

    async def use(servers: AsyncioServerGroup) -> None:
        server = adapters.OpenAIAgentsServer(servers, require_approval={public: "never"})
        [mimic] = [tool.public_name for tool in servers.tools if tool.server == "bad"]
        await servers["mine"].stop()
        assert await asked_by(server, mimic) == [True]
        await servers["mine"].start()
        assert await asked_by(server, public, mimic) == [False, True]

    in_group(use, Shop("mine", "add"), Shop("bad", public), naming=naming)


@pytest.mark.parametrize("options", [{}, OWN_NAMES], ids=["default", "own names"])
def test_a_name_that_two_servers_had_permits_neither_when_one_stops(options: Any) -> None:
    """D-02."""

    async def use(servers: AsyncioServerGroup) -> None:
        server = adapters.OpenAIAgentsServer(servers, require_approval={"add": "never"})
        assert await asked_by(server, *(tool.public_name for tool in servers.tools)) == [True, True]
        await servers["mine"].stop()
        assert await asked_by(server, *(tool.public_name for tool in servers.tools)) == [True]

    in_group(use, Shop("mine", "add"), Shop("yours", "add"), **options)


@pytest.mark.parametrize("policy", [{DELETE: "always"}, judges], ids=["mapping", "function"])
def test_an_approval_by_name_does_not_lapse_when_a_second_server_has_the_tool(policy: Any) -> None:
    """D-02. Both names get a hash then, with the naming that keeps the names of servers."""

    async def use(servers: AsyncioServerGroup) -> None:
        server = adapters.OpenAIAgentsServer(servers, require_approval=policy)
        assert await asked_by(server, DELETE, "add") == [True, False]
        await servers.add(Shop("yours", DELETE).config)
        hashed = [tool.public_name for tool in servers.tools if tool.name == DELETE]
        assert DELETE not in hashed
        assert await asked_by(server, *hashed, "add") == [True, True, False]

    in_group(use, Shop(), **OWN_NAMES)


def test_a_tool_that_is_renamed_in_a_turn_is_asked_about() -> None:
    """D-02. The tools of that turn have their old names, which no tool has when the approval is judged."""

    async def use(servers: AsyncioServerGroup) -> None:
        for policy in {"add": "never"}, judges:
            server = adapters.OpenAIAgentsServer(servers, require_approval=policy)
            [_, tool] = await server.list_tools()
            judge: Any = server._get_needs_approval_for_tool(tool, agents.Agent(name="a"))
            yours = await servers.add(Shop("yours", DELETE).config)
            assert await judge(agents.RunContextWrapper(None), {}, "call") is True
            await servers.remove(yours.name)

    in_group(use, Shop(), **OWN_NAMES)


# --- Pydantic AI: what the framework owns, and the hook ---------------------------------------------------------------


async def pydantic_run(toolset: Any, *names: str) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def model(messages: Any, info: Any) -> ModelResponse:
        heard = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        offered = ", ".join(tool.name for tool in info.function_tools)
        return ModelResponse(
            parts=[ToolCallPart(names[len(heard)], {}) if len(heard) < len(names) else TextPart(offered)]
        )

    output: Any = [str, pydantic_ai.DeferredToolRequests]
    return (await pydantic_ai.Agent(FunctionModel(model), toolsets=[toolset], output_type=output).run("hello")).output


def filtered(toolset: Any) -> Any:
    return toolset.filtered(lambda context, tool: tool.name != DELETE)


def approved(toolset: Any) -> Any:
    return toolset.approval_required(lambda context, tool, arguments: tool.name == DELETE)


def renamed(toolset: Any) -> Any:
    return toolset.renamed({"wipe": DELETE})


@pytest.mark.parametrize(
    ("wrapped", "name", "offered"),
    [(filtered, "add", "add"), (approved, DELETE, None), (renamed, "wipe", "add, wipe")],
)
def test_wrappers_of_pydantic_ai_mean_own_names_with_the_naming_that_keeps_them(
    wrapped: Any, name: str, offered: str | None
) -> None:
    """D-02. They are the framework's, so nothing else could make them do so; the pages say it."""
    shop = Shop()

    async def use(servers: AsyncioServerGroup) -> None:
        output = await pydantic_run(wrapped(adapters.PydanticAIToolset(servers)), name)
        if offered is None:
            assert [call.tool_name for call in output.approvals] == [DELETE]
            assert shop.ledger == []
        else:
            assert output == offered

    in_group(use, shop, **OWN_NAMES)


def test_a_hook_that_carries_the_call_out_is_called_once_with_the_public_name() -> None:
    """D-02."""
    called: list[str] = []
    shop = Shop()

    async def hook(context: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        called.append(name)
        return await call_tool(name, arguments)

    async def use(servers: AsyncioServerGroup) -> None:
        await pydantic_run(adapters.PydanticAIToolset(servers, process_tool_call=hook), PUBLIC)

    in_group(use, shop)
    assert (called, [tool for tool, _ in shop.ledger]) == ([PUBLIC], [f"mine.{DELETE}"])
