"""Twelve small programs, most of them after the Savina suite: for actors, for tasks with channels, and for threads.

Each takes a size and returns a number that says if it has done all of its work; see `EXPECTED`. What they compute, and
how often they do it, is here, so that all do the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

NODES: Final = 60
"""Actors that count, or that send to each other."""

RING: Final = 100
CREATURES: Final = 100
READERS: Final = 20
KEYS: Final = 512
ROOM: Final = 50
"""Items in the buffer."""

PRODUCERS: Final = 40
"""And as many consumers."""

ACCOUNTS: Final = 100
TELLERS: Final = 10
BITS: Final = 8
WORKERS: Final = 20

Board = tuple[int, ...]

EXPECTED: Final[dict[str, Callable[[int], int]]] = {
    "ping pong": lambda size: size,
    "counting": lambda size: size,
    "many counters": lambda size: size // NODES * NODES,
    "short lives": lambda size: size,
    "ring": lambda size: size,
    "meetings": lambda size: 2 * size,
    "crosstalk": lambda size: size // NODES * NODES,
    "dictionary": lambda size: size // READERS * READERS,
    "buffer": lambda size: size // PRODUCERS * PRODUCERS,
    "bank": lambda size: size // TELLERS * TELLERS,
    "radix sort": lambda size: size,
    "queens": lambda size: {4: 2, 5: 10, 6: 4, 7: 40}[size],
}
"""The programs, and their results for a size. That of ``queens`` is the side of its board."""


def named(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the programs of a module, by the names of `EXPECTED`."""
    return {name: namespace[name.replace(" ", "_")] for name in EXPECTED}


def third(one: int, other: int) -> int:
    """Return the color of a creature after a meeting."""
    return one if one == other else 3 - one - other


def choices(seed: int, number: int, among: int) -> Iterator[int]:
    """Yield so many random numbers, the same in each program."""
    chance = random.Random(seed)
    for _ in range(number):
        yield chance.randrange(among)


def lookups(reader: int, size: int) -> Iterator[tuple[int, bool]]:
    """Yield the keys that one reader asks for; True for the tenth of them that it writes."""
    for number in choices(reader, size // READERS, 10 * KEYS):
        yield number // 10, number % 10 == 0


def transfers(teller: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the accounts of one teller: from the first half to the second, so that no two wait for each other."""
    half = ACCOUNTS // 2
    for number in choices(teller, size // TELLERS, half * half):
        yield number // half, half + number % half


def values(size: int) -> list[int]:
    """Return the values to be sorted."""
    return list(choices(1, size, 1 << BITS))


def in_order(found: list[int], size: int) -> int:
    """Return how many values were sorted; 0 if one of them is not where it should be."""
    return len(found) if found == sorted(values(size)) else 0


def next_boards(board: Board, side: int) -> list[Board]:
    """Return the boards with one more queen, which is in no line with another one."""
    row = len(board)
    free = [
        column
        for column in range(side)
        if all(column != other and abs(column - other) != row - above for above, other in enumerate(board))
    ]
    return [(*board, column) for column in free]


def placed(board: Board, side: int) -> tuple[list[Board], int]:
    """Return the boards to be looked at next, and the number of those that are full."""
    boards = next_boards(board, side)
    return ([], len(boards)) if len(board) + 1 == side else (boards, 0)
