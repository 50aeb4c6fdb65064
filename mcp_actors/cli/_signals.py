"""The signals that end a command, and what becomes of its servers then."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

__all__ = ["Told", "until_told"]

_TO_END: Final = (signal.SIGTERM, signal.SIGHUP)


class Told(Exception):
    """This process was told to end, by the signal of that number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number) or str(number))
        self.number = number


@asynccontextmanager
async def until_told() -> AsyncIterator[None]:
    """Cancel the block on SIGTERM and SIGHUP, which would end this process and leave its servers behind.

    Raises:
        Told: the block was cancelled for that.
    """
    told: list[int] = []
    # A signal that is ignored, as by nohup, stays so.
    heard = [each for each in _TO_END if signal.getsignal(each) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*heard) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for number in signals:
                    told.append(number)
                    nursery.cancel_scope.cancel(f"signal {number}")

            nursery.start_soon(listen)
            yield
            nursery.cancel_scope.cancel("the command is done")
    if told:
        raise Told(told[0])
