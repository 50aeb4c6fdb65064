"""Servers that speak 2026-07-28 and ask in the way of 2025-11-25."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from mcp import MCPError
from mcp.client import advertise
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

from mcp_actors import Callbacks, RetryPolicy, ServerConfig, Stdio, ToolFailed, bridge, open_servers
from mcp_actors.servers import NotSupported
from tests.gateway.hosts import LEGACY, gateway, in_process

from ...forkserver import interpreter
from ...source import ROOT
from ..asking import ACCEPTED, ELICIT, SAMPLE, accept, asking, folders, say
from ..groups import AT_ONCE

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

CALLBACKS: Final = Callbacks(elicitation=accept, sampling=say, roots=folders)


class Which(BaseModel):
    which: str


class Curious:
    """A server of both eras whose tools ask in the old way; it counts their calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.server = server = MCPServer("curious")

        @server.tool()
        async def elicitation(ctx: Context[Any, Any]) -> str:
            self.calls += 1
            answer: Any = await ctx.elicit("which?", Which)
            return f"{answer.data.which}"

        @server.tool()
        async def sampling(ctx: Context[Any, Any]) -> str:
            self.calls += 1
            message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
            return str((await ctx.session.create_message(messages=[message], max_tokens=7)).model)

        @server.tool()
        async def roots(ctx: Context[Any, Any]) -> str:
            self.calls += 1
            return str(len((await ctx.session.list_roots()).roots))

        @server.tool()
        async def wrapped(ctx: Context[Any, Any]) -> str:
            try:
                return await elicitation(ctx)
            except MCPError as exc:
                raise ToolError(f"it failed: {exc}") from exc


KINDS: Final = {"elicitation": "that", "sampling": "fake", "roots": "1"}


async def test_the_error_of_an_old_question_names_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """D-06: the call is not repeated, and one warning is logged for all."""
    curious = Curious()
    config = in_process("a", curious.server, callbacks=CALLBACKS, retry=RetryPolicy(attempts=3))
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(config) as servers:
            for calls, kind in enumerate(KINDS, 1):
                with pytest.raises(NotSupported, match=f"tools/call '{kind}' asks for {kind} in the way of") as caught:
                    await servers["a"].call_tool(kind, idempotent=True)
                assert caught.value.capability == kind
                assert "it may have taken effect; set protocol='legacy' for it" in str(caught.value)
                assert curious.calls == calls
            with pytest.raises(ToolFailed, match="set protocol='legacy' for it"):
                await servers["a"].call("wrapped")
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("server 'a': tools/call 'elicitation' asks for elicitation in the way of 2025-11-25")


async def test_the_remedy_helps() -> None:
    """D-06."""
    config = in_process("a", Curious().server, callbacks=CALLBACKS, protocol="legacy")
    async with open_servers(config) as servers:
        assert {kind: await servers["a"].call(kind) for kind in KINDS} == KINDS


async def test_the_error_of_a_question_without_a_callback_names_it() -> None:
    """The SDK's error is as the server repeats it, without a name; it stays if there is a callback."""
    async with open_servers(in_process("a", Curious().server, protocol="legacy")) as servers:
        for kind in KINDS:
            with pytest.raises(NotSupported) as caught:
                await servers["a"].call_tool(kind)
            assert caught.value.capability == kind
            assert str(caught.value).startswith(f"server 'a': tools/call '{kind}' needs {kind}, which this client does")
            assert str(caught.value).endswith(f"configure callbacks=Callbacks({kind}=…)")
        with pytest.raises(ToolFailed, match=r"configure callbacks=Callbacks\(elicitation=…\)"):
            await servers["a"].call("wrapped")
    server = MCPServer("repeats")

    @server.tool()
    async def ask() -> str:
        raise MCPError(-32600, "Sampling not supported")

    async with open_servers(in_process("a", server, protocol="legacy", callbacks=CALLBACKS)) as servers:
        with pytest.raises(MCPError, match=r"^Sampling not supported$"):
            await servers["a"].call_tool("ask")


def test_on_the_bridge_the_error_names_the_remedy_too() -> None:
    """D-06."""

    async def main() -> None:
        async with bridge.open_servers(in_process("a", Curious().server)) as servers:
            with pytest.raises(NotSupported, match="set protocol='legacy' for it"):
                await servers["a"].call_tool("roots")

    asyncio.run(main())


async def test_the_same_text_of_a_legacy_server_is_an_error_like_others() -> None:
    """D-06: there is no other era in which it could ask."""
    server, text = MCPServer("stateless"), "Cannot send 'roots/list': this has no back-channel for that."

    @server.tool()
    async def ask() -> str:
        raise MCPError(-32600, text)

    async with open_servers(in_process("a", server, protocol="legacy")) as servers:
        with pytest.raises(MCPError) as caught:
            await servers["a"].call_tool("ask")
        assert caught.value.message == text


def answers(host: Any) -> None:
    """Have a client answer every form."""
    accepted = {"result": ACCEPTED.model_dump(by_alias=True, exclude_none=True)}
    host.questions["elicitation/create"] = lambda _: accepted


@pytest.mark.parametrize("transport", ["in process", "process"])
async def test_a_client_of_a_gateway_keeps_the_questions_of_its_own_server(transport: str, tmp_path: Path) -> None:
    """D-06: also if its first start fails. For another client the server is negotiated as ever."""
    own = in_process("own", Curious().server)
    if transport == "process":
        program = f"import os; os.mkdir({str(tmp_path / 'started')!r}); os._exit(1)"
        code = "from tests.servers.callbacks.test_old_questions import Curious; Curious().server.run()"
        restart = f"try: {program}\nexcept FileExistsError: pass\n{code}"
        own = ServerConfig("own", Stdio(interpreter(__name__), ("-c", restart), cwd=str(ROOT)), restarts=AT_ONCE)
    async with gateway(tmp_path, per_session=[own]) as door:
        host, silent = await door.connect(LEGACY, elicitation={}), await door.connect(LEGACY)
        answers(host)
        for client in (host, silent):
            while not (await client.result("tools/list"))["tools"]:
                await client.notice("notifications/tools/list_changed")
        assert await host.call("own_elicitation") == "that"
        error = await silent.error("tools/call", {"name": "own_elicitation", "arguments": {}})
        assert "set protocol='legacy' for it" in error["message"]
        assert error["data"]["mcp_actors"]["outcome"] == "unknown"


DECLARED: Final[list[dict[str, Any]]] = [
    {"elicitation": {}, "roots": {}},
    {"elicitation": {"url": {}}, "sampling": {"tools": {}}},
    {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}},
]


async def test_an_own_server_of_a_gateway_is_sent_the_capabilities_of_its_client(tmp_path: Path) -> None:
    """An empty elicitation means forms only. A callback that the configuration switches off is left out."""
    extension = advertise("com.example/ours")
    own = asking(name="own"), asking(name="deaf", callbacks=Callbacks(elicitation=False), extensions=[extension])
    async with gateway(tmp_path, per_session=own) as door:
        for declared in DECLARED:
            host = await door.connect(LEGACY, experimental={"x": {}}, extensions={"com.example/theirs": {}}, **declared)
            heard = [json.loads(await host.call(f"{each.name}_seen"))["capabilities"] for each in own]
            ours: dict[str, Any] = {"extensions": {extension.identifier: {}}}
            assert heard == [declared, {key: each for key, each in declared.items() if key != "elicitation"} | ours]


async def test_a_model_behind_a_gateway_may_use_tools_for_an_own_server(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "1", "name": "search", "input": {}}
    said = {"role": "assistant", "model": "fake", "content": [use], "stopReason": "toolUse"}
    async with gateway(tmp_path, per_session=[asking(name="own")]) as door:
        host = await door.connect(LEGACY, sampling={"tools": {}})
        host.questions["sampling/createMessage"] = lambda _: {"result": said}
        tools = [{"name": "search", "inputSchema": {"type": "object"}}]
        question = {**SAMPLE, "params": {**SAMPLE["params"], "tools": tools}}
        assert json.loads(await host.call("own_ask", questions=[question])) == [said]


async def test_an_own_server_of_a_gateway_may_know_no_other_era(tmp_path: Path) -> None:
    """D-06: it refuses ``initialize``, and is asked for its version then."""
    own: ServerConfig = evolve(asking("modern", name="own"), protocol="auto")
    async with gateway(tmp_path, per_session=[own]) as door:
        host = await door.connect(LEGACY, elicitation={})
        answers(host)
        assert "that" in await host.call("own_ask", questions=[ELICIT])
