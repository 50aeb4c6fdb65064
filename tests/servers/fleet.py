"""Kill servers, and observe the outcomes of many calls."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import outcome
import trio
from mcp.types import CallToolResult

from mcp_actors import Http, ServerConfig, ServerRef
from tests.forkserver import Program

from .http_server import reserved_port, run_server
from .processes import eventually

PROMPT: Final = 10.0
"""Seconds that "at once" may take on a loaded machine, where it takes milliseconds; every time-out is longer."""

STARTED: Final = 25.0
"""Seconds for what includes the start of a process on a loaded machine; ``connect_timeout`` is longer."""


def http_config(port: int, name: str = "web", **options: Any) -> ServerConfig:
    """Configure the HTTP server on a port of this machine."""
    return ServerConfig(name, Http(f"http://127.0.0.1:{port}/mcp"), **options)


@contextmanager
def http_server(port: int | None = None) -> Iterator[tuple[int, Program]]:
    """Run the HTTP server, and give its port and its process. A port that it chooses is reserved during the block."""
    with (
        reserved_port() if port is None else nullcontext(port) as port,
        run_server("--port", str(port)) as server,
    ):
        yield server.port, server.process


def pid_of(ref: ServerRef) -> int:
    """The process id of a server that is connected."""
    pid = ref.statistics().pid
    assert pid is not None
    return pid


def kept_of(ref: ServerRef) -> int:
    """Return the number of entries that are kept for the deadlines of a server's requests; a request may have two."""
    deadlines = ref._record.calls.deadlines
    return len(deadlines._requests) + len(deadlines._idle)


def kill(ref: ServerRef) -> int:
    """Kill a server's process as ``kill -9`` does, and return what its pid was."""
    pid = pid_of(ref)
    os.kill(pid, signal.SIGKILL)
    return pid


async def wait_calls(path: Path, number: int, *, tool: str = "sleep") -> None:
    """Wait until a server's log holds so many calls of a tool."""
    line = f"tools/call {tool}"
    await eventually(lambda: path.exists() and path.read_text().splitlines().count(line) >= number)


class Outcome:
    """How one call ended, and when; None as long as it has not. A second outcome is a failure of the test."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.at = 0.0
        self._over = trio.Event()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    async def of(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Make the call. What it raises is kept, but for a cancellation, which goes on."""
        try:
            self.value = await fn(*args)
        except Exception as exc:
            self.error = exc
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            assert not self.over
            self.at = trio.current_time()
            self._over.set()

    async def result(self) -> Any:
        """Wait for the end of the call; return what it returned or raise what it raised."""
        await self._over.wait()
        if self.error is not None:
            raise self.error
        return self.value


@asynccontextmanager
async def calls(number: int, fn: Callable[..., Awaitable[Any]], *args: Any) -> AsyncIterator[list[Outcome]]:
    """Make the same call from several tasks while a block runs, and wait for all of them at its end."""
    outcomes = [Outcome() for _ in range(number)]
    async with trio.open_nursery() as nursery:
        for outcome in outcomes:
            nursery.start_soon(outcome.of, fn, *args)
        yield outcomes


async def ask_by_function(ref: ServerRef, *args: Any, **options: Any) -> CallToolResult:
    """Do what `ServerRef.call_tool` does, as the bridge does it for callers outside Trio."""
    answered = trio.Event()
    answers: list[outcome.Value[CallToolResult] | None] = []

    def take(answer: outcome.Value[CallToolResult] | None) -> None:
        answers.append(answer)
        answered.set()

    pending = ref.send_tool_call(*args, **options)
    pending.send(take)
    try:
        await answered.wait()
    except trio.Cancelled:
        pending.withdraw()
        raise
    [answer] = answers
    return await pending.finish() if answer is None else answer.value
