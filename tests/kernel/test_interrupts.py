"""K5: a Ctrl-C that lands anywhere in the kernel's own code leaves bare, after clean-up, and nothing hangs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import trio
import trio.lowlevel
import trio.testing

from mcp_actors import kernel
from mcp_actors.kernel import Actor, ChildSpec, Later, NotSent, Supervisor, _incarnation, open_actor, open_supervisor

from ..interrupter import Interrupter, run_interrupted_at
from .actors import Do, Gate, Get, Host, Put

EVERY = 97
"""Lines between two places that are tried: a prime, so that a loop is hit in different places."""

STEP = 7
"""The same where fewer lines are looked at; from which on is drawn anew each time."""


KERNEL: Final = str(Path(kernel.__file__).parent)
OWNER: Final = _incarnation.__file__


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
    ends = {at: run_interrupted_at(at, live, KERNEL) for at in range(1, lines, EVERY)}
    # Tasks run in any order, so a run may have fewer lines than the one that was counted.
    assert {at: end for at, (ran, end) in ends.items() if ran >= at and end is not KeyboardInterrupt} == {}
    assert sum(ran >= at for at, (ran, _) in ends.items()) > 0.9 * len(ends)


@pytest.mark.parametrize("path", ["/contextlib.py", "/tests/kernel/"])
def test_a_ctrl_c_never_comes_between_a_resource_and_its_block(path: str) -> None:
    """K5: what an actor holds is released before the interrupt leaves, wherever in its owner task it landed."""
    lines, nothing = run_interrupted_at(None, live, path, below=OWNER)
    assert nothing is None
    assert lines > 50
    for at in range(random.randint(1, STEP), lines, STEP):
        ran, end = run_interrupted_at(at, live, path, below=OWNER)
        assert ran < at or end is KeyboardInterrupt, at


class InterruptsWithin(Interrupter):
    """Presses Ctrl-C at a line of the functions with a name, wherever they are in the kernel."""

    def __init__(self, name: str, at: int) -> None:
        super().__init__(at, KERNEL)
        self.name = name

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return super().__call__(frame, event, arg) if frame.f_code.co_name == self.name else None


class Refuses(Actor):
    """Takes nothing until it is ready."""

    ready = False

    def take(self, later: Later[Any]) -> bool:
        if not self.ready:
            raise NotSent
        return False

    async def handle(self, message: Get | Put) -> int | None:
        return message.number if isinstance(message, Get) else None


async def takes_again() -> None:
    """Take messages again, and once more if that was interrupted."""
    actor = Refuses()
    async with open_actor(actor, name="actor") as ref:
        call = ref.send_request(Get(1))
        actor.ready = True
        try:
            actor.take_again()
            await trio.lowlevel.checkpoint()
        except KeyboardInterrupt:
            actor.take_again()
        with trio.fail_after(1):
            assert await call.wait() == 1


async def sets_a_timer() -> None:
    """Set a timer, and once more if that was interrupted."""
    host = Host()
    async with open_actor(host, name="host"):
        try:
            host.after(0, Put("timer"))
            await trio.lowlevel.checkpoint()
        except KeyboardInterrupt:
            host.after(0, Put("timer"))
        with trio.fail_after(1):
            while "timer" not in host.seen:
                await trio.lowlevel.checkpoint()


async def withdraws() -> None:
    """Withdraw a request, whose handler is cancelled even if that was interrupted."""
    gate = Gate()
    async with open_actor(Host(), name="host") as ref:
        call = ref.send_request(Do(gate))
        await trio.testing.wait_all_tasks_blocked()
        try:
            call.withdraw()
            await trio.lowlevel.checkpoint()
        except KeyboardInterrupt:
            call.withdraw()
        with trio.fail_after(1):
            while not gate.left:
                await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("main", "name"), [(takes_again, "take_again"), (sets_a_timer, "set"), (withdraws, "withdraw")]
)
def test_a_ctrl_c_between_two_statements_leaves_no_half_of_a_step(
    main: Callable[[], Coroutine[Any, Any, None]], name: str
) -> None:
    """C-36: a program that goes on after it can still take messages, and its timers and withdrawals work."""
    before, at = sys.gettrace(), 0
    interrupter = InterruptsWithin(name, 0)
    while interrupter.lines >= at:
        at += 1
        interrupter = InterruptsWithin(name, at)
        sys.settrace(interrupter)
        try:
            trio.run(main)
        except KeyboardInterrupt:
            pass  # it came at the end of the program
        finally:
            sys.settrace(before)
    assert at > 2
