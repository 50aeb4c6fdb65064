"""A request of the bridge is answered however its task on Trio's side ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerUnavailable
from mcp_actors.bridge._bridge import Bridge, _TaskRequest, run_now
from mcp_actors.bridge._callbacks import ServerAsker


class Pump:
    _who = "actor 'pump'"

    def _ended_error(self, why: str | None) -> Exception:
        return LookupError("the pump has ended")


@asynccontextmanager
async def open_bridge() -> AsyncIterator[Bridge]:
    """Open a bridge whose two sides are in this task."""
    loop = asyncio.new_event_loop()
    bridge = Bridge(loop)
    bridge.to_loop = bridge.to_trio = run_now
    async with trio.open_nursery() as bridge.nursery:
        bridge.serving = True
        yield bridge
    loop.close()


@pytest.mark.parametrize("left", [False, True])
async def test_a_request_that_is_cancelled_on_trios_side_is_answered(left: bool) -> None:
    """On trio-asyncio nothing else would answer it, and its caller would wait for ever."""
    async with open_bridge() as bridge:
        request = _TaskRequest[None](bridge, Pump(), trio.sleep_forever)
        request.begin()
        await wait_all_tasks_blocked()
        if left:
            request.withdraw()
        else:
            bridge.nursery.cancel_scope.cancel("the servers have closed")
    assert request.answered
    assert request.future.cancelled() is left
    if not left:
        assert str(request.future.exception()) == "the pump has ended"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_trios_side_had_begun_may_have_taken_effect_when_that_ends(begun: bool) -> None:
    async with open_bridge() as bridge:
        request = _TaskRequest[None](bridge, ServerAsker("docs"), trio.sleep_forever)
        bridge._waiting.add(request)
        if begun:
            request.begin()
            await wait_all_tasks_blocked()
        bridge.end(OSError("the system is gone"))
        bridge.nursery.cancel_scope.cancel("the test is over")
    error = request.future.exception()
    assert isinstance(error, ServerUnavailable)
    assert error.outcome == ("unknown" if begun else "not_sent")
    assert any("may have taken effect" in note for note in getattr(error, "__notes__", ())) is begun
