"""Opening the servers of a command: once, all side by side, and as they are described for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import attrs
import trio

from ..config import LoadedConfig, RestartPolicy, ServerConfig, Stdio, Transport, TransportTemplate
from ..config.values import mask_args
from ..servers import ServerGroup, ServerRef, open_servers
from ..servers.transports import Masker
from ._output import Output
from ._signals import until_told

__all__ = ["connecting", "describe", "masker_of", "open_once"]

_ONCE: Final = RestartPolicy(max_restarts=0)

TELL_EVERY: Final = 5.0
"""Seconds between two lines about a server that is slow to start."""


@asynccontextmanager
async def open_once(
    loaded: LoadedConfig, output: Output, *, strict: bool = False, **options: Any
) -> AsyncIterator[ServerGroup]:
    """Open a group whose servers are connected at once and tried once; none of them is required.

    Slow servers are waited for within their time-outs, and their progress is printed. On SIGTERM and SIGHUP the block
    is cancelled and the servers are stopped.

    Raises:
        ConnectFailed: a server could not be connected, and `strict` is True.
    """
    servers = [
        attrs.evolve(server, restart=_ONCE, connect="lazy", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    async with until_told(), AsyncExitStack() as stack:
        with output.waiting(connecting(servers)):
            group = await stack.enter_async_context(open_servers(*servers, **options))
            await _connect(group, output)
        if strict:
            for error in group.errors.values():
                raise error
        yield group


async def _connect(group: ServerGroup, output: Output) -> None:
    """Connect to all servers, and print every `TELL_EVERY` seconds what those report that are still starting."""
    async with trio.open_nursery() as telling:
        telling.start_soon(_tell, group, output)
        async with trio.open_nursery() as nursery:
            for ref in group.configured:
                nursery.start_soon(_connect_one, ref)
        telling.cancel_scope.cancel("every server is connected, or has failed")


async def _connect_one(ref: ServerRef) -> None:
    await ref.start()
    await ref.wait_state("ready", "degraded", "failed", "stopped")


async def _tell(group: ServerGroup, output: Output) -> None:
    began = trio.current_time()
    while True:
        await trio.sleep(TELL_EVERY)
        for name, status in group.status().items():
            if status.state == "connecting":
                output.progress(f"{name}: still starting after {trio.current_time() - began:.0f} s: {status.reason}")


def connecting(servers: Iterable[ServerConfig]) -> str:
    """Say which servers are waited for: a first connect may take long."""
    names = [server.name for server in servers if server.enabled]
    return f"connecting to {', '.join(names)} …" if names else ""


def masker_of(ref: ServerRef) -> Masker:
    """Return the masker of a connected server, for text that the server sent."""
    return ref._record.masker


def describe(transport: Transport) -> str:
    """Return how a server is reached, in a few words and without a credential."""
    if isinstance(transport, Stdio):
        return " ".join((transport.command, *mask_args(transport.args)))
    if isinstance(transport, TransportTemplate):
        shown = transport.display_options
        words = [shown.get("url") or shown.get("command"), *(shown.get("args") or ())]  # type: ignore[misc]  # a tuple
        return " ".join(map(str, words))
    return getattr(transport, "display_url", type(transport).__name__)
