"""Resources and templates that are listed at each connect, and again when they change."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import attrs
import pytest
import trio
from mcp import MCPError
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ListPromptsResult,
    Prompt,
    PromptListChangedNotification,
    Resource,
    ResourceListChangedNotification,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Backoff, ConfigError, RetryPolicy, StateChanged, bridge, open_servers
from mcp_actors.servers import PromptsChanged, ResourcesChanged, ServerRef

from ..messages import Said
from .groups import Events
from .library import PROMPTS, RESOURCES, TEMPLATES, Library
from .test_resources import Protocol, both_eras

LISTS = ("resources/list", "resources/templates/list", "prompts/list")

NEW = Resource(uri="file:///new", name="new")


EVERYTHING = dict(zip(LISTS, (tuple(RESOURCES), tuple(TEMPLATES), tuple(PROMPTS)), strict=True))


def kept(ref: ServerRef) -> dict[str, tuple[Any, ...]]:
    """Return the lists that are kept of a server, by the method that lists them."""
    return dict(zip(LISTS, (ref.resources, ref.resource_templates, ref.prompts), strict=True))


def listings(library: Library) -> list[str]:
    """Return the first request of each list that the server was asked for."""
    return [method for method, cursor in library.asked if method in LISTS and cursor is None]


async def announce(library: Library) -> None:
    """Notify the client, in either era, that the resources have changed."""
    for session in library.sessions:
        await session.send_notification(ResourceListChangedNotification())
    await library.bus.publish(ResourcesListChanged())
    await wait_all_tasks_blocked()


@both_eras
async def test_the_resources_of_a_connected_server_are_at_hand(era: Protocol) -> None:
    """S3-06: with all pages, before the server is ready; and nothing is requested unless the program says so."""
    library, plain, events = Library(), Library(), Events()
    config = library.config(protocol=era, keep_resources=True)
    async with open_servers(config, plain.config("plain", protocol=era), observers=[events]) as servers:
        assert servers["library"].resources == tuple(RESOURCES)
        assert servers["library"].resource_templates == tuple(TEMPLATES)
        assert servers["library"].prompts == tuple(PROMPTS)
        plain_ref = servers["plain"]
        assert (plain_ref.resources, plain_ref.resource_templates, plain_ref.prompts) == ((), (), ())
        assert listings(plain) == []
    assert listings(library) == list(LISTS)
    mine = [event for event in events if getattr(event, "server", "") == "library"]
    states = [event.new for event in mine if isinstance(event, StateChanged)]
    changed = next(place for place, event in enumerate(mine) if isinstance(event, ResourcesChanged))
    ready = next(place for place, event in enumerate(mine) if isinstance(event, StateChanged) and event.new == "ready")
    assert changed < ready
    assert states == ["connecting", "ready", "stopping", "stopped"]


@both_eras
async def test_a_change_is_an_event_once_the_new_list_is_there(era: Protocol, autojump_clock: MockClock) -> None:
    library = Library()
    async with (
        open_servers(library.config(protocol=era, keep_resources=True)) as servers,
        servers.watch_events() as stream,
    ):
        library.resources.append(NEW)
        await announce(library)
        assert NEW not in servers["library"].resources
        async for event in stream:
            if isinstance(event, ResourcesChanged):
                break
        assert servers["library"].resources == (*RESOURCES, NEW)
    assert listings(library) == [*LISTS, *LISTS]


@both_eras
async def test_a_notice_without_a_change_emits_nothing(era: Protocol, autojump_clock: MockClock) -> None:
    library, events = Library(), Events()
    async with open_servers(library.config(protocol=era, keep_resources=True), observers=[events]) as servers:
        await announce(library)
        await trio.sleep(60)
        await servers["library"].restart()
        await trio.sleep(60)
    assert len(events.of(ResourcesChanged)) == 1
    assert listings(library) == [*LISTS, *LISTS, *LISTS]


async def test_a_notice_during_a_request_has_them_listed_again(autojump_clock: MockClock) -> None:
    """The server may have read its list before the change."""
    behind = Library()
    hold, asked = trio.Event(), trio.Event()

    async def slow_at_first(ctx: Any, params: Any) -> Any:
        if listings(library).count("resources/list") == 2 and not asked.is_set():
            asked.set()
            await hold.wait()
        return await behind.list_templates(ctx, params)

    library = Library(on_list_resource_templates=slow_at_first)
    async with open_servers(library.config(protocol="legacy", keep_resources=True)) as servers:
        await announce(library)
        await asked.wait()
        library.resources.append(NEW)
        await announce(library)
        hold.set()
        await trio.sleep(60)
        assert NEW in servers["library"].resources
    assert listings(library).count("resources/list") == 3


@both_eras
async def test_they_stay_while_the_server_is_away_and_are_listed_at_its_return(era: Protocol) -> None:
    library = Library()
    async with open_servers(library.config(protocol=era, keep_resources=True)) as servers:
        await servers["library"].stop()
        assert servers["library"].resources == tuple(RESOURCES)
        library.resources.append(NEW)
        await servers["library"].start()
        assert servers["library"].resources == (*RESOURCES, NEW)


async def test_a_failure_is_logged_and_tried_again_and_the_server_serves(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """S3-06, S3-22: what is only useful may fail without failing the connect."""
    library = Library()
    library.failing["resources/list"] = [MCPError(INTERNAL_ERROR, "the archive is closed")] * 2
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(library.config(keep_resources=True)) as servers:
            assert (servers["library"].state, servers["library"].resources) == ("ready", ())
            assert not servers.errors
            await trio.sleep(60)
            assert servers["library"].resources == tuple(RESOURCES)
    [message] = [record.getMessage() for record in caplog.records]
    said("resources could not be listed: error", message[: message.index(" in ")])


@both_eras
async def test_changed_prompts_are_an_event_once_the_new_list_is_there(
    era: Protocol, autojump_clock: MockClock
) -> None:
    """S3-06: resources that have not changed cause no event."""
    prompts = list(PROMPTS)

    async def list_prompts(ctx: Any, params: Any) -> ListPromptsResult:
        return ListPromptsResult(prompts=prompts)

    library, events = Library(on_list_prompts=list_prompts), Events()
    config = library.config(protocol=era, keep_resources=True)
    async with open_servers(config, observers=[events]) as servers, servers.watch_events() as stream:
        before = len(events.of(ResourcesChanged))
        prompts.append(Prompt(name="new"))
        for session in library.sessions:
            await session.send_notification(PromptListChangedNotification())
        await library.bus.publish(PromptsListChanged())
        async for event in stream:
            if isinstance(event, PromptsChanged):
                break
        assert servers["library"].prompts == tuple(prompts)
        assert len(events.of(ResourcesChanged)) == before


async def test_a_server_that_does_not_answer_costs_half_of_the_time_to_connect(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    answers = Library()
    asked: list[float] = []

    async def hangs_at_first(ctx: Any, params: Any) -> Any:
        asked.append(trio.current_time())
        if len(asked) == 1:
            await trio.sleep_forever()
        return await answers.list_resources(ctx, params)

    library = Library(on_list_resources=hangs_at_first)
    async with open_servers(library.config(keep_resources=True, connect_timeout=8)) as servers:
        assert trio.current_time() - asked[0] == pytest.approx(4)
        assert servers["library"].state == "ready"
        await trio.sleep(60)
        assert servers["library"].resources == tuple(RESOURCES)
    [message] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    said("resources could not be listed: timed out", message[: message.index(" in ")])


async def test_a_server_without_resources_and_prompts_is_not_asked_for_them() -> None:
    """S4-10: what a server does not offer is an empty list, without asking."""
    poor = Library(
        on_list_resources=None,
        on_list_resource_templates=None,
        on_read_resource=None,
        on_list_prompts=None,
        on_get_prompt=None,
    )
    async with open_servers(poor.config(keep_resources=True)) as servers:
        ref = servers["library"]
        assert (ref.resources, ref.resource_templates, ref.prompts) == ((), (), ())
    assert listings(poor) == []


async def test_a_reload_that_keeps_them_no_longer_forgets_them() -> None:
    library = Library()
    config = library.config(keep_resources=True)
    async with open_servers(config) as servers:
        await servers.reload(attrs.evolve(config, keep_resources=False))
        assert (servers["library"].resources, servers["library"].resource_templates) == ((), ())
        await servers.reload(config)
        assert servers["library"].resources == tuple(RESOURCES)


async def test_an_isolated_retry_lists_no_resources() -> None:
    library = Library()
    library.failing["tools/call"] = [MCPError(INTERNAL_ERROR, "busy")]
    config = library.config(keep_resources=True, retry=RetryPolicy(backoff=Backoff(), isolated=True))
    async with open_servers(config) as servers:
        await servers["library"].call_tool("search", idempotent=True)
    assert listings(library) == list(LISTS)


def test_so_it_is_from_asyncio() -> None:
    async def main() -> None:
        async with bridge.open_servers(Library().config(keep_resources=True)) as servers:
            assert servers["library"].resources == tuple(RESOURCES)
            assert servers["library"].resource_templates == tuple(TEMPLATES)

    asyncio.run(main())


async def test_only_true_and_false_are_valid() -> None:
    with pytest.raises(ConfigError, match=r"keep_resources='yes' is not valid; give True or False"):
        Library().config(keep_resources="yes")


@both_eras
@pytest.mark.parametrize("method", LISTS)
async def test_a_list_that_is_not_supported_is_empty_and_costs_no_other(
    era: Protocol, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D-40: the lists that the program keeps, too."""
    library = Library()
    library.failing[method] = [MCPError(METHOD_NOT_FOUND, "Method not found")]
    async with open_servers(library.config(protocol=era, keep_resources=True)) as servers:
        assert kept(servers["library"]) == {**EVERYTHING, method: ()}
        assert library.failing[method] == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_that_fails_stays_as_it_is_and_costs_no_other(method: str, autojump_clock: MockClock) -> None:
    """D-40: until it is listed again."""
    library = Library()
    failure = MCPError(INTERNAL_ERROR, "the archive is closed")
    library.failing[method] = [failure]
    async with open_servers(library.config(protocol="legacy", keep_resources=True)) as servers:
        assert kept(servers["library"]) == {**EVERYTHING, method: ()}
        await trio.sleep(60)
        assert kept(servers["library"]) == EVERYTHING
        library.failing[method] = [failure]
        library.resources.append(NEW)
        await announce(library)
        await trio.sleep(0.5)
        new = {} if method == "resources/list" else {"resources/list": (*RESOURCES, NEW)}
        assert kept(servers["library"]) == {**EVERYTHING, **new}
        await trio.sleep(60)
        assert kept(servers["library"]) == {**EVERYTHING, "resources/list": (*RESOURCES, NEW)}
