"""Fetch all pages of a list, within the server's configured limits.

A server may list thousands of items, oversized items, or pages without an end. A bad item is left out and reported to
the catalogue; the rest of its page is kept. A list that is too large raises `LimitExceeded`. Items are validated in
small parts, with checkpoints between.

Owns: nothing.
Writes: problems in the server's catalogue; the server's kept resources and prompts; requests to the server.
Calls: config, servers, transports, _request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import (
    METHOD_NOT_FOUND,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    Prompt,
    Resource,
    ResourceTemplate,
)
from pydantic_core import ValidationError, to_json

from ..._errors import LimitExceeded, ServerError
from ..._json import ItemReader, UnparsedText, UnreadableItem, bytes_in, measured
from ..._tasks import TimeSlice
from ..._text import plain_text
from ...config import Limits
from ...transports import ConnectionOver
from .._eras import first_problem, parse_result, without_later_fields
from ._request import Request, meta_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.types import ServerCapabilities

    from .._deadlines import Deadline
    from .._session import ConnectionSession
    from ..record import ConnectionRecord


class ListPage(Protocol):
    next_cursor: str | None
    ttl_ms: int


T = TypeVar("T")
Page = TypeVar("Page", bound=ListPage)

MAX_PAGES: Final = 1000
"""Stops a list that never ends. The largest servers list some hundred tools."""

ITEMS_A_STEP: Final = 16
"""Items validated in one step: tools of common size take half a millisecond, thousands a tenth of a second."""


@frozen(eq=False)
class Kind(Generic[Page, T]):
    """A kind of items that a server lists.

    Attributes:
        what: the kind, in the plural, for messages.
        member: the name of the items in a page.
        capability: returns the server's capability; without it the list is empty, and nothing is sent.
    """

    method: str
    what: str
    member: str
    capability: Callable[[ServerCapabilities], object | None]
    items: Callable[[Page], Sequence[T]]


@define(eq=False)
class ListAll(Request[tuple[T, ...]]):
    kind: Kind[Any, T]

    @property
    def operation(self) -> str:
        return self.kind.method

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> tuple[T, ...]:
        return await all_pages(session, record, self.kind, self.deadline)


async def all_pages(
    session: ConnectionSession, record: ConnectionRecord, kind: Kind[Page, T], attempt: Deadline | None
) -> tuple[T, ...]:
    """Fetch a list page by page; leave out and report items that exceed a limit or are not valid.

    A repeated cursor ends the list.

    Raises:
        LimitExceeded: the list is too large, or has too many pages.
        mcp.MCPError: as for `Request.send`.
        pydantic_core.ValidationError: a page does not conform to the protocol, apart from its items.
    """
    lasting = record.catalog.lasting
    lasting[kind.method] = math.inf if kind.capability(session.capabilities) is None else 0
    if lasting[kind.method]:
        return ()
    meter = ListMeter(record.config.name, kind.what, record.config.limits)
    try:
        found = await _collected(_ListPages(session, record, kind, meter, attempt), meter)
    except LimitExceeded as exc:
        record.catalog.note_over_limit(kind.what, [exc])
        raise
    except MCPError as exc:
        if exc.code == METHOD_NOT_FOUND:
            lasting[kind.method] = math.inf
        raise
    record.catalog.note_over_limit(kind.what, meter.left_out)
    record.catalog.note_invalid(kind.what, meter.invalid)
    lasting[kind.method] = meter.lasting
    return found


async def _collected(pages: _ListPages[Any, T], meter: ListMeter) -> tuple[T, ...]:
    found: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    begins: list[int] = []
    time_slice = TimeSlice()
    for _ in range(MAX_PAGES):
        begins.append(len(found))
        number, parts = await pages.fetch(cursor)
        meter.announce(number)
        for part in parts:
            await time_slice.checkpoint()
            for item in pages.kind.items(part):
                if meter.admits(item):
                    found.append(item)
                await time_slice.checkpoint()
            cursor, meter.lasting = part.next_cursor, min(meter.lasting, part.ttl_ms)
        if not cursor and (cursor is None or not pages.session.modern):
            return tuple(found)  # before 2026-07-28 an empty cursor came with the last page; since then it is a cursor
        if cursor in seen:
            where = f"page {len(begins)} has the cursor of an earlier page"
            meter.invalid.append(f"its list of {meter.what} ends early: {where}; fix the server's pagination")
            return _without_repeated(found, begins)
        meter.follow(cursor)
        seen.add(cursor)
    problem = f"its list of {meter.what} did not end after {MAX_PAGES} pages; fix the server's pagination"
    raise LimitExceeded(f"server {meter.server!r}: {problem}", server=meter.server)


def _without_repeated(found: list[T], begins: list[int]) -> tuple[T, ...]:
    pages = (found[begin:end] for begin, end in pairwise([*begins, len(found)]))
    return tuple(chain(*{to_json(page): page for page in pages}.values()))


@frozen(eq=False)
class _ListPages(Generic[Page, T]):
    session: ConnectionSession
    record: ConnectionRecord
    kind: Kind[Page, T]
    meter: ListMeter
    attempt: Deadline | None

    async def fetch(self, cursor: str | None) -> tuple[int, Iterator[Page]]:
        """Request a page. Return the number of items, and an iterator that validates a part at each step."""
        params = {} if cursor is None else {"cursor": cursor}
        try:
            meta = meta_for(self.session, self.record)
            result = await self.session.ask(self.kind.method, params, attempt=self.attempt, meta=meta)
        except MCPError as exc:
            result = await self._readable(exc)
        if isinstance(result.get("nextCursor"), UnreadableItem):
            problem = "the cursor to its next page is not valid UTF-8"
            self.meter.invalid.append(f"its list of {self.meter.what} ends early: {problem}; fix the server")
            del result["nextCursor"]
        without_later_fields(self.kind.method, self.session.version, result)
        items = result.get(self.kind.member)
        return len(items) if type(items) is list else 0, self._parts(result, items)

    async def _readable(self, error: MCPError) -> dict[str, Any]:
        """Return the result of an answer that cannot be parsed as a whole, with an `UnreadableItem` for each bad item.

        Raises:
            mcp.MCPError: an unrelated error, or the page is too large, or text outside the items cannot be parsed.
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
        # Copied, because a server in this process may keep its result.
        result, items = {**result, self.kind.member: []}, list(items)
        for start in range(0, len(items), ITEMS_A_STEP):
            some = items[start : start + ITEMS_A_STEP]
            yield self._valid(result, some)
            # Release the items part by part: the release of thousands at once is a long step.
            items[start : start + ITEMS_A_STEP] = [None] * len(some)

    def _valid(self, result: dict[str, Any], items: list[Any]) -> Page:
        member = self.kind.member
        try:
            page: Page = parse_result(self.kind.method, self.session.version, {**result, member: items})
            return page
        except ValidationError:
            result = {**result, member: []}
            self._parsed(result)  # raises if anything else cannot be read
        valid = []
        for item in items:
            if isinstance(item, UnreadableItem):
                self.meter.refuse(item, item.problem)
                continue
            alone = {**result, member: [item]}
            try:
                self._parsed(alone)
            except ValidationError as exc:
                self.meter.refuse(item, first_problem(exc, self.record.session.masker, skip=2))
            else:
                valid += alone[member]
        return self._parsed({**result, member: valid})

    def _parsed(self, result: dict[str, Any]) -> Page:
        page: Page = self.session.read(self.kind.method, result)
        return page


# --- The requests that list resources, their templates and prompts ----------------------------------------------------


RESOURCES: Final[Kind[ListResourcesResult, Resource]] = Kind(
    "resources/list", "resources", "resources", lambda can: can.resources, lambda page: page.resources
)

TEMPLATES: Final[Kind[ListResourceTemplatesResult, ResourceTemplate]] = Kind(
    "resources/templates/list",
    "resource templates",
    "resourceTemplates",
    lambda can: can.resources,
    lambda page: page.resource_templates,
)

PROMPTS: Final[Kind[ListPromptsResult, Prompt]] = Kind(
    "prompts/list", "prompts", "prompts", lambda can: can.prompts, lambda page: page.prompts
)


@define(eq=False)
class KeepResources(Request[None]):
    operation: ClassVar[str] = "resources/list"

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Request every page of each list, and show the lists.

        A list whose request failed keeps its earlier items; then all lists are marked as outdated.

        Raises:
            Exception: as for `all_pages`, for the first failure.
        """
        kept, failures = record.server.resources, list[Exception]()
        ticket, lists = kept.freshness.begin(), list[Any]()
        kinds: tuple[Kind[Any, Any], ...] = (RESOURCES, TEMPLATES, PROMPTS)
        for kind, before in zip(kinds, (kept.resources, kept.templates, kept.prompts), strict=True):
            try:
                lists.append(await all_pages(session, record, kind, self.deadline))
            except (ServerError, ConnectionOver, MCPError, ValidationError) as exc:
                missing = math.isinf(record.catalog.lasting[kind.method])  # the server does not support this list
                lists.append(() if missing else before)
                failures += [] if missing else [exc]
        kept.show(ticket, *lists)
        if failures:
            kept.mark_stale()
            raise failures[0]


# --- Leave out items of a list that are too large or invalid ----------------------------------------------------------

# Unchecked items may be deep or huge, so `measured` walks them without recursion and ends early.


@define(eq=False)
class ListMeter:
    """Measures one list, item by item, as it arrives.

    Attributes:
        left_out: one error for each item beyond a limit.
        invalid: one phrase for each invalid item.
        lasting: for how many milliseconds the list holds: the least of its pages.
    """

    server: str
    what: str
    limits: Limits
    left_out: list[LimitExceeded] = field(factory=list, init=False)
    invalid: list[str] = field(factory=list, init=False)
    lasting: float = field(default=math.inf, init=False)
    _number: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)

    def announce(self, number: int) -> None:
        """Count a page's items before measuring.

        Raises:
            LimitExceeded: the server lists more tools than allowed.
        """
        self._number += number
        if self.what == "tools" and self._number > self.limits.max_tools:
            raise self._refused(_over(f"it lists {self._number} tools or more", self.limits.max_tools, "max_tools"))

    def admits(self, item: Any) -> bool:
        """Measure one item, a model of the SDK. Return False if it exceeds a limit, and add the error to `left_out`.

        Raises:
            LimitExceeded: the list as a whole is too large.
        """
        members = dict(item)  # not model_dump(), which recurses
        excess = next(self._excesses(members), None)
        if self._size > (limit := self.limits.max_list_bytes):
            found = f"its list of {self.what} takes {self._size} bytes or more"
            raise self._refused(_over(found, limit, "max_list_bytes"))
        if excess is None:
            return True
        self.left_out.append(self._refused(f"{self._left_out(members.get('name'))}: {excess}"))
        return False

    def refuse(self, item: object, reason: str) -> None:
        name = item.name if isinstance(item, UnreadableItem) else item.get("name") if isinstance(item, dict) else None
        self.invalid.append(f"{self._left_out(name if isinstance(name, str) else None)}: {reason}; fix the server")

    def _left_out(self, name: str | None) -> str:
        shown = "without a name" if name is None else repr(plain_text(name, limit=80))
        return f"{self.what[:-1]} {shown} is left out"

    def follow(self, cursor: str) -> None:
        """Check that the cursor to the next page is short enough to be sent back.

        Raises:
            LimitExceeded: the cursor is too long.
        """
        if len(cursor) > (limit := self.limits.max_text_chars):
            found = f"the cursor to the next page of its {self.what} has {len(cursor)} characters"
            raise self._refused(_over(found, limit, "max_text_chars"))

    def _refused(self, excess: str) -> LimitExceeded:
        return LimitExceeded(f"server {self.server!r}: {excess}, if you trust the server", server=self.server)

    def _excesses(self, members: Mapping[str, Any]) -> Iterator[str]:
        limits = self.limits
        for member, value in members.items():
            what = member.replace("_", " ")
            if isinstance(value, str):
                self._size += bytes_in(value)
                if len(value) > limits.max_text_chars:
                    yield _over(f"its {what} has {len(value)} characters", limits.max_text_chars, "max_text_chars")
            elif value is not None:
                enough = 2 * limits.max_schema_bytes  # for an error that says by how much the value is too large
                size, depth, complete = measured(value, enough)
                self._size += min(size, enough)
                more = "" if complete else "more than "
                if depth > limits.max_schema_depth:
                    found = f"the JSON of its {what} is nested {more}{depth} levels deep"
                    yield _over(found, limits.max_schema_depth, "max_schema_depth")
                if size > limits.max_schema_bytes:
                    found = f"the JSON of its {what} takes {more or 'about '}{size} bytes"
                    yield _over(found, limits.max_schema_bytes, "max_schema_bytes")


def _over(excess: str, limit: int, setting: str) -> str:
    return f"{excess}, and the limit is {limit}; set limits=Limits({setting}=…) to allow more"
