"""A program that is short of something when it needs a server: ``python -m tests.servers.out_of_files SHORT WHAT``.

SHORT is ``files``, ``threads``, or ``connections`` for files in the midst of use. WHAT is ``stdio``, or the URL of a
server. The program prints what it sees of the server during the shortage, then after it.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import trio

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    Http,
    RestartPolicy,
    ServerConfig,
    ServerError,
    ServerRef,
    Sse,
    open_servers,
)

from .fleet import calls
from .groups import server
from .links import text_of

POLICY = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=0.2)
FILES = 64
STACK = 1 << 32
"""Bytes of a thread's stack: more than `SPARE`."""

SPARE = 1 << 30
"""Bytes of memory that are left for everything else."""

CALLS = 8
"""Calls at the same time: more than there are open connections."""


def configured(what: str) -> ServerConfig:
    """Configure the server; its breaker opens at the first failure."""
    options: dict[str, Any] = {"restarts": POLICY, "breaker": BreakerPolicy(failures=1)}
    if what == "stdio":
        return server("a", **options)
    return ServerConfig("a", Sse(what) if what.endswith("sse") else Http(what), **options)


@contextmanager
def no_files() -> Iterator[Callable[[], None]]:
    """Use up all files until the block ends or calls what it gets."""
    with ExitStack() as files:
        try:
            while True:
                files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        yield files.close


@contextmanager
def no_threads() -> Iterator[Callable[[], None]]:
    """Leave no memory for the stack of a thread until the block ends or calls what it gets."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, most))
    threading.stack_size(STACK)

    def end() -> None:
        threading.stack_size(0)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    yield end
    end()


async def connect(short: str, what: str) -> None:
    """Open a group during the shortage, and end it."""
    with (no_files if short == "files" else no_threads)() as end:
        async with open_servers(configured(what)) as servers:
            await servers["a"].wait_state("failed")
            print("failed:", servers.errors["a"], flush=True)
            print("retry:", servers.status()["a"].retry_at is not None, flush=True)
            end()
            await servers["a"].wait_state("ready")
            print("ready", flush=True)


async def use(ref: ServerRef) -> str:
    """Call a tool several times at once; return what becomes of the calls."""
    async with calls(CALLS, ref.call_tool, "echo", {"text": "fine"}) as asking:
        pass
    errors = {str(each.error) for each in asking if each.error is not None}
    kinds = {type(each.error) for each in asking if each.error is not None}
    assert {text_of(each.value) for each in asking if each.error is None} == {"fine"}
    assert kinds <= {ServerError}, errors
    return " | ".join(errors)


async def stay_connected(what: str) -> None:
    """Use a group during the shortage, and after it."""
    async with open_servers(configured(what)) as servers:
        ref = servers["a"]
        await ref.wait_state("ready")
        with no_files() as end:
            print("short:", await use(ref), flush=True)
            end()
        print("after:", await use(ref), flush=True)
        status = servers.status()["a"]
        print(ref.state, ref.statistics().incarnation, status.health.failures, flush=True)


async def main(*arguments: str) -> None:
    """Do what is asked for."""
    short, what = arguments
    await (stay_connected(what) if short == "connections" else connect(short, what))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    trio.run(main, *sys.argv[1:])
