"""``mcp-actors watch``: show the states of the servers as they change."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeAlias

import trio
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..._text import plain_text
from ...kernel import Event
from ...servers import ConfigRejected, ServerGroup, ServerStatus, StateChanged, open_servers
from .._configuration import FollowedFile
from .._output import Output
from .._session import MAX_SERVERS, connecting
from .._signals import Signalled, until_signalled

_Change: TypeAlias = StateChanged | ConfigRejected

_STYLES = {
    "ready": "green",
    "degraded": "yellow",
    "unhealthy": "red",
    "failed": "red",
    "needs_auth": "red",
    "backoff": "red",
    "stopped": "dim",
}


async def watch_servers(names: Sequence[str], config: str | None, output: Output, *, every: float) -> NoReturn:
    """Show the states of the servers, until a signal ends it. Changes of a file that was named are applied."""
    followed = FollowedFile(config, names, output)
    for error in followed.loaded.errors:
        output.error(error)
    if output.results.is_terminal and not output.as_json:
        # By default rich refreshes it from a thread of its own.
        with Live(connecting(followed.loaded.servers), console=output.results, auto_refresh=False) as live:
            async with until_signalled(), open_servers(followed, watch=True, max_servers=MAX_SERVERS) as group:
                await _show(group, live, every)
    # An observer sees the first connects too. It must not block, so it hands the events to a task, because writing
    # waits for the reader of the output.
    send, changes = trio.open_memory_channel[_Change](math.inf)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_print_changes, changes, output)
            forward = partial(_forward, send)
            async with (
                until_signalled(),
                open_servers(followed, watch=True, max_servers=MAX_SERVERS, observers=[forward]),
            ):
                await trio.sleep_forever()
    finally:
        with suppress(trio.WouldBlock):
            while True:  # the changes while the group was closed
                _print_change(changes.receive_nowait(), output)
    raise AssertionError("unreachable")


def _forward(send: trio.MemorySendChannel[_Change], event: Event) -> None:
    if isinstance(event, StateChanged | ConfigRejected):
        send.send_nowait(event)


async def _print_changes(changes: trio.MemoryReceiveChannel[_Change], output: Output) -> None:
    """Print one line for each change."""
    async for event in changes:
        _print_change(event, output)


def _print_change(event: _Change, output: Output) -> None:
    if isinstance(event, ConfigRejected):
        output.error(event.error)
        return
    change = {"server": event.server, "old": event.old, "new": event.new, "reason": event.reason}
    output.line((event.server, "bold"), f"  {event.old} -> {event.new}  {event.reason}")
    output.json({**change, "incarnation": event.incarnation})
    output.results.file.flush()


async def _show(group: ServerGroup, live: Live, every: float) -> NoReturn:
    """Keep a table of the servers on the terminal up to date."""
    async with group.watch_events() as events:
        while True:
            if not live.console.is_terminal:
                # The terminal was closed. Under nohup SIGHUP is ignored, and this would go on for ever without a
                # reader.
                raise Signalled(signal.SIGHUP)
            live.update(_table(group), refresh=True)
            with trio.move_on_after(every):
                await anext(events)


def _table(group: ServerGroup) -> Group:
    """Return a table of the current statuses, with the last errors below, which are too long for a column."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("server", "state", "run", "pid", "for", "in flight", "queued", "restarts"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    now, errors = trio.current_time(), []
    for status in group.status().values():
        table.add_row(*_row(status, now))
        if status.last_error is not None:
            errors.append(Text(f"{status.name}: {plain_text(str(status.last_error))}", style="red"))
    for name, error in group.errors.items():
        if name not in group:  # an entry or a file that cannot be used
            errors.append(Text(plain_text(str(error)), style="red"))
    return Group(table, *errors)


def _row(status: ServerStatus, now: float) -> list[Any]:
    style, replicas = _STYLES.get(status.state, ""), status.replicas
    state = status.state if replicas.total == 1 else f"{status.state} {replicas.serving}/{replicas.total}"
    return [
        status.name,
        f"[{style}]{state}[/]" if style else state,
        str(status.incarnation),
        " ".join(str(each.pid) for each in replicas.each if each.pid is not None),
        f"{now - status.since:.0f} s",
        str(status.in_flight),
        str(status.queued),
        str(status.restarts),
    ]
