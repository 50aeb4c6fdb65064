"""Opening the servers of a command: once, all side by side, and as they are described for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import attrs

from ..config import LoadedConfig, RestartPolicy, ServerConfig, Stdio, Transport, TransportTemplate
from ..config._masking import mask_args
from ..servers import ServerGroup, open_servers
from ._output import Output
from ._signals import until_told

__all__ = ["connecting", "describe", "open_once"]

_ONCE: Final = RestartPolicy(max_restarts=0)


@asynccontextmanager
async def open_once(loaded: LoadedConfig, output: Output, **options: Any) -> AsyncIterator[ServerGroup]:
    """Open a group whose servers are connected at once and tried once; none of them is required.

    On SIGTERM and SIGHUP the block is cancelled, and the servers are stopped.
    """
    servers = [
        attrs.evolve(server, restart=_ONCE, connect="eager", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    async with until_told(), AsyncExitStack() as stack:
        with output.waiting(connecting(servers)):
            group = await stack.enter_async_context(open_servers(*servers, **options))
        yield group


def connecting(servers: Iterable[ServerConfig]) -> str:
    """Say which servers are waited for: a first connect may take long."""
    names = [server.name for server in servers if server.enabled]
    return f"connecting to {', '.join(names)} …" if names else ""


def describe(transport: Transport) -> str:
    """Return how a server is reached, in a few words and without a credential."""
    if isinstance(transport, Stdio):
        return " ".join((transport.command, *mask_args(transport.args)))
    if isinstance(transport, TransportTemplate):
        shown = transport.display_options
        words = [shown.get("url") or shown.get("command"), *(shown.get("args") or ())]  # type: ignore[misc]  # a tuple
        return " ".join(map(str, words))
    return getattr(transport, "display_url", type(transport).__name__)
