"""Answers, notices and questions where an answer is another message than the response to its request.

Over HTTP with SSE and in process; a test is the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import Implementation, JSONRPCNotification, ListRootsResult
from pydantic_core import PydanticSerializationError
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, ConnectionLost, RequestTimedOut, ServerConfig, ServerRef
from mcp_actors.servers._dispatcher import LinkDispatcher
from mcp_actors.servers._session import ConnectionSession
from mcp_actors.transports import open_link
from mcp_actors.transports._request_table import RequestTable
from mcp_actors.transports.http._failures import Send
from mcp_actors.transports.http._sse import SseLink

from ..idle_clock import IdleClock
from .asking import FOLDERS
from .fleet import PROMPT, Outcome
from .links import never_lost, open_session, text_of
from .peers import KINDS, TOOL, Kind, Peer, connected, serving, text
from .processes import eventually

pytestmark = pytest.mark.own_way

OTHER: Final = 424242
"""An id that no request of these tests has."""

WAYS: Final[dict[str, tuple[Kind, bool]]] = {
    **{kind: (kind, False) for kind in KINDS},
    "memory, in a task": ("memory", True),
}
"""The transports, and whether a call over a pipe has a task."""


def each_way(test: Callable[..., Any]) -> Any:
    """Run a test by each of the ways."""
    ways = pytest.mark.parametrize(("kind", "in_tasks"), WAYS.values(), ids=WAYS, indirect=["in_tasks"])
    return pytest.mark.usefixtures("in_tasks")(ways(test))


@asynccontextmanager
async def calling(ref: ServerRef, number: int) -> AsyncIterator[list[Outcome]]:
    """Make calls while a block runs, and wait for all of them at its end, for a short while."""
    outcomes = [Outcome() for _ in range(number)]

    async def call(number: int) -> Any:
        return await ref.call_tool(TOOL, {"number": number})

    with trio.fail_after(PROMPT):
        async with trio.open_nursery() as nursery:
            for each, outcome in enumerate(outcomes):
                nursery.start_soon(outcome.of, call, each)
            yield outcomes


async def check_call(peer: Peer, ref: ServerRef) -> None:
    """Fail unless a call gets its own answer."""
    before = len(peer.sent("tools/call"))
    async with calling(ref, 1) as [asking]:
        await peer.reply((await peer.calls(before + 1))[-1], "its own")
    assert text_of(await asking.result()) == "its own"


@each_way
async def test_each_answer_reaches_the_caller_whose_id_it_has(kind: Kind) -> None:
    """C-02: in any order, after answers that have the id of no request."""
    async with connected(kind) as (peer, ref):
        async with calling(ref, 3) as asking:
            for each in reversed(await peer.calls(3)):
                await peer.say(id=OTHER, result=text("to another"))
                await peer.say(id="another", error={"code": -32000, "message": "to another"})
                await peer.reply(each, f"to {each['params']['arguments']['number']}")
        assert [text_of(await each.result()) for each in asking] == ["to 0", "to 1", "to 2"]


@each_way
async def test_an_error_reaches_the_caller_whose_id_it_has(kind: Kind) -> None:
    async with connected(kind) as (peer, ref):
        async with calling(ref, 2) as asking:
            first, second = await peer.calls(2)
            await peer.say(id=second["id"], error={"code": -32000, "message": "refused"})
            await peer.reply(first, "answered")
        by_number = [asking[each["params"]["arguments"]["number"]] for each in (first, second)]
        assert text_of(await by_number[0].result()) == "answered"
        with pytest.raises(MCPError, match="refused"):
            await by_number[1].result()


@each_way
async def test_a_caller_that_leaves_cancels_its_call_once_and_gets_no_answer(
    kind: Kind, tables: list[RequestTable]
) -> None:
    """A-18: its late answer is dropped, and the next call gets its own."""
    async with connected(kind) as (peer, ref):
        with trio.fail_after(PROMPT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.call_tool, TOOL)
                [left] = await peer.calls(1)
                nursery.cancel_scope.cancel("it leaves")
            await eventually(lambda: bool(peer.cancelled()), within=PROMPT)
        assert [len(table) for table in tables] == [0]
        await peer.reply(left, "too late")
        await check_call(peer, ref)
        assert peer.cancelled() == [left["id"]]
        assert ref.statistics().in_flight == 0


@each_way
async def test_a_call_that_times_out_is_cancelled_once_and_forgotten(
    kind: Kind, tables: list[RequestTable], idle_clock: IdleClock
) -> None:
    """S2-12."""
    async with connected(kind, request_timeout=5) as (peer, ref):
        with pytest.raises(RequestTimedOut, match="after 5 s"):
            await ref.call_tool(TOOL)
        [late] = await peer.calls(1)
        await eventually(lambda: bool(peer.cancelled()), within=PROMPT)
        assert [len(table) for table in tables] == [0]
        await peer.reply(late, "too late")
        await check_call(peer, ref)
        assert peer.cancelled() == [late["id"]]


@each_way
async def test_calls_end_at_once_with_their_connection(kind: Kind, tables: list[RequestTable]) -> None:
    """A-03: the server may have carried them out."""
    async with connected(kind) as (peer, ref):
        async with calling(ref, 2) as asking:
            await peer.calls(2)
            peer.end()
        for each in asking:
            with pytest.raises(ConnectionLost) as caught:
                await each.result()
            assert caught.value.outcome == "unknown"
        assert [len(table) for table in tables] == [0]


async def folders(context: object) -> ListRootsResult:
    """Answer at once."""
    await trio.lowlevel.checkpoint()
    return FOLDERS


@each_way
async def test_each_question_of_a_server_is_answered_by_its_id(kind: Kind) -> None:
    """Ids of the server and of the client are apart: a question may have the id of a call that waits."""
    async with connected(kind, callbacks=Callbacks(roots=folders)) as (peer, ref):
        async with calling(ref, 1) as [asking]:
            [call] = await peer.calls(1)
            methods = {call["id"]: "ping", "q": "roots/list", "7": "ping", 424242: "no/such"}
            for request_id, method in methods.items():
                await peer.say(id=request_id, method=method)
            await eventually(lambda: len(peer.sent(None)) == len(methods))
            assert not asking.over
            await peer.reply(call, "answered")
        assert text_of(await asking.result()) == "answered"
        answers = {each["id"]: each for each in peer.sent(None)}
        assert answers[call["id"]]["result"] == answers["7"]["result"] == {}
        assert answers["q"]["result"]["roots"] == FOLDERS.model_dump(mode="json", exclude_none=True)["roots"]
        assert answers[424242]["error"]["code"] == -32601


@each_way
async def test_a_question_that_the_server_withdraws_is_not_answered(kind: Kind) -> None:
    began, left = trio.Event(), trio.Event()

    async def hesitate(context: object) -> ListRootsResult:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            left.set()

    async with connected(kind, callbacks=Callbacks(roots=hesitate)) as (peer, ref):
        with trio.fail_after(PROMPT):
            await peer.say(id="q", method="roots/list")
            await began.wait()
            await peer.say(method="notifications/cancelled", params={"requestId": "other"})
            await peer.say(id="p", method="ping")
            await eventually(lambda: len(peer.sent(None)) == 1)
            assert not left.is_set()
            await peer.say(method="notifications/cancelled", params={"requestId": "q"})
            await left.wait()
        await check_call(peer, ref)
        assert [each["id"] for each in peer.sent(None)] == ["p"]


class Gate(httpx2.Auth):
    """An auth flow that holds requests back while it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.waiting = trio.Event()
        self.opened = trio.Event()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Hold the request back, and send it."""
        if self.closed:
            self.waiting.set()
            await self.opened.wait()
        yield request


@pytest.mark.parametrize("begun", [True, False])
async def test_a_call_over_sse_whose_caller_leaves_before_it_is_sent_is_never_sent(begun: bool) -> None:
    """A-18: it is posted in a task of its own, which must not go on; the server learns nothing."""
    gate = Gate()
    async with connected("sse", auth=gate) as (peer, ref):
        await eventually(lambda: len(peer.sent("tools/list")) == 1)
        gate.closed = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call_tool, TOOL)
            if begun:
                await gate.waiting.wait()
            nursery.cancel_scope.cancel("it leaves")
        gate.closed = False
        gate.opened.set()
        await check_call(peer, ref)
        assert len(peer.sent("tools/call")) == 1
        assert peer.cancelled() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handshake_that_is_given_up_is_not_cancelled_at_the_server(kind: Kind) -> None:
    """A server may not be asked to cancel ``initialize``."""
    with serving(kind) as (peer, transport):
        peer.mute.add("initialize")
        config = ServerConfig("a", transport, protocol="legacy", stop_timeout=1.0)
        async with open_link(config, on_lost=never_lost) as link:
            session = ConnectionSession(
                LinkDispatcher(link, "a", lambda _: {}, lambda: None), Implementation(name="test", version="1"), {}
            )
            async with session.open():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.initialize)
                    await eventually(lambda: len(peer.sent("initialize")) == 1)
                    nursery.cancel_scope.cancel("it is given up")
                assert len(link.table) == 0
                await session.notify("notifications/later")
                await eventually(lambda: len(peer.sent("notifications/later")) == 1)
                assert peer.cancelled() == []


async def test_a_call_over_sse_whose_caller_leaves_as_its_task_begins_leaves_nothing_behind() -> None:
    """Trio runs either first. If the task does, it may write the call, and the server is asked to cancel that."""
    with serving("sse") as (peer, transport):
        async with open_link(ServerConfig("a", transport, stop_timeout=1.0), on_lost=never_lost) as link:
            assert isinstance(link, SseLink)
            async with open_session(link) as session:
                start, leaving = link._background.start_soon, trio.CancelScope()

                def start_and_leave(*args: Any, **options: Any) -> None:
                    start(*args, **options)
                    leaving.cancel("it leaves")

                with patch.object(link._background, "start_soon", start_and_leave), leaving:
                    await session.call_tool(TOOL)
                assert leaving.cancelled_caught
                await session.notify("notifications/later")
                await eventually(lambda: len(peer.sent("notifications/later")) == 1, within=PROMPT)
                sent = [call["id"] for call in peer.sent("tools/call")]
                await eventually(lambda: peer.cancelled() == sent, within=PROMPT)
                assert link._reach._sent == set()


@pytest.mark.parametrize("kind", KINDS)
async def test_metadata_is_written_alike_over_each_transport(kind: Kind) -> None:
    async with connected(kind) as (peer, ref), trio.open_nursery() as nursery:
        nursery.start_soon(partial(ref.call_tool, TOOL, meta={"at": date(2026, 7, 28)}))
        [call] = await peer.calls(1)
        assert call["params"]["_meta"] == {"at": "2026-07-28"}
        await peer.reply(call, "done")


async def test_a_task_of_an_sse_link_that_fails_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a defect")

    async with connected("sse") as (_, ref):
        monkeypatch.setattr(SseLink, "_ask", fail)
        with pytest.raises(ConnectionLost, match="a defect"):
            await ref.call_tool(TOOL)
        with trio.fail_after(PROMPT):
            await ref.wait_state("failed")


async def test_a_message_over_sse_that_cannot_be_written_as_json_fails_alone() -> None:
    """Only what an extension sends itself is not checked before."""
    params = {"half of a character": "\ud800"}
    with serving("sse") as (peer, transport):
        config = ServerConfig("a", transport, stop_timeout=1.0)
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as session:
            with pytest.raises(PydanticSerializationError):
                await link.send(JSONRPCNotification(jsonrpc="2.0", method="notifications/odd", params=params))
            with pytest.raises(PydanticSerializationError):
                await session.ask("odd", params)
            await session.notify("notifications/later")
            await eventually(lambda: len(peer.sent("notifications/later")) == 1, within=PROMPT)
            assert peer.sent("notifications/odd") == peer.sent("odd") == []


async def test_a_post_over_sse_that_fails_after_its_answer_does_not_fail_the_next_message() -> None:
    late = trio.Event()
    with serving("sse") as (peer, transport):
        config = ServerConfig("a", transport, stop_timeout=1.0)
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as session:
            assert isinstance(link, SseLink)
            sent = link._sent

            async def fail_late(request: httpx2.Request, send: Send) -> httpx2.Response:
                await sent(request, send)
                await late.wait()
                raise httpx2.ReadError("too late to matter")

            with patch.object(link, "_sent", fail_late):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.ask, "first", {})
                    await eventually(lambda: len(peer.sent("first")) == 1)
                    await peer.say(id=peer.sent("first")[0]["id"], result={})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "next", {})
                await eventually(lambda: len(peer.sent("next")) == 1)
                late.set()
                await wait_all_tasks_blocked()
                await peer.say(id=peer.sent("next")[0]["id"], result={})
