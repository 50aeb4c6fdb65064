"""The programs as tasks that read channels: what people write without actors, on Trio and on asyncio.

They have no supervision: if a task crashes, those that wait for it hang, unless its nursery is their own.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

import trio

from . import (
    ACCOUNTS,
    BITS,
    CREATURES,
    NODES,
    PRODUCERS,
    READERS,
    RING,
    ROOM,
    TELLERS,
    WORKERS,
    choices,
    in_order,
    lookups,
    named,
    placed,
    third,
    transfers,
    values,
)

SIZE: Final = 256
"""Of a channel: as many messages as a mailbox has room for."""


# --- What differs between Trio and asyncio ----------------------------------------------------------------------------


class Tasks(Protocol):
    """A nursery or a task group."""

    def start(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task."""

    def cancel(self) -> None:
        """Cancel all tasks."""


class Kit(Protocol):
    """The parts of the programs."""

    def channel(self, size: float) -> tuple[Any, Any]:
        """Return the two ends of a channel, with ``send`` and ``receive``."""

    def tasks(self) -> AbstractAsyncContextManager[Tasks]:
        """Open a nursery, which is joined at the end of the block."""

    def event(self) -> Any:
        """Return an event."""

    async def ask(self, to: Any, *words: object) -> Any:
        """Send these words, after a function that takes the answer, and wait for that."""


class OnTrio:
    """Memory channels; a second one for each answer."""

    event = trio.Event

    def channel(self, size: float) -> tuple[Any, Any]:
        """Make a channel."""
        return trio.open_memory_channel[Any](size)

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[Tasks]:
        """Open a nursery."""
        async with trio.open_nursery() as nursery:
            yield TrioTasks(nursery)

    async def ask(self, to: Any, *words: object) -> Any:
        """Wait for an answer."""
        answer, answers = trio.open_memory_channel[Any](1)
        await to.send((answer.send_nowait, *words))
        return await answers.receive()


class TrioTasks:
    """A nursery."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.start = nursery.start_soon
        self.cancel = partial(nursery.cancel_scope.cancel, "the program is over")


class Channel(asyncio.Queue[Any]):
    """A queue with the names of Trio."""

    send = asyncio.Queue.put
    receive = asyncio.Queue.get


class OnAsyncio:
    """Queues; a future for each answer."""

    event = asyncio.Event

    def channel(self, size: float) -> tuple[Channel, Channel]:
        """Make a queue."""
        channel = Channel(0 if size == math.inf else int(size))
        return channel, channel

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[Tasks]:
        """Open a task group."""
        async with asyncio.TaskGroup() as group:
            yield AsyncioTasks(group)

    async def ask(self, to: Any, *words: object) -> Any:
        """Wait for an answer."""
        answer = asyncio.get_running_loop().create_future()
        await to.send((answer.set_result, *words))
        return await answer


class AsyncioTasks:
    """A task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[object]] = []

    def start(self, fn: Callable[..., Any], *args: object) -> None:
        """Start a task."""
        self._tasks.append(self._group.create_task(fn(*args)))

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()


# --- The programs -----------------------------------------------------------------------------------------------------


async def ping_pong(kit: Kit, size: int) -> int:
    """Make one call after the other."""

    async def echo() -> None:
        while True:
            answer, number = await inbox.receive()
            answer(number)

    to, inbox = kit.channel(SIZE)
    async with kit.tasks() as tasks:
        tasks.start(echo)
        total: int = sum([await kit.ask(to, 1) for _ in range(size)])
        tasks.cancel()
    return total


async def count(inbox: Any) -> None:
    """Count each None."""
    total = 0
    while True:
        answer = await inbox.receive()
        if answer is None:
            total += 1
        else:
            answer[0](total)


async def counting(kit: Kit, size: int) -> int:
    """Send messages without an answer."""
    to, inbox = kit.channel(SIZE)
    async with kit.tasks() as tasks:
        tasks.start(count, inbox)
        for _ in range(size):
            await to.send(None)
        total: int = await kit.ask(to)
        tasks.cancel()
    return total


async def many_counters(kit: Kit, size: int) -> int:
    """Send to many in turn."""
    channels = [kit.channel(SIZE) for _ in range(NODES)]
    async with kit.tasks() as tasks:
        for _, inbox in channels:
            tasks.start(count, inbox)
        for _ in range(size // NODES):
            for to, _ in channels:
                await to.send(None)
        total: int = sum([await kit.ask(to) for to, _ in channels])
        tasks.cancel()
    return total


async def short_lives(kit: Kit, size: int) -> int:
    """Start a task for each message."""
    seen: list[int] = []

    async def live(inbox: Any) -> None:
        seen.append(await inbox.receive())

    async with kit.tasks() as tasks:
        for _ in range(size):
            to, inbox = kit.channel(SIZE)
            tasks.start(live, inbox)
            await to.send(1)
    return len(seen)


async def ring(kit: Kit, size: int) -> int:
    """Pass a token round."""
    over = kit.event()
    channels = [kit.channel(SIZE) for _ in range(RING)]

    async def pass_on(inbox: Any, to: Any) -> None:
        while True:
            left = await inbox.receive()
            if left:
                await to.send(left - 1)
            else:
                over.set()

    async with kit.tasks() as tasks:
        for node, (_, inbox) in enumerate(channels):
            tasks.start(pass_on, inbox, channels[(node + 1) % RING][0])
        await channels[0][0].send(size)
        await over.wait()
        tasks.cancel()
    return size


async def meetings(kit: Kit, size: int) -> int:
    """Let creatures meet."""
    met = 0
    to, inbox = kit.channel(SIZE)

    async def mall() -> None:
        left, waits = size, None
        while True:
            answer, color = await inbox.receive()
            if not left:
                answer(-1)
            elif waits is None:
                waits = answer, color
            else:
                left -= 1
                waits[0](color)
                answer(waits[1])
                waits = None

    async def live(color: int) -> None:
        nonlocal met
        while (other := await kit.ask(to, color)) >= 0:
            met += 1
            color = third(color, other)

    async with kit.tasks() as servers:
        servers.start(mall)
        async with kit.tasks() as tasks:
            for creature in range(CREATURES):
                tasks.start(live, creature % 3)
        servers.cancel()
    return met


async def crosstalk(kit: Kit, size: int) -> int:
    """Send between all."""
    over, left = kit.event(), NODES
    channels = [kit.channel(SIZE) for _ in range(NODES)]

    async def talk(number: int) -> None:
        nonlocal left
        others = choices(number, size // NODES, NODES)
        while True:
            sender = await channels[number][1].receive()
            if sender is not None:
                await sender.send(None)
                continue
            other = next(others, None)
            if other is not None:
                await channels[other][0].send(channels[number][0])
                continue
            left -= 1
            if not left:
                over.set()

    async with kit.tasks() as tasks:
        for node in range(NODES):
            tasks.start(talk, node)
        for to, _ in channels:
            await to.send(None)
        await over.wait()
        tasks.cancel()
    return size // NODES * NODES


async def dictionary(kit: Kit, size: int) -> int:
    """Read and write from several tasks."""
    answered = 0
    to, inbox = kit.channel(SIZE)

    async def keep() -> None:
        kept: dict[int, int] = {}
        while True:
            answer, key, writes = await inbox.receive()
            if writes:
                kept[key] = key
                answer(None)
            else:
                answer(kept.get(key, 0))

    async def read(reader: int) -> None:
        nonlocal answered
        for key, writes in lookups(reader, size):
            await kit.ask(to, key, writes)
            answered += 1

    async with kit.tasks() as servers:
        servers.start(keep)
        async with kit.tasks() as tasks:
            for reader in range(READERS):
                tasks.start(read, reader)
        servers.cancel()
    return answered


async def hold(inbox: Any) -> None:
    """Hold some items."""
    items: deque[int] = deque()
    full: deque[tuple[Any, int]] = deque()
    empty: deque[Any] = deque()
    while True:
        answer, item = await inbox.receive()
        if item is None:
            if not items:
                empty.append(answer)
                continue
            if full:
                waiting, added = full.popleft()
                waiting(None)
                items.append(added)
            answer(items.popleft())
        elif empty:
            empty.popleft()(item)
            answer(None)
        elif len(items) < ROOM:
            items.append(item)
            answer(None)
        else:
            full.append((answer, item))


async def buffer(kit: Kit, size: int) -> int:
    """Produce and consume."""
    total = 0
    to, inbox = kit.channel(SIZE)

    async def produce() -> None:
        for _ in range(size // PRODUCERS):
            await kit.ask(to, 1)

    async def consume() -> None:
        nonlocal total
        for _ in range(size // PRODUCERS):
            item = await kit.ask(to, None)
            total += item

    async with kit.tasks() as servers:
        servers.start(hold, inbox)
        async with kit.tasks() as tasks:
            for _ in range(PRODUCERS):
                tasks.start(produce)
                tasks.start(consume)
        servers.cancel()
    return total


async def bank(kit: Kit, size: int) -> int:
    """Move money, by calls within calls."""
    channels = [kit.channel(SIZE) for _ in range(ACCOUNTS)]

    async def account(inbox: Any) -> None:
        balance = 0
        while True:
            answer, word = await inbox.receive()
            if word == "credit":
                balance += 1
                answer(None)
            elif word == "total":
                answer(balance)
            else:
                balance -= 1
                await kit.ask(word, "credit")
                answer(None)

    async def move(teller: int) -> None:
        for giver, taker in transfers(teller, size):
            await kit.ask(channels[giver][0], channels[taker][0])

    async with kit.tasks() as servers:
        for _, inbox in channels:
            servers.start(account, inbox)
        async with kit.tasks() as tasks:
            for teller in range(TELLERS):
                tasks.start(move, teller)
        total: int = sum([await kit.ask(to, "total") for to, _ in channels[ACCOUNTS // 2 :]])
        servers.cancel()
    return total


async def radix_sort(kit: Kit, size: int) -> int:
    """Stream values through stages, each of which waits for room in the next."""
    found: list[int] = []
    over = kit.event()

    async def sort(bit: int, inbox: Any, to: Any) -> None:
        ones = []
        while (value := await inbox.receive()) is not None:
            if value >> bit & 1:
                ones.append(value)
            else:
                await to.send(value)
        for one in ones:
            await to.send(one)
        await to.send(None)

    async def note(inbox: Any) -> None:
        while (value := await inbox.receive()) is not None:
            found.append(value)
        over.set()

    async with kit.tasks() as tasks:
        first, inbox = kit.channel(SIZE)
        tasks.start(note, inbox)
        for bit in reversed(range(BITS)):
            to, (first, inbox) = first, kit.channel(SIZE)
            tasks.start(sort, bit, inbox, to)
        for value in values(size):
            await first.send(value)
        await first.send(None)
        await over.wait()
    return in_order(found, size)


async def queens(kit: Kit, size: int) -> int:
    """Divide a search among workers."""
    to_master, results = kit.channel(math.inf)
    workers = [kit.channel(math.inf) for _ in range(WORKERS)]

    async def work(inbox: Any) -> None:
        while True:
            await to_master.send(placed(await inbox.receive(), size))

    full, turn, waits = 0, 0, 1
    async with kit.tasks() as tasks:
        for _, inbox in workers:
            tasks.start(work, inbox)
        await workers[0][0].send(())
        while waits:
            boards, found = await results.receive()
            full += found
            waits += len(boards) - 1
            for board in boards:
                turn = (turn + 1) % WORKERS
                await workers[turn][0].send(board)
        tasks.cancel()
    return full


PROGRAMS: Final[dict[str, Callable[[Kit, int], Awaitable[int]]]] = named(globals())
