"""Requests that fail and are sent again, and those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, ToolAnnotations
from trio.testing import MockClock

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    ConnectionLost,
    Http,
    HttpStatusError,
    InProcess,
    InvalidArguments,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ServerUnavailable,
    ToolRequest,
    open_servers,
)
from mcp_actors.config import CallNext
from mcp_actors.kernel import ActorCrashed
from tests.idle_clock import IdleClock

from .faults.http_faults import FaultyServer, Raw, faulty_server, response
from .fleet import Outcome, calls, kill, wait_calls
from .groups import AT_ONCE, BOUND, NEVER, after, pids_in, server
from .links import text_of
from .processes import eventually

SOON = RetryPolicy(backoff=Backoff())
"""Three attempts without a delay."""


class Moody:
    """A server in this process whose tools fail a requested number of times."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.began: list[float] = []
        self.mcp = MCPServer("moody")
        for name, hints in {
            "plain": None,
            "reads": ToolAnnotations(read_only_hint=True),
            "again": ToolAnnotations(idempotent_hint=True),
        }.items():
            self.mcp.add_tool(self.work, name=name, annotations=hints)

    async def work(self) -> str:
        self.began.append(trio.current_time())
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def trouble(times: int = 1) -> list[MCPError]:
    return [MCPError(INTERNAL_ERROR, "out of memory") for _ in range(times)]


def moody(here: Moody, **options: Any) -> ServerConfig:
    return ServerConfig("here", InProcess(here.mcp), **options)


# --- which requests ---------------------------------------------------------------------------------------------------


async def test_a_tool_call_that_may_have_had_its_effect_is_not_sent_again(autojump_clock: MockClock) -> None:
    """A-09, S1-18: by itself nothing is done twice."""
    here = Moody(*trouble())
    async with open_servers(moody(here)) as servers:
        for tool in ("plain", "reads", "again"):
            here.errors, here.began = list(trouble()), []
            with pytest.raises(MCPError, match="out of memory"):
                await servers["here"].call_tool(tool)
            assert len(here.began) == 1


async def test_a_call_that_its_caller_calls_idempotent_is_sent_again(autojump_clock: MockClock) -> None:
    """S1-20: so many attempts, with back-off."""
    here = Moody(*trouble(2))
    policy = RetryPolicy(attempts=3, backoff=Backoff(first=1.0, initial=2.0))
    async with open_servers(moody(here, retry=policy)) as servers:
        began = trio.current_time()
        assert text_of(await servers["here"].call_tool("plain", idempotent=True)) == "done"
    assert [time - began for time in here.began] == [0, 1, 3]


@pytest.mark.parametrize("tool", ["reads", "again"])
async def test_the_annotations_of_a_trusted_server_count(tool: str, autojump_clock: MockClock) -> None:
    here = Moody(*trouble())
    async with open_servers(moody(here, retry=SOON, trust_annotations=True)) as servers:
        assert text_of(await servers["here"].call_tool(tool)) == "done"
        here.errors = list(trouble())
        with pytest.raises(MCPError):
            await servers["here"].call_tool("plain")
        here.errors = list(trouble())
        with pytest.raises(MCPError):
            await servers["here"].call_tool(tool, idempotent=False)


async def test_when_all_attempts_have_failed_the_last_failure_is_raised_alone(autojump_clock: MockClock) -> None:
    """A-16: and says how often it was tried."""
    here = Moody(*trouble(5))
    async with open_servers(moody(here, retry=SOON)) as servers:
        with pytest.raises(MCPError, match="out of memory") as caught:
            await servers["here"].call_tool("plain", idempotent=True)
    assert len(here.began) == 3
    assert caught.value.__notes__ == ["this was attempt 3; no further attempt (attempts)"]
    assert caught.value.__context__ is None


async def test_a_failure_that_would_be_the_same_again_is_not_retried(autojump_clock: MockClock) -> None:
    """S1-20: neither what the server says of the request, nor what is seen here."""
    here = Moody(MCPError(INVALID_PARAMS, "no"), MCPError(INVALID_PARAMS, "no"))
    async with open_servers(moody(here, retry=SOON)) as servers:
        with pytest.raises(MCPError, match="no"):
            await servers["here"].call_tool("plain", idempotent=True)
        assert len(here.began) == 1
        assert (await servers["here"].call_tool("no such tool", idempotent=True)).is_error
        with pytest.raises(InvalidArguments):
            await servers["here"].call_tool("plain", {"text": object()}, idempotent=True)


async def test_failure_of_another_server_is_not_retried(autojump_clock: MockClock) -> None:
    """A middleware may call another server; neither the first attempt nor a later one fails for this server then."""

    async def asks_elsewhere(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        await call_next(request)
        raise ConnectionLost("server 'elsewhere': connection lost", server="elsewhere")

    for failures in (0, 1):
        here = Moody(*trouble(failures))
        async with open_servers(moody(here, retry=SOON, middleware=(asks_elsewhere,))) as servers:
            with pytest.raises(ConnectionLost, match="elsewhere") as caught:
                await servers["here"].call_tool("plain", idempotent=True)
        assert len(here.began) == failures + 1
        assert not hasattr(caught.value, "__notes__")


async def test_no_retry_begins_after_the_time_of_the_request(autojump_clock: MockClock) -> None:
    """A-17: one time for all attempts."""
    here = Moody(*trouble(100))
    policy = RetryPolicy(attempts=100, backoff=Backoff(first=3.0, initial=3.0, factor=1.0))
    async with open_servers(moody(here, retry=policy, request_timeout=10)) as servers:
        began = trio.current_time()
        with pytest.raises(MCPError) as caught:
            await servers["here"].call_tool("plain", idempotent=True)
        assert [time - began for time in here.began] == [0, 3, 6, 9]
        assert caught.value.__notes__ == ["this was attempt 4; no further attempt (deadline)"]


async def test_a_caller_that_leaves_between_two_attempts_ends_them(autojump_clock: MockClock) -> None:
    """S1-18: its own cancellation does not count as a failure."""
    here = Moody(*trouble(9))
    policy = RetryPolicy(attempts=9, backoff=Backoff(first=5.0, initial=5.0))
    async with open_servers(moody(here, retry=policy)) as servers:
        with trio.move_on_after(7) as patience:
            await servers["here"].call_tool("plain", idempotent=True)
        assert patience.cancelled_caught
        await trio.sleep(100)
    assert len(here.began) == 2


# --- over real connections --------------------------------------------------------------------------------------------


async def test_a_connection_that_is_lost_under_a_read_is_made_again_and_the_read_sent_again(tmp_path: Path) -> None:
    """S3-13: one reconnect, one retry; a concurrent tool call is not sent again."""
    pids, log = tmp_path / "pids", tmp_path / "log"
    config = server(
        "a", "--pid-file", str(pids), "--log-file", str(log), "--die-in", "add", restarts=AT_ONCE, retry=SOON
    )
    async with open_servers(config) as servers:
        with pytest.raises(ConnectionLost):
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert log.read_text().splitlines().count("tools/call add") == 1
        with pytest.raises(ConnectionLost):
            await servers["a"].call_tool("add", {"a": 1, "b": 2}, idempotent=True)
        assert log.read_text().splitlines().count("tools/call add") == 1 + 3
        assert text_of(await servers["a"].call_tool("echo", {"text": "back"})) == "back"


async def test_when_the_server_is_gone_before_the_second_attempt_the_first_is_not_forgotten() -> None:
    """A-09: the second was not sent, but the server may have acted on the first."""
    async with open_servers(server("a", "--die-in", "add", restarts=NEVER, retry=SOON)) as servers:
        with pytest.raises(ServerUnavailable) as caught:
            await servers["a"].call_tool("add", {"a": 1, "b": 2}, idempotent=True)
    assert caught.value.outcome == "unknown"
    assert caught.value.__notes__ == ["this was attempt 2; no further attempt (final)"]


@pytest.mark.parametrize("isolated", [False, True])
async def test_an_isolated_retry_has_a_process_of_its_own_that_is_gone_afterwards(
    tmp_path: Path, isolated: bool
) -> None:
    """S1-19: set-up and execution count against the same time and the same attempts."""
    pids, log = tmp_path / "pids", tmp_path / "log"
    flags = ("--pid-file", str(pids), "--log-file", str(log), "--error-on-call", str(INTERNAL_ERROR), "busy")
    policy = RetryPolicy(backoff=Backoff(), isolated=isolated)
    async with open_servers(server("a", *flags, retry=policy)) as servers:
        with pytest.raises(MCPError, match="busy"):
            await servers["a"].call_tool("add", {"a": 1, "b": 2}, idempotent=True)
        assert log.read_text().splitlines().count("tools/call add") == 3
        assert len(pids.read_text().split()) == (3 if isolated else 1)
        assert servers["a"].state == "ready"


async def test_the_time_to_connect_anew_counts_for_an_isolated_retry(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S1-19: the second process never answers, and the request ends in its time."""
    first = tmp_path / "first"
    config = after(
        "a",
        f"if [ -e '{first}' ]; then exec sleep 600; fi; touch '{first}'",
        "--error-on-call",
        str(INTERNAL_ERROR),
        "busy",
        request_timeout=6.0,
        stop_timeout=0.5,
        retry=RetryPolicy(backoff=Backoff(), isolated=True),
    )
    async with open_servers(config) as servers:
        with pytest.raises(RequestTimedOut, match="it was waiting to be retried"):
            await servers["a"].call_tool("add", {"a": 1, "b": 2}, idempotent=True)


@pytest.fixture
def http() -> Iterator[FaultyServer]:
    with faulty_server() as running:
        yield running


async def test_a_busy_http_server_is_asked_again_after_the_time_it_asked_for(
    http: FaultyServer, idle_clock: IdleClock
) -> None:
    """S2-16: 429, 502, 503, 504, with Retry-After as the least delay."""
    async with open_servers(ServerConfig("web", Http(http.url()), retry=SOON)) as servers:
        for status in (502, 503, 504):
            raw = Raw(response(status), "keep")
            with pytest.raises(HttpStatusError) as caught:
                await servers["web"].call_tool("raw", raw._asdict(), idempotent=True)
            assert caught.value.status == status
            assert caught.value.__notes__ == ["this was attempt 3; no further attempt (attempts)"]
        began = trio.current_time()
        asked = Raw(response(429, "", "Retry-After: 1"), "keep")
        with pytest.raises(HttpStatusError):
            await servers["web"].call_tool("raw", asked._asdict(), idempotent=True)
        assert trio.current_time() - began >= 2


async def test_a_client_error_is_not_retried(http: FaultyServer) -> None:
    """S1-19, S1-20: 4xx other than 408, 425 and 429."""
    async with open_servers(ServerConfig("web", Http(http.url()), retry=SOON)) as servers:
        for status in (400, 401, 403, 405, 422):
            with pytest.raises(HttpStatusError) as caught:
                await servers["web"].call_tool("raw", Raw(response(status), "keep")._asdict(), idempotent=True)
            assert not hasattr(caught.value, "__notes__")


# --- the breaker ------------------------------------------------------------------------------------------------------


async def test_after_so_many_failures_in_a_row_calls_fail_at_once_until_a_probe_succeeds(
    autojump_clock: MockClock,
) -> None:
    here = Moody()
    slow = MCPServer("slow")
    hang = True

    @slow.tool()
    async def work() -> str:
        here.began.append(trio.current_time())
        if hang:
            await trio.sleep_forever()
        return "done"

    config = ServerConfig("here", InProcess(slow), request_timeout=1, breaker=BreakerPolicy(failures=3, reset_after=30))
    async with open_servers(config) as servers:
        ref = servers["here"]
        for _ in range(3):
            with pytest.raises(RequestTimedOut):
                await ref.call_tool("work")
        with pytest.raises(ServerUnavailable, match=r"its last 3 requests failed .*is sent in 30.0 s") as caught:
            await ref.call_tool("work")
        assert caught.value.retry_at is not None
        assert 25 < (caught.value.retry_at - datetime.now(UTC)).total_seconds() <= 30
        assert (len(here.began), ref.state) == (3, "ready")
        await trio.sleep(31)
        hang = False
        async with calls(1, ref.call_tool, "work"):
            pass
        assert text_of(await ref.call_tool("work")) == "done"


# --- statistics -------------------------------------------------------------------------------------------------------


async def test_the_status_of_a_server_has_its_requests_and_their_latency(autojump_clock: MockClock) -> None:
    here = Moody(*trouble())
    async with open_servers(moody(here)) as servers:
        with pytest.raises(MCPError):
            await servers["here"].call_tool("plain")
        for _ in range(4):
            await servers["here"].call_tool("plain")
        latency = servers["here"].statistics().latency
        assert (latency.done, latency.failed) == (4, 1)
        assert latency.p50 is not None
        assert servers.status()["here"].latency == latency


# --- isolated attempts and the end of their server -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "leave"])
@pytest.mark.parametrize("when", ["during the attempt", "before it"])
async def test_an_isolated_attempt_ends_with_its_server(how: str, when: str, tmp_path: Path) -> None:
    """And none begins after that, because nothing would end its process."""
    pids, calls_file = tmp_path / "pids", tmp_path / "log"
    flags = ("--pid-file", str(pids), "--log-file", str(calls_file), "--die-in", "echo")
    delay = 0.0 if when == "during the attempt" else 30.0
    policy = RetryPolicy(backoff=Backoff(first=delay, initial=delay), isolated=True)
    tool, arguments = "sleep", {"seconds": 600}
    outcome = Outcome()
    async with trio.open_nursery() as nursery:
        config = server("a", *flags, restarts=AT_ONCE, retry=policy, stop_timeout=0.5)
        async with open_servers(config, drain_timeout=30 if delay else 0) as servers:
            ref = servers["a"]
            nursery.start_soon(outcome.of, partial(ref.call_tool, tool, arguments, idempotent=True))
            await wait_calls(calls_file, 1)
            kill(ref)
            if when == "during the attempt":
                await wait_calls(calls_file, 2)
            if how == "stop":
                with trio.fail_after(BOUND):
                    await ref.stop()
        started = pids_in(pids)
        await eventually(lambda: outcome.over)
    assert pids_in(pids) == started
    assert isinstance(outcome.error, ServerUnavailable)
    assert calls_file.read_text().splitlines().count("tools/call sleep") == (2 if when == "during the attempt" else 1)


@pytest.mark.parametrize("how", ["stop", "leave"])
async def test_an_isolated_attempt_that_still_connects_ends_with_its_server(how: str, tmp_path: Path) -> None:
    """It has no server to be connected to any more, and would otherwise take all the time of the request."""
    first, second = tmp_path / "first", tmp_path / "second"
    config = after(
        "a",
        f"if [ -e '{first}' ]; then touch '{second}'; exec sleep 600; fi; touch '{first}'",
        "--error-on-call",
        str(INTERNAL_ERROR),
        "busy",
        stop_timeout=0.5,
        retry=RetryPolicy(backoff=Backoff(), isolated=True),
    )
    outcome = Outcome()
    async with trio.open_nursery() as nursery:
        async with open_servers(config, drain_timeout=0) as servers:
            ref = servers["a"]
            nursery.start_soon(outcome.of, partial(ref.call_tool, "add", {"a": 1, "b": 2}, idempotent=True))
            await eventually(second.exists)
            if how == "stop":
                await ref.stop()
        with trio.fail_after(BOUND):
            await eventually(lambda: outcome.over)
    assert isinstance(outcome.error, ServerUnavailable)
    assert outcome.error.outcome == "unknown"


@pytest.mark.parametrize("how", ["stop", "leave"])
async def test_a_retry_does_not_wait_for_a_stopped_server(how: str, autojump_clock: MockClock) -> None:
    here, outcome = Moody(*trouble()), Outcome()
    policy = RetryPolicy(backoff=Backoff(first=50, initial=50))
    async with trio.open_nursery() as nursery, open_servers(moody(here, retry=policy)) as servers:
        began = trio.current_time()
        nursery.start_soon(outcome.of, partial(servers["here"].call_tool, "again", idempotent=True))
        await trio.sleep(1)
        if how == "stop":
            await servers["here"].stop()
    assert (len(here.began), outcome.at - began) == (1, 1)
    assert isinstance(outcome.error, ServerUnavailable)
    assert outcome.error.outcome == "unknown"


async def test_an_actor_that_a_middleware_calls_is_not_taken_for_the_server(autojump_clock: MockClock) -> None:
    """Its failure passes as it is, is not tried again and says nothing about the server."""
    here = Moody()

    async def approve(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        await call_next(request)
        raise ActorCrashed("the approver crashed", actor="approver")

    config = moody(here, middleware=(approve,), retry=SOON, breaker=BreakerPolicy(failures=1))
    async with open_servers(config) as servers:
        for _ in range(2):
            with pytest.raises(ActorCrashed, match="the approver crashed"):
                await servers["here"].call_tool("plain", idempotent=True)
    assert len(here.began) == 2
