"""Fixtures for the tests of programs that use MCP servers or actors.

``scripted_server`` is a server for a test; ``event_recorder`` is a list of events; ``mcp_servers`` opens servers on
Trio or asyncio, and lets the recorder observe them; ``nothing_left`` fails a test that leaves child processes (and
kills them), file descriptors, threads or asyncio tasks. For the last three it waits some seconds.

pytest imports this file when it starts, also in projects that do not use the fixtures. So the import loads pytest and
the façade, but no other part of the package: the fixtures import ``testing``, ``servers``, ``bridge`` and sniffio when
they need them.
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

    Name it before other fixtures, or for a whole module: ``pytestmark = pytest.mark.usefixtures("nothing_left")``.
    """
    from .testing import Snapshot

    before = Snapshot.take(tasks=True)
    yield
    if found := before.leftovers():
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)
