"""The handler of a call is cancelled when its caller leaves or its time is over, by every way to a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mcp_actors import HealthPolicy, Http, InProcess, RequestTimedOut, ServerConfig, Sse, Stdio, open_servers
from tests.forkserver import interpreter, serve_python
from tests.idle_clock import IdleClock
from tests.source import ROOT

from .fleet import PROMPT
from .groups import NEVER
from .lingering_server import make_server
from .links import text_of, wait_for_line

pytestmark = pytest.mark.own_way

MODULE: Final = "tests.servers.lingering_server"
MODERN: Final = "2026-07-28"


@contextmanager
def stdio() -> Iterator[Any]:
    """Return a process."""
    yield Stdio(interpreter(), ("-m", MODULE, "stdio"), cwd=str(ROOT))


@contextmanager
def http() -> Iterator[Any]:
    """Run a process that serves streamable HTTP."""
    with serve_python("-m", MODULE, "http") as (_, port):
        yield Http(f"http://127.0.0.1:{port}/mcp")


@contextmanager
def sse() -> Iterator[Any]:
    """Run a process that serves HTTP with SSE."""
    with serve_python("-m", MODULE, "sse") as (_, port):
        yield Sse(f"http://127.0.0.1:{port}/sse")


@contextmanager
def in_process() -> Iterator[Any]:
    """Return a server in this process."""
    yield InProcess(make_server())


WAYS: Final[dict[str, tuple[Callable[[], Any], str, bool]]] = {
    "stdio, legacy": (stdio, "legacy", False),
    "stdio, legacy, in a task": (stdio, "legacy", True),
    "stdio, modern": (stdio, MODERN, False),
    "http, legacy": (http, "legacy", False),
    "http, modern": (http, MODERN, False),
    "sse": (sse, "legacy", False),
    "in process, legacy": (in_process, "legacy", False),
    "in process, legacy, in a task": (in_process, "legacy", True),
    "in process, modern": (in_process, MODERN, False),
}
"""The transports and eras, and whether a call over a pipe has a task."""


@pytest.mark.parametrize(("running", "protocol", "in_tasks"), WAYS.values(), ids=WAYS, indirect=["in_tasks"])
@pytest.mark.usefixtures("in_tasks")
async def test_the_handler_of_a_call_is_cancelled_with_its_caller(
    running: Callable[[], Any], protocol: str, tmp_path: Path, idle_clock: IdleClock
) -> None:
    """A-18: and the connection goes on."""
    log, quiet = tmp_path / "log", HealthPolicy(interval=None)
    options: dict[str, Any] = {"protocol": protocol, "restarts": NEVER, "health": quiet, "request_timeout": 30.0}
    with running() as transport:
        async with open_servers(ServerConfig("a", transport, **options)) as servers:
            ref = servers["a"]

            async def call() -> None:
                await ref.call_tool("linger", {"path": str(log)})

            async def check() -> None:
                with trio.fail_after(PROMPT):
                    await wait_for_line(log, "cancelled")
                    assert text_of(await ref.call_tool("say")) == "said"
                assert (ref.state, ref.statistics().incarnation) == ("ready", 1)
                assert log.read_text().split() == ["began", "cancelled"]
                log.unlink()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await wait_for_line(log, "began")
                nursery.cancel_scope.cancel("it leaves")
            await check()
            with pytest.raises(RequestTimedOut, match="after 30 s"):
                await call()
            await check()
