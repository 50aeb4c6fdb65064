"""Two actors that answer later: one when a job arrives, one when its server answers.

Prints::

    sweep
    answers: B A
    connection lost: closed by the server
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    Call,
    Later,
    LaterQueue,
    Message,
    NotSent,
    handles,
    open_actor,
)


@frozen
class Put(Message):
    job: str


@frozen
class Next(Call[str]):
    """The next job; waits until there is one."""


class Jobs(Actor):
    def __init__(self) -> None:
        self._jobs: deque[str] = deque()
        self._waiting: LaterQueue[str] = LaterQueue()

    @handles(Next)
    def next(self, message: Next) -> str | Later[str]:
        if self._jobs:
            return self._jobs.popleft()
        return self._waiting.add(self.defer(message, keep_slot=False))

    @handles(Put)
    def put(self, message: Put) -> None:
        if not self._waiting.reply(message.job):
            self._jobs.append(message.job)


@frozen
class Ask(Call[str]):
    question: str


class Multiplexed(Actor):
    """Has many questions on one connection at the same time. Each line begins with a number."""

    max_in_flight = 64

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._lines, self._to_write = trio.open_memory_channel[str](8)
        self._asked: dict[int, Later[str]] = {}
        self._last = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            nursery.start_soon(self._read)
            yield
            nursery.cancel_scope.cancel("the actor stops")

    def take(self, later: Later[Any]) -> bool:
        question = later.message
        if not isinstance(question, Ask):
            return False
        try:
            self._lines.send_nowait(f"{self._last + 1} {question.question}\n")
        except trio.WouldBlock:
            raise NotSent from None
        self._last += 1
        self._asked[self._last] = later
        return True

    async def _write(self) -> None:
        async for line in self._to_write:
            await self._stream.send_all(line.encode())
            self.take_again()

    async def _read(self) -> None:
        async for line in lines_of(self._stream):
            number, answer = line.split(" ", 1)
            self._asked.pop(int(number)).reply(answer)
        self.fail(EOFError("closed by the server"))


async def lines_of(stream: trio.SocketStream) -> AsyncIterator[str]:
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield line.decode()


async def answer_backwards(stream: trio.SocketStream) -> None:
    """The server: it answers two questions, the second one first, and leaves at the third."""
    questions: list[str] = []
    async for line in lines_of(stream):
        questions.append(line)
        if len(questions) == 2:
            await stream.send_all(
                "".join(f"{q.upper()}\n" for q in reversed(questions)).encode()
            )
        elif len(questions) == 3:
            await stream.send_eof()


async def work() -> None:
    async with open_actor(Jobs(), name="jobs") as jobs, trio.open_nursery() as nursery:

        async def worker() -> None:
            print(await jobs.call(Next()))

        nursery.start_soon(worker)
        await jobs.tell(Put("sweep"))


async def ask(port: int) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with open_actor(Multiplexed(stream), name="connection") as connection:
        first = connection.send_request(Ask("a"))
        second = connection.send_request(Ask("b"))
        print("answers:", await second.wait(), await first.wait())
        await connection.call(Ask("c"))


async def main() -> None:
    await work()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, answer_backwards, 0)
        try:
            await ask(listeners[0].socket.getsockname()[1])
        except ActorCrashed as lost:
            print("connection lost:", lost.__cause__)
        nursery.cancel_scope.cancel("all questions are answered")


trio.run(main)
