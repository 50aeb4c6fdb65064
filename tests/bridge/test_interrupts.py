"""Ctrl-C while Trio is a guest is delayed in protected code, and nowhere else."""

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
from mcp_actors.bridge._signals import InterruptGuard
from mcp_actors.kernel import ChildSpec, Later

from .actors import Echo, Worker


class Host:
    """A handler of the host that records its calls, and may raise like the one of `asyncio.run`."""

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


def test_protected_code_ends_before_the_interrupt(host: Host, guard: InterruptGuard) -> None:
    guard.take(protected(host.step))
    assert host.steps == ["before", "after"]
    with pytest.raises(KeyboardInterrupt):
        guard.catch_up()
    guard.catch_up()  # it was handled
    assert host.steps == ["before", "after", "signal"]


def test_unprotected_code_is_interrupted_at_once(host: Host, guard: InterruptGuard) -> None:
    """A handler that computes for ever can still be interrupted."""
    with pytest.raises(KeyboardInterrupt):
        guard.take(protected(unprotected(host.step)))
    assert host.steps == ["before", "signal"]


def test_between_turns_the_host_is_interrupted_as_usual(host: Host, guard: InterruptGuard) -> None:
    guard.take(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        protected(host.step)()
    assert host.steps == ["before", "signal"]


def test_a_step_ends_before_the_interrupt(host: Host, guard: InterruptGuard) -> None:
    """It runs outside any turn: so a request begins."""
    with pytest.raises(KeyboardInterrupt):
        guard.step(host.step)
    assert host.steps == ["before", "after", "signal"]


def test_a_step_of_a_turn_leaves_the_interrupt_to_the_end_of_the_turn(host: Host, guard: InterruptGuard) -> None:
    def turn() -> None:
        guard.step(host.step)
        guard.step(host.step)

    guard.take(protected(turn))
    assert host.steps == ["before", "after"] * 2
    with pytest.raises(KeyboardInterrupt):
        guard.catch_up()


def test_the_previous_handler_is_restored(host: Host) -> None:
    guard = InterruptGuard()
    guard.install()
    assert signal.getsignal(signal.SIGINT) is not host
    guard.uninstall()
    assert signal.getsignal(signal.SIGINT) is host


def test_a_signal_of_the_turn_in_which_the_handler_is_restored_is_not_lost(host: Host) -> None:
    guard = InterruptGuard()
    guard.install()

    def turn() -> None:
        host.step()
        guard.uninstall()

    guard.take(protected(turn))
    with pytest.raises(KeyboardInterrupt):
        guard.catch_up()
    assert host.steps == ["before", "after", "signal"]
    assert signal.getsignal(signal.SIGINT) is host


def test_a_handler_that_was_installed_later_is_kept(host: Host) -> None:
    guard = InterruptGuard()
    guard.install()
    later = Host()
    signal.signal(signal.SIGINT, later)
    guard.uninstall()
    assert signal.getsignal(signal.SIGINT) is later


def test_an_ignored_signal_stays_ignored(host: Host) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = InterruptGuard()
    guard.install()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    guard.uninstall()


def test_nothing_is_installed_outside_the_main_thread(host: Host) -> None:
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
def test_a_signal_during_a_step_of_the_kernel_is_handled_after_it(host: Host, where: bridge.Host) -> None:
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


def test_a_signal_while_a_request_begins_leaves_the_event_loop_and_not_the_actor(host: Host) -> None:
    """A guest takes the request in the step in which it is sent, outside any turn."""

    class Taker(Worker):
        def take(self, later: Later[Any]) -> bool:
            host.step()
            later.reply(1)
            return True

    async def main() -> None:
        async with bridge.open_supervisor(ChildSpec("taker", Taker), host="guest") as supervisor:
            with pytest.raises(KeyboardInterrupt):
                await supervisor.child("taker").call(Echo(1))
            host.raises = False
            assert await supervisor.child("taker").call(Echo(1)) == 1

    asyncio.run(main())
    assert host.steps == ["before", "after", "signal"] * 2
