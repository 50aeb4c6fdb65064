"""Notifications of servers, and the callbacks that get them."""

from __future__ import annotations

import logging
from contextvars import ContextVar, copy_context
from typing import Any

import attrs
import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import LoggingMessageNotification, LoggingMessageNotificationParams, ToolListChangedNotification
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, ConfigError, ConnectionLost, InProcess, ServerConfig, open_servers
from mcp_actors._tasks import MAX_WAITING
from mcp_actors.config import CallbackContext
from mcp_actors.servers import ServerRef
from mcp_actors.servers.connection._callbacks import MAX_WAITING_BYTES, NotificationFeed
from tests.idle_clock import IdleClock

from ...messages import Said
from ..asking import ERAS, Era, Heard, asking, call, log, until
from ..groups import BOUND
from ..test_incoming import listeners_of

LISTED = {"method": "notifications/tools/list_changed"}


@pytest.mark.parametrize("era", ERAS)
async def test_log_messages_are_delivered_in_order(era: Era) -> None:
    """S4-23: even in a burst, whose messages the SDK passes on in tasks that run in any order."""
    for _ in range(5):
        heard = Heard()
        async with open_servers(asking(era, callbacks=Callbacks(logging=heard))) as servers:
            await call(servers["a"], "tell", notifications=[log(number) for number in range(50)])
        assert heard.data == list(range(50))


async def test_every_message_is_delivered_in_order_after_the_library_has_handled_it() -> None:
    """S4-30."""
    order: list[str] = []

    async def message(context: CallbackContext, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        assert context.server == "a"
        order.append(f"callback: {type(message).__name__}")

    async with open_servers(asking(callbacks=Callbacks(message=message))) as servers:
        listeners_of(servers, "a").add(object, lambda told: order.append(f"library: {type(told).__name__}"))
        for notification in (LISTED, log("x")):
            await call(servers["a"], "tell", notifications=[notification])
            await wait_all_tasks_blocked()
    assert order == [
        "library: ToolListChangedNotification",
        "callback: ToolListChangedNotification",
        "library: LoggingMessageNotification",
        "callback: LoggingMessageNotification",
    ]


async def test_both_callbacks_get_a_log_message() -> None:
    heard, messages = Heard(), Heard()
    async with open_servers(asking(callbacks=Callbacks(logging=heard, message=messages))) as servers:
        await call(servers["a"], "tell", notifications=[LISTED, log("x")])
    assert heard.data == ["x"]
    assert [type(each) for each in messages] == [ToolListChangedNotification, LoggingMessageNotification]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("callbacks", "level"),
    [
        (Callbacks(logging=Heard()), "info"),
        (Callbacks(logging=Heard(), log_level="error"), "error"),
        (Callbacks(message=Heard(), log_level="error"), "error"),
        (Callbacks(message=Heard()), None),
        (None, None),
    ],
)
async def test_the_log_level_is_set_if_there_is_a_callback_for_the_messages(
    era: Era, callbacks: Callbacks | None, level: str | None
) -> None:
    """S4-23: at every connect. A level that was set later is kept."""
    async with open_servers(asking(era, callbacks=callbacks)) as servers:
        await told(servers["a"], level)
        await servers["a"].restart()
        await told(servers["a"], level)
        await servers["a"].set_log_level("critical")
        await servers["a"].restart()
        await told(servers["a"], "critical")


@pytest.mark.parametrize("era", ERAS)
async def test_a_log_level_whose_messages_no_callback_receives_is_refused(era: Era, said: Said) -> None:
    """When a group is opened and when it is changed; then nothing is changed."""
    silent = asking(era, callbacks=Callbacks(log_level="debug"))
    refused = pytest.raises(ConfigError, match="has no callback that receives the log messages")
    with pytest.raises(ConfigError) as caught:
        async with open_servers(silent):
            raise AssertionError
    said("a log level without a callback", str(caught.value))
    with refused:
        async with open_servers(asking(era), callbacks=Callbacks(log_level="debug")):
            raise AssertionError
    async with open_servers(asking(era, callbacks=Callbacks(logging=Heard()))) as servers:
        before = servers["a"].statistics().incarnation
        with refused:
            await servers.add(attrs.evolve(silent, name="b"))
        with refused:
            await servers.replace(silent)
        with refused:
            await servers.reload(silent, attrs.evolve(silent, name="b"))
        await told(servers["a"], "info")
        assert (list(servers), servers["a"].statistics().incarnation) == (["a"], before)


async def told(ref: ServerRef, level: str | None) -> None:
    """Wait until a server got a log level, which is sent in the background."""
    await wait_all_tasks_blocked()
    with trio.fail_after(BOUND):
        while (await call(ref, "seen"))["level"] != level:
            await wait_all_tasks_blocked()


async def test_a_server_that_refuses_the_log_level_goes_on_serving(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(asking("legacy", "--no-levels", callbacks=Callbacks(logging=Heard()))) as servers:
            assert (await call(servers["a"], "seen"))["level"] is None
    [record] = caplog.records
    assert "setting its log level failed" in record.getMessage()


async def test_a_server_without_logging_gets_no_log_level(caplog: pytest.LogCaptureFixture) -> None:
    """The group may have a logging callback for its other servers."""
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(
            ServerConfig("here", InProcess(MCPServer("here")), protocol="legacy"), callbacks=Callbacks(logging=Heard())
        ):
            await wait_all_tasks_blocked()
    assert caplog.records == []


async def test_the_last_messages_of_a_server_that_dies_are_delivered() -> None:
    """They may say why it died."""
    heard = Heard()
    async with open_servers(asking(callbacks=Callbacks(logging=heard))) as servers:
        with pytest.raises(ConnectionLost):
            await call(servers["a"], "die", notifications=[log(number) for number in range(20)])
        await servers["a"].wait_state("failed")
    assert heard.data == list(range(20))


async def test_a_callback_that_is_slow_or_hangs_delays_no_request(idle_clock: IdleClock) -> None:
    """It delays later notifications, and the end of the connection for a moment."""

    async def hang(context: CallbackContext, told: Any) -> None:
        await trio.sleep_forever()

    messages = Heard()
    async with open_servers(asking(callbacks=Callbacks(logging=hang, message=messages))) as servers:
        await call(servers["a"], "tell", notifications=[log(1), log(2)])
        assert "methods" in await call(servers["a"], "seen")
        await until(lambda: len(messages) == 2)


async def test_a_callback_that_fails_is_logged_and_called_again(caplog: pytest.LogCaptureFixture, said: Said) -> None:
    heard: list[object] = []

    async def fail(context: CallbackContext, told: LoggingMessageNotificationParams) -> None:
        heard.append(told.data)
        if told.data == 1:
            raise ValueError("the disk is full")
        if told.data == 2:
            await trio.sleep_forever()

    with caplog.at_level(logging.ERROR, "mcp_actors"):
        async with open_servers(asking(callbacks=Callbacks(logging=fail, timeout=0.3))) as servers:
            await call(servers["a"], "tell", notifications=[log(1), log(2), log(3)])
            await until(lambda: len(heard) == 3)
    assert heard == [1, 2, 3]
    raised, timed_out = caplog.messages
    said("notification callback raised", raised)
    said("notification callback timed out", timed_out)


async def test_the_oldest_notifications_for_a_slow_callback_are_dropped_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    heard: list[int] = []
    gate = trio.Event()

    async def slow(arrived: tuple[int, object]) -> None:
        heard.append(arrived[0])
        await gate.wait()

    feed = NotificationFeed("a", "logging", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        feed.hear(0)
        await wait_all_tasks_blocked()
        for number in range(1, MAX_WAITING + 11):
            feed.hear(number)
        gate.set()
        await feed.wait_idle()
        nursery.cancel_scope.cancel("all was heard")
    assert heard == [0, *range(11, MAX_WAITING + 11)]
    assert feed.dropped == 10
    [message] = caplog.messages
    said("notification callback too slow", message)


async def test_waiting_notifications_take_a_limited_amount_of_memory(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest are dropped, and a single one that is too large."""
    heard: list[int] = []
    gate = trio.Event()

    async def slow(arrived: tuple[LoggingMessageNotification, object]) -> None:
        heard.append(arrived[0].params.data["number"])
        await gate.wait()

    def told(number: int, size: int) -> LoggingMessageNotification:
        data = {"number": number, "text": "x" * size}
        return LoggingMessageNotification(params=LoggingMessageNotificationParams(level="info", data=data))

    feed = NotificationFeed("a", "logging", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        feed.hear(told(0, 1))
        await wait_all_tasks_blocked()
        for number in range(1, 11):
            feed.hear(told(number, MAX_WAITING_BYTES // 4))
        feed.hear(told(11, MAX_WAITING_BYTES))
        feed.hear(told(12, 1))
        gate.set()
        await feed.wait_idle()
        nursery.cancel_scope.cancel("all was heard")
    assert heard == [0, 8, 9, 10, 12]
    assert feed.dropped == 8
    assert len(caplog.records) == 1


VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_log_message_is_delivered_in_the_context_of_its_request(protocol: Any) -> None:
    """K7: with servers in this process and over HTTP."""
    here, seen = MCPServer("here"), list[tuple[str, object]]()

    async def work(ctx: Context[Any, Any]) -> str:
        await ctx.info("at work")
        return "done"

    async def note(context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((VISITOR.get(), params.data))

    here.add_tool(work)
    config = ServerConfig("here", InProcess(here), protocol=protocol, callbacks=Callbacks(logging=note))
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        for visitor in ("mary", "paul"):
            context = copy_context()
            context.run(VISITOR.set, visitor)
            context.run(lambda: nursery.start_soon(servers["here"].call_tool, "work"))
    assert sorted(seen) == [("mary", "at work"), ("paul", "at work")]
