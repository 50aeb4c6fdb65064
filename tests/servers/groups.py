"""Scripted servers, gates and a record of events, for the tests of groups."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shlex import join
from typing import Any, Final

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import Backoff, InProcess, RestartPolicy, ServerConfig, ServerUnavailable, StateChanged, Stdio
from mcp_actors.kernel import Event, GaveUp, Restarting, StartFailed
from mcp_actors.servers import ServerGroup, ServerRef, ServerState
from mcp_actors.testing import EventRecorder

from .processes import BOUND as BOUND, eventually
from .scripted_server import command

NEVER: Final = RestartPolicy(max_restarts=0)
"""The first failure is the last."""

LATER: Final = RestartPolicy(backoff=Backoff(first=3600.0))
"""A server that failed stays in back-off for as long as any test runs."""

FOR_A_WHILE: Final = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=3600.0)
"""A server that failed twice is parked for as long as any test runs, and would be tried again then."""

AT_ONCE: Final = RestartPolicy(max_restarts=50, backoff=Backoff())
"""No delay and a large budget: whatever failed is tried again and again."""


def existing(*types: type) -> list[Any]:
    """Return all objects of these types, but for weak references; other tests may have left some."""
    return [each for each in gc.get_objects() if issubclass(type(each), types)]


def server(name: str, *flags: str, **options: Any) -> ServerConfig:
    """Configure a scripted server with `flags`, in time to leave by itself; `options` are those of `ServerConfig`."""
    program, args = command(*flags)
    return ServerConfig(name, Stdio(program, args), protocol="legacy", **{"stop_timeout": BOUND, **options})


def after(name: str, script: str, *flags: str, **options: Any) -> ServerConfig:
    """Configure a scripted server whose process first runs a line of shell."""
    return shell(name, f"{script}; exec {command_with(*flags)}", **options)


def command_with(*flags: str) -> str:
    """Return the shell's words for the scripted server with `flags`."""
    program, args = command(*flags)
    return join([program, *args])


def shell(name: str, script: str, **options: Any) -> ServerConfig:
    """Configure a server that is a line of shell; what it waits for should come within `BOUND` seconds."""
    options.setdefault("connect_timeout", BOUND)
    return ServerConfig(name, Stdio("/bin/sh", ("-c", script)), protocol="legacy", **options)


def until(*paths: Path) -> str:
    """Return a line of shell that waits until there is something in these files."""
    return "; ".join(f"while [ ! -s '{path}' ]; do sleep 0.01; done" for path in paths)


def unless(path: Path, script: str) -> str:
    """Return a line of shell that runs another unless a file is there."""
    return f"[ -e '{path}' ] || {{ {script}; }}"


def pids_in(path: Path) -> list[int]:
    """Return the process ids that servers have written into their pid file."""
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def lines_of(path: Path, *words: str) -> list[str]:
    """Return the lines of a log file, by their first word; only those that begin with one of `words`, if given."""
    first = [line.split()[0] for line in path.read_text().splitlines()]
    return [word for word in first if not words or word in words]


def has_lines(path: Path, number: int = 1) -> bool:
    """Say whether so many lines have been written into a file."""
    return path.exists() and path.read_text().count("\n") >= number


async def expire_once(scope: trio.CancelScope, condition: Callable[[], bool]) -> None:
    """Expire a scope as soon as a condition holds that depends on other processes."""
    await eventually(condition)
    scope.deadline = trio.current_time()


Events = EventRecorder


async def overtaken(change: Callable[..., Awaitable[object]], *args: object) -> None:
    """Make a change that a stop overtakes, and says so."""
    with pytest.raises(ServerUnavailable, match="was stopped meanwhile by another call of stop"):
        await change(*args)


def state(group: ServerGroup, name: str) -> str:
    """Return the state of a server. A type checker takes for granted that a property, once compared, stays so."""
    return group[name].state


async def reach(group: ServerGroup, name: str, *states: ServerState) -> str:
    """Wait until a server is in one of these states, and return it."""
    with trio.fail_after(BOUND):
        return await group[name].wait_state(*states)


async def crash(group: ServerGroup, name: str) -> None:
    """Kill a server, and wait until what is left of its connection is cleaned up and everything is known."""
    async with group.watch_events() as events:
        kill(group[name])
        with trio.fail_after(BOUND):
            async for event in events:
                if isinstance(event, Restarting | GaveUp) and event.actor == name:
                    return


def kill(ref: ServerRef) -> None:
    """Kill the process of a server, and do not wait."""
    pid = ref.statistics().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def on_state(name: str, state: str, do: Callable[[], object]) -> Callable[[Event], None]:
    """Return an observer that does something when a server comes into a state."""

    def observe(event: Event) -> None:
        if isinstance(event, StateChanged) and event.server == name and event.new == state:
            do()

    return observe


def on_failed_start(name: str, do: Callable[[], object]) -> Callable[[Event], None]:
    """Return an observer that does something when a connect of a server has failed."""

    def observe(event: Event) -> None:
        if isinstance(event, StartFailed) and event.actor == name:
            do()

    return observe


@contextmanager
def absent(path: Path) -> Iterator[None]:
    """Take a file away for the time of the block."""
    text = path.read_text()
    path.unlink()
    yield
    path.write_text(text)


class Fault:
    """An in-process server that fails on request: when it is entered, while it serves, or when it is left."""

    def __init__(self) -> None:
        self.on_enter: Exception | None = None
        self.on_exit: Exception | None = None
        self.now = trio.Event()
        self.server = MCPServer("fault", lifespan=self._lifespan)
        self.server.add_tool(lambda: "pong", name="ping", description="Answer.")

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        if self.on_enter is not None:
            raise self.on_enter
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail_when_told)
            yield
            nursery.cancel_scope.cancel("the server is left")
        if self.on_exit is not None:
            raise self.on_exit

    async def _fail_when_told(self) -> None:
        await self.now.wait()
        raise RuntimeError("failed as told")

    def config(self, name: str = "here", **options: Any) -> ServerConfig:
        """Configure it; `options` are those of `ServerConfig`."""
        return ServerConfig(name, InProcess(self.server), **options)
