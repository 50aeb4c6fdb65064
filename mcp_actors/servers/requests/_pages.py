"""Fetch all pages of a list, within the server's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from attrs import define

from ..._errors import LimitExceeded
from ..basics import TimeSlice
from ._list_meter import ListMeter
from ._request import Request, meta_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcp import Client
    from mcp.types import PaginatedResult, RequestParamsMeta

    from ..record import ServerRecord

    Page = TypeVar("Page", bound=PaginatedResult)

__all__ = ["ListAll", "all_pages"]

T = TypeVar("T")
Page_co = TypeVar("Page_co", covariant=True)

MAX_PAGES: Final = 1000
"""Pages of one list. The largest servers list some hundred tools; this only stops a list that never ends."""


class Fetch(Protocol[Page_co]):
    """A method of `mcp.Client` that lists one page; the cursor None is the first page."""

    async def __call__(
        self, *, cursor: str | None, meta: RequestParamsMeta | None, cache_mode: Literal["bypass"]
    ) -> Page_co: ...


@define(eq=False)
class ListAll(Request[tuple[T, ...]]):
    """List all pages of one kind of item.

    Attributes:
        operation: the protocol's method.
        pages: calls `all_pages`.
    """

    operation: str
    pages: Callable[[Client, ServerRecord], Awaitable[tuple[T, ...]]]

    async def send(self, client: Client, record: ServerRecord) -> tuple[T, ...]:
        """Request every page."""
        return await self.pages(client, record)


async def all_pages(
    client: Client,
    record: ServerRecord,
    capability: object | None,
    fetch: Fetch[Page],
    items: Callable[[Page], Sequence[T]],
    *,
    what: str,
) -> tuple[T, ...]:
    """Fetch a list page by page; leave out items over a limit, and report them.

    Args:
        client: the client of the connection.
        record: the server's record.
        capability: the server's capability for this list; without it the list is empty, and nothing is sent.
        fetch: requests a page.
        items: returns the items of a page.
        what: the kind of items, in the plural, for messages.

    Raises:
        LimitExceeded: the list is too large, has too many pages, or repeats a cursor.
        mcp.MCPError: as for `Request.send`.
    """
    if capability is None:
        return ()
    meter = ListMeter(record.config.name, what, record.config.limits)
    try:
        found = await _collected(fetch, items, meta_for(client, record), meter)
    except LimitExceeded as exc:
        record.catalog.note_over_limit(what, [exc])
        raise
    record.catalog.note_over_limit(what, meter.left_out)
    return found


async def _collected(
    fetch: Fetch[Page], items: Callable[[Page], Sequence[T]], meta: RequestParamsMeta | None, meter: ListMeter
) -> tuple[T, ...]:
    found: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    time_slice = TimeSlice()
    for _ in range(MAX_PAGES):
        page = await fetch(cursor=cursor, meta=meta, cache_mode="bypass")
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
