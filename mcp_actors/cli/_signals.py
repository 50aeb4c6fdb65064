"""Stop the servers of a command on SIGTERM and SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Signalled(Exception):
    """A signal has ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number) or str(number))
        self.number = number


@asynccontextmanager
async def until_signalled() -> AsyncIterator[None]:
    """Cancel the block on SIGTERM and SIGHUP, whose default action would leave the servers behind.

    Raises:
        Signalled: one of these signals has cancelled the block.
    """
    received: list[int] = []
    # A signal that is ignored, as under nohup, must stay ignored.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*handled) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for number in signals:
                    received.append(number)
                    nursery.cancel_scope.cancel(f"signal {number}")

            nursery.start_soon(listen)
            yield
            nursery.cancel_scope.cancel("the command is done")
    if received:
        raise Signalled(received[0])
