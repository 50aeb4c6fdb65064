"""Measure `ActorRef.call` on a supervised actor, as a ratio to a bare checkpoint of Trio.

A checkpoint is the least that an operation of Trio costs: the task is suspended and scheduled again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from mcp_actors.kernel import Actor, ActorRef, ChildSpec, Pool, open_supervisor

from .actors import Ask, Echo, Relay, WideEcho
from .figures import Figure
from .measuring import in_turns, median_ratio

BOUNDS: Final = {"1": 6.0, "1, answered later": 4.2, "16, answered later": 1.8}
"""In checkpoints. The hops a call cannot do without are the handler's start and two wake-ups. A message that is taken
without a task, and answered by a task that runs anyway, needs the two wake-ups, which many callers share."""

ROUNDS: Final = 41
CALLS: Final = 1024
"""Per round: some ten milliseconds, short enough that a disturbance spoils one round and not all."""

Run = Callable[[], Awaitable[None]]


async def checkpoints() -> None:
    """The yardstick."""
    for _ in range(CALLS):
        await trio.lowlevel.checkpoint()


async def concurrently(callers: int, one: Callable[[int], Awaitable[None]]) -> None:
    """Share the calls of a round among tasks."""
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(one, CALLS // callers)


async def ask(ref: ActorRef, times: int) -> None:
    """Call again and again."""
    for number in range(times):
        await ref.call(Ask(number))


def callers(ref: ActorRef, number: int) -> Run:
    """A round of calls by some callers."""
    return partial(ask, ref, CALLS) if number == 1 else partial(concurrently, number, partial(ask, ref))


async def measure() -> list[Figure]:
    """Measure all of it in one run."""
    factories: dict[str, Callable[[], Actor]] = {
        "echo": Echo,
        "wide": WideEcho,
        "relay": Relay,
        "pool of 1": partial(Pool, Echo, size=1),
        "pool of 16": partial(Pool, Echo, size=16),
    }
    specs = [ChildSpec(name, factory) for name, factory in factories.items()]
    async with open_supervisor(*specs) as supervisor:
        echo, wide, relay, *pools = (supervisor.child(name) for name in factories)
        seconds = await in_turns(
            {
                "checkpoint": checkpoints,
                "1": callers(echo, 1),
                "16, all in flight": callers(wide, 16),
                "128, all in flight": callers(wide, 128),
                "16, in a queue": callers(echo, 16),
                "128, in a queue": callers(echo, 128),
                "1, answered later": callers(relay, 1),
                "16, answered later": callers(relay, 16),
                "1, a pool of 1": callers(pools[0], 1),
                "16, a pool of 1": callers(pools[0], 16),
                "1, a pool of 16": callers(pools[1], 1),
                "16, a pool of 16": callers(pools[1], 16),
            },
            rounds=ROUNDS,
        )
    yardstick = seconds.pop("checkpoint")
    microseconds = sorted(yardstick)[ROUNDS // 2] / CALLS * 1e6
    return [Figure("a checkpoint of Trio, the yardstick", microseconds, "µs")] + [
        Figure(
            f"a call; callers: {name}",
            median_ratio(each, yardstick),
            "checkpoints",
            bound=BOUNDS.get(name),
        )
        for name, each in seconds.items()
    ]


def figures() -> list[Figure]:
    """Measure a call."""
    return trio.run(measure)
