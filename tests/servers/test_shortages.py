"""Shortages of this program do not count as evidence against a server."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import define
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    BreakerPolicy,
    ConnectFailed,
    ConnectionLost,
    Http,
    ServerConfig,
    ServerError,
    ServerRef,
    open_servers,
)
from mcp_actors._text import own_shortage, shortage_of
from mcp_actors.servers._rules import evidence
from tests.forkserver import run_python
from tests.source import ROOT

from .faults.http_faults import FaultyServer, Raw, faulty_server, stream
from .fleet import PROMPT, calls
from .groups import AT_ONCE
from .http_server import run_server
from .links import text_of
from .processes import eventually

FILES: Final = "raise the limit of open files (ulimit -n)"
THREADS: Final = (
    "raise the limit of processes and threads (ulimit -u, in a container its limit of pids), or allow clone3 in its "
    "seccomp profile"
)
NO_THREAD: Final = RuntimeError("can't start new thread")

linux = pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is another one elsewhere")


def run_short(short: str, what: str) -> list[str]:
    """Run a program that is short of something; return the lines that it prints."""
    with run_server(*(["--sse"] if what == "sse" else [])) as server:
        target = {"stdio": what, "http": server.url, "sse": f"http://127.0.0.1:{server.port}/sse"}[what]
        finished = run_python("-m", "tests.servers.out_of_files", short, target, cwd=ROOT, timeout=60)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize(
    ("what", "short", "remedy"),
    [
        pytest.param("stdio", "files", FILES, id="stdio-files"),
        pytest.param("stdio", "threads", THREADS, id="stdio-threads", marks=linux),
        pytest.param("http", "files", FILES, id="http-files"),
        pytest.param("sse", "threads", THREADS, id="sse-threads", marks=linux),  # both connect by the same client
    ],
)
def test_a_program_that_is_short_of_something_connects_once_it_is_not(what: str, short: str, remedy: str) -> None:
    """C-03, B-08: of a real limit, which the error names."""
    failed, retry, ready = run_short(short, what)
    assert failed.startswith("failed: server 'a': ")
    assert failed.endswith(f"; {remedy}")
    assert (retry, ready) == ("retry: True", "ready")


@pytest.mark.parametrize("what", ["http", "sse"])
def test_a_shortage_of_files_fails_only_the_requests_that_need_one(what: str) -> None:
    """C-03: it is not evidence for the breaker, the health or the connection."""
    short, after, state = run_short("connections", what)
    assert short.startswith("short: server 'a': http://127.0.0.1:")
    assert short.endswith(f"because of a shortage in this program ({os.strerror(errno.EMFILE)}); {FILES}")
    assert after == "after: "
    assert state == "ready 1 0"


# --- in this process --------------------------------------------------------------------------------------------------


def shortage(code: int = errno.EMFILE) -> httpx2.ConnectError:
    """Return the error of the HTTP library for a connection that a shortage prevents."""
    several = ExceptionGroup("all addresses", [OSError(code, os.strerror(code))])
    tried = OSError("all attempts to connect failed")
    tried.__cause__ = several
    error = httpx2.ConnectError("no")
    error.__cause__ = tried
    return error


@define(slots=False)
class Short(httpx2.AsyncHTTPTransport):
    """Connects to a real server, but for requests that meet a shortage.

    Attributes:
        meets: says which requests meet it, by their HTTP method.
        met: the number of those.
    """

    meets: Callable[[str], bool] = lambda method: False
    met: int = 0

    def __attrs_pre_init__(self) -> None:
        super().__init__(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        if self.meets(request.method):
            self.met += 1
            await trio.lowlevel.checkpoint()
            error = shortage()
            error.request = request
            raise error
        return await super().handle_async_request(request)


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[FaultyServer, ServerRef, Short]]:
    """Connect to a real server of the legacy era through a network that can be short of something."""
    short = Short()
    with faulty_server("legacy") as server:
        if "GET" in options:
            server.scripts["GET"] = options.pop("GET")
        transport = Http(server.url(), http_client=lambda: httpx2.AsyncClient(transport=short))
        config = ServerConfig("web", transport, protocol="legacy", restarts=AT_ONCE, **options)
        async with open_servers(config) as servers:
            yield server, servers["web"], short
            assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
            assert (servers["web"].state, servers["web"].statistics().incarnation) == ("ready", 1)


async def test_the_shortage_that_a_probe_meets_ends_no_connection() -> None:
    """C-03: after a connection has broken, a probe asks whether the server is gone."""
    async with connected() as (_, ref, short):
        short.meets = lambda method: method == "OPTIONS"
        with pytest.raises(ConnectionLost):
            await ref.call_tool("raw", Raw("HTTP/1.1 200 OK\r\nContent-Le", "reset")._asdict())
        await eventually(lambda: short.met == 1)


async def test_the_shortage_that_a_notification_meets_ends_no_connection() -> None:
    """C-03: the notification is lost, as it would be on a connection that breaks."""
    async with connected() as (server, ref, short):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call_tool, "hold")
            await server.held()
            short.meets = lambda method: True
            nursery.cancel_scope.cancel()
        await eventually(lambda: short.met == 1)
        short.meets = lambda method: False
        server.release()


async def test_a_stream_of_notifications_is_opened_when_a_shortage_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-03: it is not given up, as after two refusals."""
    monkeypatch.setattr("mcp_actors.transports.http._session.SHORTAGE_WAIT", 0.0)
    ends = Raw(stream("retry: 1\n\n"))
    async with connected(GET=ends) as (server, _, short):
        await eventually(lambda: server.methods().count("GET") >= 1)
        short.meets = lambda method: method == "GET"
        await eventually(lambda: short.met >= 5)
        before = server.methods().count("GET")
        short.meets = lambda method: False
        await eventually(lambda: server.methods().count("GET") > before)


async def test_a_health_check_that_meets_a_shortage_says_nothing_about_the_server() -> None:
    """C-03: neither it nor a call counts."""
    async with connected(breaker=BreakerPolicy(failures=1)) as (_, ref, short):
        short.meets = lambda method: True
        for _ in range(5):
            assert FILES in (await ref.check_health()).message
            with pytest.raises(ServerError, match="because of a shortage in this program") as caught:
                await ref.call_tool("sleep", {"seconds": 0})
            assert type(caught.value) is ServerError
            assert vars(caught.value)["outcome"] == "not_sent"
            assert ref.state == "ready"
        short.meets = lambda method: False


async def test_a_request_that_meets_a_shortage_does_not_wait_for_others() -> None:
    """C-03: unlike one that the server refuses, which may be about to end."""
    async with connected() as (server, ref, short), trio.open_nursery() as nursery:
        nursery.start_soon(ref.call_tool, "hold")
        await server.held()
        short.meets = lambda method: True
        with trio.fail_after(PROMPT), pytest.raises(ServerError, match="shortage in this program"):
            await ref.call_tool("sleep", {"seconds": 0})
        short.meets = lambda method: False
        server.release()


class NoThreads(trio.abc.HostnameResolver):
    """A resolver that needs a thread when there is none."""

    async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
        """Fail as Trio's own one does."""
        await trio.lowlevel.checkpoint()
        raise NO_THREAD

    async def getnameinfo(self, *_: Any) -> Any:
        """Is not asked."""
        raise NotImplementedError


async def test_a_request_whose_server_name_needs_a_thread_fails_alone() -> None:
    """C-03."""
    with faulty_server("legacy") as server:
        url = server.url().replace("127.0.0.1", "localhost")
        async with open_servers(ServerConfig("web", Http(url), protocol="legacy", restarts=AT_ONCE)) as servers:
            ref = servers["web"]
            await ref.list_tools()  # then a connection is idle, for the one call that needs no name
            await wait_all_tasks_blocked(0.01)
            resolver = trio.socket.set_custom_hostname_resolver(NoThreads())
            try:
                async with calls(8, ref.call_tool, "hold") as asking:
                    await server.held()
                    await eventually(lambda: any(each.over for each in asking))
                    server.release(8)
            finally:
                trio.socket.set_custom_hostname_resolver(resolver)
            errors = {str(each.error) for each in asking if each.error is not None}
            assert len(errors) == 1
            assert errors.pop().endswith(f"because of a shortage in this program ({NO_THREAD}); {THREADS}")
            assert (ref.state, ref.statistics().incarnation) == ("ready", 1)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN])
def test_a_shortage_is_found_among_the_causes_of_an_error(code: int) -> None:
    """C-03: also where several addresses were tried; it is not evidence."""
    lost = ConnectionLost("the connection broke", server="web")
    failed = ConnectFailed("no process", server="web", phase="open")
    lost.__cause__, failed.__cause__ = shortage(code), OSError(code, os.strerror(code))
    for error in (lost, failed):
        found = own_shortage(error)
        assert found is not None
        assert found.what == os.strerror(code)
        assert evidence(error, server="web") == "nothing"
    assert shortage_of(OSError(code, "")) == os.strerror(code)


@pytest.mark.parametrize(
    "error",
    [
        None,
        RuntimeError("can't"),
        OSError(errno.ECONNREFUSED, "refused"),
        shortage(errno.ECONNREFUSED),
        ValueError("can't start new thread"),
    ],
    ids=repr,
)
def test_any_other_error_is_not_a_shortage(error: Exception | None) -> None:
    """C-03."""
    assert own_shortage(error) is None


def test_an_exception_that_was_handled_before_is_not_a_cause() -> None:
    """C-03: a full pipe is not a shortage, for example."""
    reset = ConnectionResetError(errno.ECONNRESET, "reset")
    reset.__context__ = BlockingIOError(errno.EAGAIN, "full")
    assert own_shortage(reset) is None
