"""Answers with unusual ids, and messages that are not what the protocol has, by every way that shares a stream.

Such a stream has the answers to all calls. So a message that is taken for another one would end a call that the server
still works on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.types import LoggingMessageNotificationParams

from mcp_actors import Callbacks, ConnectionLost, HealthPolicy, Http, ServerConfig, ServerRef, open_servers
from mcp_actors.transports._dialects import OTHER_OUTPUT, response_after
from mcp_actors.transports._request_table import RequestTable

from .faults.http_faults import Raw
from .fleet import PROMPT, calls
from .groups import NEVER
from .links import text_of
from .peers import SsePeer, connected
from .processes import eventually
from .test_answers_elsewhere import two_streams
from .wire_pipes import Machine

pytestmark = pytest.mark.own_way

QUIET: Final = HealthPolicy(interval=None)


class Way:
    """A connection on whose stream a test writes.

    Attributes:
        ref: the server.
        arguments: those of a call that the server does not answer by itself: its tool, and more.
        write: writes a text as a message.
        ids: returns the ids of the calls so far.
    """

    def __init__(
        self, ref: ServerRef, arguments: tuple[Any, ...], write: Callable[[str], object], ids: Callable[[], list[Any]]
    ) -> None:
        self.ref = ref
        self.arguments = arguments
        self.write = write
        self.ids = ids

    async def next_id(self, number: int) -> int:
        """Wait until the server was sent so many calls, and return the id of the last."""
        await eventually(lambda: len(self.ids()) == number)
        found: int = self.ids()[-1]
        return found


@asynccontextmanager
async def over_stdio(**options: Any) -> AsyncIterator[Way]:
    """Connect by pipes."""
    machine = Machine("legacy")
    with machine.installed():
        async with open_servers(machine.config(health=QUIET, restarts=NEVER, **options)) as servers:
            process = machine.now
            yield Way(
                servers["a"],
                ("mute",),
                lambda text: process.put(text.encode() + b"\n"),
                lambda: process.server.muted,
            )


@asynccontextmanager
async def over_sse(**options: Any) -> AsyncIterator[Way]:
    """Connect by HTTP with SSE."""
    async with connected("sse", **options) as (peer, ref):
        assert isinstance(peer, SsePeer)
        yield Way(ref, ("sleep",), peer.emit, lambda: [each["id"] for each in peer.sent("tools/call")])


@asynccontextmanager
async def on_notification_stream(**options: Any) -> AsyncIterator[Way]:
    """Connect by streamable HTTP, to a server that answers in the stream of notifications."""
    with two_streams() as server:
        config = ServerConfig("a", Http(server.url()), protocol="legacy", restarts=NEVER, health=QUIET, **options)
        async with open_servers(config) as servers:
            await eventually(server.listening.is_set)

            def ids() -> list[Any]:
                messages = [each.message for each in tuple(server.requests)]
                return [each["id"] for each in messages if each.get("method") == "tools/call"]

            yield Way(servers["a"], ("raw", Raw("", "keep")._asdict()), server.emit, ids)


WAYS: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    "stdio": (over_stdio, False),
    "stdio, in a task": (over_stdio, True),
    "sse": (over_sse, False),
    "notification stream": (on_notification_stream, False),
}


def each_way(test: Callable[..., Any]) -> Any:
    """Run a test by each of the ways."""
    ways = pytest.mark.parametrize(("way", "in_tasks"), WAYS.values(), ids=WAYS, indirect=["in_tasks"])
    return pytest.mark.usefixtures("in_tasks")(ways(test))


def answer(request_id: str, text: str = "odd") -> str:
    """Return an answer as JSON text."""
    result = {"content": [{"type": "text", "text": text}]}
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{json.dumps(result)}}}'


ACCEPTED: Final = {
    "a text": answer('"$id"'),
    "a float": answer("$id.0"),
    "an exponent": answer("$ide0"),
    "a batch of one": f"[{answer('$id')}]",
    "other members": answer("$id")[:-1] + ',"x":[1]}',
}
"""Answers to the call, in which ``$id`` is its id."""

DROPPED: Final = {
    "true": answer("true"),
    "null": answer("null"),
    "a fraction": answer("$id.5"),
    "an array": answer("[$id]"),
    "an object": answer('{"id":$id}'),
    "a text of a float": answer('"$id.0"'),
    "negative": answer("-$id"),
    "huge": answer(f"{2**64}"),
    "without": answer("0").replace('"id":0,', ""),
    "a batch of two": f"[{answer('$id')},{answer('424242')}]",
    "an empty batch": "[]",
    "a batch in a batch": f"[[{answer('$id')}]]",
    "a log line with an id": '{"id":$id,"level":"info","message":"odd"}',
    "a request with the id": '{"jsonrpc":"2.0","id":$id,"method":"ping"}',
    "a request with a result": answer("$id")[:-1] + ',"method":"ping"}',
    "a notification with an id of null": '{"jsonrpc":"2.0","id":null,"method":"notifications/message",'
    '"params":{"level":"info","data":"odd"}}',
    "a notification with params in an array": '{"jsonrpc":"2.0","method":"notifications/message","params":["odd"]}',
}
"""Messages that do not answer the call."""


INVALID: Final = (
    '{"jsonrpc":"2.0","id":$id}',
    '{"jsonrpc":"2.0","id":$id,"result":7}',
    '{"jsonrpc":"1.0","id":$id,"result":{}}',
)
"""Answers that say nothing."""


@asynccontextmanager
async def opened(way: Any, tables: list[RequestTable], **options: Any) -> AsyncIterator[tuple[Way, Any]]:
    """Connect, and return what makes a call; the first has the id 1, which is equal to True and 1.0."""
    with trio.fail_after(3 * PROMPT):
        async with way(**options) as connection:
            [table] = tables
            assert len(table) == 0
            table._last = 0

            async def call() -> Any:
                return await connection.ref.call_tool(*connection.arguments)

            yield connection, call
            assert (connection.ref.state, connection.ref.statistics().incarnation) == ("ready", 1)


@each_way
async def test_an_id_that_is_equal_as_a_number_is_that_of_the_call(way: Any, tables: list[RequestTable]) -> None:
    """C-08: some servers know no other numbers, or write them as text."""
    async with opened(way, tables) as (connection, call):
        for number, (case, text) in enumerate(ACCEPTED.items(), 1):
            async with calls(1, call) as [asking]:
                sent = await connection.next_id(number)
                assert sent == 1 or number > 1
                connection.write(text.replace("$id", str(sent)))
            assert text_of(await asking.result()) == "odd", case


@each_way
async def test_a_message_that_does_not_answer_the_call_leaves_it_waiting(way: Any, tables: list[RequestTable]) -> None:
    """C-02."""
    assert [*DROPPED].index("true") == 0  # so the call that it does not answer is the first
    async with opened(way, tables) as (connection, call):
        for number, (case, text) in enumerate(DROPPED.items(), 1):
            async with calls(1, call) as [asking]:
                sent = await connection.next_id(number)
                assert sent == 1 or number > 1
                connection.write(text.replace("$id", str(sent)))
                connection.write(answer(str(sent), "right"))
            assert text_of(await asking.result()) == "right", case


@each_way
@pytest.mark.parametrize("ids", ["null", '""', "-1"])
async def test_an_error_about_nothing_ends_a_call_over_stdio_alone(
    way: Any, ids: str, in_tasks: None, tables: list[RequestTable], caplog: pytest.LogCaptureFixture
) -> None:
    """C-02: and there too only if no other call waits."""
    odd = f'{{"jsonrpc":"2.0","id":{ids},"error":{{"code":-32700,"message":"odd"}}}}'
    async with opened(way, tables) as (connection, call):
        async with calls(2, call) as asking:
            await connection.next_id(2)
            connection.write(odd)
            connection.write(answer("1", "right"))
            connection.write(answer("2", "right"))
        assert [text_of(await each.result()) for each in asking] == ["right", "right"]
        async with calls(1, call) as [alone]:
            sent = await connection.next_id(3)  # more than 3 if it met a connection that the server was closing
            connection.write(odd)
            connection.write(answer(str(sent), "right"))
        if way is over_stdio:
            with pytest.raises(MCPError, match="odd") as caught:
                await alone.result()
            assert caught.value.__dict__["outcome"] == "unknown"
        else:
            assert text_of(await alone.result()) == "right"
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning == "server 'a': skipped an error without an id (odd); fix the server"


@each_way
async def test_of_two_answers_with_one_id_the_first_counts(way: Any, tables: list[RequestTable]) -> None:
    """C-02: and the second reaches no later call."""
    async with opened(way, tables) as (connection, call):
        for number in range(1, 4):
            async with calls(1, call) as [asking]:
                sent = str(await connection.next_id(number))
                connection.write(answer(sent, "first"))
                connection.write(answer(sent, "second"))
            assert text_of(await asking.result()) == "first"


@each_way
async def test_an_answer_that_is_not_valid_fails_its_call(way: Any, tables: list[RequestTable]) -> None:
    """B-03: at once, and not by a time-out."""
    async with opened(way, tables) as (connection, call):
        for number, text in enumerate(INVALID, 1):
            async with calls(1, call) as [asking]:
                sent = await connection.next_id(number)
                assert sent == 1 or number > 1
                connection.write(text.replace("$id", str(sent)))
            with pytest.raises(ConnectionLost):
                await asking.result()


@each_way
async def test_a_notification_with_an_id_of_null_is_a_notification(way: Any, tables: list[RequestTable]) -> None:
    """As it is to the SDK."""
    heard = list[object]()

    async def hear(context: object, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        heard.append(message.params)

    async with opened(way, tables, callbacks=Callbacks(message=hear)) as (connection, _):
        connection.write(DROPPED["a notification with an id of null"])
        await eventually(lambda: bool(heard))
    [params] = heard
    assert isinstance(params, LoggingMessageNotificationParams)
    assert params.data == "odd"


def test_a_response_is_not_looked_for_behind_much_other_output() -> None:
    """To look for quotes in megabytes takes seconds, in a single step of the event loop."""
    text = answer("1").encode()
    for length, found in ((OTHER_OUTPUT - len(text), True), (OTHER_OUTPUT, False)):
        assert (response_after(b"." * length + text, lambda request_id: request_id == 1) is not None) is found
