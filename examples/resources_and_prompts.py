"""Read and watch resources, and use prompts.

The server is `servers/notes.py`. In the block of `subscribe`, read the resource again after each change, and after a
restart of the server, which may have missed one.

Prints::

    supports resources: True prompts: True completions: True
    note:///shopping: eggs
    pages: ideas, shopping
    Plan breakfast with what is on note:///shopping.
    note:///shopping has changed: eggs, milk
    note:///shopping may have changed: eggs
    now there are: note:///shopping, note:///diary
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio
from mcp.client import advertise
from mcp.types import ResourceTemplateReference, TextContent, TextResourceContents

from mcp_actors import ServerConfig, ServerGroup, ServerRef, Stdio, open_servers
from mcp_actors.servers import ResourcesChanged

NOTES = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "notes.py")])


async def text_of(server: ServerRef, uri: str) -> str:
    """Read a resource that is a text."""
    contents = (await server.read_resource(uri)).contents
    return "".join(
        each.text for each in contents if isinstance(each, TextResourceContents)
    )


async def look(notes: ServerRef) -> None:
    """List the capabilities, resources and prompts of the server."""
    can = notes.info.supports
    print(
        "supports resources:",
        can.resources,
        "prompts:",
        can.prompts,
        "completions:",
        can.completions,
    )
    for resource in await notes.list_resources():
        print(f"{resource.uri}: {await text_of(notes, resource.uri)}")
    [template] = await notes.list_resource_templates()
    page = ResourceTemplateReference(uri=template.uri_template)
    found = await notes.complete(page, {"name": "page", "value": ""})
    print("pages:", ", ".join(found.completion.values))
    for message in (await notes.get_prompt("plan", {"meal": "breakfast"})).messages:
        if isinstance(message.content, TextContent):
            print(message.content.text)


async def watch(notes: ServerRef, uri: str) -> None:
    """Read a resource whenever it has changed, or may have."""
    async with notes.subscribe(uri) as changes:
        await notes.call_tool("add", {"page": "shopping", "line": "milk"})
        async for change in changes:
            what = "may have changed" if change.missed else "has changed"
            print(f"{uri} {what}: {await text_of(notes, uri)}")
            if change.missed:
                break
            await notes.restart()  # it forgets the milk


async def keep_lists(servers: ServerGroup) -> None:
    """Ask for a list again when it has changed."""
    async with servers.watch_events() as events:
        await servers["notes"].call("begin", page="diary")
        async for event in events:
            if isinstance(event, ResourcesChanged):
                resources = await servers[event.server].list_resources()
                print("now there are:", ", ".join(each.uri for each in resources))
                break


async def main() -> None:
    """Look at the notes, watch one of them, and begin another."""
    config = ServerConfig(
        "notes", NOTES, extensions=[advertise("com.example/ink", {"color": "blue"})]
    )
    async with open_servers(config, strict=True) as servers:
        await servers["notes"].set_log_level("warning")
        await look(servers["notes"])
        await watch(servers["notes"], "note:///shopping")
        await keep_lists(servers)


trio.run(main)
