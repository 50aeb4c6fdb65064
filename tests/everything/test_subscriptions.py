"""Changes of resources, for those who have subscribed to them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import trio
from attrs import evolve

from mcp_actors import ServerConfig, open_servers

from ..servers.groups import BOUND
from ..servers.processes import eventually
from .conftest import Asked

ONE, OTHER = "demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/2"


async def test_changes_of_subscribed_resources_are_reported(everything: ServerConfig) -> None:
    async with open_servers(evolve(everything, stop_timeout=0.5), strict=True) as servers:
        server = servers["everything"]
        async with server.subscribe(ONE, OTHER) as changes:
            await server.call_tool("toggle-subscriber-updates")  # tells of all at once, and again every five seconds
            with trio.fail_after(BOUND):
                told = {(await anext(changes)).uri, (await anext(changes)).uri}
            assert told == {ONE, OTHER}


async def test_the_server_gets_an_unsubscribe_when_the_last_subscription_ends(asked: Asked) -> None:
    async with open_servers(asked.config, strict=True) as servers:
        server = servers["everything"]
        async with server.subscribe(ONE):
            async with server.subscribe(ONE, OTHER):
                assert asked.count("resources/subscribe") == 2
            await eventually(lambda: asked.count("resources/unsubscribe") == 1)
        await eventually(lambda: asked.count("resources/unsubscribe") == 2)


async def test_the_server_gets_one_unsubscribe_each_when_many_subscriptions_end_together(asked: Asked) -> None:
    """B-16."""
    async with open_servers(asked.config, strict=True) as servers:
        async with AsyncExitStack() as stack:
            for number in range(1, 101):
                await stack.enter_async_context(
                    servers["everything"].subscribe(f"demo://resource/dynamic/text/{number}")
                )
        await eventually(lambda: asked.count("resources/unsubscribe") == 100)
