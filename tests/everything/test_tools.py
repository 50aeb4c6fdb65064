"""Tools: what the server says of them, and every kind of result they have."""

from __future__ import annotations

import base64
import gzip

import pytest
from attrs import evolve
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from mcp_actors import InvalidArguments, ServerConfig, open_servers, result_value

from ..node.packages import PINNED

ALWAYS = {
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
}
"""The tools that the server has for every client; others it has only for those with certain capabilities."""


def text_of(result: CallToolResult) -> str:
    """Return the text of the first block."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def test_the_legacy_era_is_found_out_and_the_server_says_what_it_is(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        info = servers["everything"].info
        assert (info.name, info.version, info.protocol_version) == ("mcp-servers/everything", "2.0.0", "2025-11-25")
        assert (info.instructions or "").startswith("# Everything Server")
        assert info.capabilities.resources is not None
        assert info.capabilities.resources.subscribe
        assert info.capabilities.completions is not None


async def test_tools_are_listed_with_all_that_is_said_of_them(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        await servers["everything"].list_tools()  # the server has announced its last tools before it answers
        assert {tool.name for tool in servers.tools} == ALWAYS
        tool = servers.find_tool("mcp__everything__get-structured-content")
        assert tool.title == "Get Structured Content Tool"
        assert tool.input_schema["properties"]["location"]["enum"] == ["New York", "Chicago", "Los Angeles"]
        assert tool.output_schema is not None
        assert sorted(tool.output_schema["properties"]) == ["conditions", "humidity", "temperature"]
        assert tool.annotations is not None
        assert tool.annotations["readOnlyHint"] is True


async def test_results_of_every_kind_come_as_they_are(everything: ServerConfig) -> None:
    async with open_servers(evolve(everything, validate="schema"), strict=True) as servers:
        call = servers["everything"].call_tool
        assert text_of(await call("echo", {"message": "größe \N{SNOWMAN}"})) == "Echo: größe \N{SNOWMAN}"
        assert text_of(await call("get-sum", {"a": 2, "b": 0.5})) == "The sum of 2 and 0.5 is 2.5."
        weather = {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
        assert result_value(await call("get-structured-content", {"location": "New York"})) == weather
        image = (await call("get-tiny-image")).content[1]
        assert isinstance(image, ImageContent)
        assert base64.b64decode(image.data).startswith(b"\x89PNG")
        [message] = (await call("get-annotated-message", {"messageType": "error"})).content
        assert message.annotations is not None
        assert (message.annotations.priority, message.annotations.audience) == (1.0, ["user", "assistant"])


async def test_results_can_hold_resources_and_links_to_them(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        call = servers["everything"].call_tool
        _, *links = (await call("get-resource-links", {"count": 2})).content
        assert [link.uri for link in links if isinstance(link, ResourceLink)] == [
            "demo://resource/dynamic/blob/1",
            "demo://resource/dynamic/text/2",
        ]
        embedded = (await call("get-resource-reference", {"resourceType": "Text", "resourceId": 3})).content[1]
        assert isinstance(embedded, EmbeddedResource)
        assert isinstance(embedded.resource, TextResourceContents)
        assert embedded.resource.text.startswith("Resource 3:")
        arguments = {"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"}
        [zipped] = (await call("gzip-file-as-resource", arguments)).content
        assert isinstance(zipped, EmbeddedResource)
        assert isinstance(zipped.resource, BlobResourceContents)
        assert gzip.decompress(base64.b64decode(zipped.resource.blob)) == b"hello"


async def test_what_the_server_finds_wrong_is_a_result_and_what_we_find_wrong_is_not_sent(
    everything: ServerConfig,
) -> None:
    async with open_servers(everything, strict=True) as servers:
        call = servers["everything"].call_tool
        with pytest.raises(InvalidArguments, match=r"^server 'everything': tool 'get-sum': arguments\.b is missing "):
            await call("get-sum", {"a": 1})
        refused = await call("get-sum", {"a": "x", "b": 2})
        assert refused.is_error
        assert "expected number, received string at a" in text_of(refused)
        unknown = await call("no-such-tool")
        assert unknown.is_error
        assert "no-such-tool not found" in text_of(unknown)


async def test_a_tool_that_only_runs_as_a_task_says_so(everything: ServerConfig) -> None:
    """S4-34."""
    async with open_servers(everything, strict=True) as servers:
        await servers["everything"].list_tools()
        tasks = {tool.name: tool.task_support for tool in servers.tools}
        assert (tasks["simulate-research-query"], tasks["echo"]) == ("required", "forbidden")
        refused = await servers["everything"].call_tool("simulate-research-query", {"topic": "actors"})
        assert refused.is_error
        assert "requires task augmentation" in text_of(refused)


def test_the_server_is_pinned() -> None:
    lock = (PINNED / "package-lock.json").read_text()
    assert '"node_modules/@modelcontextprotocol/server-everything": {\n      "version": "2026.8.31",' in lock
    assert '"resolved"' not in lock  # it would name one registry, and not everybody can reach that
