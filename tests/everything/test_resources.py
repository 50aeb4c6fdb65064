"""Resources and their templates, and what they hold."""

from __future__ import annotations

import base64

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS, BlobResourceContents, TextResourceContents

from mcp_actors import ServerConfig, open_servers

DOCUMENTS = "demo://resource/static/document"


async def test_resources_and_templates_are_listed_with_all_that_is_said_of_them(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        resources = await servers["everything"].list_resources()
        listed = {resource.uri: (resource.name, resource.mime_type) for resource in resources}
        assert listed[f"{DOCUMENTS}/features.md"] == ("features.md", "text/markdown")
        templates = await servers["everything"].list_resource_templates()
        assert {template.uri_template: template.mime_type for template in templates} == {
            "demo://resource/dynamic/text/{resourceId}": "text/plain",
            "demo://resource/dynamic/blob/{resourceId}": "application/octet-stream",
        }


async def test_texts_and_bytes_are_read(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        read = servers["everything"].read_resource
        [document] = (await read(f"{DOCUMENTS}/features.md")).contents
        assert isinstance(document, TextResourceContents)
        assert document.text.startswith("# Everything Server - Features\n")
        [text] = (await read("demo://resource/dynamic/text/3")).contents
        assert isinstance(text, TextResourceContents)
        assert text.text.startswith("Resource 3: This is a plaintext resource")
        [blob] = (await read("demo://resource/dynamic/blob/4")).contents
        assert isinstance(blob, BlobResourceContents)
        assert base64.b64decode(blob.blob).startswith(b"Resource 4: This is a base64 blob")


async def test_a_resource_that_there_is_not_is_the_servers_error(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        with pytest.raises(MCPError, match=r"Resource demo://nothing not found$") as caught:
            await servers["everything"].read_resource("demo://nothing")
        assert caught.value.code == INVALID_PARAMS


async def test_a_resource_that_a_tool_has_made_is_listed_and_read(everything: ServerConfig) -> None:
    async with open_servers(everything, strict=True) as servers:
        server = servers["everything"]
        before = {resource.uri for resource in await server.list_resources()}
        arguments = {"name": "made.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"}
        await server.call_tool("gzip-file-as-resource", arguments)
        after = {resource.uri for resource in await server.list_resources()}
        assert after - before == {"demo://resource/session/made.gz"}
        [contents] = (await server.read_resource("demo://resource/session/made.gz")).contents
        assert contents.mime_type == "application/gzip"
