"""Compare a call to an actor with channels, threads and a function.

All peers do the same: they take an `Ask`, and give its number back. They take turns in one process. A peer without an
event loop blocks that of the others while its round lasts, and the others are idle then.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from time import process_time
from typing import Any, Final

import trio
from attrs import frozen

from mcp_actors.kernel import open_actor

from .actors import Ask, Echo, PlainEcho
from .figures import Figure
from .lifecycle import exponent
from .measuring import in_turns, median_ratio

ROUNDS: Final = 21
CALLS: Final = 2048
"""Per round: some tens of milliseconds."""

CALLERS: Final = (1, 16)

MESSAGES: Final = 100_000
MESSAGE_ROUNDS: Final = 5

TELLS: Final = 24_000
TELL_ROUNDS: Final = 7
SENDERS: Final = 16
TELL_RATIO: Final = 1.3
CHANNEL: Final = "a channel"

BUFFER: Final = 256
"""Of the hand-written mailbox: as many messages as an actor's has room for."""

BACKLOGS: Final = (1_000, 10_000, 100_000)
GROWTH: Final = 1.3

Run = Callable[[], Awaitable[None]]


@frozen
class Peer:
    """One way to hand over a message.

    Attributes:
        call: makes so many calls in all, by so many callers at the same time.
        send: sends so many messages that want no answer, and waits until the last one was handled.
    """

    call: Callable[[int, int], Awaitable[None]]
    send: Callable[[int], Awaitable[None]]


async def call_from_tasks(call: Callable[[Ask], Awaitable[int]], callers: int, times: int) -> None:
    """Share the calls among tasks; a single caller is the running one."""

    async def repeat() -> None:
        for number in range(times // callers):
            await call(Ask(number))

    if callers == 1:
        await repeat()
    else:
        async with trio.open_nursery() as nursery:
            for _ in range(callers):
                nursery.start_soon(repeat)


@asynccontextmanager
async def open_ours() -> AsyncIterator[Peer]:
    """An actor of this package."""
    async with open_actor(Echo(), name="echo") as echo:

        async def send(times: int) -> None:
            for number in range(times):
                await echo.tell(Ask(number))
            await echo.call(Ask(times))

        yield Peer(partial(call_from_tasks, echo.call), send)


@asynccontextmanager
async def open_channels() -> AsyncIterator[Peer]:
    """A task that reads a channel, and a channel for each answer: what people write on Trio without actors.

    It has no supervision, and a caller hangs if the task has crashed.
    """
    mailbox, messages = trio.open_memory_channel[tuple[Ask, trio.MemorySendChannel[int] | None]](BUFFER)

    async def serve() -> None:
        async for message, answer in messages:
            number = message.number
            if answer is not None:
                answer.send_nowait(number)

    async def call(message: Ask) -> int:
        answer, answers = trio.open_memory_channel[int](1)
        await mailbox.send((message, answer))
        return await answers.receive()

    async def send(times: int) -> None:
        for number in range(times):
            await mailbox.send((Ask(number), None))
        await call(Ask(times))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with mailbox:
            yield Peer(partial(call_from_tasks, call), send)


@asynccontextmanager
async def open_pykka() -> AsyncIterator[Peer]:
    """An actor of pykka: a thread. Its callers are threads too; a single one is the main thread."""
    import pykka

    class PykkaEcho(pykka.ThreadingActor):
        def on_receive(self, message: Ask) -> int:
            return message.number

    echo: Any = PykkaEcho.start()

    def repeat(times: int) -> None:
        for number in range(times):
            echo.ask(Ask(number))

    async def call(callers: int, times: int) -> None:
        await trio.lowlevel.checkpoint()
        if callers == 1:
            repeat(times)
        else:
            with ThreadPoolExecutor(callers) as threads:
                list(threads.map(repeat, [times // callers] * callers))

    async def send(times: int) -> None:
        await trio.lowlevel.checkpoint()
        for number in range(times):
            echo.tell(Ask(number))
        echo.ask(Ask(times))

    try:
        yield Peer(call, send)
    finally:
        echo.stop()


@asynccontextmanager
async def open_function() -> AsyncIterator[Peer]:
    """An async function, awaited: nothing is handed over."""

    async def echo(message: Ask) -> int:
        return message.number

    async def send(times: int) -> None:
        for number in range(times):
            await echo(Ask(number))
        await echo(Ask(times))

    yield Peer(partial(call_from_tasks, echo), send)


OURS: Final = "an actor"

PEERS: Final[dict[str, Callable[[], AbstractAsyncContextManager[Peer]]]] = {
    OURS: open_ours,
    "a pair of channels": open_channels,
    "pykka": open_pykka,
    "an async function": open_function,
}


async def compare() -> list[Figure]:
    """Let all peers make calls, and send messages, in turns."""
    found = []
    async with AsyncExitStack() as stack:
        peers = {name: await stack.enter_async_context(open_peer()) for name, open_peer in PEERS.items()}
        for callers in CALLERS:
            rounds: dict[str, Run] = {name: partial(peer.call, callers, CALLS) for name, peer in peers.items()}
            found += against(f"a call; callers: {callers}", await in_turns(rounds, rounds=ROUNDS), CALLS)
        rounds = {name: partial(peer.send, MESSAGES) for name, peer in peers.items()}
        found += against(f"each of {MESSAGES} messages", await in_turns(rounds, rounds=MESSAGE_ROUNDS), MESSAGES)
    return found


def against(label: str, seconds: dict[str, list[float]], times: int) -> list[Figure]:
    """Return the figure of an actor, and its ratio to each of the others."""
    ours = seconds.pop(OURS)
    return [
        Figure(label, statistics.median(ours) / times * 1e6, "µs"),
        *(Figure(f"{label}, to {peer}", median_ratio(ours, theirs), "") for peer, theirs in seconds.items()),
    ]


async def send_from_tasks(send: Callable[[Ask], Awaitable[object]], times: int) -> None:
    """Share one-way messages among `SENDERS` tasks."""

    async def repeat() -> None:
        for number in range(times // SENDERS):
            await send(Ask(number))

    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(repeat)


async def tells(times: int = TELLS) -> list[Figure]:
    """Compare one-way messages to a plain handler with those over a channel, in processor time."""
    mailbox, messages = trio.open_memory_channel[Ask](BUFFER)

    async def serve() -> None:
        async for message in messages:
            _ = message.number

    async with trio.open_nursery() as nursery, open_actor(PlainEcho(), name="echo") as echo:
        nursery.start_soon(serve)
        with mailbox:
            sends = {
                OURS: partial(send_from_tasks, echo.tell, times),
                CHANNEL: partial(send_from_tasks, mailbox.send, times),
            }
            seconds = await in_turns(sends, rounds=TELL_ROUNDS, clock=process_time)
    ratio = median_ratio(seconds[OURS], seconds[CHANNEL])
    label = f"a message to a plain handler; senders: {SENDERS}"
    return [
        Figure(label, statistics.median(seconds[OURS]) / times * 1e6, "µs"),
        Figure(f"{label}, to {CHANNEL}", ratio, "", bound=TELL_RATIO),
    ]


async def work_off(messages: int) -> None:
    """Fill the mailbox of one actor, and wait until it is empty."""
    async with open_actor(Echo(), name="echo", mailbox_size=messages + 1) as echo:
        for number in range(messages):
            echo.tell_nowait(Ask(number))
        await echo.call(Ask(messages))


async def backlogs() -> list[Figure]:
    """Measure how the time for a full mailbox grows with its size."""
    seconds = await in_turns({str(number): partial(work_off, number) for number in BACKLOGS}, rounds=MESSAGE_ROUNDS)
    medians = [statistics.median(seconds[str(number)]) for number in BACKLOGS]
    return [
        Figure(f"each of {BACKLOGS[-1]} messages in one mailbox", medians[-1] / BACKLOGS[-1] * 1e6, "µs"),
        Figure("messages in one mailbox: growth exponent", exponent(BACKLOGS, medians), "", bound=GROWTH),
    ]


def figures() -> list[Figure]:
    """Compare a call with the others, a plain handler with a channel, and measure a long queue."""
    return [*trio.run(compare), *trio.run(tells), *trio.run(backlogs)]
