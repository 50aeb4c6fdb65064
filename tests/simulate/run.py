"""Run a seed, and say what is wrong with it."""

from __future__ import annotations

import gc
import textwrap
import warnings
from functools import cache

from ..processor_time import freeze
from .defects import DEFECTS
from .diagram import drawn
from .invariants import broken
from .plan import draw
from .world import World


def run(seed: int) -> tuple[World, list[str]]:
    """Carry out the plan of a seed, and return what is wrong.

    Only what runs have made is looked at for garbage: to look at all modules would take as long as a run.
    """
    _freeze_once()
    world = World(draw(seed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings(
            "ignore", "Async generator '(httpx2|httpcore2)", ResourceWarning
        )  # as pyproject.toml has it
        try:
            world.run()
        except Exception as error:
            return world, [f"the run raised {error!r}"]
        gc.collect()  # which warns of coroutines that nothing awaits
    return world, [*broken(world), *(f"a warning: {each.message}" for each in caught)]


@cache
def _freeze_once() -> None:
    freeze()


def picture(world: World) -> str:
    """Return a run as a sequence diagram, with the options of its servers."""
    options = [f"{server.name}: {server.way}, {server.era}, {server.options}" for server in world.plan.servers]
    text = "\n".join(textwrap.fill(line, 120, subsequent_indent="   ") for line in options)
    return f"{text}\n\n{drawn(world.trace.entries, ['program', *world.houses])}\n"


def failure(seed: int) -> str | None:
    """Return None if a seed is fine; otherwise the line that repeats it, its picture and what is wrong."""
    world, problems = run(seed)
    return report(seed, world, problems) if problems else None


def report(seed: int, world: World, problems: list[str]) -> str:
    """Return the picture of a seed, what is wrong, and the line that repeats it."""
    repeat = f"repeat with: python -m tests.simulate --seed {seed}"
    return "\n".join([picture(world), *problems, repeat])


def search(task: tuple[str, int, int]) -> tuple[str, int | None, str]:
    """Return a defect, the first of so many seeds that finds it, and what that says."""
    name, first, number = task
    with DEFECTS[name]():
        for seed in range(first, first + number):
            if problems := run(seed)[1]:
                return name, seed, problems[0]
    return name, None, ""
