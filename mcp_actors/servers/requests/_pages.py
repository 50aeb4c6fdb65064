"""Fetch all pages of a list, within the server's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ..._errors import LimitExceeded
from ...config import ListMeter
from ..basics import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcp.types import PaginatedResult

    from ..record import ServerRecord

    Page = TypeVar("Page", bound=PaginatedResult)

__all__ = ["all_pages"]

T = TypeVar("T")

MAX_PAGES: Final = 1000
"""Pages of one list. The largest servers list some hundred tools; this only stops a list that never ends."""


async def all_pages(
    fetch: Callable[[str | None], Awaitable[Page]],
    items: Callable[[Page], Sequence[T]],
    *,
    record: ServerRecord,
    what: str,
) -> tuple[T, ...]:
    """Fetch a list page by page; leave out items over a limit, and report them.

    Args:
        fetch: requests the page of a cursor; None is the first page.
        items: returns the items of a page.
        record: the server's record.
        what: the kind of items, in the plural, for messages.

    Raises:
        LimitExceeded: the list is too large, has too many pages, or repeats a cursor.
        mcp.MCPError: as for `Request.send`.
    """
    meter = ListMeter(record.config.name, what, record.config.limits)
    try:
        found = await _collected(fetch, items, meter)
    except LimitExceeded as exc:
        record.catalog.note_over_limit(what, [exc])
        raise
    record.catalog.note_over_limit(what, meter.left_out)
    return found


async def _collected(
    fetch: Callable[[str | None], Awaitable[Page]], items: Callable[[Page], Sequence[T]], meter: ListMeter
) -> tuple[T, ...]:
    found: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    time_slice = TimeSlice()
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        meter.announce(len(items(page)))
        for item in items(page):
            if meter.admits(item):
                found.append(item)
            await time_slice.checkpoint()
        cursor = page.next_cursor
        if not cursor:  # some servers send an empty cursor with the last page
            return tuple(found)
        if cursor in seen:
            raise _endless(meter, f"repeats itself: page {len(seen) + 1} has the cursor of an earlier page")
        meter.follow(cursor)
        seen.add(cursor)
    raise _endless(meter, f"did not end after {MAX_PAGES} pages")


def _endless(meter: ListMeter, problem: str) -> LimitExceeded:
    return LimitExceeded(
        f"server {meter.server!r}: its list of {meter.what} {problem}; fix the server's pagination",
        server=meter.server,
    )
