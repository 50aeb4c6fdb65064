"""Two actors: one that gets calls and messages, and one that owns a connection.

Prints::

    12 None
    PING
    its caller left, so the connection is new: running, incarnation 2
    PONG
    the server closed the connection
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Message,
    handles,
    open_actor,
    open_supervisor,
)


@frozen
class Lookup(Call[str | None]):
    name: str


@frozen
class Forget(Message):
    name: str


class PhoneBook(Actor[Lookup | Forget]):
    def __init__(self, **numbers: str) -> None:
        self._numbers = numbers

    @handles(Lookup)
    def look_up(self, message: Lookup) -> str | None:
        return self._numbers.get(message.name)

    @handles(Forget)
    def forget(self, message: Forget) -> None:
        self._numbers.pop(message.name, None)


@frozen
class Ask(Call[bytes]):
    question: bytes


class Connection(Actor):
    """Own a TCP connection to a server that answers a question with as many bytes."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with await trio.open_tcp_stream(*self._address) as self._stream:
            yield

    async def handle(self, message: Ask) -> bytes:
        try:
            return await self._exchange(message)
        except trio.Cancelled:
            self.fail(EOFError("left in the middle of an answer"))
            raise

    async def _exchange(self, message: Ask) -> bytes:
        await self._stream.send_all(message.question)
        answer = b""
        while len(answer) < len(message.question):
            chunk = await self._stream.receive_some(len(message.question) - len(answer))
            if not chunk:
                raise EOFError("the server closed the connection")
            answer += chunk
        return answer

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, (OSError, trio.BrokenResourceError, EOFError))


impatient = trio.CancelScope()


async def shout(stream: trio.SocketStream) -> None:
    """The server, for one connection: it answers in capitals, but for two words."""
    async for question in stream:
        if question == b"slow":
            impatient.cancel("this caller does not wait for a slow answer")
        elif question == b"rude":
            break
        else:
            await stream.send_all(question.upper())


async def look_up() -> None:
    async with open_actor(PhoneBook(anna="12"), name="phone book") as book:
        before = await book.call(Lookup("anna"))
        await book.tell(Forget("anna"))
        print(before, await book.call(Lookup("anna")))


async def connect(port: int) -> None:
    spec = ChildSpec("connection", partial(Connection, "127.0.0.1", port))
    async with open_supervisor(spec, max_restarts=3) as supervisor:
        connection = supervisor.child("connection")
        print((await connection.call(Ask(b"ping"))).decode())
        with impatient:
            await connection.call(Ask(b"slow"))
        answer = await connection.call(Ask(b"pong"))
        [info] = await supervisor.which_children()
        print(
            f"its caller left, so the connection is new: {info.state}, incarnation {info.incarnation}"
        )
        print(answer.decode())
        try:
            await connection.call(Ask(b"rude"))
        except EOFError as error:
            print(error)


async def main() -> None:
    await look_up()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, shout, 0)
        await connect(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel("all questions are answered")


trio.run(main)
