"""Fetch all pages of a list, within the server's limits.

To validate a page of thousands of items takes a tenth of a second. So the items are validated a few at a time, with the
event loop in between; an item that is not valid is left out and does not cost its page. A page that cannot be parsed as
a whole is parsed item by item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import define, frozen
from mcp import MCPError
from pydantic_core import ValidationError

from ..._errors import LimitExceeded
from ..._tasks import TimeSlice
from ..._text import ItemReader, UnparsedText, UnreadableItem
from ..policy import parse_result, without_later_fields
from ._list_meter import ListMeter
from ._plain import first_problem
from ._request import Request, meta_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mcp.types import PaginatedResult, ServerCapabilities

    from ..record import ServerRecord
    from ..session import Session

T = TypeVar("T")
Page = TypeVar("Page", bound="PaginatedResult")

MAX_PAGES: Final = 1000
"""Pages of one list. The largest servers list some hundred tools; this only stops a list that never ends."""

PART: Final = 16
"""Items that are validated in one step: tools of common size take half a millisecond."""


@frozen(eq=False)
class Kind(Generic[Page, T]):
    """A kind of items that a server lists.

    Attributes:
        method: the protocol's method.
        what: the kind, in the plural, for messages.
        member: the name of the items in the JSON of a page.
        capability: returns the server's capability; without it the list is empty, and nothing is sent.
        items: returns the items of a page.
    """

    method: str
    what: str
    member: str
    capability: Callable[[ServerCapabilities], object | None]
    items: Callable[[Page], Sequence[T]]


@define(eq=False)
class ListAll(Request[tuple[T, ...]]):
    """List all pages of one kind of item."""

    kind: Kind[Any, T]

    @property
    def operation(self) -> str:
        """The protocol's method."""
        return self.kind.method

    async def send(self, session: Session, record: ServerRecord) -> tuple[T, ...]:
        """Request every page.

        Raises:
            LimitExceeded, mcp.MCPError: as for `all_pages`.
        """
        return await all_pages(session, record, self.kind)


async def all_pages(session: Session, record: ServerRecord, kind: Kind[Page, T]) -> tuple[T, ...]:
    """Fetch a list page by page; leave out items that exceed a limit or are not valid, and report them.

    Args:
        session: the session of the connection.
        record: the server's record.
        kind: the kind of items.

    Raises:
        LimitExceeded: the list is too large, has too many pages, or repeats a cursor.
        mcp.MCPError: as for `Request.send`.
        pydantic_core.ValidationError: a page does not conform to the protocol, apart from its items.
    """
    if kind.capability(session.capabilities) is None:
        return ()
    meter = ListMeter(record.config.name, kind.what, record.config.limits)
    try:
        found = await _collected(_Pages(session, record, kind, meter), meter)
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

    session: Session
    record: ServerRecord
    kind: Kind[Page, T]
    meter: ListMeter

    async def fetch(self, cursor: str | None) -> tuple[int, Iterator[Page]]:
        """Request a page. Return the number of its items, and its parts, which are validated one by one."""
        params = {} if cursor is None else {"cursor": cursor}
        try:
            result = await self.session.ask(self.kind.method, params, meta=meta_for(self.session, self.record))
        except MCPError as exc:
            result = await self._readable(exc)
        without_later_fields(self.kind.method, self.session.version, result)
        items = result.get(self.kind.member)
        return len(items) if type(items) is list else 0, self._parts(result, items)

    async def _readable(self, error: MCPError) -> dict[str, Any]:
        """Return the result of an answer that cannot be parsed as a whole, with an `UnreadableItem` for each bad item.

        Raises:
            mcp.MCPError: it is another error, or more than an item cannot be parsed, or the page is too large.
        """
        unparsed, limit = error.data, self.record.config.limits.max_list_bytes
        if not isinstance(unparsed, UnparsedText) or len(unparsed.text) > limit:
            raise error
        time_slice = TimeSlice()
        reader = ItemReader(unparsed.text, ("result", self.kind.member))
        try:
            for _ in reader.steps():
                await time_slice.checkpoint()
        except ValueError:
            raise error from None
        result: dict[str, Any] = reader.value["result"]
        return result

    def _parts(self, result: dict[str, Any], items: object) -> Iterator[Page]:
        if type(items) is not list or not items:
            yield self._parsed(result)
            return
        # Copied, because a server in this process may keep what it has returned.
        result, items = {**result, self.kind.member: []}, list(items)
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
            if isinstance(item, UnreadableItem):
                self.meter.refuse(item, item.problem)
                continue
            try:
                self._parsed({**result, self.kind.member: [item]})
            except ValidationError as exc:
                self.meter.refuse(item, first_problem(exc, self.record.session.masker, skip=2))
            else:
                valid.append(item)
        return self._parsed({**result, self.kind.member: valid})

    def _parsed(self, result: dict[str, Any]) -> Page:
        page: Page = parse_result(self.kind.method, self.session.version, result)
        return page


def _endless(meter: ListMeter, problem: str) -> LimitExceeded:
    return LimitExceeded(
        f"server {meter.server!r}: its list of {meter.what} {problem}; fix the server's pagination",
        server=meter.server,
    )
