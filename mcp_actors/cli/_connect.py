"""Connect the servers of a subcommand, and describe them with credentials masked.

A subcommand such as ``check`` wants one attempt and a result for each server, so `open_once` replaces the configured
options for starts and restarts. ``watch``, ``serve`` and ``ui`` keep servers running, and open a group themselves.

Owns: the group of a subcommand; connect tasks; the progress task.
Writes: the output of the subcommand; signal handlers of the process.
Calls: config, servers, transports, _configuration, _output.
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
"""Called for each server that has connected or failed."""

UNLIMITED: Final = sys.maxsize
"""Value of ``max_servers``. The user wants all servers of the file."""

REPORT_EVERY: Final = 5.0
"""Seconds between progress lines about a slow start."""

ADVISE_AFTER: Final = 15.0
"""Seconds after which a progress line includes advice."""


@asynccontextmanager
async def open_once(
    loaded: LoadedConfig, output: Output, *, strict: bool = False, settled: Settled | None = None, **options: Any
) -> AsyncIterator[ServerGroup]:
    """Open a group, and try once to connect each server before the block begins.

    Progress lines report slow servers, which may take their whole timeouts. SIGTERM and SIGHUP cancel the block and
    stop the servers.

    Raises:
        ConnectFailed: a server failed to connect, and `strict` is True; errors of further servers are notes.
    """
    servers = [
        attrs.evolve(server, restarts=RestartPolicy(max_restarts=0), connect="lazy", required=False, on_failure="park")
        for server in loaded.servers
        if server.enabled
    ]
    async with until_signalled(), AsyncExitStack() as stack:
        stack.enter_context(output.showing_stderr(named=len(servers) > 1))
        with output.waiting(connecting(servers)):
            group = await stack.enter_async_context(open_servers(*servers, max_servers=UNLIMITED, **options))
            await _connect(group, output, settled)
        if strict and group.errors:
            raise first_of(group.errors.values())
        yield group


def open_one(server: str, config: str | None, output: Output) -> AbstractAsyncContextManager[ServerGroup]:
    """Load one server, and open its group. Errors are as for `load` and `open_loaded`."""
    return open_loaded(load(config, [server], output), output)


def open_loaded(loaded: LoadedConfig, output: Output) -> AbstractAsyncContextManager[ServerGroup]:
    """Open a group in which every server must connect.

    Raises:
        ConfigError: an entry is not valid.
        ConnectFailed: a server failed to connect.
    """
    if loaded.errors:
        raise first_of(loaded.errors)
    return open_once(loaded, output, strict=True)


async def answer_or_failure(ref: ServerRef, request: Awaitable[T], *, lists: str = "") -> T:
    """Return the answer to a request, or raise a `Failure` for an error of the server.

    `lists` is the command that lists what can be requested, for the remedy.
    """
    try:
        return await request
    except MCPError as error:
        server = f" {ref.name}" if ref.config.source else ""  # a typed server has no name to use in a command
        hint = f"; mcp-actors {lists}{server} lists what it has" if lists else ""
        raise Failure(f"{answered(ref.name, error)}{hint}") from None


def answered(server: str, error: MCPError) -> Failure:
    return Failure(f"server {server!r} answered with an error: {error.message} (code {error.code})")


async def _connect(group: ServerGroup, output: Output, settled: Settled | None) -> None:
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
                if waited < ADVISE_AFTER:  # a first start often downloads the server
                    reason = reason.partition("; check ")[0]
                output.progress(f"{name}: still starting after {waited:.0f} s: {reason}")


def connecting(servers: Iterable[ServerConfig]) -> str:
    names = [server.name for server in servers if server.enabled]
    return f"connecting to {', '.join(names)} …" if names else ""


def masker_of(ref: ServerRef) -> Masker:
    return ref._record.connected[0].session.masker  # with replicas, of the first one


def hidden_of(ref: ServerRef, output: Output) -> int:
    """Return how many tools the filter hides. Warn of names in the filter that no tool has."""
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
