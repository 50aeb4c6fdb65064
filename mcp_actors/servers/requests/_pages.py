"""Fetch all pages of a list, within the server's limits.

The session would validate a page in one step of the event loop, which for thousands of items takes a tenth of a second.
So pages are requested past it (`PastSession`), and validated like the session does, but a few items at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from attrs import define, frozen
from pydantic_core import ValidationError

from ..._errors import LimitExceeded
from ..basics import TimeSlice
from ..policy import parse_result
from ._list_meter import ListMeter
from ._plain import first_problem, without_later_fields
from ._request import Request, meta_for, needs_meta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from mcp import Client
    from mcp.types import PaginatedResult, RequestParamsMeta, ServerCapabilities

    from ..record import ServerRecord

T = TypeVar("T")
Page = TypeVar("Page", bound="PaginatedResult")
Page_co = TypeVar("Page_co", covariant=True)

MAX_PAGES: Final = 1000
"""Pages of one list. The largest servers list some hundred tools; this only stops a list that never ends."""

PART: Final = 16
"""Items that are validated in one step: tools of common size take half a millisecond."""


class Fetch(Protocol[Page_co]):
    """A method of `mcp.Client` that lists one page; the cursor None is the first page."""

    async def __call__(self, *, cursor: str | None, meta: RequestParamsMeta | None) -> Page_co: ...


PastSession: TypeAlias = "Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]"
"""Sends a request, from its method and params, past the SDK's session, and returns its result as it is."""


@frozen(eq=False)
class Kind(Generic[Page, T]):
    """A kind of items that a server lists.

    Attributes:
        method: the protocol's method.
        what: the kind, in the plural, for messages.
        member: the name of the items in the JSON of a page.
        capability: returns the server's capability; without it the list is empty, and nothing is sent.
        fetch: returns the function that requests a page through the session.
        items: returns the items of a page.
    """

    method: str
    what: str
    member: str
    capability: Callable[[ServerCapabilities], object | None]
    fetch: Callable[[Client], Fetch[Page]]
    items: Callable[[Page], Sequence[T]]


@define(eq=False)
class ListRequest(Request[T]):
    """Lists all pages of something."""

    async def send(self, client: Client, record: ServerRecord) -> T:
        """Request every page through the session."""
        return await self.send_past(client, record, None)

    @abstractmethod
    async def send_past(self, client: Client, record: ServerRecord, past: PastSession | None) -> T:
        """Request every page, past the session if that is possible.

        Raises:
            LimitExceeded, mcp.MCPError: as for `all_pages`.
        """


@define(eq=False)
class ListAll(ListRequest[tuple[T, ...]]):
    """List all pages of one kind of item."""

    kind: Kind[Any, T]

    @property
    def operation(self) -> str:
        """The protocol's method."""
        return self.kind.method

    async def send_past(self, client: Client, record: ServerRecord, past: PastSession | None) -> tuple[T, ...]:
        """Request every page."""
        return await all_pages(client, record, past, self.kind)


async def all_pages(
    client: Client, record: ServerRecord, past: PastSession | None, kind: Kind[Page, T]
) -> tuple[T, ...]:
    """Fetch a list page by page; leave out items that exceed a limit or are not valid, and report them.

    Args:
        client: the client of the connection.
        record: the server's record.
        past: sends requests past the session of the connection; None if that is not possible.
        kind: the kind of items.

    Raises:
        LimitExceeded: the list is too large, has too many pages, or repeats a cursor.
        mcp.MCPError: as for `Request.send`.
        pydantic_core.ValidationError: a page does not conform to the protocol, apart from its items.
    """
    if kind.capability(client.server_capabilities) is None:
        return ()
    meter = ListMeter(record.config.name, kind.what, record.config.limits)
    try:
        found = await _collected(_Pages(client, record, past, kind, meter), meter)
    except LimitExceeded as exc:
        record.catalog.note_over_limit(kind.what, [exc])
        raise
    record.catalog.note_over_limit(kind.what, meter.left_out)
    record.catalog.note_invalid(kind.what, meter.invalid)
    return found


async def _collected(pages: _Pages[Any, T], meter: ListMeter) -> tuple[T, ...]:
    found: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    time_slice = TimeSlice()
    for _ in range(MAX_PAGES):
        number, parts = await pages.fetch(cursor)
        meter.announce(number)
        for part in parts:
            await time_slice.checkpoint()
            for item in pages.kind.items(part):
                if meter.admits(item):
                    found.append(item)
                await time_slice.checkpoint()
            cursor = part.next_cursor
        if not cursor:  # some servers send an empty cursor with the last page
            return tuple(found)
        if cursor in seen:
            raise _endless(meter, f"repeats itself: page {len(seen) + 1} has the cursor of an earlier page")
        meter.follow(cursor)
        seen.add(cursor)
    raise _endless(meter, f"did not end after {MAX_PAGES} pages")


@frozen(eq=False)
class _Pages(Generic[Page, T]):
    """The pages of one list; see `all_pages` for the attributes."""

    client: Client
    record: ServerRecord
    past: PastSession | None
    kind: Kind[Page, T]
    meter: ListMeter

    async def fetch(self, cursor: str | None) -> tuple[int, Iterator[Page]]:
        """Request a page. Return the number of its items, and its parts, which are validated one by one."""
        past, absorb = self.past, None
        if past is None or needs_meta(self.client, self.record):
            meta = meta_for(self.client, self.record)
            try:
                page = await self.kind.fetch(self.client)(cursor=cursor, meta=meta)
            except ValidationError:
                # The session refuses the whole page. It is requested once more, for the items that are valid.
                if (past := self.record.session.past) is None:
                    raise
                absorb = getattr(self.client.session, "_absorb_tool_listing", None)
            else:
                return len(self.kind.items(page)), iter((page,))
        result = await past(self.kind.method, {} if cursor is None else {"cursor": cursor})
        without_later_fields(self.kind.method, self.client.protocol_version, result)
        items = result.get(self.kind.member)
        parts = self._parts(result, items)
        if absorb is not None and self.kind.method == "tools/list":
            parts = (absorb(part, complete=False) for part in parts)  # which arguments are headers, over HTTP
        return len(items) if type(items) is list else 0, parts

    def _parts(self, result: dict[str, Any], items: object) -> Iterator[Page]:
        if type(items) is not list or not items:
            yield self._parsed(result)
            return
        for start in range(0, len(items), PART):
            some = items[start : start + PART]
            yield self._valid(result, some)
            # Release them now, because to release thousands at once is a long step.
            items[start : start + PART] = [None] * len(some)

    def _valid(self, result: dict[str, Any], items: list[Any]) -> Page:
        """Return a page with those of the items that are valid."""
        try:
            return self._parsed({**result, self.kind.member: items})
        except ValidationError:
            self._parsed({**result, self.kind.member: []})  # raises if anything else is not valid
        valid = []
        for item in items:
            try:
                self._parsed({**result, self.kind.member: [item]})
            except ValidationError as exc:
                self.meter.refuse(item, first_problem(exc, self.record.session.masker, skip=2))
            else:
                valid.append(item)
        return self._parsed({**result, self.kind.member: valid})

    def _parsed(self, result: dict[str, Any]) -> Page:
        page: Page = parse_result(self.kind.method, self.client.protocol_version, result)
        return page


def _endless(meter: ListMeter, problem: str) -> LimitExceeded:
    return LimitExceeded(
        f"server {meter.server!r}: its list of {meter.what} {problem}; fix the server's pagination",
        server=meter.server,
    )
