"""Supervise a tree: strategies, back-off, parking, and starts in parallel.

The clock is virtual: it jumps whenever all tasks sleep.

Prints::

    one_for_one restarts: queue
    rest_for_one restarts: queue printer
    one_for_all restarts: log queue printer
    printer: attempt 1 after 0 s
    printer: attempt 2 after 1 s
    printer: attempt 3 after 2 s
    supervisor gave up: ConnectionError('the printer is offline')
    parked: failed, while queue is running
    revived: running
    sequential: the queue is back after 10 s
    parallel: the queue is back after 0 s
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    Backoff,
    Call,
    ChildSpec,
    Event,
    GaveUp,
    Restarting,
    RestartLimitReached,
    Started,
    Strategy,
    Supervisor,
    handles,
    open_supervisor,
)


@frozen
class Work(Call[None]):
    fails: bool = False


class Worker(Actor):
    @handles(Work)
    async def work(self, message: Work) -> None:  # not named `handle`
        if message.fails:
            raise ConnectionError("connection lost")

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


class Printer(Worker):
    """Starts once the printer is online."""

    online = True

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        if not self.online:
            raise ConnectionError("the printer is offline")
        yield


def office() -> Supervisor:
    return Supervisor(
        ChildSpec("queue", Worker),
        ChildSpec("printer", Printer, restart="transient", start_timeout=10),
        strategy="rest_for_one",  # the printer keeps a connection to the queue
        max_restarts=3,
        window=60,
        backoff=Backoff(initial=1, maximum=30),
    )


async def a_tree() -> None:
    async with open_supervisor(
        ChildSpec("log", Worker),
        ChildSpec("office", office),
    ) as supervisor:
        await supervisor.find("office/printer").call(Work())


async def restarted_with_the_queue(strategy: Strategy) -> None:
    restarted: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Started) and event.incarnation > 1:
            restarted.append(event.actor)

    async with open_supervisor(
        ChildSpec("log", Worker),
        ChildSpec("queue", Worker),
        ChildSpec("printer", Printer),
        strategy=strategy,
        observers=[on_event],
    ) as supervisor:
        try:
            await supervisor.child("queue").call(Work(fails=True))
        except ConnectionError:
            await wait_all_tasks_blocked()
    print(f"{strategy} restarts:", *restarted)


async def backs_off() -> None:
    def on_event(event: Event) -> None:
        if isinstance(event, Restarting):
            print(f"{event.actor}: attempt {event.attempt} after {event.delay:g} s")
        elif isinstance(event, GaveUp):
            print(f"supervisor gave up: {event.error!r}")

    try:
        async with open_supervisor(
            ChildSpec("printer", Printer),
            strict=False,
            max_restarts=3,
            window=60,
            backoff=Backoff(initial=1, maximum=30),
            observers=[on_event],
        ):
            await trio.sleep_forever()
    except RestartLimitReached:
        pass


async def parks() -> None:
    async with open_supervisor(
        ChildSpec("queue", Worker),
        ChildSpec("printer", Printer),
        on_limit="park",
        strict=False,
    ) as supervisor:
        queue, printer = supervisor.child("queue"), supervisor.child("printer")
        await printer.wait_state("failed")
        print(f"parked: {printer.state}, while queue is {queue.state}")
        Printer.online = True
        await supervisor.restart_child("printer")
        print(f"revived: {printer.state}")


class SlowPrinter(Worker):
    """Starts twice: at once, and then never."""

    starts = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        SlowPrinter.starts += 1
        if SlowPrinter.starts > 1:
            await trio.sleep_forever()
        yield


async def waits(start_order: Literal["sequential", "parallel"]) -> None:
    SlowPrinter.starts = 0
    async with open_supervisor(
        ChildSpec("queue", Worker),
        ChildSpec("printer", SlowPrinter, start_timeout=10),
        start_order=start_order,
        on_limit="park",
        max_restarts=2,
    ) as supervisor:
        queue, printer = supervisor.child("queue"), supervisor.child("printer")
        for child in (printer, queue):
            try:
                await child.call(Work(fails=True))
            except ConnectionError:
                await wait_all_tasks_blocked()
        began = trio.current_time()
        await queue.call(Work())
        waited = trio.current_time() - began
        print(f"{start_order}: the queue is back after {waited:g} s")


async def main() -> None:
    await a_tree()
    for strategy in ("one_for_one", "rest_for_one", "one_for_all"):
        await restarted_with_the_queue(strategy)
    Printer.online = False
    await backs_off()
    await parks()
    await waits("sequential")
    await waits("parallel")


trio.run(main, clock=MockClock(autojump_threshold=0))
