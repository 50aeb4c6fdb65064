"""Questions and notifications of the server: each callback is called, and its answer arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from attrs import evolve
from mcp import MCPError
from mcp.types import (
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)
from pydantic import FileUrl

from mcp_actors import Callbacks, ServerConfig, open_servers
from mcp_actors.config import CallbackContext

from ..servers.groups import BOUND
from ..servers.processes import eventually
from .conftest import Asked
from .test_tools import ALWAYS


def texts_of(result: CallToolResult) -> list[str]:
    """Return the texts of all blocks."""
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def test_a_model_is_asked_through_the_client(everything: ServerConfig) -> None:
    """S4-23."""
    asked: list[tuple[str, CreateMessageRequestParams]] = []

    async def sampling(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append((context.server, params))
        answer = TextContent(type="text", text="forty-two")
        return CreateMessageResult(role="assistant", content=answer, model="oracle", stop_reason="endTurn")

    async with open_servers(evolve(everything, callbacks=Callbacks(sampling=sampling)), strict=True) as servers:
        question = {"prompt": "What is the answer?", "maxTokens": 7}
        [text] = texts_of(await servers["everything"].call_tool("trigger-sampling-request", question))
    [(server, params)] = asked
    assert (server, params.max_tokens, params.temperature) == ("everything", 7, 0.7)
    assert params.system_prompt == "You are a helpful test server."
    assert json.loads(text.removeprefix("LLM sampling result: \n")) == {
        "model": "oracle",
        "role": "assistant",
        "stopReason": "endTurn",
        "content": {"type": "text", "text": "forty-two"},
    }


async def test_a_user_is_asked_in_a_form(everything: ServerConfig) -> None:
    """S4-23."""
    answers: list[ElicitResult] = []

    async def elicitation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        assert params.requested_schema["required"] == ["name"]
        return answers.pop()

    async with open_servers(evolve(everything, callbacks=Callbacks(elicitation=elicitation)), strict=True) as servers:
        server = servers["everything"]
        answers.append(ElicitResult(action="accept", content={"name": "Ada", "integer": 7}))
        accepted = texts_of(await server.call_tool("trigger-elicitation-request"))
        assert accepted[1] == "User inputs:\n- Name: Ada\n- Favorite Integer: 7"
        answers.append(ElicitResult(action="decline"))
        declined = texts_of(await server.call_tool("trigger-elicitation-request"))
        assert "User declined" in declined[0]


async def test_a_user_is_sent_to_a_url(everything: ServerConfig) -> None:
    """S4-23; S4-01: an error with data passes as it is."""

    async def elicitation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        assert params.url == "https://example.com/consent"
        return ElicitResult(action="accept")

    async with open_servers(evolve(everything, callbacks=Callbacks(elicitation=elicitation)), strict=True) as servers:
        server = servers["everything"]
        arguments: dict[str, Any] = {"url": "https://example.com/consent"}
        assert "User completed" in texts_of(await server.call_tool("trigger-url-elicitation", arguments))[0]
        with pytest.raises(MCPError) as caught:
            await server.call_tool("trigger-url-elicitation", {**arguments, "errorPath": True})
        assert caught.value.code == URL_ELICITATION_REQUIRED
        assert caught.value.data["elicitations"][0]["url"] == "https://modelcontextprotocol.io"
        # Having been there, one calls again.
        again = await server.call_tool("trigger-url-elicitation", {**arguments, "errorPath": True})
        assert "User completed" in texts_of(again)[0]


async def test_the_server_gets_the_roots_and_logs_that_it_has_them(everything: ServerConfig) -> None:
    """S4-23."""
    logged, send = [], trio.Event()

    async def roots(context: CallbackContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///srv/project"), name="project")])

    async def logging(context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        logged.append((context.server, params.level, params.logger, params.data))
        send.set()

    callbacks = Callbacks(roots=roots, logging=logging)
    async with open_servers(evolve(everything, callbacks=callbacks), strict=True) as servers:
        [text] = texts_of(await servers["everything"].call_tool("get-roots-list"))
        assert "1. project\n   URI: file:///srv/project" in text
        with trio.fail_after(BOUND):
            await send.wait()
    told = "Roots updated: 1 root(s) received from client"
    assert logged[0] == ("everything", "info", "everything-server", told)


async def test_a_burst_of_notices_after_the_connect_is_heard_and_the_tools_are_asked_for_once(asked: Asked) -> None:
    """A-20: five tools come with the callbacks, each with a notice of its own, while the first listing is under way."""
    heard: list[str] = []
    later = trio.Event()

    async def message(context: CallbackContext, notice: Any) -> None:
        heard.append(notice.method)

    async def answer(*_: object) -> Any:
        raise NotImplementedError  # the capability is what counts

    async def roots(context: CallbackContext) -> ListRootsResult:
        later.set()  # the server asks for them 350 ms after the connect
        return ListRootsResult(roots=[])

    callbacks = Callbacks(sampling=answer, elicitation=answer, roots=roots, message=message)
    async with open_servers(evolve(asked.config, callbacks=callbacks), strict=True) as servers:
        await eventually(lambda: heard.count("notifications/tools/list_changed") == 5)
        assert {tool.name for tool in servers.tools} == ALWAYS | {
            "get-roots-list",
            "trigger-elicitation-request",
            "trigger-sampling-request",
            "trigger-url-elicitation",
        }
        await eventually(lambda: asked.count("tools/list") >= 2)
        await later.wait()
    assert asked.count("tools/list") <= 3  # more than one if the machine pauses between two of the notices


async def test_how_much_the_server_logs_is_asked_of_it(asked: Asked) -> None:
    logged: list[tuple[str, str]] = []

    async def logging(context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    callbacks = Callbacks(logging=logging, log_level="emergency")
    async with open_servers(evolve(asked.config, callbacks=callbacks), strict=True) as servers:
        server = servers["everything"]
        await eventually(lambda: asked.count("logging/setLevel") == 1)
        async with server.subscribe("demo://resource/dynamic/text/1"):  # the server logs that, as an "info"
            await server.set_log_level("info")
            async with server.subscribe("demo://resource/dynamic/text/2"):
                await eventually(lambda: logged != [])
        assert asked.count("logging/setLevel") == 2
    assert logged[0] == ("info", "Received Subscribe Resource request for URI: demo://resource/dynamic/text/2 ")
