"""Changes of the lists of resources and prompts are events."""

from __future__ import annotations

import trio
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged
from mcp.types import PromptListChangedNotification, ResourceListChangedNotification
from trio.testing import wait_all_tasks_blocked

from mcp_actors import open_servers
from mcp_actors.servers import PromptsChanged, ResourcesChanged

from .groups import BOUND, Events
from .library import RESOURCES, Library
from .test_resources import Protocol, both_eras


async def announce(library: Library) -> None:
    """Tell, in either era, that both lists have changed."""
    for session in library.sessions:
        await session.send_notification(ResourceListChangedNotification())
        await session.send_notification(PromptListChangedNotification())
    await library.bus.publish(ResourcesListChanged())
    await library.bus.publish(PromptsListChanged())
    await wait_all_tasks_blocked()


@both_eras
async def test_a_notice_of_the_server_is_an_event(era: Protocol) -> None:
    """S4-09, B-41: nothing is cached here, so there is nothing else that could be out of date."""
    library, events = Library(), Events()
    async with open_servers(library.config(protocol=era), observers=[events]) as servers:
        await wait_all_tasks_blocked()
        assert not events.of(ResourcesChanged)
        assert not events.of(PromptsChanged)
        await announce(library)
        [resources], [prompts] = events.of(ResourcesChanged), events.of(PromptsChanged)
        assert (resources.server, prompts.server, resources.incarnation) == ("library", "library", 1)
        assert await servers["library"].list_resources() == tuple(RESOURCES)


@both_eras
async def test_a_reconnect_counts_as_a_change_of_the_lists(era: Protocol) -> None:
    """S3-18: so a program that keeps a list requests it again."""
    library, events = Library(), Events()
    poor = Library(on_list_resources=None, on_list_prompts=None).config("poor", protocol=era)
    async with open_servers(library.config(protocol=era), poor, observers=[events]) as servers:
        for ref in servers.configured:
            await ref.restart()
    assert {event.server for event in events.of(ResourcesChanged)} == {"library"}
    assert {event.server for event in events.of(PromptsChanged)} == {"library"}


@both_eras
async def test_a_reader_of_the_event_may_send_requests_at_once(era: Protocol) -> None:
    """A-19: a reader of events calls the same server."""
    library = Library()
    async with open_servers(library.config(protocol=era, max_in_flight=1)) as servers, servers.watch_events() as stream:
        await announce(library)
        with trio.fail_after(BOUND):
            async for event in stream:
                if isinstance(event, ResourcesChanged):
                    assert await servers["library"].list_resources() == tuple(RESOURCES)
                    break
