"""Each attempt of a request is reported to a `CallObserver` once, however it ends, with a task and without one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from mcp.types import CallToolResult, ElicitResult, TextContent, Tool
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    Callbacks,
    InvalidArguments,
    InvalidResult,
    LimitExceeded,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerError,
    ServerGroup,
    ToolFilter,
    bridge,
    open_servers,
)
from mcp_actors.servers import Attempt, CallObserver
from mcp_actors.testing import Ask, Crash, Fail, Gate, Hang, HttpError, ScriptedServer
from mcp_actors.transports.stdio._pipes import PipeWriter

pytestmark = pytest.mark.own_way

AT_ONCE = RestartPolicy(max_restarts=100, backoff=Backoff())
RETRIES = RetryPolicy(attempts=3, backoff=Backoff(first=2, initial=2))


class Seen(CallObserver):
    """Keeps the attempts."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def settled(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    @property
    def ends(self) -> list[tuple[str, str, int, bool]]:
        """The result, outcome, number and `last` of each."""
        return [(each.result, each.outcome, each.attempt, each.last) for each in self.attempts]


@pytest.fixture(params=["without a task", "with a task"])
def meta(request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """Say how a call goes: one with a middleware has a task."""
    return None if request.param == "without a task" else {"k": 1}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(era="legacy") as server:
        yield server


async def through(request: Any, call_next: Any) -> Any:
    return await call_next(request)


@asynccontextmanager
async def opened(
    server: ScriptedServer, meta: dict[str, Any] | None, **options: Any
) -> AsyncIterator[tuple[ServerGroup, Seen]]:
    seen = Seen()
    middleware = (through,) if meta else ()
    defaults: dict[str, Any] = {"protocol": "legacy", "middleware": middleware, "restarts": AT_ONCE}
    config = ServerConfig("x", options.pop("transport", None) or server.in_process(), **{**defaults, **options})
    async with open_servers(config, observers=[seen]) as servers:
        yield servers, seen


async def call(servers: ServerGroup, text: str = "hello", **options: Any) -> None:
    await servers["x"].call_tool("echo", {"text": text}, **options)


async def test_a_result_is_reported_with_its_times(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    async def sleep(arguments: object) -> str:
        await trio.sleep(3)
        return "done"

    server.add_tool("slow", sleep)
    async with opened(server, meta, max_in_flight=1) as (servers, seen), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(servers["x"].call_tool, "slow")
    first, second = seen.attempts
    assert seen.ends == [("ok", "done", 1, True)] * 2
    assert (first.server, first.replica, first.kind, first.target) == ("x", "x", "tools/call", "slow")
    assert [round(each, 3) for each in (first.queued, first.served, second.queued, second.served)] == [0, 3, 3, 3]
    assert isinstance(first.request_id, int)
    assert first.request_id != second.request_id
    assert first.listed


async def test_an_attempt_names_the_configuration_and_the_protocol_version_of_its_connection(
    server: ScriptedServer, meta: dict[str, Any] | None
) -> None:
    async with opened(server, meta) as (servers, seen):
        await call(servers)
        [attempt] = seen.attempts
        assert attempt.config is servers["x"].config
        assert attempt.protocol_version == servers["x"].info.protocol_version == "2025-11-25"


async def test_a_failed_tool_has_a_result_of_its_own(server: ScriptedServer, meta: dict[str, Any] | None) -> None:
    failed = CallToolResult(content=[TextContent(type="text", text="no")], is_error=True)
    server.add_tool("fails", lambda _: failed)
    async with opened(server, meta) as (servers, seen):
        await servers["x"].call_tool("fails")
    assert seen.ends == [("tool_error", "done", 1, True)]


async def test_an_error_of_the_server_is_an_answer(server: ScriptedServer, meta: dict[str, Any] | None) -> None:
    server.inject(Fail(code=-32602))
    async with opened(server, meta) as (servers, seen):
        with pytest.raises(Exception, match="scripted"):
            await call(servers)
    assert seen.ends == [("error", "done", 1, True)]


async def test_a_call_that_is_refused_before_it_is_sent_is_reported(
    server: ScriptedServer, meta: dict[str, Any] | None
) -> None:
    async with opened(server, meta, tool_filter=ToolFilter(deny=["hidden"])) as (servers, seen):
        with pytest.raises(ServerError):
            await servers["x"].call_tool("hidden")
        with pytest.raises(ServerError):
            await servers["x"].call_tool("echo", {})
    assert seen.ends == [("error", "not_sent", 1, True)] * 2
    assert [each.target for each in seen.attempts] == ["hidden", "echo"]


async def test_a_result_that_breaks_its_schema_is_done(server: ScriptedServer, meta: dict[str, Any] | None) -> None:
    wrong = CallToolResult(content=[], structured_content={"rows": "none"})
    server.add_tool("rows", lambda _: wrong)
    async with opened(server, meta, validate="schema") as (servers, seen):
        schema = {"type": "object", "properties": {"rows": {"type": "integer"}}}
        tool = Tool(name="rows", input_schema={"type": "object"}, output_schema=schema)
        servers["x"]._record.catalog.checks = servers["x"]._record.catalog.checks.updated([tool])
        with pytest.raises(InvalidResult):
            await servers["x"].call_tool("rows")
    assert seen.ends == [("error", "done", 1, True)]


async def test_a_timeout_and_a_cancellation_say_if_the_call_was_sent(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    server.inject(Hang(), times=4)
    async with opened(server, meta, max_in_flight=1, request_timeout=5) as (servers, seen):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_ignored, partial(call, servers))
        assert sorted(seen.ends) == [("timed_out", "not_sent", 1, True), ("timed_out", "unknown", 1, True)]
        seen.attempts.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(call, servers)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert sorted(seen.ends) == [("cancelled", "not_sent", 1, True), ("cancelled", "unknown", 1, True)]


async def _ignored(fn: Any) -> None:
    with suppress(ServerError):
        await fn()


async def test_a_call_that_was_queued_when_the_connection_was_lost_is_one_attempt(
    server: ScriptedServer, meta: dict[str, Any] | None
) -> None:
    server.inject(Crash())
    async with opened(server, meta, max_in_flight=1) as (servers, seen):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(_ignored, partial(call, servers))
    assert sorted(seen.ends) == [("lost", "unknown", 1, True), ("ok", "done", 1, True)]


async def test_a_line_that_was_never_written_is_not_sent_once_its_call_waits_again(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(self: PipeWriter, line: Any) -> bool:
        self._collected[line] = None
        return True

    later = RestartPolicy(max_restarts=9, backoff=Backoff(first=60, initial=60))
    async with opened(server, None, transport=server.stdio(), restarts=later) as (servers, seen):
        monkeypatch.setattr(PipeWriter, "offer", collect)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, servers)
            await wait_all_tasks_blocked()
            assert servers["x"].statistics().in_flight == 1
            server.crash()
            with trio.fail_after(20):
                await servers["x"].wait_state("backoff")
            nursery.cancel_scope.cancel()
    assert seen.ends == [("cancelled", "not_sent", 1, True)]
    assert seen.attempts[0].request_id is None


async def test_a_request_over_http_is_not_sent_once_it_waits_again(server: ScriptedServer) -> None:
    later = RestartPolicy(max_restarts=9, backoff=Backoff(first=60, initial=60))
    async with opened(server, None, transport=server.http(), restarts=later) as (servers, seen):
        server.forget_sessions()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, servers)
            with trio.fail_after(20):
                await servers["x"].wait_state("backoff")
            nursery.cancel_scope.cancel()
    assert seen.ends == [("cancelled", "not_sent", 1, True)]
    assert seen.attempts[0].replica == "x"


async def test_a_call_that_would_deadlock_is_an_error_of_which_nothing_was_sent(server: ScriptedServer) -> None:
    async def answer(*_: object) -> ElicitResult:
        with pytest.raises(LimitExceeded, match="this call would deadlock"):
            await call(servers)
        return ElicitResult(action="accept", content={})

    server.inject(Ask())
    options: dict[str, Any] = {"max_in_flight": 1, "callbacks": Callbacks(elicitation=answer)}
    async with opened(server, None, **options) as (servers, seen):
        await call(servers)
    assert seen.ends == [("error", "not_sent", 1, True), ("ok", "done", 1, True)]


async def test_a_connection_for_a_retry_that_cannot_be_made_is_unavailable(
    server: ScriptedServer, autojump_clock: MockClock
) -> None:
    retry = RetryPolicy(attempts=2, backoff=Backoff(), isolated=True)
    async with opened(server, None, retry=retry) as (servers, seen):
        server.inject(Fail())
        server.inject(Crash(), into="connect", times=10)
        await _ignored(partial(call, servers, idempotent=True))
    assert seen.ends == [("error", "done", 1, False), ("unavailable", "not_sent", 2, True)]
    assert seen.attempts[1].replica is None


@pytest.mark.parametrize("first", [False, True], ids=["after the answer", "before the call"])
async def test_a_middleware_that_raises_leaves_the_outcome_unknown_if_it_has_sent_the_call(
    server: ScriptedServer, first: bool
) -> None:
    async def fails(request: Any, call_next: Any) -> Any:
        if not first:
            await call_next(request)
        raise ZeroDivisionError

    async with opened(server, None, middleware=(fails,)) as (servers, seen):
        with pytest.raises(ZeroDivisionError):
            await call(servers)
    assert seen.ends == [("error", "not_sent" if first else "unknown", 1, True)]
    assert isinstance(seen.attempts[0].error, ZeroDivisionError)


async def test_malformed_arguments_of_prompts_and_resources_are_misuse_and_not_reported(server: ScriptedServer) -> None:
    async with opened(server, None) as (servers, seen):
        for malformed in (
            servers["x"].get_prompt("p", {"n": 1}),  # type: ignore[dict-item]  # refused at run time
            servers["x"].get_prompt("\ud800"),
            servers["x"].read_resource(b"file:///a"),  # type: ignore[arg-type]  # likewise
        ):
            with pytest.raises(InvalidArguments):
                await malformed
    assert seen.attempts == []


async def test_an_attempt_whose_observer_exits_before_the_retry_is_reported_once(server: ScriptedServer) -> None:
    class Leaving(Seen):
        def settled(self, attempt: Attempt) -> None:
            super().settled(attempt)
            raise SystemExit

    seen = Leaving()
    server.inject(Fail())
    config = ServerConfig("x", server.in_process(), protocol="legacy", retry=RETRIES)
    with pytest.raises(SystemExit):
        async with open_servers(config, observers=[seen]) as servers:
            await call(servers, idempotent=True)
    assert seen.ends == [("error", "done", 1, False)]


class Counting(CallObserver):
    """Counts results by a function, once it has seen one."""

    def __init__(self, offers: bool = True) -> None:
        self.offers = offers
        self.settled_: list[tuple[str | None, str]] = []
        self.counted: list[tuple[str | None, float, float]] = []

    def settled(self, attempt: Attempt) -> None:
        self.settled_.append((attempt.target, attempt.result))

    def counter(self, attempt: Attempt) -> Any:
        tool = attempt.target
        return (lambda queued, served: self.counted.append((tool, queued, served))) if self.offers else None


async def test_further_results_of_a_tool_go_to_the_function_that_counts_them(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    async def sleep(arguments: object) -> str:
        await trio.sleep(3)
        return "done"

    failed = CallToolResult(content=[TextContent(type="text", text="no")], is_error=True)
    server.add_tool("slow", sleep)
    observer = Counting()
    config = ServerConfig(
        "x", server.in_process(), protocol="legacy", max_in_flight=1, middleware=(through,) * bool(meta)
    )
    async with open_servers(config, observers=[observer]) as servers:
        await servers["x"].call_tool("slow")
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(servers["x"].call_tool, "slow")
        await call(servers)
        server.add_tool("slow", lambda _: failed)
        await servers["x"].call_tool("slow")
    assert observer.settled_ == [("slow", "ok"), ("echo", "ok"), ("slow", "tool_error")]
    assert [(tool, round(one, 3), round(two, 3)) for tool, one, two in observer.counted] == [
        ("slow", 0, 3),
        ("slow", 3, 3),
    ]


async def test_an_observer_without_such_a_function_takes_each_attempt_and_so_do_the_others(
    server: ScriptedServer,
) -> None:
    observers = [Counting(), Counting(offers=False)]
    async with open_servers(ServerConfig("x", server.in_process()), observers=observers) as servers:
        for _ in range(3):
            await call(servers)
    assert [each.settled_ for each in observers] == [[("echo", "ok")] * 3] * 2
    assert [each.counted for each in observers] == [[], []]


@pytest.mark.parametrize("where", ["added", "counter", "the function"])
async def test_whatever_an_observer_raises_is_logged_once_and_the_calls_go_on(
    server: ScriptedServer, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("broken")

    class Broken(Counting):
        def added(self, server: str, describe: Any) -> None:
            if where == "added":
                broken()

        def counter(self, attempt: Attempt) -> Any:
            return broken() if where == "counter" else broken

    first, second = Broken(), Counting()
    async with open_servers(ServerConfig("x", server.in_process()), observers=[first, second]) as servers:
        for _ in range(3):
            await call(servers)
    counted = 0 if where == "counter" else 2
    assert (len(second.settled_), len(second.counted)) == (3 - counted, counted)
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "Broken" in record.getMessage()
    caplog.clear()


async def test_the_time_in_the_queue_of_a_pipe_is_counted(server: ScriptedServer) -> None:
    gate = Gate()
    server.inject(gate)
    group = opened(server, None, transport=server.stdio(), max_in_flight=1)
    async with group as (servers, seen), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(call, servers)
        await server.wait_call()
        gate.open()
    first, second = sorted(each.queued for each in seen.attempts)  # their callers may go on in any order
    assert first == 0 < second


async def test_each_retry_is_an_attempt_of_its_own(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    server.inject(Fail(), times=2)
    async with opened(server, meta, retry=RETRIES) as (servers, seen):
        await call(servers, idempotent=True)
    assert seen.ends == [("error", "done", 1, False), ("error", "done", 2, False), ("ok", "done", 3, True)]
    assert [round(each.queued, 3) for each in seen.attempts] == [0, 0, 0]  # without the pauses before them


@pytest.mark.parametrize("isolated", [False, True])
async def test_a_call_that_ends_between_two_attempts_has_a_last_one(
    server: ScriptedServer, meta: dict[str, Any] | None, isolated: bool, autojump_clock: MockClock
) -> None:
    server.inject(Fail(), times=10)
    retry = RetryPolicy(attempts=3, backoff=Backoff(first=2, initial=2), isolated=isolated)
    async with opened(server, meta, retry=retry, request_timeout=10) as (servers, seen):
        with trio.move_on_after(1):
            await call(servers, idempotent=True)
        assert seen.ends == [("error", "done", 1, False), ("cancelled", "not_sent", 2, True)]
        seen.attempts.clear()
        with pytest.raises(Exception, match="scripted"):
            await call(servers, idempotent=True)
    assert [last for *_, last in seen.ends] == [False, False, True]


async def test_a_retry_on_a_connection_of_its_own_names_that(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    server.inject(Fail())
    retry = RetryPolicy(attempts=2, backoff=Backoff(), isolated=True)
    async with opened(server, meta, retry=retry) as (servers, seen):
        await call(servers, idempotent=True)
    assert [(each.replica, each.last) for each in seen.attempts] == [("x", False), ("x:isolated", True)]


async def test_a_stop_in_a_call_is_unknown_and_one_before_it_is_not_sent(
    server: ScriptedServer, meta: dict[str, Any] | None
) -> None:
    gate = Gate()
    server.inject(gate)
    async with opened(server, meta) as (servers, seen):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ignored, partial(call, servers))
            await server.wait_call()
            await servers["x"].stop()
        gate.open()
        await _ignored(partial(call, servers))
    assert seen.ends == [("unavailable", "unknown", 1, True), ("unavailable", "not_sent", 1, True)]


async def test_a_full_mailbox_and_an_open_breaker_are_reported(
    server: ScriptedServer, meta: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    server.inject(Hang(), times=2)
    options: dict[str, Any] = {"max_in_flight": 1, "mailbox_size": 1, "overflow": "fail", "request_timeout": 5}
    async with opened(server, meta, breaker=BreakerPolicy(failures=1, reset_after=60), **options) as (servers, seen):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(_ignored, partial(call, servers))
        await _ignored(partial(call, servers))
    assert sorted(seen.ends) == [
        ("error", "not_sent", 1, True),
        ("timed_out", "not_sent", 1, True),
        ("timed_out", "unknown", 1, True),
        ("unavailable", "not_sent", 1, True),
    ]


@pytest.mark.parametrize(("status", "outcome"), [(500, "unknown"), (403, "done")])
async def test_a_status_of_http_says_if_the_server_has_judged(
    server: ScriptedServer, status: int, outcome: str
) -> None:
    server.inject(HttpError(status))
    async with opened(server, None, transport=server.http()) as (servers, seen):
        await _ignored(partial(call, servers))
    assert seen.ends == [("error", outcome, 1, True)]


async def test_other_requests_name_the_method_and_mask_the_resource(server: ScriptedServer) -> None:
    async with opened(server, None) as (servers, seen):
        await servers["x"].list_tools()
        await _ignored(partial(servers["x"].read_resource, "https://user:secret@host/a"))
        await _ignored(partial(servers["x"].get_prompt, "p"))
    assert [(each.kind, each.target) for each in seen.attempts] == [
        ("tools/list", None),
        ("resources/read", "https://host/a"),
        ("prompts/get", "p"),
    ]


async def test_an_observer_that_raises_is_logged_once_and_the_calls_go_on(
    server: ScriptedServer, meta: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(CallObserver):
        def settled(self, attempt: Attempt) -> None:
            raise ValueError("broken")

    seen = Seen()
    config = ServerConfig("x", server.in_process(), protocol="legacy")
    async with open_servers(config, observers=[Broken(), seen]) as servers:
        await call(servers, meta=meta)
        await call(servers, meta=meta)
    assert len(seen.attempts) == 2
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "Broken" in record.getMessage()
    assert "the request is not affected" in record.getMessage()
    caplog.clear()


def test_a_request_of_the_bridge_is_reported_too(server: ScriptedServer) -> None:
    import asyncio

    seen = Seen()

    async def main() -> None:
        server.inject(Hang(), name="hangs")
        server.add_tool("hangs")
        async with bridge.open_servers(ServerConfig("x", server.stdio()), observers=[seen]) as servers:
            await servers["x"].call_tool("echo", {"text": "a"})
            hanging = asyncio.create_task(servers["x"].call_tool("hangs"))
            await asyncio.to_thread(trio.run, partial(server.wait_call, "hangs"))
            hanging.cancel()
            await asyncio.wait([hanging])
            await servers["x"].stop()
            with pytest.raises(ServerError):
                await servers["x"].call_tool("echo", {"text": "a"})

    asyncio.run(main())
    assert seen.ends == [
        ("ok", "done", 1, True),
        ("cancelled", "unknown", 1, True),
        ("unavailable", "not_sent", 1, True),
    ]
