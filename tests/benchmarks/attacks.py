"""The attacks of hostile servers: how each server is started and reached, and what makes it attack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import evolve, frozen

from ..servers import hostile, hostile_http

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mcp.client import Transport

    from mcp_actors import ServerConfig

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]

LOWEST: Final = "import os, runpy, sys; os.nice(19); sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
"""A program that runs another one at the lowest priority."""

WITH_US: Final = "import threading as t, os, sys; t.Thread(target=lambda: os._exit(bool(sys.stdin.read()))).start(); "
"""What lets a program end with this one, which may end at any time: its stdin is closed then."""

SUBSCRIPTIONS: Final = 500


@frozen
class Scene:
    """Two servers that are connected, a hostile one and a good one: what can be asked of them."""

    evil: Call
    subscribe: Callable[[str], AbstractAsyncContextManager[Any]]
    good: Call


@frozen
class Evil:
    """A hostile server: how to reach it, with this package and with the SDK."""

    config: Callable[[str], ServerConfig]
    transport: Callable[[], Transport]


@frozen
class Attack:
    """One attack.

    Attributes:
        serving: starts the server, if it is not the client that does.
        begin: makes it attack; returns when the attack is over, if it ever is.
        message: bytes of the longest message within the limits that it sends.
    """

    serving: Callable[[], AbstractContextManager[Evil]]
    begin: Callable[[Scene], Awaitable[None]]
    message: int = 0


@contextmanager
def over_stdio() -> Iterator[Evil]:
    """The hostile server of the tests."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    from mcp_actors import ServerConfig, Stdio

    arguments = ["-S", "-E", "-c", LOWEST, str(hostile.SCRIPT)]
    yield Evil(
        config=lambda name: ServerConfig(name, Stdio(sys.executable, arguments), protocol="legacy"),
        transport=lambda: stdio_client(StdioServerParameters(command=sys.executable, args=arguments)),
    )


@contextmanager
def over_http(*, sse: bool = False) -> Iterator[Evil]:
    """The hostile HTTP server of the tests."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    from mcp_actors import Http, ServerConfig, Sse

    command = [sys.executable, "-S", "-E", "-c", WITH_US + LOWEST, str(hostile_http.SCRIPT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        here = f"http://127.0.0.1:{int(process.stdout.readline())}"
        url = f"{here}/sse" if sse else f"{here}/mcp"
        yield Evil(
            config=lambda name: ServerConfig(name, Sse(url) if sse else Http(url), protocol="legacy"),
            transport=lambda: sse_client(url) if sse else streamable_http_client(url),
        )


def endless(tool: str, *, serving: Callable[[], AbstractContextManager[Evil]] = over_stdio, **arguments: Any) -> Attack:
    """An attack that goes on for ever once a tool was called."""

    async def begin(scene: Scene) -> None:
        await scene.evil(tool, arguments)
        await trio.sleep_forever()

    return Attack(serving, begin)


def repeated(
    tool: str, *, serving: Callable[[], AbstractContextManager[Evil]] = over_stdio, **arguments: Any
) -> Attack:
    """An attack that is an answer."""

    async def begin(scene: Scene) -> None:
        await scene.evil(tool, arguments)

    return Attack(serving, begin)


async def subscribe_and_end(scene: Scene) -> None:
    """Have many subscriptions, and end them in one moment."""
    end = trio.Event()

    async def subscribe(number: int) -> None:
        async with scene.subscribe(f"x:{number}"):
            await end.wait()

    async with trio.open_nursery() as nursery:
        for number in range(SUBSCRIPTIONS):
            nursery.start_soon(subscribe, number)
        await trio.sleep(0.5)
        end.set()


async def show_long_argument(scene: Scene) -> None:
    """Show a command with an argument of 40 000 letters, as errors and statuses do."""
    from mcp_actors import Stdio

    repr(Stdio("server", ["x" * 40_000]))
    await trio.lowlevel.checkpoint()


def message(text: str) -> str:
    """A notification."""
    return f'{{"jsonrpc":"2.0","method":"{text}"}}'


MB: Final = 1_000_000
EVENT: Final = {"kind": "text/event-stream"}

ATTACKS: Final[dict[str, Attack]] = {
    "pings, stdin unread": endless("flood", method="ping"),
    "pings, stdin read": endless("flood", method="ping", reads=True),
    "questions, stdin unread": endless("flood", method="sampling/createMessage"),
    "questions, stdin read": endless("flood", method="sampling/createMessage", reads=True),
    "questions that are taken back": endless("flood", method="sampling/createMessage", reads=True, takes_back=True),
    "a 7 MB answer of nested lists": repeated("long", part="],[", bytes=7 * MB),
    "a 200 MB answer": repeated("long", part="0", bytes=200 * MB),
    "lines of 1 MB, malformed": endless("storm", part="x", times=MB),
    "lines of 1 MB, almost an answer": endless("storm", part='{"id":1,"result":[[[[],"', times=MB // 24),
    "lines of 1 MB, JSON and no message": endless("storm", part=" " * 999_990 + '{"id":7}'),
    "short lines, malformed": endless("storm", part="no"),
    "lines of whitespace": endless("storm", part=" \t", end="\r\n"),
    "empty lines": endless("storm", part=""),
    "invalid UTF-8": endless("storm", part='{"id":1,"result":"\xff\xfe', times=10),
    "log messages": endless(
        "storm", part='{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    ),
    "lists that have changed": endless("storm", part=message("notifications/tools/list_changed")),
    "progress of a request": endless(
        "storm",
        answers=False,
        part='{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1}}',
    ),
    "a notification of 30 MB": evolve(
        endless(
            "storm",
            part='{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"FILL"}}',
            fill=30 * MB,
        ),
        message=30 * MB,
    ),
    "cancellations of what is not there": endless(
        "storm", part='{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
    ),
    "answers to nobody": endless("storm", part='{"jsonrpc":"2.0","id":ID,"result":{}}'),
    "a long argument in a configuration": Attack(over_stdio, show_long_argument),
    "stderr, lines": endless("storm", stream=2, part="error: no"),
    "stderr, escapes": endless("storm", stream=2, part="\x1b[31m\x07\t", times=1000),
    "stderr, no line end": endless("storm", stream=2, part="x", times=60_000, end=""),
    "500 subscriptions that end together": Attack(over_stdio, subscribe_and_end),
    "HTTP: a body of nested lists": repeated("answer", serving=over_http, what="nested", size=7 * MB),
    "HTTP: an event of nested lists": repeated("answer", serving=over_http, what="nested", size=24 * MB, **EVENT),
    "HTTP: an event of numbers": repeated("answer", serving=over_http, what="numbers", size=24 * MB, **EVENT),
    "HTTP: gzip": repeated("answer", serving=over_http, what="nested", size=20 * MB, codings="gzip"),
    "HTTP: gzip in an event": evolve(
        repeated("answer", serving=over_http, what="text", size=20 * MB, codings="gzip", **EVENT), message=20 * MB
    ),
    "HTTP: pings": endless("flood", serving=over_http, what="ping"),
    "HTTP: malformed events": endless("flood", serving=over_http, what="malformed"),
    "HTTP: comments": endless("flood", serving=over_http, what="comments"),
    "SSE: pings": endless("flood", serving=partial(over_http, sse=True), what="ping"),
    "SSE: an event of nested lists": repeated(
        "answer", serving=partial(over_http, sse=True), what="nested", size=24 * MB
    ),
    "SSE: malformed events": endless("flood", serving=partial(over_http, sse=True), what="malformed"),
}
