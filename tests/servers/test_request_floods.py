"""Servers that send requests without end: the resources they hold, the cost for others, and the end."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any, Self

import pytest
import trio
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse

from mcp_actors import Callbacks, ConnectionLost, LimitExceeded, Limits, ServerRef, open_servers
from mcp_actors.transports import _exchange
from mcp_actors.transports._exchange import IncomingRequests
from mcp_actors.transports._messages import ANSWERS_AT_ONCE
from mcp_actors.transports.http import _link

from .groups import BOUND, LATER, reach, server
from .hostile import STEP, LongestStep, hostile
from .hostile_http import Over, hostile_http
from .links import text_of
from .processes import eventually

TASKS = 1500
"""A few for each request that may be unanswered. Without a bound it is many thousands after a second."""

FEW = 100
"""Requests that may be unanswered over HTTP here: a fifth of the default, as each costs more."""

SOON = 0.1
"""Seconds after which a server is killed: all the while it writes, and what it writes is read and dropped."""


class MostTasks(trio.abc.Instrument):
    """Counts how many tasks there are at most.

    Attributes:
        number: so many.
    """

    def __init__(self) -> None:
        self.number = self._now = trio.lowlevel.current_statistics().tasks_living

    def __enter__(self) -> Self:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """One more."""
        self._now += 1
        self.number = max(self.number, self._now)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """One less."""
        self._now -= 1


async def hangs(context: Any, params: Any) -> ErrorData:
    await trio.sleep_forever()
    raise AssertionError


NONE, SLOW = Callbacks(), Callbacks(sampling=hangs)
"""Pings are answered without a callback, so they need only the first."""


@pytest.fixture
def too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flood be one on a machine that is so busy that it reads no more than a server may ask in a second."""
    monkeypatch.setattr(_exchange, "REQUESTS_A_SECOND", 0)


FLOODS = [
    pytest.param({"method": "ping"}, NONE, id="pings that are never answered"),
    pytest.param({"method": "ping", "reads": True}, NONE, id="pings that are answered"),
    pytest.param({"method": "sampling/createMessage"}, NONE, id="questions that are never answered"),
    pytest.param({"method": "sampling/createMessage"}, SLOW, id="questions to a slow callback that are never answered"),
    pytest.param({"method": "sampling/createMessage", "reads": True}, NONE, id="questions that are refused"),
    pytest.param({"method": "sampling/createMessage", "reads": True}, SLOW, id="questions to a slow callback"),
    pytest.param({"method": "ping", "takes_back": True}, NONE, id="pings that are taken back"),
    pytest.param({"method": "ping", "ids": 1, "takes_back": True, "reads": True}, NONE, id="one ping again and again"),
]


@pytest.mark.usefixtures("too_fast")
@pytest.mark.parametrize(("flood", "callbacks"), FLOODS)
async def test_a_flood_of_requests_ends_with_its_connection(flood: dict[str, Any], callbacks: Callbacks) -> None:
    """B-11."""
    config = hostile(restarts=LATER, callbacks=callbacks, stop_timeout=SOON)
    async with open_servers(config, server("good")) as group:
        with LongestStep() as longest, trio.fail_after(BOUND), MostTasks() as most:
            await suffer(group["evil"], flood)  # the answer may come before the end
            await reach(group, "evil", "backoff")
        assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
        error = group.errors["evil"]
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, LimitExceeded)
    assert error.__cause__.server == "evil"
    for words in ("too many requests", flood["method"], "500", "raise limits=Limits(max_requests=…)"):
        assert words in str(error.__cause__)
    assert most.number < TASKS
    assert longest.seconds < STEP, longest.task


@pytest.mark.usefixtures("too_fast")
@pytest.mark.parametrize(
    ("over", "on", "method", "callbacks"),
    [
        pytest.param("http", "stream", "ping", NONE, id="http, pings"),
        pytest.param("http", "stream", "sampling/createMessage", NONE, id="http, questions that are refused"),
        pytest.param("http", "stream", "sampling/createMessage", SLOW, id="http, questions to a slow callback"),
        pytest.param("http", "answer", "ping", NONE, id="http, pings on the stream of an answer"),
        pytest.param("sse", "stream", "sampling/createMessage", SLOW, id="sse, questions to a slow callback"),
    ],
)
async def test_a_flood_over_http_ends_with_its_connection(
    over: Over, on: str, method: str, callbacks: Callbacks
) -> None:
    """B-11: on the stream that is open all the time, or on that of an answer."""
    with hostile_http(over, restarts=LATER, callbacks=callbacks, limits=Limits(max_requests=FEW)) as config:
        async with open_servers(config, server("good"), strict=True) as group, trio.open_nursery() as nursery:
            with LongestStep() as longest, trio.fail_after(BOUND), MostTasks() as most:
                nursery.start_soon(suffer, group["evil"], {"what": method, "on": on})
                await reach(group, "evil", "backoff")
            assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
            error = group.errors["evil"]
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, LimitExceeded)
    assert "max_requests" in str(error.__cause__)
    assert most.number < TASKS * FEW // 500
    assert longest.seconds < STEP, longest.task


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[JSONRPCMessage]:
    """The answers that were sent to a server."""
    found: list[JSONRPCMessage] = []
    sending = IncomingRequests.sending

    def noted(self: IncomingRequests, message: JSONRPCMessage) -> AbstractContextManager[None]:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            found.append(message)
        return sending(self, message)

    monkeypatch.setattr(IncomingRequests, "sending", noted)
    return found


@pytest.mark.parametrize("over", ["http", "sse"])
async def test_answered_requests_do_not_count_any_more(over: Over, answered: list[JSONRPCMessage]) -> None:
    """B-11: a server may ping as long as it likes, but not as fast."""
    with hostile_http(over, limits=Limits(max_requests=5)) as config:
        async with open_servers(config) as group, trio.open_nursery() as nursery:
            nursery.start_soon(suffer, group["evil"], {"what": "slow"})
            await eventually(lambda: len(answered) > 15)
            assert group["evil"].state == "ready"
            nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("too_fast")
@pytest.mark.parametrize(("over", "method"), [("http", "ping"), ("sse", "sampling/createMessage")])
async def test_only_a_few_answers_are_posted_at_once(
    over: Over, method: str, answered: list[JSONRPCMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-11: a POST takes ten times the work of the request; a flood ends the connection before most are posted."""
    monkeypatch.setattr(_link, "ANSWERS_A_SECOND", 1e-6)
    with hostile_http(over, restarts=LATER) as config:
        async with open_servers(config) as group, trio.open_nursery() as nursery:
            nursery.start_soon(suffer, group["evil"], {"what": method})
            with trio.fail_after(BOUND):
                await reach(group, "evil", "backoff")
    assert len(answered) <= ANSWERS_AT_ONCE


async def suffer(ref: ServerRef, arguments: dict[str, Any]) -> None:
    """Ask for a flood, on a connection that it ends."""
    with suppress(ConnectionLost):
        await ref.call_tool("flood", arguments)
