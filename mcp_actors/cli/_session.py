"""Opening the servers of a command: once, all side by side, and as they are described for people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs

from ..config import LoadedConfig, RestartPolicy, Stdio, Transport, TransportTemplate
from ..config._masking import mask_args
from ..servers import ServerGroup, open_servers
from ._signals import until_told

__all__ = ["describe", "open_once"]

_ONCE: Final = RestartPolicy(max_restarts=0)


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
