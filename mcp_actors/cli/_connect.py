"""Connect the servers of a command once, and describe them.

`open_once` is for all commands that connect but ``watch``: it opens a group of the enabled servers, with other options
for starts and restarts than configured. It tries each once in a task of its own, prints which are slow, stops on
SIGTERM and SIGHUP, and with ``strict`` raises the first error, with the others as notes. `open_one` loads one server
and opens it so (`open_loaded` opens one that is loaded); `asked` awaits an answer, and `answered` makes the error for
one that a server has answered. ``watch`` opens its group itself. `connecting` and `describe` return words about servers
and transports. `masker_of` and `hidden_of` read the record behind a ref (``_record``) for what the ref does not show.

``_call``, ``_read`` and ``_check`` use it. It uses ``_configuration``, imports the servers, the configuration and the
transports, and with them the SDK, and writes through the `Output` that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio
from mcp import MCPError

from .._collapse import first_of
from ..config import LoadedConfig, RestartPolicy, ServerConfig, Socket, Stdio, Transport
from ..config._values import mask_args
from ..servers import ServerGroup, ServerRef, open_servers
from ..transports import Masker
from ._configuration import load
from ._output import Failure, Output, until_signalled

T = TypeVar("T")

Settled: TypeAlias = Callable[[ServerGroup, ServerRef], Awaitable[None]]
"""A function that is called for a server once that is connected or has failed."""

MAX_SERVERS: Final = sys.maxsize
"""No limit: a command has no option for one, and its file says how many servers the user wants."""

REPORT_EVERY: Final = 5.0
"""Seconds between two progress lines about a server that is slow to start."""

ADVISE_AFTER: Final = 15.0
"""Seconds after which such a line says what to do."""


@asynccontextmanager
async def open_once(
    loaded: LoadedConfig, output: Output, *, strict: bool = False, settled: Settled | None = None, **options: Any
) -> AsyncIterator[ServerGroup]:
    """Open a group, and try once to connect each server before the block begins.

    Slow servers may take their whole timeouts, and their progress is printed. SIGTERM and SIGHUP cancel the block and
    stop the servers. `settled` is called for each server as soon as it is connected or has failed.

    Raises:
        ConnectFailed: a server failed to connect, and `strict` is True.
    """
    servers = [
        attrs.evolve(server, restarts=RestartPolicy(max_restarts=0), connect="lazy", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    shown = output.showing_stderr(named=len(servers) > 1)
    async with until_signalled(), AsyncExitStack() as stack:
        stack.enter_context(shown)
        with output.waiting(connecting(servers)):
            group = await stack.enter_async_context(open_servers(*servers, max_servers=MAX_SERVERS, **options))
            await _connect(group, output, settled)
        if strict and group.errors:
            raise first_of(group.errors.values())
        yield group


def open_one(server: str, config: str | None, output: Output) -> AbstractAsyncContextManager[ServerGroup]:
    """Load the server that a command names, and open a group of it alone.

    Raises:
        ConfigError, Misuse, Failure: as for `load`, or its entry is not valid.
        ConnectFailed: it failed to connect.
    """
    return open_loaded(load(config, [server], output), output)


def open_loaded(loaded: LoadedConfig, output: Output) -> AbstractAsyncContextManager[ServerGroup]:
    """Open a group of servers that a command needs, all of them.

    Raises:
        ConfigError: the entry of one is not valid.
        ConnectFailed: one failed to connect.
    """
    if loaded.errors:
        raise first_of(loaded.errors)
    return open_once(loaded, output, strict=True)


async def asked(ref: ServerRef, request: Awaitable[T], *, lists: str = "") -> T:
    """Return the answer of a server; `lists` is the command that lists what can be asked for.

    Raises:
        Failure: it is an error.
    """
    try:
        return await request
    except MCPError as error:
        server = f" {ref.name}" if ref.config.source else ""  # one that was typed is not known by its name
        hint = f"; mcp-actors {lists}{server} lists what it has" if lists else ""
        raise Failure(f"{answered(ref.name, error)}{hint}") from None


def answered(server: str, error: MCPError) -> Failure:
    """Return the error of a command for an error that the server has answered."""
    return Failure(f"server {server!r} answered with an error: {error.message} (code {error.code})")


async def _connect(group: ServerGroup, output: Output, settled: Settled | None) -> None:
    """Connect all servers, and print the status of those that are still starting every `REPORT_EVERY` seconds."""
    waiting = {ref.name: ref.config for ref in group.configured}

    async def connect(ref: ServerRef) -> None:
        await ref.start()
        await ref.wait_state("ready", "degraded", "failed", "needs_auth", "stopped")
        if settled is not None:
            await settled(group, ref)
        del waiting[ref.name]
        output.wait_for(connecting(waiting.values()))

    async with trio.open_nursery() as reporting:
        reporting.start_soon(_report_slow_starts, group, output)
        async with trio.open_nursery() as nursery:
            for ref in group.configured:
                nursery.start_soon(connect, ref)
        reporting.cancel_scope.cancel("every server is connected, or has failed")


async def _report_slow_starts(group: ServerGroup, output: Output) -> None:
    began = trio.current_time()
    while True:
        await trio.sleep(REPORT_EVERY)
        for name, status in group.status().items():
            if status.state == "connecting":
                waited, reason = trio.current_time() - began, status.reason
                if waited < ADVISE_AFTER:  # a first start often takes that long, because it downloads the server
                    reason = reason.partition("; check ")[0]
                output.progress(f"{name}: still starting after {waited:.0f} s: {reason}")


def connecting(servers: Iterable[ServerConfig]) -> str:
    """Return a line that names the servers that are being connected; a first connect may take long."""
    names = [server.name for server in servers if server.enabled]
    return f"connecting to {', '.join(names)} …" if names else ""


def masker_of(ref: ServerRef) -> Masker:
    """Return the masker of a connected server, for text that the server sent."""
    return ref._record.connected[0].session.masker  # with replicas, that of one of them


def hidden_of(ref: ServerRef, output: Output) -> int:
    """Return how many tools of a server its filter hides. Warn of the names in the filter that no tool has."""
    admission = ref._record.catalog.admission
    if (misnamed := admission.misnamed()) is not None:
        problem = f"server {ref.name!r}: its filter has names of tools that it does not list: {misnamed}"
        output.warning(masker_of(ref)(problem))
    return admission.filtered_out


def describe(transport: Transport) -> str:
    """Return the command line or URL of a server, without credentials."""
    if isinstance(transport, Stdio):
        return " ".join((transport.command, *mask_args(transport.args)))
    if isinstance(transport, Socket):
        return transport.display_address
    return getattr(transport, "display_url", type(transport).__name__)
