"""Ctrl-C while Trio is a guest: it waits where Trio protects its code, and nowhere else."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import trio

from mcp_actors import bridge
from mcp_actors.bridge.block._interrupts import InterruptGuard
from mcp_actors.kernel import ChildSpec

from .actors import Echo, Worker


class Host:
    """What handles the signal in a program: it notes where that was, and raises as that of asyncio's runner may."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.raises = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.steps.append("signal")
        if self.raises:
            raise KeyboardInterrupt

    def step(self) -> None:
        self.steps.append("before")
        signal.raise_signal(signal.SIGINT)
        self.steps.append("after")


@pytest.fixture
def host() -> Iterator[Host]:
    before = signal.getsignal(signal.SIGINT)
    host = Host()
    signal.signal(signal.SIGINT, host)
    yield host
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def guard(host: Host) -> Iterator[InterruptGuard]:
    guard = InterruptGuard()
    guard.install()
    yield guard
    guard.uninstall()


def protected(fn: Callable[[], Any]) -> Callable[[], Any]:
    @trio.lowlevel.enable_ki_protection
    def call() -> None:
        fn()

    return call


def unprotected(fn: Callable[[], Any]) -> Callable[[], Any]:
    @trio.lowlevel.disable_ki_protection
    def call() -> None:
        fn()

    return call


def test_what_trio_protects_ends_first(host: Host, guard: InterruptGuard) -> None:
    guard.take(protected(host.step))
    assert host.steps == ["before", "after"]
    with pytest.raises(KeyboardInterrupt):
        guard.catch_up()
    guard.catch_up()  # it was handled
    assert host.steps == ["before", "after", "signal"]


def test_what_trio_does_not_protect_is_interrupted_at_once(host: Host, guard: InterruptGuard) -> None:
    """Who computes for ever in a handler can still be stopped."""
    with pytest.raises(KeyboardInterrupt):
        guard.take(protected(unprotected(host.step)))
    assert host.steps == ["before", "signal"]


def test_between_the_turns_the_host_is_interrupted_as_ever(host: Host, guard: InterruptGuard) -> None:
    guard.take(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        protected(host.step)()
    assert host.steps == ["before", "signal"]


def test_it_takes_itself_away(host: Host) -> None:
    guard = InterruptGuard()
    guard.install()
    assert signal.getsignal(signal.SIGINT) is not host
    guard.uninstall()
    assert signal.getsignal(signal.SIGINT) is host


def test_it_leaves_a_handler_that_came_later(host: Host) -> None:
    guard = InterruptGuard()
    guard.install()
    later = Host()
    signal.signal(signal.SIGINT, later)
    guard.uninstall()
    assert signal.getsignal(signal.SIGINT) is later


def test_where_no_function_handles_the_signal_it_does_nothing(host: Host) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = InterruptGuard()
    guard.install()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    guard.uninstall()


def test_in_another_thread_it_does_nothing(host: Host) -> None:
    def use() -> None:
        guard = InterruptGuard()
        guard.install()
        guard.take(lambda: None)
        guard.catch_up()
        guard.uninstall()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is host


@pytest.mark.parametrize("where", ["thread", "guest"])
def test_a_signal_in_the_midst_of_the_kernel_waits_until_that_is_done(host: Host, where: bridge.Host) -> None:
    """The kernel's tasks are protected, as in a program on Trio; here one makes an actor."""

    def factory() -> Worker:
        host.steps.append("before")
        if where == "guest":
            signal.raise_signal(signal.SIGINT)
        host.steps.append("after")
        return Worker()

    async def main() -> None:
        async with bridge.open_supervisor(ChildSpec("worker", factory), host=where) as supervisor:
            assert await supervisor.child("worker").call(Echo(1)) == 1
            assert (signal.getsignal(signal.SIGINT) is host) == (where == "thread")
        assert signal.getsignal(signal.SIGINT) is host

    host.raises = False
    asyncio.run(main())
    assert host.steps == ["before", "after", "signal"][: 3 if where == "guest" else 2]
