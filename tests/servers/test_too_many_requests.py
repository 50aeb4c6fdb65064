"""Requests that a server refuses with HTTP 429 are sent again.

They are not if anything of them had an effect before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

from mcp_actors import Backoff, Callbacks, HttpStatusError, RetryPolicy, ServerConfig, ToolRequest, open_servers
from mcp_actors.config import CallNext
from mcp_actors.testing import Ask, Crash, HttpError, ScriptedServer
from tests.idle_clock import IdleClock

from .links import text_of

SOON = RetryPolicy(backoff=Backoff())
"""Three attempts without a delay."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


def config(server: ScriptedServer, way: str = "http", **options: Any) -> ServerConfig:
    return ServerConfig("web", getattr(server, way)(), required=True, **{"retry": SOON, **options})


async def carried_out(server: ScriptedServer, *configs: ServerConfig, **options: Any) -> HttpStatusError:
    """Make a call that fails with a status; return the error."""
    async with open_servers(*(configs or (config(server),)), **options) as servers:
        with pytest.raises(HttpStatusError) as caught:
            await servers["web"].call_tool("echo", {"text": "hello"})
    return caught.value


@pytest.mark.parametrize(("way", "protocol"), [("http", "2026-07-28"), ("http", "legacy"), ("sse", "legacy")])
async def test_a_refused_tool_call_is_sent_again_after_the_time_that_the_server_asks_for(
    server: ScriptedServer, way: str, protocol: Literal["legacy", "2026-07-28"], idle_clock: IdleClock
) -> None:
    """S2-16: without ``idempotent``, because the server has not acted on it."""
    server.inject(HttpError(429, {"Retry-After": "7"}), times=2)
    async with open_servers(config(server, way, protocol=protocol)) as servers:
        began = trio.current_time()
        assert text_of(await servers["web"].call_tool("echo", {"text": "hello"})) == "hello"
        assert trio.current_time() - began >= 14
    assert len(server.calls) == 1


async def test_a_caller_that_calls_its_call_not_idempotent_gets_the_same(server: ScriptedServer) -> None:
    server.inject(HttpError(429))
    async with open_servers(config(server)) as servers:
        assert text_of(await servers["web"].call_tool("echo", {"text": "hello"}, idempotent=False)) == "hello"


async def test_a_call_that_is_refused_again_and_again_says_that_it_had_no_effect(server: ScriptedServer) -> None:
    server.inject(HttpError(429), times=9)
    error = await carried_out(server)
    assert (error.status, error.outcome) == (429, "refused")
    assert error.__notes__ == ["this was attempt 3; no further attempt (attempts)"]


async def test_a_server_that_asks_to_wait_beyond_the_deadline_is_not_waited_for(server: ScriptedServer) -> None:
    """A-17: at once, and not at the deadline."""
    server.inject(HttpError(429, {"Retry-After": "60"}))
    async with open_servers(config(server, request_timeout=50)) as servers:
        with trio.fail_after(40), pytest.raises(HttpStatusError, match="429 Too Many") as caught:
            await servers["web"].call_tool("echo", {"text": "hello"})
    assert caught.value.outcome == "refused"


async def test_retries_can_be_disabled(server: ScriptedServer) -> None:
    server.inject(HttpError(429))
    assert (await carried_out(server, config(server, retry=RetryPolicy(attempts=1)))).outcome == "refused"


async def test_a_503_is_not_sent_again_even_with_a_retry_after(server: ScriptedServer) -> None:
    """A-09: a proxy answers with it, too, when it has lost the server in the middle of a call."""
    server.inject(HttpError(503, {"Retry-After": "0"}))
    error = await carried_out(server)
    assert (error.status, error.outcome) == (503, "unknown")
    assert server.calls == ()


async def test_an_earlier_attempt_that_may_have_had_an_effect_is_not_forgotten(server: ScriptedServer) -> None:
    server.inject(Crash())
    server.inject(HttpError(429), times=9)
    async with open_servers(config(server)) as servers:
        with pytest.raises(HttpStatusError) as caught:
            await servers["web"].call_tool("echo", {"text": "hello"}, idempotent=True)
    assert (caught.value.status, caught.value.outcome) == (429, "unknown")


async def test_a_call_that_is_refused_after_a_question_is_not_sent_again(server: ScriptedServer) -> None:
    """A-09: the tool ran until it asked."""

    async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
        server.inject(HttpError(429))
        return ElicitResult(action="accept", content={})

    server.inject(Ask())
    error = await carried_out(server, config(server, callbacks=Callbacks(elicitation=answer)))
    assert (error.status, error.outcome) == (429, "unknown")


# --- middleware -------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_refused_under_middleware_runs_through_it_again(server: ScriptedServer) -> None:
    seen: list[str] = []

    async def watch(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        seen.append(request.name)
        return await call_next(request)

    server.inject(HttpError(429))
    async with open_servers(config(server, middleware=(watch,))) as servers:
        assert text_of(await servers["web"].call_tool("echo", {"text": "hello"})) == "hello"
    assert seen == ["echo", "echo"]


async def test_a_call_that_middleware_has_partly_sent_is_not_sent_again(server: ScriptedServer) -> None:
    """A-09: all of it would be done again."""

    async def twice(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        await call_next(request)
        server.inject(HttpError(429))
        return await call_next(request)

    assert (await carried_out(server, config(server, middleware=(twice,)))).outcome == "unknown"
    assert len(server.calls) == 1


async def test_an_error_that_middleware_has_from_elsewhere_proves_nothing(server: ScriptedServer) -> None:
    runs: list[str] = []

    async def raises(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        runs.append(request.name)
        raise HttpStatusError("server 'web': 429", server="web", status=429, outcome="refused")

    assert (await carried_out(server, config(server, middleware=(raises,)))).outcome == "unknown"
    assert runs == ["echo"]
