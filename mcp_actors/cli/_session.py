"""Opening the servers of a command: once, all side by side, and as they are described for people."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from ..config import LoadedConfig, RestartPolicy, Stdio, Transport, TransportTemplate
from ..config._masking import mask_args
from ..servers import ServerGroup, open_servers

__all__ = ["Told", "describe", "open_once", "until_told"]

_ONCE: Final = RestartPolicy(max_restarts=0)
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


@asynccontextmanager
async def open_once(loaded: LoadedConfig, **options: Any) -> AsyncIterator[ServerGroup]:
    """Open a group whose servers are connected at once and tried once; none of them is required.

    On SIGTERM and SIGHUP the block is cancelled, and the servers are stopped.
    """
    servers = [
        attrs.evolve(server, restart=_ONCE, connect="eager", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    async with until_told(), open_servers(*servers, **options) as group:
        yield group


def describe(transport: Transport) -> str:
    """Return how a server is reached, in a few words and without a credential."""
    if isinstance(transport, Stdio):
        return " ".join((transport.command, *mask_args(transport.args)))
    if isinstance(transport, TransportTemplate):
        shown = transport.display_options
        words = [shown.get("url") or shown.get("command"), *(shown.get("args") or ())]  # type: ignore[misc]  # a tuple
        return " ".join(map(str, words))
    return getattr(transport, "display_url", type(transport).__name__)
