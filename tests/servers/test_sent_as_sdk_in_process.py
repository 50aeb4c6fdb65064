"""A server in this process is sent what the SDK's own client sends it, in both eras.

Each client connects to a server of its own, whose middleware notes every request and notification before it is
validated. Ids and progress tokens differ in value, so they are replaced.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, Final

import pytest
import trio
from mcp import Client
from mcp.types import Tool
from trio.testing import wait_all_tasks_blocked

from mcp_actors import InProcess, ServerRef

from .asking import accept, folders, say
from .library import Library
from .mirror import DEEDS, ERAS, INFO, Deed, Era, Json, connected, keyword_of
from .processes import BOUND
from .test_sent_as_sdk import Difference

pytestmark = [pytest.mark.own_way, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

MODES: Final[dict[Era, Any]] = {"legacy": "legacy", "modern": "auto"}

TOOLS: Final = [Tool(name=name, input_schema={"type": "object"}) for name in ("say", "wörk", "search")]

Sent = list[Json]


async def all_pages(fetch: Callable[..., Awaitable[Any]]) -> None:
    """Fetch every page of a list by the SDK's client."""
    cursor = (await fetch()).next_cursor
    while cursor is not None:
        cursor = (await fetch(cursor=cursor)).next_cursor


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    """Take a report."""
    await trio.lowlevel.checkpoint()


def following(call_tool: Callable[..., Awaitable[object]], **options: Any) -> Awaitable[object]:
    """Make a call with a callback for progress."""
    return call_tool("search", {"q": "é"}, **{keyword_of(call_tool): ignore}, **options)


SHARED: Final = (
    "call",
    "call without arguments",
    "call with no arguments",
    "call of a name that is not ASCII",
    "call with _meta",
    "call in a span",
    "call in a span with _meta",
    "resource",
    "prompt",
    "prompt without arguments",
    "completion",
    "completion with context",
    "ping",
    "health",
    "log level",
    "change of roots",
    "call at a log level",
    "subscription",
)
"""The deeds of the other transports that make sense here."""

HERE: Final[dict[str, Deed]] = {
    "tools": Deed(lambda ref: ref.list_tools(), lambda client: all_pages(client.list_tools)),
    "resources": Deed(lambda ref: ref.list_resources(), lambda client: all_pages(client.list_resources)),
    "prompts": Deed(lambda ref: ref.list_prompts(), lambda client: all_pages(client.list_prompts)),
    "templates": Deed(
        lambda ref: ref.list_resource_templates(), lambda client: all_pages(client.list_resource_templates)
    ),
    "call with progress": Deed(lambda ref: following(ref.call_tool), lambda client: following(client.call_tool)),
    "call with progress and _meta": Deed(
        lambda ref: following(ref.call_tool, meta={"k": 1}), lambda client: following(client.call_tool, meta={"k": 1})
    ),
    **{name: DEEDS[name] for name in SHARED},
}


class Noting:
    """A server, and what it was sent."""

    def __init__(self) -> None:
        self.library = Library()
        self.library.tools = TOOLS  # the SDK's client lists the tools again to call one that is not listed
        self.sent: Sent = []
        self.library.server.middleware.append(self.note)

    async def note(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Note one message, and pass it on."""
        message: Json = {"method": ctx.method, "is request": ctx.request_id is not None}
        if ctx.params is not None:
            message["params"] = json.loads(json.dumps(ctx.params))
        if "progressToken" in (meta := message.get("params", {}).get("_meta", {})):
            assert meta["progressToken"] == ctx.request_id
            meta["progressToken"] = "the id of the request"
        self.sent.append(message)
        return await call_next(ctx)


@asynccontextmanager
async def open_ours(era: Era, noting: Noting) -> AsyncIterator[ServerRef]:
    """Connect this library."""
    async with connected(InProcess(noting.library.server), protocol=MODES[era]) as ref:
        yield ref


@asynccontextmanager
async def open_theirs(era: Era, noting: Noting) -> AsyncIterator[Client]:
    """Connect the SDK's client."""
    callbacks: Any = {"sampling_callback": say, "elicitation_callback": accept, "list_roots_callback": folders}
    async with Client(noting.library.server, mode=MODES[era], client_info=INFO, cache=None, **callbacks) as client:
        yield client


async def sent_by(era: Era, open_client: Any, side: str) -> dict[str, Sent]:
    """Do all deeds; return what each has sent."""
    noting, sent = Noting(), dict[str, Sent]()
    async with open_client(era, noting) as client:
        await wait_all_tasks_blocked()
        sent["handshake"], noting.sent = noting.sent, []
        for name, deed in HERE.items():
            if era in deed.eras:
                await getattr(deed, side)(client)
                await wait_all_tasks_blocked()
                sent[name], noting.sent = noting.sent, []
    sent["end"] = noting.sent
    return sent


def without(*methods: str) -> Callable[[Sent], Sent]:
    """Return what leaves the messages of some methods out."""
    return lambda sent: [each for each in sent if each["method"] not in methods]


def bare(leave_out: Callable[[str, object], bool]) -> Callable[[Sent], Sent]:
    """Return what leaves some members of each ``_meta`` out."""

    def undo(sent: Sent) -> Sent:
        undone = deepcopy(sent)
        for each in undone:
            meta = each["params"]["_meta"]
            each["params"]["_meta"] = {key: value for key, value in meta.items() if not leave_out(key, value)}
        return undone

    return undo


DIFFERENCES: Final = (
    Difference("a server shows its tools as soon as it is connected", ("handshake",), without("tools/list")),
    Difference("changes of its lists are awaited", ("handshake",), without("subscriptions/listen"), ("modern",)),
    Difference(
        "what the caller gives is sent as it is, also a null",
        ("call with _meta",),
        bare(lambda key, value: value is None),
    ),
    Difference(
        "there is a token for progress by every way; the SDK passes the callback itself to such a server",
        ("call with progress", "call with progress and _meta"),
        bare(lambda key, value: key == "progressToken"),
        ("modern",),
    ),
)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_in_this_process_is_sent_what_the_sdk_sends(era: Era) -> None:
    with trio.fail_after(BOUND):
        ours, theirs = await sent_by(era, open_ours, "ours"), await sent_by(era, open_theirs, "theirs")
    for row in DIFFERENCES:
        for name in row.deeds:
            if era in row.eras:
                undone = row.undo(ours[name])
                assert undone != ours[name], f"in {name!r} there is no such difference any more: {row.reason}"
                ours[name] = undone
    assert all(sent for name, sent in theirs.items() if name != "end")
    for name, sent in theirs.items():
        assert ours[name] == sent, name
