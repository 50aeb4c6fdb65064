"""K5: a Ctrl-C that lands anywhere in the kernel's own code leaves bare, after clean-up, and nothing hangs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import trio

from mcp_actors.kernel import ChildSpec, Supervisor, open_supervisor

from .actors import Get, Host

EVERY = 97
"""Lines between two places that are tried: a prime, so that a loop is hit in different places."""


class Interrupter:
    """Counts the lines that the kernel, or one file of it, runs, and presses Ctrl-C at one of them."""

    def __init__(self, at: int | None, file: str = "") -> None:
        self.at = at
        self.path = f"/mcp_actors/kernel/{file}"
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return self.line if self.path in frame.f_code.co_filename else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self.line


async def live(left: list[str]) -> None:
    """Start a tree, use it, stop it."""

    async def leave(host: Host) -> None:
        await trio.lowlevel.checkpoint()
        left.append("released")

    def below() -> Supervisor:
        return Supervisor(ChildSpec("x", lambda: Host(stop=leave)), ChildSpec("y", lambda: Host(stop=leave)))

    specs = [ChildSpec("a", lambda: Host(stop=leave)), ChildSpec("n", below), ChildSpec("b", lambda: Host(stop=leave))]
    async with open_supervisor(*specs, start_order="parallel", stop_order="concurrent") as supervisor:
        await supervisor.child("a").call(Get(1))
        await trio.sleep(0.001)


def run(at: int | None, file: str = "") -> tuple[int, type[BaseException] | None]:
    """Run the program, interrupted at one line; return how many lines there were, and what left it."""
    interrupter = Interrupter(at, file)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        with_bound(lambda: trio.run(live, []))
    except BaseException as exc:
        return interrupter.lines, type(exc)
    finally:
        sys.settrace(before)
    return interrupter.lines, None


def with_bound(fn: Callable[[], None]) -> None:
    """Turn a hang into a failure."""

    def hang(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 10)
    try:
        fn()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_anywhere_in_the_kernel_leaves_as_itself() -> None:
    """K5: wherever it lands, at a start, in a call or in a stop, it is the only thing that leaves."""
    lines, nothing = run(None)
    assert nothing is None
    ends = {at: run(at)[1] for at in range(1, lines, EVERY)}
    assert {at: end for at, end in ends.items() if end is not KeyboardInterrupt} == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_between_the_kernel_and_a_resource_leaves_that_resource() -> None:
    """K5: here no line is left out."""
    lines, nothing = run(None, "_interruptible")
    assert nothing is None
    ends = {at: run(at, "_interruptible")[1] for at in range(1, lines + 1)}
    assert {at: end for at, end in ends.items() if end is not KeyboardInterrupt} == {}
