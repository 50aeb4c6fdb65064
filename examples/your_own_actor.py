"""An actor of your own: one task owns a connection, many tasks use it, and a supervisor replaces it when it breaks.

This needs `mcp_actors.kernel` only. The other side is a small server on the loopback interface that counts the messages
of each connection, and hangs up on a rude one.

Prints::

    event: Started
    hello -> 1 hello
    hello again -> 2 hello again
    event: Crashed
    rude -> EOFError: the server has hung up
    event: Restarting
    event: Started
    sorry -> 1 sorry
    connection: incarnation 2, running
    event: Stopping
    event: Stopped
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Crashed,
    Event,
    Restarting,
    Started,
    Stopped,
    Stopping,
    open_supervisor,
)


@frozen
class Say(Call[str]):
    """A line to send; the type checker knows that the answer is a ``str``."""

    text: str


class Connection(Actor):
    """Owns a TCP connection. An instance is one incarnation, so it lives as long as its connection does."""

    def __init__(self, port: int) -> None:
        self._port = port

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Connect and disconnect, both in the task that owns the actor."""
        async with await trio.open_tcp_stream("127.0.0.1", self._port) as self._stream:
            yield

    async def handle(self, message: Say) -> str:
        """Say something and wait for the answer. No two of these ever interleave.

        If the caller leaves in between, its answer would be taken for that of the next one: the connection is done for.
        """
        try:
            await self._stream.send_all(message.text.encode())
            answer = await self._stream.receive_some()
        except trio.Cancelled:
            self.fail(EOFError("left in the middle of an answer"))
            raise
        if not answer:
            raise EOFError("the server has hung up")
        return answer.decode()

    def is_fatal(self, exc: Exception) -> bool:
        """A broken connection is replaced; any other exception would only be the answer to who asked."""
        return isinstance(exc, (EOFError, trio.BrokenResourceError))


async def count_and_hang_up(stream: trio.SocketStream) -> None:
    """The other side, for one connection."""
    number = 0
    async for said in stream:
        if said == b"rude":
            break
        number += 1
        await stream.send_all(b"%d " % number + said)


async def say(connection: ActorRef, text: str) -> None:
    """Say something, and print what comes of it."""
    try:
        answer = await connection.call(Say(text))
    except EOFError as error:
        answer = f"EOFError: {error}"
    print(text, "->", answer)


def print_event(event: Event) -> None:
    """Print the turning points in the life of the connection."""
    if event.actor == "connection" and isinstance(
        event, (Started, Crashed, Restarting, Stopping, Stopped)
    ):
        print("event:", type(event).__name__)


async def main() -> None:
    """Talk, be rude, and go on talking."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, count_and_hang_up, 0)
        port = listeners[0].socket.getsockname()[1]
        spec = ChildSpec("connection", partial(Connection, port))
        async with open_supervisor(spec, observers=[print_event]) as supervisor:
            connection = supervisor.child("connection")
            for text in ("hello", "hello again", "rude", "sorry"):
                await say(connection, text)
            [info] = await supervisor.which_children()
            print(f"{info.id}: incarnation {info.incarnation}, {info.state}")
        nursery.cancel_scope.cancel("all calls are answered")


trio.run(main)
