"""Fixtures for tests of programs that use MCP servers or actors.

pytest imports this file at every start, even if no test uses a fixture. So each fixture imports what it needs. The
fixture ``nothing_left`` kills child processes that a test has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager

    from .testing import EventRecorder, ScriptedServer


@pytest.fixture
def scripted_server() -> Iterator[ScriptedServer]:
    """A `ScriptedServer`, which is closed at the end of the test."""
    from .testing import ScriptedServer

    with ScriptedServer() as server:
        yield server


@pytest.fixture
def event_recorder() -> EventRecorder:
    """An `EventRecorder`: a list of events with ``wait_for``."""
    from .testing import EventRecorder

    return EventRecorder()


@pytest.fixture
def mcp_servers(event_recorder: EventRecorder) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """A function like `open_servers`, for tests on Trio and on asyncio. The `event_recorder` records the events."""

    def open_recorded(*configs: Any, observers: Iterable[Any] = (), **options: Any) -> AbstractAsyncContextManager[Any]:
        import sniffio

        from . import bridge, servers

        door = bridge.open_servers if sniffio.current_async_library() == "asyncio" else servers.open_servers
        return door(*configs, observers=[event_recorder, *observers], **options)

    return open_recorded


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a child process, an open file descriptor, a thread or an asyncio task.

    Child processes are killed; the rest has some seconds to end. Name this fixture before others, or for a whole
    module: ``pytestmark = pytest.mark.usefixtures("nothing_left")``.
    """
    from .testing import Snapshot

    before = Snapshot.take(tasks=True)
    yield
    if found := before.leftovers():
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)
