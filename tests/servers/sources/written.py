"""A source that a test writes and breaks, and threads that take no time."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import trio
from attrs import define, field

from mcp_actors import ConfigError, LoadedConfig, ServerConfig
from mcp_actors.config import DirectorySource, FileSource, Rank, Source, SqliteSource
from mcp_actors.servers import _sources

from ..processes import BOUND

T = TypeVar("T")

A_WHILE: Final = 3600.0
"""Seconds of mock time in which everything is looked at many times."""

MANIFEST: Final = """\
kind: MCPServer
metadata: {name: c}
spec: {configuration: {command: /nowhere/at-all, mcp_actors: {connect: lazy}}}
"""
"""A server called "c" whose program is never started."""


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


@define
class Parts(Written):
    """A source of several parts, whose look never changes."""

    parts: list[LoadedConfig] = field(factory=list)

    def read(self) -> tuple[LoadedConfig, ...]:
        self.reads += 1
        return tuple(self.parts)


class Twice:
    """A source in files that may have a name twice.

    Args:
        folder: where to write.
        kind: what to write: JSON, YAML of several documents, a file for each server, or a table without a key.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        sources: dict[str, Source] = {
            "json": FileSource(folder / "mcp.json"),
            "yaml": DirectorySource(folder),
            "files": DirectorySource(folder),
            "sqlite": SqliteSource(folder / "x.db", refresh_interval=1.0),
        }
        self.source = sources[kind]
        self.write("c")

    def write(self, *names: str) -> None:
        """Write servers with these names, instead of all that there were."""
        entry = json.dumps({"command": "/nowhere/at-all", "mcp_actors": {"connect": "lazy"}})
        manifests = [MANIFEST.replace("name: c", f"name: {name}") for name in names]
        match self._kind:
            case "json":
                entries = ", ".join(f'"{name}": {entry}' for name in names)
                save(self._folder / "mcp.json", f'{{"mcpServers": {{{entries}}}}}')
            case "yaml":
                save(self._folder / "all.yaml", "---\n".join(manifests))
            case "files":
                for old in self._folder.glob("*.yaml"):
                    old.unlink()
                for number, manifest in enumerate(manifests):
                    save(self._folder / f"{number}.yaml", manifest)
            case "sqlite":
                with closing(sqlite3.connect(self._folder / "x.db")) as connection, connection:
                    connection.execute("CREATE TABLE IF NOT EXISTS mcp_servers (name, spec, enabled)")
                    connection.execute("DELETE FROM mcp_servers")
                    rows = [(name, entry, 1) for name in names]
                    connection.executemany("INSERT INTO mcp_servers VALUES (?, ?, ?)", rows)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Use up all file descriptors of this process for the time of a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        try:
            while True:
                files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError:
            yield


@asynccontextmanager
async def no_threads(shown: Callable[[], bool] | None = None) -> AsyncIterator[None]:
    """Let no thread be started for the time of a block, which begins when a condition shows that.

    The stack of a new thread would be larger than the address space, and Trio's idle threads are made busy.
    """
    over, none_left = threading.Event(), trio.Event()
    shown = shown or none_left.is_set

    async def occupy() -> None:
        try:
            await trio.to_thread.run_sync(over.wait, limiter=trio.CapacityLimiter(1))
        except RuntimeError:
            none_left.set()

    size = threading.stack_size(1 << 46)
    try:
        async with trio.open_nursery() as nursery:
            try:
                with trio.fail_after(BOUND):
                    while not shown():
                        nursery.start_soon(occupy)
                        await trio.sleep(0.005)
                yield
            finally:
                over.set()
    finally:
        threading.stack_size(size)


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

    monkeypatch.setattr(_sources, "run_in_thread", at_once)
