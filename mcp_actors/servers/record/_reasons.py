"""Describe why the state of a server changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernel import Crashed, GaveUp, Restarting, Started, Starting
from ..basics import problem_of
from ._events import Draining, HealthChanged, Recovered

if TYPE_CHECKING:
    from ...config import ServerConfig
    from ...kernel import Event
    from ..tools import ServerCatalog
    from ._health import ServerHealth
    from ._wanted import Wanted


def reason_of(
    event: Event,
    error: Exception | None,
    *,
    connects: int,
    catalog: ServerCatalog,
    health: ServerHealth,
    wanted: Wanted,
    config: ServerConfig,
) -> str:
    """Describe why the state changes.

    Args:
        event: the event that changes it.
        error: the current problem of the server.
        connects: the number of attempts to connect.
        catalog: its tools.
        health: its health.
        wanted: what is wanted of it.
        config: its configuration.
    """
    now = problem_of(error) if error is not None else "no error is known"
    match event:
        case Starting():
            reason = "first connect" if connects == 1 else f"connect number {connects}"
        case Started():
            reason = f"connected, {_tools(catalog, error)}"
        case Recovered():
            reason = f"it lists its tools again: {_tools(catalog, error)}"
        case HealthChanged() if health.problem is None:
            reason = f"it answers again: {_tools(catalog, error)}"
        case HealthChanged():
            reason = f"{health.ladder.failures} failures in a row, the last: {now}"
        case Crashed():
            reason = now
        case Restarting(delay=delay):
            reason = f"trying again in {delay:.3g} s, after: {now}"
        case GaveUp(retry_in=seconds):
            attempt = "no further attempt" if seconds is None else f"next attempt in {seconds:.0f} s"
            reason = f"{attempt}, after: {now}"
        case Draining(requests=requests, seconds=seconds):
            what = "1 request" if requests == 1 else f"{requests} requests"
            reason = f"finishing {what}, for at most {seconds:g} s"
        case _:
            reason = _asked(wanted, config) if error is None else f"stopped, after: {now}"
    return reason


def _asked(wanted: Wanted, config: ServerConfig) -> str:
    if wanted.mode != "rest":
        return "asked to stop"
    why = "not used for a while" if wanted.config == config else "lazy from now on"
    return f"{why}; the next request connects it again"


def _tools(catalog: ServerCatalog, error: Exception | None) -> str:
    number = "1 tool" if len(catalog.tools) == 1 else f"{len(catalog.tools)} tools"
    return number if error is None else f"{number}, as it does not list them: {problem_of(error)}"


def reason_of_absence(*, removed: bool) -> str:
    """Describe why a server is in no open group, and the remedy."""
    if removed:
        return "was removed from its group; to use it again, await servers.add(...)"
    return "is stopped because its open_servers() block has exited; open it again"
