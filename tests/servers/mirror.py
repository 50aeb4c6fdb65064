"""The requests of this library and of the SDK's client to the same server, as the server saw them.

A *deed* is one thing that a program asks of a client, in both spellings. `play` has a client do some deeds over one
connection, and returns what each has sent. Ids and progress tokens differ in value, so `labelled` replaces them by the
place of their request: what agreed with itself before still does.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import trio
from attrs import frozen
from mcp import Client, StdioServerParameters
from mcp.types import LOG_LEVEL_META_KEY, Implementation, PromptReference, ResourceTemplateReference
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Backoff, Callbacks, HealthPolicy, Http, ServerConfig, ServerRef, Stdio, open_servers

from .asking import ELICIT, ROOTS, SAMPLE, accept, folders, say
from .mirror_server import SECOND, command
from .processes import BOUND, eventually

Era = Literal["legacy", "modern"]
Kind = Literal["stdio", "json", "events"]
Json = dict[str, Any]

ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
KINDS: Final[tuple[Kind, ...]] = ("stdio", "json", "events")

INFO: Final = Implementation(name="mirrored", version="1", title="The mirrored")

BOTH: Final[Json] = {"n": None, "l": [None, {"c": "é\u2028"}], "f": 1.5, "i": 2**60, "b": True, "e": {}}
"""Arguments of every kind."""

META: Final[Any] = {"k": [1], "a.b/c": None}

ERROR_LEVEL: Final[Any] = {LOG_LEVEL_META_KEY: "error"}

SPAN: Final = NonRecordingSpan(SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=TraceFlags(1)))

NO_GAPS: Final = Backoff(first=BOUND, initial=BOUND, maximum=BOUND)
"""The `GAP_BACKOFF` of tests that look at each request. Once its notification stream has opened, a server is asked for
its lists again: on a slow machine while a later deed is done."""

UNSHOWN: Final = ("host", "user-agent", "content-length")
"""Headers that belong to the connection, not to the request."""


class Reports(list[tuple[float, float | None, str | None]]):
    """A callback for progress."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        await trio.lowlevel.checkpoint()
        self.append((progress, total, message))


@frozen
class Deed:
    """One request, in the spelling of this library and in that of the SDK.

    Attributes:
        ours: asks it of a `ServerRef`.
        theirs: asks it of an `mcp.Client`.
        eras: in which there is such a request.
        until: the deed is over once the server was sent so many messages of a method.
        kinds: the transports over which it is done.
    """

    ours: Callable[[ServerRef], Awaitable[object]]
    theirs: Callable[[Client], Awaitable[object]]
    eras: tuple[Era, ...] = ERAS
    until: Callable[[Era, Kind], tuple[str, int] | None] = lambda era, kind: None
    kinds: tuple[Kind, ...] = KINDS


async def each_page(fetch: Callable[..., Awaitable[Any]]) -> None:
    """Fetch both pages of a list."""
    assert (await fetch()).next_cursor == SECOND
    await fetch(cursor=SECOND)


def keyword_of(call_tool: Callable[..., Awaitable[object]]) -> str:
    """Return how the argument for progress is called."""
    return "progress" if isinstance(getattr(call_tool, "__self__", None), ServerRef) else "progress_callback"


async def with_progress(call_tool: Callable[..., Awaitable[object]], **options: Any) -> None:
    """Make a call whose server reports progress twice; its reports arrive only if they have the token of the call."""
    reports = Reports()
    await call_tool("say", {"reports": 2}, **{keyword_of(call_tool): reports}, **options)
    await eventually(lambda: len(reports) == 2)
    assert reports == [(1, 2, None), (2, 2, None)]


async def leave(call_tool: Callable[..., Awaitable[object]]) -> None:
    """Leave a call that the server has taken."""
    reports = Reports()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(call_tool, "mute", {"reports": 1}, **{keyword_of(call_tool): reports}))
        await eventually(lambda: bool(reports))
        nursery.cancel_scope.cancel("it leaves")


async def leave_plain(call_tool: Callable[..., Awaitable[object]]) -> None:
    """Leave a call without options that was written to the pipe."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_tool, "mute")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel("it leaves")


def cancelled(era: Era, kind: Kind) -> tuple[str, int] | None:
    """Return the notice to which a request that is left leads; over HTTP since 2026-07-28, its response is closed."""
    return None if era == "modern" and kind != "stdio" else ("notifications/cancelled", 1)


def unsubscribed(era: Era, kind: Kind) -> tuple[str, int] | None:
    """Return what ends a subscription to two resources."""
    return ("resources/unsubscribe", 2) if era == "legacy" else cancelled(era, kind)


async def in_span(call_tool: Callable[..., Awaitable[object]], **options: Any) -> None:
    """Make a call in a span of the caller."""
    with trace.use_span(SPAN):
        await call_tool("say", BOTH, **options)


async def at_level(ref: ServerRef) -> None:
    """Set the log level, which is sent with each request from now on."""
    await ref.set_log_level("error")
    await ref.call_tool("say")


async def subscribed(ref: ServerRef) -> None:
    """Subscribe, and unsubscribe."""
    async with ref.subscribe("a:b", "a:c"):
        pass


async def subscribed_by_sdk(client: Client) -> None:
    """Subscribe, and unsubscribe, as the era has it."""
    if client.protocol_version >= "2026":
        async with client.listen(resource_subscriptions=["a:b", "a:c"]):
            pass
    else:
        for uri in ("a:b", "a:c"):
            await client.subscribe_resource(uri)
        for uri in ("a:b", "a:c"):
            await client.unsubscribe_resource(uri)


def asked(*questions: Json, **more: Any) -> Deed:
    """Return a call in which the server asks."""
    arguments = {"questions": list(questions), **more}
    return Deed(lambda ref: ref.call_tool("ask", arguments), lambda client: client.call_tool("ask", arguments))


PROMPT: Final = PromptReference(name="greet")
TEMPLATE: Final = ResourceTemplateReference(uri="a:{x}")
ARGUMENT: Final = {"name": "x", "value": "é"}

DEEDS: Final[dict[str, Deed]] = {
    "tools": Deed(lambda ref: ref.list_tools(), lambda client: each_page(client.list_tools)),
    "prompts": Deed(lambda ref: ref.list_prompts(), lambda client: each_page(client.list_prompts)),
    "resources": Deed(lambda ref: ref.list_resources(), lambda client: each_page(client.list_resources)),
    "templates": Deed(
        lambda ref: ref.list_resource_templates(), lambda client: each_page(client.list_resource_templates)
    ),
    "call": Deed(lambda ref: ref.call_tool("say", BOTH), lambda client: client.call_tool("say", BOTH)),
    "call without arguments": Deed(lambda ref: ref.call_tool("say"), lambda client: client.call_tool("say")),
    "call with no arguments": Deed(lambda ref: ref.call_tool("say", {}), lambda client: client.call_tool("say", {})),
    "call of a name that is not ASCII": Deed(
        lambda ref: ref.call_tool("wörk"), lambda client: client.call_tool("wörk")
    ),
    "call with arguments in headers": Deed(
        lambda ref: ref.call_tool("where", {"region": "ö\n ", "count": 7}),
        lambda client: client.call_tool("where", {"region": "ö\n ", "count": 7}),
    ),
    "call with an output schema": Deed(lambda ref: ref.call_tool("shaped"), lambda client: client.call_tool("shaped")),
    "call with progress": Deed(
        lambda ref: with_progress(ref.call_tool), lambda client: with_progress(client.call_tool)
    ),
    "call with _meta": Deed(
        lambda ref: ref.call_tool("say", BOTH, meta=META),
        lambda client: client.call_tool("say", BOTH, meta=META),
    ),
    "call with progress and _meta": Deed(
        lambda ref: with_progress(ref.call_tool, meta={"k": 1}),
        lambda client: with_progress(client.call_tool, meta={"k": 1}),
    ),
    "call in a span": Deed(lambda ref: in_span(ref.call_tool), lambda client: in_span(client.call_tool)),
    "call in a span with _meta": Deed(
        lambda ref: in_span(ref.call_tool, meta={"k": 1}), lambda client: in_span(client.call_tool, meta={"k": 1})
    ),
    "resource": Deed(lambda ref: ref.read_resource("a:b"), lambda client: client.read_resource("a:b")),
    "prompt": Deed(
        lambda ref: ref.get_prompt("greet", {"x": "é"}), lambda client: client.get_prompt("greet", {"x": "é"})
    ),
    "prompt without arguments": Deed(lambda ref: ref.get_prompt("greet"), lambda client: client.get_prompt("greet")),
    "completion": Deed(lambda ref: ref.complete(PROMPT, ARGUMENT), lambda client: client.complete(PROMPT, ARGUMENT)),
    "completion with context": Deed(
        lambda ref: ref.complete(TEMPLATE, ARGUMENT, {"y": "z"}),
        lambda client: client.complete(TEMPLATE, ARGUMENT, {"y": "z"}),
    ),
    "ping": Deed(lambda ref: ref.check_health(), lambda client: client.send_ping(), ("legacy",)),
    "health": Deed(
        lambda ref: ref.check_health(),
        lambda client: client.session.send_discover(client.protocol_version),
        ("modern",),
    ),
    "log level": Deed(
        lambda ref: ref.set_log_level("error"), lambda client: client.set_logging_level("error"), ("legacy",)
    ),
    "subscription": Deed(subscribed, subscribed_by_sdk, until=unsubscribed),
    "plain call that is left": Deed(
        lambda ref: leave_plain(ref.call_tool),
        lambda client: leave_plain(client.call_tool),
        until=cancelled,
        kinds=("stdio",),
    ),
    "call that is left": Deed(
        lambda ref: leave(ref.call_tool), lambda client: leave(client.call_tool), until=cancelled
    ),
    "change of roots": Deed(
        lambda ref: ref.send_roots_list_changed(),
        lambda client: client.send_roots_list_changed(),
        ("legacy",),
        lambda era, kind: ("notifications/roots/list_changed", 1),
    ),
    "question about a form": asked(ELICIT),
    "question for a model": asked(SAMPLE),
    "question for the roots": asked(ROOTS),
    "three questions": asked(ELICIT, SAMPLE, ROOTS),
    "two rounds of questions": asked(ROOTS, rounds=2),
    "call at a log level": Deed(at_level, lambda client: client.call_tool("say", meta=ERROR_LEVEL), ("modern",)),
}


class Log:
    """The notes of the server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def entries(self) -> list[Json]:
        """All of it."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    @property
    def posts(self) -> list[Json]:
        """Messages."""
        return [each for each in self.entries if each["message"] is not None]

    @property
    def others(self) -> Counter[str]:
        """HTTP requests without a message, each with its headers, apart from those that the SDK writes for messages."""
        return Counter(f"{each['verb']} {shown(each, OF_MESSAGES)}" for each in self.entries if each["message"] is None)

    def count(self, method: str) -> int:
        """Return how many messages have this method."""
        return sum(each["message"].get("method") == method for each in self.posts)


OF_MESSAGES: Final = frozenset({"accept", "cache-control", "content-type"})
"""A GET or DELETE has no content, and the answer to it is a stream or nothing; the SDK sends it as if it had."""


def shown(entry: Json, other: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the headers that belong to a request."""
    left_out = other.union(UNSHOWN)
    return dict(sorted((name, value) for name, value in entry.get("headers", []) if name not in left_out))


def labelled(entries: list[Json], starts: list[int]) -> list[list[Json]]:
    """Replace the ids of requests, and the tokens that a request brings, by its place in its deed.

    Answers follow the requests of their deed in the order of the questions: they may be sent concurrently.
    """
    labels: dict[object, str] = {}
    messages = []
    for number, entry in enumerate(entries):
        message = entry["message"]
        params = message.get("params") or {}
        if "method" in message and "id" in message:
            assert message["id"] not in labels, "an id is used twice"
            place = number - max(start for start in starts if start <= number)
            labels[message["id"]] = f"request {place}"
            message["id"] = f"request {place}"
            if "progressToken" in (meta := params.get("_meta") or {}):
                meta["progressToken"] = f"token {place}"
        if message.get("method") == "notifications/cancelled":
            params["requestId"] = labels[params["requestId"]]
        messages.append({"headers": shown(entry), "message": message})
    ends = [*starts[1:], None]
    return [sorted(messages[start:end], key=question_of) for start, end in zip(starts, ends, strict=True)]


def question_of(entry: Json) -> str:
    """Return the id of the question that a message answers; nothing for any other message."""
    message = entry["message"]
    return "" if "method" in message else str(message["id"])


@contextmanager
def running(era: Era, kind: Kind, log: Path) -> Iterator[str]:
    """Run the server over HTTP; yield its URL."""
    program, arguments = command(era, kind, str(log))
    pipe = subprocess.PIPE
    with subprocess.Popen([program, *arguments], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        process.communicate()


@asynccontextmanager
async def open_ours(era: Era, kind: Kind, log: Path, **options: Any) -> AsyncIterator[ServerRef]:
    """Connect this library."""
    if kind == "stdio":
        program, arguments = command(era, kind, str(log))
        async with connected(Stdio(program, arguments), **options) as ref:
            yield ref
        return
    with running(era, kind, log) as url:
        async with connected(Http(url), **options) as ref:
            yield ref


@asynccontextmanager
async def connected(transport: Any, **options: Any) -> AsyncIterator[ServerRef]:
    """Connect this library by a transport."""
    callbacks = Callbacks(sampling=say, elicitation=accept, roots=folders)
    quiet = HealthPolicy(interval=None)
    config = ServerConfig("a", transport, required=True, callbacks=callbacks, client_info=INFO, health=quiet, **options)
    async with open_servers(config) as servers:
        yield servers["a"]


@asynccontextmanager
async def open_theirs(era: Era, kind: Kind, log: Path, **options: Any) -> AsyncIterator[Client]:
    """Connect the SDK's client."""
    callbacks = {"sampling_callback": say, "elicitation_callback": accept, "list_roots_callback": folders}
    options = {**callbacks, "client_info": INFO, "cache": None, **options}
    if kind == "stdio":
        program, arguments = command(era, kind, str(log))
        async with Client(StdioServerParameters(command=program, args=list(arguments)), **options) as client:
            yield client
        return
    with running(era, kind, log) as url:
        async with Client(url, **options) as client:
            yield client
