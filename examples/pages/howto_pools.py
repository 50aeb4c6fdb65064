"""Pools: share work, keep an order for each key, grow and shrink.

The clock is virtual: it jumps whenever all tasks sleep.

Prints::

    8 queries on 4 connections took 2 s
    then: 4 in flight, 4 queued
    crash: ConnectionError
    select: 3 answers
    ann: deposit, withdraw
    ben: deposit, withdraw
    refused: KeyError('eve')
    0 s: db-2 added
    0 s: db-3 added
    61 s: 1 member left
"""

from __future__ import annotations

import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Event,
    MemberAdded,
    MemberRemoved,
    Pool,
    handles,
    open_actor,
    open_supervisor,
)


@frozen
class Query(Call[str]):
    sql: str


class Connection(Actor):
    @handles(Query)
    async def query(self, message: Query) -> str:
        await trio.sleep(1)
        if message.sql == "crash":
            raise ConnectionError("connection closed")
        return "rows"

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


async def ask(db: ActorRef, sql: str, answers: list[str]) -> None:
    try:
        answers.append(await db.call(Query(sql)))
    except ConnectionError as exc:
        print(f"{sql}: {type(exc).__name__}")


async def share() -> None:
    async with open_supervisor(
        ChildSpec("db", lambda: Pool(Connection, size=4)),
    ) as supervisor:
        db = supervisor.child("db")
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask, db, "select", [])
            await wait_all_tasks_blocked()
            then = db.statistics()
        print(f"8 queries on 4 connections took {trio.current_time():.0f} s")
        print(f"then: {then.in_flight} in flight, {then.queued} queued")


async def crash() -> None:
    answers: list[str] = []
    async with (
        open_actor(Pool(Connection, size=4), name="db") as db,
        trio.open_nursery() as nursery,
    ):
        for sql in ("crash", "select", "select", "select"):
            nursery.start_soon(ask, db, sql, answers)
    print(f"select: {len(answers)} answers")


@frozen
class Book(Call[list[str]]):
    user: str
    what: str


class Accounts(Actor):
    def __init__(self) -> None:
        self.booked: dict[str, list[str]] = {}

    @handles(Book)
    async def book(self, message: Book) -> list[str]:
        await trio.sleep(1)
        self.booked.setdefault(message.user, []).append(message.what)
        return self.booked[message.user]


async def by_key() -> None:
    numbers = {"ann": 1, "ben": 2}
    accounts = Pool(Accounts, size=2, key=lambda message: numbers[message.user])
    async with open_actor(accounts, name="accounts") as ref:
        for user in numbers:
            await ref.tell(Book(user, "deposit"))
        for user in numbers:
            booked = await ref.call(Book(user, "withdraw"))
            print(f"{user}:", ", ".join(booked))
        try:
            await ref.tell(Book("eve", "deposit"))
        except KeyError as exc:
            print("refused:", repr(exc))


async def grow_and_shrink() -> None:
    began = trio.current_time()

    def show(event: Event) -> None:
        seconds = f"{event.time - began:.0f} s"
        match event:
            case MemberAdded(member=member):
                print(f"{seconds}: {member} added")
            case MemberRemoved(members=1):
                print(f"{seconds}: 1 member left")
            case _:
                pass

    pool = Pool(Connection, size=(1, 8), shrink_after=60)
    async with open_actor(pool, name="db", observers=[show]) as db:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, db, "select", [])
        await trio.sleep(600)


async def main() -> None:
    await share()
    await crash()
    await by_key()
    await grow_and_shrink()


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))
