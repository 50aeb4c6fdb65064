"""A pool of connections: queries wait for a free one, and a broken one is replaced.

Prints::

    4 queries on 2 connections: 4 answers
    lost: the connection is broken
    2 connections, 1 restart
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Pool,
    SupervisorRef,
    handles,
    open_supervisor,
)


@frozen
class Query(Call[str]):
    text: str


class Connection(Actor[Query]):
    """Stands for a connection to a database."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        await trio.sleep(0.01)  # connect and sign in
        yield

    @handles(Query)
    async def query(self, message: Query) -> str:
        await trio.sleep(0.01)
        if message.text == "break":
            raise ConnectionError("the connection is broken")
        return message.text.upper()

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


async def ask(db: ActorRef[Query], text: str, answers: list[str]) -> None:
    answers.append(await db.call(Query(text)))


async def main() -> None:
    pool = ChildSpec("db", Pool, args=(Connection,), kwargs={"size": 2})
    async with open_supervisor(pool) as top:
        db = top.child("db", Connection)
        answers: list[str] = []
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(ask, db, f"select {number}", answers)
        print(f"4 queries on 2 connections: {len(answers)} answers")
        try:
            await db.call(Query("break"))
        except ConnectionError as error:
            print("lost:", error)
        await db.call(Query("select"))
        members = top.child("db", SupervisorRef).tree().children
        restarts = sum(member.restarts for member in members)
        print(f"{len(members)} connections, {restarts} restart")


trio.run(main)
