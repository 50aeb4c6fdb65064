"""Lists that come page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from .._errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from mcp.types import PaginatedResult

    Page = TypeVar("Page", bound=PaginatedResult)

__all__ = ["all_pages"]

T = TypeVar("T")

MAX_PAGES: Final = 1000
"""Pages of one listing. The largest servers list some hundred tools; this only stops a pager that never ends."""


async def all_pages(
    fetch: Callable[[str | None], Awaitable[Page]],
    items: Callable[[Page], Iterable[T]],
    *,
    server: str,
    operation: str,
) -> tuple[T, ...]:
    """Fetch a list, page by page, to its end.

    Args:
        fetch: asks for the page of a cursor; None: the first.
        items: what is on a page.
        server: whose list it is.
        operation: what is asked of the server, in the words of the protocol.

    Raises:
        LimitExceeded: the pages do not end: there are too many, or a cursor comes back.
        mcp.MCPError: as for `Request.send`.
    """
    found: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        found += items(page)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found)
        if cursor in seen:
            raise _endless(
                server, operation, f"goes in circles: the cursor of page {len(seen) + 1} is an earlier one's"
            )
        seen.add(cursor)
    raise _endless(server, operation, f"did not end after {MAX_PAGES} pages")


def _endless(server: str, operation: str, problem: str) -> LimitExceeded:
    return LimitExceeded(
        f"server {server!r}: its answer to {operation} {problem}; the server repeats itself, and has to be mended",
        server=server,
    )
