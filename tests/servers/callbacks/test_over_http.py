"""The context in which callbacks run over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import trio
from mcp.types import ElicitRequestParams, ElicitResult, LoggingMessageNotificationParams

from mcp_actors import Callbacks, Http, LimitExceeded, ServerConfig, Sse, open_servers
from mcp_actors.config import CallbackContext
from mcp_actors.servers import ServerGroup

from ..groups import BOUND
from ..http_server import Running, run_server
from ..links import text_of

VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with run_server("--asks") as running:
        yield running


@pytest.fixture(scope="module")
def sse_server() -> Iterator[Running]:
    with run_server("--asks", "--sse") as running:
        yield running


async def name(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    await trio.lowlevel.checkpoint()
    return ElicitResult(action="accept", content={"name": VISITOR.get()})


async def visit(group: ServerGroup, visitors: list[str]) -> list[str]:
    """Call the tool concurrently for several visitors, each in a context of its own."""
    greetings: list[str] = []

    async def call() -> None:
        greetings.append(text_of(await group["a"].call_tool("greet")))

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            for visitor in visitors:
                context = copy_context()
                context.run(VISITOR.set, visitor)
                context.run(lambda: nursery.start_soon(call))
    return sorted(greetings)


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_callback_over_http_runs_in_the_context_of_its_request(server: Running, protocol: Any) -> None:
    """K7: over HTTP in either era."""
    heard: list[tuple[str, object]] = []

    async def note(context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        await trio.lowlevel.checkpoint()
        heard.append((VISITOR.get(), params.data))

    callbacks = Callbacks(elicitation=name, logging=note)
    config = ServerConfig("a", Http(server.url), protocol=protocol, required=True, callbacks=callbacks)
    async with open_servers(config) as group:
        assert await visit(group, ["mary", "paul"]) == ["hello mary", "hello paul"]
    assert sorted(heard) == [("mary", "mary"), ("paul", "paul")]


async def test_over_sse_a_callback_runs_in_the_context_of_the_group(sse_server: Running) -> None:
    """All messages come in one stream, without the request that they belong to."""
    VISITOR.set("the group")
    url = sse_server.url.replace("/mcp", "/sse")
    async with open_servers(ServerConfig("a", Sse(url), required=True, callbacks=Callbacks(elicitation=name))) as group:
        assert await visit(group, ["mary"]) == ["hello the group"]


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_with_max_in_flight_1_a_callback_that_calls_its_server_is_refused(server: Running, protocol: Any) -> None:
    refused: list[LimitExceeded] = []

    async def ask_server(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        try:
            await group["a"].call_tool("pid")
        except LimitExceeded as exc:
            refused.append(exc)
        return ElicitResult(action="accept", content={"name": "mary"})

    group: ServerGroup
    callbacks = Callbacks(elicitation=ask_server)
    config = ServerConfig("a", Http(server.url), protocol=protocol, max_in_flight=1, callbacks=callbacks)
    async with open_servers(config) as group:
        assert await visit(group, ["mary"]) == ["hello mary"]
    assert len(refused) == 1
