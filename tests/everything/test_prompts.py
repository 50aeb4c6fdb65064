"""Prompts, and the completion of their arguments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mcp import MCPError
from mcp.types import (
    INVALID_PARAMS,
    EmbeddedResource,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from mcp_actors import ServerConfig, ServerRef, open_servers


async def said(server: ServerRef, prompt: str, arguments: Mapping[str, str] | None = None) -> str:
    """Return the text of the only message of a prompt."""
    [message] = (await server.get_prompt(prompt, arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_prompts_are_listed_with_their_arguments(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        prompts = {prompt.name: prompt for prompt in await servers["everything"].list_prompts()}
        assert sorted(prompts) == ["args-prompt", "completable-prompt", "resource-prompt", "simple-prompt"]
        arguments = prompts["args-prompt"].arguments or []
        assert [(argument.name, argument.required) for argument in arguments] == [("city", True), ("state", False)]


async def test_prompts_are_filled_in(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        server = servers["everything"]
        assert await said(server, "simple-prompt") == "This is a simple prompt without arguments."
        assert await said(server, "args-prompt", {"city": "Berlin"}) == "What's weather in Berlin?"
        arguments = {"resourceType": "Text", "resourceId": "3"}
        _, message = (await server.get_prompt("resource-prompt", arguments)).messages
        assert isinstance(message.content, EmbeddedResource)
        assert isinstance(message.content.resource, TextResourceContents)
        assert message.content.resource.uri == "demo://resource/dynamic/text/3"


async def test_what_is_wrong_with_an_argument_is_the_servers_error(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        with pytest.raises(MCPError, match="expected string, received undefined at city") as caught:
            await servers["everything"].get_prompt("args-prompt", {"state": "BE"})
        assert caught.value.code == INVALID_PARAMS


async def test_arguments_are_completed_in_view_of_those_there_are(everything: ServerConfig) -> None:
    prompt = PromptReference(name="completable-prompt")
    template = ResourceTemplateReference(uri="demo://resource/dynamic/text/{resourceId}")
    async with open_servers(everything, strict=True) as servers:
        complete = servers["everything"].complete
        departments = (await complete(prompt, {"name": "department", "value": "S"})).completion
        assert (departments.values, departments.total, departments.has_more) == (["Sales", "Support"], 2, False)
        people = await complete(prompt, {"name": "name", "value": ""}, {"department": "Sales"})
        assert people.completion.values == ["David", "Eve", "Frank"]
        assert (await complete(prompt, {"name": "name", "value": ""})).completion.values == []
        assert (await complete(template, {"name": "resourceId", "value": "7"})).completion.values == ["7"]
        assert (await complete(template, {"name": "resourceId", "value": "x"})).completion.values == []
