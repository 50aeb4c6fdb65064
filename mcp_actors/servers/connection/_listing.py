"""List tools, and resources on request, before a connection serves."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ...transports import ConnectionOver, current_trace
from ..requests import KeepResources, list_all_tools
from ._failures import tools_not_listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...transports import Link
    from ..record import ServerRecord
    from ..session import Session

T = TypeVar("T")

LIST_SHARE: Final = 1 / 2
"""Part of ``connect_timeout`` for a list that the connection can do without."""


async def list_tools(session: Session, record: ServerRecord, link: Link) -> Callable[[], None]:
    """Send ``tools/list``. Return the function that shows the result, once the rest is known.

    For a server with ``static_tools`` a failure is not fatal, and half of ``connect_timeout`` is enough.
    """
    catalog, ask = record.catalog, partial(list_all_tools, session, record)
    ticket = catalog.begin()
    if not record.config.static_tools:
        return partial(catalog.replace, ticket, await ask())
    listed = await _attempt(ask, record, link, partial(tools_not_listed, record.config.name))
    if isinstance(listed, Exception):
        return partial(catalog.use_static, ticket, listed)
    return partial(catalog.replace, ticket, listed)


async def list_resources(session: Session, record: ServerRecord, link: Link) -> Exception | None:
    """List the resources if they are to be kept. Return the failure, which is not fatal; else None."""
    if not record.config.keep_resources:
        return None
    ask = partial(KeepResources().send, session, record)
    failure = await _attempt(ask, record, link, _resources_not_listed)
    if failure is not None:
        record.resources.mark_stale()
    return failure


def _resources_not_listed(seconds: float) -> Exception:
    return TimeoutError(f"timed out after {seconds:g} s, half of connect_timeout")


async def _attempt(
    ask: Callable[[], Awaitable[T]], record: ServerRecord, link: Link, late: Callable[[float], Exception]
) -> T | Exception:
    """Send a request within its share of ``connect_timeout``; return its failure, unless the connection is lost."""
    timeout = record.config.connect_timeout
    seconds = math.inf if timeout is None else timeout * LIST_SHARE
    failure, trace = late(seconds), current_trace()
    with trio.move_on_after(seconds):
        try:
            return await ask()
        except Exception as exc:
            failure = trace.failure or exc
            link.masker.clean(failure)
            if link.lost or isinstance(failure, ConnectionOver):
                raise
    trace.failure = None
    return failure
