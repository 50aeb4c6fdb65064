"""A source that a test writes and breaks, and threads that take no time."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from attrs import define, field

from mcp_actors import ConfigError, LoadedConfig, ServerConfig
from mcp_actors.config import Rank
from mcp_actors.servers.sources import _reading

T = TypeVar("T")


class Hangs(BaseException):
    """Raised by a source of a test: the thread of this call is busy until the event is set."""

    def __init__(self, over: trio.Event) -> None:
        self.over = over


@define
class Written:
    """A source in memory.

    Attributes:
        name: its name.
        servers: what is written there.
        rank: what it wins over.
        interval: seconds between two looks.
        settles: whether it is read only after two equal looks.
        error: why it cannot be reached, or `Hangs`.
        version: the value of a look; a change of anything else is not noticed.
        looks: values that the next looks return instead.
        reads: how often it was read.
    """

    name: str
    servers: tuple[ServerConfig, ...] = ()
    rank: Rank = Rank.TABLE
    interval: float = 30.0
    settles: bool = False
    error: ConfigError | Hangs | None = None
    failed: dict[str, ConfigError] = field(factory=dict)
    version: int = 1
    looks: list[Hashable] = field(factory=list)
    reads: int = 0

    def write(self, *servers: ServerConfig) -> None:
        """Write other servers, which the next look notices."""
        self.servers, self.error = servers, None
        self.version += 1

    def fail(self, problem: str) -> None:
        """Fail at every look and read from now on."""
        self.error = ConfigError(problem)

    def look(self) -> Hashable:
        if self.error is not None:
            raise self.error
        return self.looks.pop(0) if self.looks else self.version

    def read(self) -> tuple[LoadedConfig, ...]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return (LoadedConfig(self.servers, tuple(self.failed.values()), source=self.name, failed=self.failed),)


def lazy(*names: str, **settings: Any) -> dict[str, Any]:
    """Return a configuration of servers whose programs are never started."""
    entry = {"command": "/nowhere/at-all", "mcp_actors": {"connect": "lazy", **settings}}
    return {"mcpServers": dict.fromkeys(names, entry)}


def save(file: Path, document: object) -> None:
    """Write a file as JSON, or as it is."""
    file.write_text(document if isinstance(document, str) else json.dumps(document))


def use_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read sources in the task that asks, because a mock clock does not wait for threads."""

    async def at_once(question: Callable[[], T], thread: trio.CapacityLimiter) -> T:
        await thread.acquire_on_behalf_of(question)
        try:
            answer = question()
        except Hangs as exc:
            trio.lowlevel.spawn_system_task(end, exc, thread, question)
            await trio.sleep_forever()
        thread.release_on_behalf_of(question)
        return answer

    async def end(exc: Hangs, thread: trio.CapacityLimiter, question: object) -> None:
        await exc.over.wait()
        thread.release_on_behalf_of(question)

    monkeypatch.setattr(_reading, "_in_thread", at_once)
