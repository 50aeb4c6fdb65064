"""K5: a Ctrl-C that lands anywhere in the kernel's own code leaves bare, after clean-up, and nothing hangs."""

from __future__ import annotations

import random
from typing import Final

import pytest
import trio

from mcp_actors.kernel import ChildSpec, Supervisor, open_supervisor

from ..interrupter import run_interrupted_at
from .actors import Get, Host

EVERY = 97
"""Lines between two places that are tried: a prime, so that a loop is hit in different places."""

STEP = 7
"""The same where fewer lines are looked at; from which on is drawn anew each time."""


KERNEL: Final = "/mcp_actors/kernel/"
OWNER: Final = "/mcp_actors/kernel/actor/_incarnation.py"


async def live() -> None:
    """Start a tree, use it, stop it."""

    async def leave(_: Host) -> None:
        await trio.lowlevel.checkpoint()

    def below() -> Supervisor:
        return Supervisor(ChildSpec("x", lambda: Host(stop=leave)), ChildSpec("y", lambda: Host(stop=leave)))

    specs = [ChildSpec("a", lambda: Host(stop=leave)), ChildSpec("n", below), ChildSpec("b", lambda: Host(stop=leave))]
    async with open_supervisor(*specs, start_order="parallel", stop_order="concurrent") as supervisor:
        await supervisor.child("a").call(Get(1))
        await trio.sleep(0.001)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_anywhere_in_the_kernel_is_raised_ungrouped() -> None:
    """K5: wherever it lands, at a start, in a call or in a stop, it is the only thing that leaves."""
    lines, nothing = run_interrupted_at(None, live, KERNEL)
    assert nothing is None
    ends = {at: run_interrupted_at(at, live, KERNEL)[1] for at in range(1, lines, EVERY)}
    assert {at: end for at, end in ends.items() if end is not KeyboardInterrupt} == {}


@pytest.mark.parametrize("path", ["/contextlib.py", "/tests/kernel/"])
def test_a_ctrl_c_never_comes_between_a_resource_and_its_block(path: str) -> None:
    """K5: what an actor holds is released before the interrupt leaves, wherever in its owner task it landed."""
    lines, nothing = run_interrupted_at(None, live, path, below=OWNER)
    assert nothing is None
    assert lines > 50
    for at in range(random.randint(1, STEP), lines, STEP):
        end = run_interrupted_at(at, live, path, below=OWNER)[1]
        assert (at, end) == (at, KeyboardInterrupt)
