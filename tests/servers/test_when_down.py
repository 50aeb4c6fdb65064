"""Requests while their server is down."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import ServerUnavailable, open_servers
from mcp_actors.kernel import Event, Started, Stopped

from ..messages import Said
from . import replicated as mock_time
from .fleet import PROMPT
from .groups import AT_ONCE, BOUND, LATER, crash, overtaken, server
from .links import text_of
from .replicated import Shop, begin


async def test_by_default_a_request_waits_for_the_server_to_come_back() -> None:
    async with open_servers(server("a", restarts=AT_ONCE)) as servers:
        await crash(servers, "a")
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_with_fail_a_request_fails_at_once_with_the_problem() -> None:
    async with open_servers(server("a", restarts=LATER, when_down="fail")) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
        await crash(servers, "a")
        began = trio.current_time()
        with pytest.raises(ServerUnavailable, match=r"server 'a' is down .backoff.: its process was killed") as caught:
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert trio.current_time() - began < PROMPT
    assert caught.value.state == "backoff"
    assert caught.value.__cause__ is caught.value.last_error


async def test_with_fail_a_lazy_server_is_connected_all_the_same() -> None:
    async with open_servers(server("a", connect="lazy", when_down="fail")) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"


@pytest.mark.parametrize("started", [False, True])
async def test_a_request_that_a_stop_refuses_says_whether_the_server_comes_back(
    autojump_clock: MockClock, started: bool, said: Said
) -> None:
    """The state of that moment does not say it."""
    shop = Shop()
    shop.open = trio.Event()
    async with mock_time.open_servers(shop.config(1)) as servers, trio.open_nursery() as nursery:
        [queued] = begin(nursery, 1, servers["shop"].call_tool, "who")
        await settle()
        nursery.start_soon(servers["shop"].stop)
        await trio.lowlevel.checkpoint()
        if started:
            nursery.start_soon(servers["shop"].start)
        await settle()
        assert isinstance(queued.error, ServerUnavailable)
        said("stopped and started again" if started else "stopped before it was connected", str(queued.error))
        shop.open.set()


async def test_a_change_of_one_server_does_not_wait_for_a_connect_of_another_that_hangs() -> None:
    """Each server has its own loop: a connect that hangs does not delay the restart of another server."""
    hanging = server("hangs", "--start-delay", "600", connect="lazy", stop_timeout=0.5)
    async with open_servers(hanging, server("fine")) as servers, trio.open_nursery() as nursery:
        connecting = trio.Event()
        async with servers.watch_events() as events:
            nursery.start_soon(overtaken, servers["hangs"].start)
            async for _ in events:
                if servers["hangs"].state == "connecting":
                    connecting.set()
                    break
        before = servers["fine"].statistics().pid
        with trio.fail_after(BOUND):
            await servers["fine"].restart()
        assert servers["fine"].statistics().pid != before
        assert servers["hangs"].state == "connecting"
        await servers["hangs"].stop()


async def test_restarts_at_the_same_time_make_one_new_connection() -> None:
    """C-65: it has begun after all of them."""
    events: list[str] = []

    def observe(event: Event) -> None:
        if event.actor == "a" and isinstance(event, Started | Stopped):
            events.append(type(event).__name__)

    async with open_servers(server("a"), observers=[observe]) as servers:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(servers["a"].restart)
        assert servers["a"].state == "ready"
    assert events == ["Started", "Stopped"] * 2


async def test_changes_of_several_servers_at_once_do_not_wait_for_each_other_in_a_circle() -> None:
    async with open_servers(server("a"), server("b"), server("c")) as servers:
        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                for names in (("a", "b"), ("b", "a"), ("c", "a"), ("b", "c"), ("a", "c")):
                    nursery.start_soon(partial(servers.reconnect, *names, failed_only=False))
        assert [ref.state for ref in servers.configured] == ["ready"] * 3
