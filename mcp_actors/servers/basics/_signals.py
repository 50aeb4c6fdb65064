"""Receive the operating system's signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import combinations
from typing import Final

import trio

from ..._errors import ConfigError
from ._problems import bad_option

UNCATCHABLE: Final = frozenset({signal.SIGKILL, signal.SIGSTOP})


class Signals(Iterable[int]):
    """The numbers of the signals that a program reacts to, and how it receives them.

    Only the main thread gets signals. A subclass receives them where Trio does not run in that thread.

    Args:
        option: the name of the option, for errors.
        numbers: the value of the option: one signal, or several; none disables it.

    Raises:
        ConfigError: the value is not a signal that can be received.
    """

    def __init__(self, option: str, numbers: object) -> None:
        self.option: Final = option
        self.numbers: Final[tuple[int, ...]] = tuple(dict.fromkeys(_numbers(option, numbers)))

    @classmethod
    def of(cls, **options: object) -> tuple[Signals, ...]:
        """Return the signals of each option, which may be such an object already.

        Raises:
            ConfigError: a value is not a signal that can be received, or two options have the same signal, which only
                one of them would receive.
        """
        made = tuple(value if isinstance(value, Signals) else cls(option, value) for option, value in options.items())
        for one, other in combinations(made, 2):
            for number in set(one.numbers).intersection(other.numbers):
                raise ConfigError(
                    f"{one.option} and {other.option} both have {name_of(number)}; remove it from one of them",
                    source="open_servers",
                    path=other.option,
                )
        return made

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def receive(self) -> AbstractContextManager[AsyncIterator[int]]:
        """Receive the signals for the time of a block, instead of their default action.

        Raises:
            RuntimeError: this is not the main thread.
        """
        self.check_thread()
        return trio.open_signal_receiver(*self.numbers)

    def check_thread(self) -> None:
        """Check that the current thread is the one that gets signals.

        Raises:
            RuntimeError: this is not the main thread.
        """
        if self.numbers and threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"open_servers(): {self.option} needs the main thread, because Python delivers signals there; open the "
                f"servers in the main thread, or remove {self.option} and receive signals yourself"
            )


def name_of(number: int) -> str:
    """Return the name of a signal, as in ``"SIGTERM"``."""
    return signal.Signals(number).name


def _numbers(option: str, value: object) -> Iterator[int]:
    for number in value if isinstance(value, Iterable) else [value]:
        if not isinstance(number, int) or number not in signal.valid_signals() - UNCATCHABLE:
            problem = "is not a signal that a program can receive; pass one or more, like"
            raise bad_option(option, value, f"{problem} {option}=signal.SIGTERM")
        yield number
