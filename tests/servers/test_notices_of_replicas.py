"""Notifications of the processes of one server: each reaches everybody once."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ToolListChangedNotification,
)
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import Callbacks, InProcess, Limits, RequestTimedOut, ServerConfig
from mcp_actors.config import CallbackContext
from mcp_actors.kernel import Event
from mcp_actors.servers import Flooded, PromptsChanged, ResourcesChanged, ServerGroup

from ..idle_clock import IdleClock
from .asking import ELICIT, ask, asking, call
from .groups import BOUND, Events, server
from .library import Library
from .processes import eventually
from .replicated import begin, open_servers, replicated

REPLICAS: Final = 3

pytestmark = pytest.mark.filterwarnings("ignore:The (logging|roots) capability:mcp.MCPDeprecationWarning")


class Heard:
    """The arguments of the callbacks of a program."""

    def __init__(self) -> None:
        self.logs: list[object] = []
        self.messages: list[Any] = []

    def log(self, _: CallbackContext, params: Any) -> None:
        self.logs.append(params.data)

    def message(self, _: CallbackContext, message: object) -> None:
        self.messages.append(message)

    @property
    def callbacks(self) -> Callbacks:
        return Callbacks(logging=self.log, message=self.message)

    def kinds(self) -> list[type]:
        """The kinds of the messages."""
        return [type(each) for each in self.messages]


def library_of(heard: Heard, **options: Any) -> tuple[Library, ServerConfig]:
    """Configure a library with replicas, of the legacy era."""
    library = Library()
    return library, replicated(library.config(protocol="legacy", callbacks=heard.callbacks, **options), REPLICAS)


async def sessions_of(library: Library, group: ServerGroup) -> list[Any]:
    """Return the sessions of all replicas, at the server: over each of them something is asked at once."""
    found: dict[Any, None] = {}
    original = library.note

    def note(ctx: Any, method: str, about: object = None) -> None:
        found[ctx.session] = None
        original(ctx, method, about)

    library.note = note  # type: ignore[method-assign]  # only here
    await group["library"].set_log_level("debug")
    assert len(found) == REPLICAS
    return [*found]


def log_message(data: str) -> LoggingMessageNotification:
    return LoggingMessageNotification(params=LoggingMessageNotificationParams(level="info", data=data))


async def test_a_notification_of_a_replica_reaches_each_callback_and_subscriber_once(autojump_clock: MockClock) -> None:
    """D-01: whichever process it comes from."""
    heard = Heard()
    library, config = library_of(heard)
    async with open_servers(config) as group:
        await trio.sleep(1)
        sessions, uri = await sessions_of(library, group), "file:///a"
        async with group["library"].subscribe(uri) as first, group["library"].subscribe(uri) as second:
            for number, session in enumerate(sessions):
                heard.messages.clear()
                heard.logs.clear()
                await session.send_notification(log_message(f"from {number}"))
                updated = ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=uri))
                await session.send_notification(updated)
                await settle()
                assert heard.logs == [f"from {number}"]
                assert heard.kinds() == [LoggingMessageNotification, ResourceUpdatedNotification]
                for changes in (first, second):
                    assert (await anext(changes)).uri == uri
                    assert repr(changes).endswith(" 0 changed>")


async def test_progress_of_a_replica_reaches_its_caller_once(autojump_clock: MockClock) -> None:
    """D-01: and each caller that of its own call."""
    server: MCPServer = MCPServer("works")

    @server.tool()
    async def work(number: int, ctx: Context[Any, Any]) -> str:
        await ctx.report_progress(number, 100)
        await trio.sleep(1)
        return "done"

    reports: list[tuple[int, float]] = []

    async def call(group: ServerGroup, number: int) -> None:
        def note(progress: float, total: float | None, message: str | None) -> None:
            reports.append((number, progress))

        await group["works"].call_tool("work", {"number": number}, progress=note)

    config = replicated(ServerConfig("works", InProcess(server), protocol="legacy"), REPLICAS)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        await trio.sleep(1)
        for number in range(6):
            nursery.start_soon(call, group, number)
    assert sorted(reports) == [(number, float(number)) for number in range(6)]


async def test_a_notification_of_a_replica_counts_once_for_the_limit(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """D-01: the limit is that of a connection, so no process uses up that of another one."""
    heard, events = Heard(), Events()
    library, config = library_of(heard, limits=Limits(max_notifications=100))
    async with open_servers(config, observers=[events]) as group:
        await trio.sleep(1)
        sessions = await sessions_of(library, group)
        await trio.sleep(2)
        for session in sessions:
            for number in range(90):
                await session.send_notification(log_message(str(number)))
        await settle()
        assert len(heard.logs) == len(heard.messages) == 90 * REPLICAS
        assert events.of(Flooded) == []
        for number in range(20):
            await sessions[0].send_notification(log_message(str(number)))
        await settle()
        assert len(heard.logs) == 90 * REPLICAS + 10
        assert len(events.of(Flooded)) == 1
    assert [
        record.getMessage().partition(" (")[0] for record in caplog.records if record.levelno >= logging.WARNING
    ] == ["server 'library': sent more than 100 notifications in a second"]


CHANGED: Final = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)


def lists_changed(events: Events) -> list[Event]:
    """Return the events about resources and prompts."""
    return [event for event in events if isinstance(event, ResourcesChanged | PromptsChanged)]


async def test_equal_notices_of_changed_lists_within_a_second_are_one_delivery(autojump_clock: MockClock) -> None:
    """D-01: each process sends one, some later than others; then each has the new list."""
    heard, events = Heard(), Events()
    library, config = library_of(heard)
    async with open_servers(config, observers=[events]) as group:
        await trio.sleep(1)
        sessions = await sessions_of(library, group)
        for times in (1, 2):
            before = len(lists_changed(events))
            for session in sessions:
                for notice in CHANGED:
                    await session.send_notification(notice())
                await trio.sleep(0.3)
            await settle()
            assert Counter(heard.kinds()) == dict.fromkeys(CHANGED[: 3 * (times - 1)], times - 1)
            await trio.sleep(0.2)
            assert Counter(heard.kinds()) == dict.fromkeys(CHANGED, times)
            changed = lists_changed(events)[before:]
            assert Counter(map(type, changed)) == {ResourcesChanged: 1, PromptsChanged: 1}
            await trio.sleep(5)
        assert Counter(heard.kinds()) == dict.fromkeys(CHANGED, 2)


async def test_a_notice_is_delivered_though_its_replica_ends(autojump_clock: MockClock) -> None:
    """D-01: those of the others were counted as the same."""
    heard = Heard()
    library, config = library_of(heard)
    async with open_servers(config) as group:
        await trio.sleep(1)
        for session in await sessions_of(library, group):
            await session.send_notification(ToolListChangedNotification())
        await settle()
        await group["library"].restart()
        await trio.sleep(5)
    assert heard.kinds() == [ToolListChangedNotification]


async def test_without_replicas_each_notice_is_delivered_at_once() -> None:
    heard = Heard()
    library = Library()
    config = library.config(protocol="legacy", callbacks=heard.callbacks)
    async with open_servers(config):
        for _ in range(2):
            await library.sessions[0].send_notification(ToolListChangedNotification())
        await settle()
        assert heard.kinds() == [ToolListChangedNotification] * 2


async def test_a_question_of_a_process_stops_the_time_of_its_own_requests_only(idle_clock: IdleClock) -> None:
    """D-01: a person who thinks about the question of one process does not keep calls of another one waiting."""
    asked = trio.Event()

    async def think(*_: object) -> Any:
        asked.set()
        await trio.sleep_forever()

    callbacks = Callbacks(elicitation=think, timeout=1000)
    config = asking(replicas=2, request_timeout=None, progress_timeout=30, callbacks=callbacks)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        [asks] = begin(nursery, 1, ask, group["a"], ELICIT)
        await asked.wait()
        [other] = begin(nursery, 1, call, group["a"], "silent")
        with trio.fail_after(600), pytest.raises(RequestTimedOut, match="30 s without progress") as late:
            await other.result()
        assert "callback of yours" not in str(late.value)
        await trio.sleep(60)
        assert not asks.over
        nursery.cancel_scope.cancel()


async def test_each_log_message_of_three_processes_is_heard_once() -> None:
    """D-01: with real processes, each of which answers one call."""
    heard = Heard()
    config = server("a", replicas=REPLICAS, callbacks=heard.callbacks)
    async with open_servers(config) as group:
        with trio.fail_after(BOUND):
            await eventually(lambda: group["a"].statistics().replicas.serving == REPLICAS)
            async with trio.open_nursery() as nursery:
                for _ in range(REPLICAS):
                    nursery.start_soon(group["a"].call_tool, "chatter", {"number": 5})
            await eventually(lambda: len(heard.logs) >= 5 * REPLICAS)
    assert sorted(heard.logs) == sorted([*range(5)] * REPLICAS)  # type: ignore[type-var]  # they are numbers
    assert len(heard.messages) == 5 * REPLICAS
