"""List tools, prompts and resources for clients; find the server of each.

Servers come, go and change their lists at any moment. The group keeps the tools. `Front` observes the group, keeps the
prompts and resources, and requests both again when they may have changed.

Owns: copies of servers' prompts and resources; tasks that update the copies.
Writes: observers of the group; requests to servers for prompts and resources; the log. Starts lazy servers.
Calls: servers, servers.connection.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import trio
from attrs import define, evolve, field
from mcp import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp.types import METHOD_NOT_FOUND

from .._errors import ServerUnavailable
from .._foreign import Log
from .._text import problem_of
from ..servers import PromptsChanged, ResourcesChanged, ServerAdded, ServerRemoved, StateChanged, ToolsChanged
from ..servers.connection import AFTER_FAILURE, keep_trying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..catalog import CatalogTool
    from ..kernel import Event
    from ..servers import ReloadSummary, ServerGroup, ServerRef, ServerStatus, SourceStatus

Json: TypeAlias = dict[str, Any]

Changed: TypeAlias = Literal["tools", "prompts", "resources", "servers"]
"""A kind of list that has changed; ``servers`` means that a server has connected."""

LIST_KINDS: Final[tuple[Changed, ...]] = ("tools", "prompts", "resources")

logger = Log("mcp_actors.gateway")

FIRST_LIST: Final = 5.0
"""Seconds that the first list, or a request for an unknown name, waits for servers to connect."""


LIST_METHODS: Final = {"prompts": "list_prompts", "resources": "list_resources", "templates": "list_resource_templates"}
"""A list → the method of `ServerRef` that requests it."""

KEYS: Final = {"prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""A list → the member that identifies an item."""


@define(eq=False)
class ListedJson:
    """The prompts and resources listed by one server, in JSON.

    Attributes:
        asked: lists requested at least once, with or without success; ``tools`` once connected.
        outdated: lists changed since the last request.
        asking: lists being requested by a task.
    """

    prompts: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    asked: set[str] = field(factory=set)
    outdated: set[str] = field(factory=set)
    asking: set[str] = field(factory=set)


class Front:
    """The lists of a group, for its clients.

    Args:
        naming: the template of public names.
        shared: the lists of the shared servers, if `group` is for one client.

    Attributes:
        starting: names of lazy servers about to start.
        required: names of servers without which the gateway is not ready, although opened as optional.
        files: the state of the configuration file; empty for servers of a program.
    """

    wants_requests: ClassVar[bool] = False

    def __init__(self, group: ServerGroup, naming: str, shared: Front | None = None) -> None:
        self.group: ServerGroup = group
        self._shared = shared
        self.naming: str = naming
        self.starting: frozenset[str] = frozenset()
        self.required: frozenset[str] = frozenset()
        self.files: tuple[SourceStatus, ...] = ()
        self._kept: dict[str, ListedJson] = {}
        self._tools: tuple[tuple[object, ...], tuple[Json, ...]] = ((), ())
        self._joined: tuple[tuple[Json, ...], tuple[Json, ...], tuple[Json, ...]] | None = None
        self._found: dict[str, tuple[ServerRef, str]] = {}
        self._mirrored: dict[str, Any] | None = None
        self._collisions: set[tuple[str, str]] = set()
        self._on_change: Callable[[Changed], None] = lambda _: None
        self._nursery: trio.Nursery | None = None
        self._news: trio.Event = trio.Event()
        self._settled: trio.Event = trio.Event()

    # --- tools ------------------------------------------------------------------------------------------------------

    def find_tool(self, public_name: str) -> tuple[ServerRef, str]:
        """Return the server of a tool, and the tool's name there. Raises `ToolNotFound`."""
        if not self._found:
            self._found = {tool.public_name: (self.group[tool.server], tool.name) for tool in self.group.tools}
        if (found := self._found.get(public_name)) is not None:
            return found
        if self._shared is not None:
            return self._shared.find_tool(public_name)
        tool = self.group.find_tool(public_name)
        return self.group[tool.server], tool.name

    def tools(self) -> tuple[Json, ...]:
        """Return all tools under their public names; the same object until something changes."""
        own = self._own_tools()
        if self._shared is None:
            return own
        shared = self._shared.tools()
        if self._joined is None or self._joined[0] is not own or self._joined[1] is not shared:
            self._joined = own, shared, own + self._not_hidden(own, shared, self._shared.find_tool)
        return self._joined[2]

    def _not_hidden(
        self, own: tuple[Json, ...], shared: tuple[Json, ...], find: Callable[[str], tuple[ServerRef, str] | None]
    ) -> tuple[Json, ...]:
        taken = {item["name"] for item in own}
        hidden = {item["name"] for item in shared if item["name"] in taken}
        for name in hidden:
            if (found := find(name)) is not None:
                self._note_hidden(found[0].name, name, "a server that the client has for itself")
        return tuple(item for item in shared if item["name"] not in hidden)

    def _own_tools(self) -> tuple[Json, ...]:
        # The tools are read from the servers' records, because the group's catalogue keeps no icons.
        refs, tools_shown = self._shown()
        listed = {(ref.name, each.name): each.tool for ref in refs for each in ref._record.catalog.tools}
        shown = [(name, listed.get((tool.server, tool.name))) for tool, name in tools_shown]
        key = tuple((name, id(given)) for name, given in shown)
        if key != self._tools[0]:
            self._tools = key, tuple(_tool(given, name) for name, given in shown if given is not None)
        return self._tools[1]

    def _shown(self) -> tuple[Iterable[ServerRef], Iterable[tuple[CatalogTool, str]]]:
        return self.group.configured, ((tool, tool.public_name) for tool in self.group.tools)

    def find_mirrored(self, public_name: str) -> Any:
        """Return the input schema of a tool with arguments mirrored in HTTP headers; None for other tools."""
        if self._mirrored is None:
            self._mirrored = {
                tool["name"]: tool["inputSchema"] if x_mcp_header_map(tool["inputSchema"]) else None
                for tool in self._own_tools()
            }
        if self._shared is not None and public_name not in self._mirrored:
            return self._shared.find_mirrored(public_name)
        return self._mirrored.get(public_name)

    # --- prompts and resources --------------------------------------------------------------------------------------

    def prompts(self) -> tuple[Json, ...]:
        own = tuple({**prompt, "name": name} for name, (_, prompt) in self._owned("prompts").items())
        if self._shared is None:
            return own
        return own + self._not_hidden(own, self._shared.prompts(), self._shared.find_prompt)

    def find_prompt(self, public_name: str) -> tuple[ServerRef, str] | None:
        if (found := self._owned("prompts").get(public_name)) is not None:
            return self.group[found[0]], found[1]["name"]
        return None if self._shared is None else self._shared.find_prompt(public_name)

    def resources(self) -> tuple[Json, ...]:
        return self._once("resources")

    def templates(self) -> tuple[Json, ...]:
        return self._once("templates")

    def _once(self, kind: str) -> tuple[Json, ...]:
        own = self._owned(kind)
        shared = () if self._shared is None else getattr(self._shared, kind)()
        return (*(item for _, item in own.values()), *(item for item in shared if item[KEYS[kind]] not in own))

    def _owned(self, kind: str) -> Mapping[str, tuple[str, Json]]:
        """Return name, URI or template → the first server that lists it, and its item."""
        owned: dict[str, tuple[str, Json]] = {}
        for server, kept in self._all():
            for item in getattr(kept, kind):
                name = item[KEYS[kind]]
                if kind == "prompts":
                    name = self.naming.format(server=server, tool=name)
                owner = owned.setdefault(name, (server, item))[0]
                if owner != server:
                    self._note_hidden(server, name, f"server {owner!r}")
        return owned

    def _note_hidden(self, server: str, name: str, owner: str) -> None:
        if (name, server) not in self._collisions and len(self._collisions) < 100:  # lists may grow for ever
            self._collisions.add((name, server))
            logger.warning("server %r: %.200r is hidden, because %s lists it, too", server, name, owner)

    def find_resource(self, uri: str) -> ServerRef | None:
        """Return the first server, in configured order, that lists a URI, or else has a matching template."""
        if (found := self._owned("resources").get(uri)) is not None:
            return self.group[found[0]]
        for text, (server, _) in self._owned("templates").items():
            if _matches(text, uri):
                return self.group[server]
        return None if self._shared is None else self._shared.find_resource(uri)

    def find_template(self, text: str) -> ServerRef | None:
        if (found := self._owned("templates").get(text)) is not None:
            return self.group[found[0]]
        return self.find_resource(text) if self._shared is None else self._shared.find_template(text)

    def _all(self) -> Iterable[tuple[str, ListedJson]]:
        return [(ref.name, self._kept[ref.name]) for ref in self.group.configured if ref.name in self._kept]

    def lasting(self, method: str) -> int | None:
        """Return the milliseconds for which the answer to a list method holds: the least of all servers."""
        each = [ref._record.catalog.lasting.get(method, 0) for ref in self.servers()]
        return int(least) if math.isfinite(least := min(each, default=0)) else 0

    # --- the servers as a whole -------------------------------------------------------------------------------------

    def servers(self) -> tuple[ServerRef, ...]:
        return self.group.configured + (() if self._shared is None else self._shared.servers())

    def own_servers(self) -> tuple[ServerRef, ...]:
        return self.group.configured

    @property
    def groups(self) -> tuple[ServerGroup, ...]:
        return (self.group,) if self._shared is None else (*self._shared.groups, self.group)

    def status(self) -> dict[str, ServerStatus]:
        """Return a snapshot of every server, with ``required`` as configured."""
        found = {} if self._shared is None else self._shared.status()
        for name, each in self.group.status().items():
            found[name] = evolve(each, required=each.required or name in self.required)
        return found

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        shared = () if self._shared is None else self._shared.sources
        return (*shared, *self.files, *self.group.sources)

    def failed_in(self, done: ReloadSummary) -> dict[str, str]:
        """Return why entries of a reload, or servers added or changed by it, cannot be used."""
        lives = {ref.name: ref._record.life for ref in self.own_servers() if ref.name in (*done.added, *done.changed)}
        found = {**done.failed, **{name: life.error or life.overdue for name, life in lives.items()}}
        return {name: str(problem) for name, problem in found.items() if problem is not None}

    def instructions(self) -> str | None:
        connected = [ref for group in self.groups for ref in group.connected]
        given = [(ref.name, ref.info.instructions) for ref in connected if ref.info.instructions]
        if sum(map(len, self.groups)) == 1:
            return given[0][1] if given else None
        return "\n\n".join(f"# {name}\n\n{text}" for name, text in given) or None

    def has_changed(self, kind: Changed) -> bool:
        """Return True if a change may matter: clients have seen a list."""
        return self.listed

    @property
    def listed(self) -> bool:
        return self._settled.is_set() and (self._shared is None or self._shared.listed)

    async def wait_listed(self, kind: str = "tools") -> None:
        """Wait until each server has its lists or has failed, for `FIRST_LIST` seconds at most."""
        await self._settled.wait()
        if self._shared is not None:
            await self._shared.wait_listed(kind)

    @property
    def complete(self) -> bool:
        """True if no server is about to get its first lists: unknown names stay unknown."""
        own = not any(map(self._is_awaited, self.group.configured))
        return own and (self._shared is None or self._shared.complete)

    async def wait_complete(self) -> None:
        with trio.move_on_after(FIRST_LIST):
            while any(map(self._is_awaited, self.group.configured)):
                await self._news.wait()
            if self._shared is not None:
                await self._shared.wait_complete()

    # --- follow the changes -----------------------------------------------------------------------------------------

    async def follow(self, on_change: Callable[[Changed], None]) -> None:
        """Keep the lists up to date, and call `on_change` for each change. Does not return."""
        self._on_change = on_change
        self.group._hub.add(self)
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._settle)
                for ref in self.group.connected:
                    self._look_again(ref.name, *LIST_METHODS)
                before = self.tools()
                while True:
                    await self._news.wait()
                    tools = self.tools()
                    if tools is not before and tools != before:
                        self._on_change("tools")
                    before = tools
        finally:
            self.group._hub.remove(self)

    def __call__(self, event: Event) -> None:
        match event:
            case StateChanged(new="ready" | "degraded"):
                self._look_again(event.server, *LIST_METHODS)
                self._on_change("servers")
            case PromptsChanged():
                self._look_again(event.server, "prompts")
            case ResourcesChanged():
                self._look_again(event.server, "resources", "templates")
            case ServerRemoved():
                if self._kept.pop(event.server, None) is not None:
                    self._on_change("prompts")
                    self._on_change("resources")
            case StateChanged() | ToolsChanged() | ServerAdded():
                pass
            case _:
                return
        self._found.clear()
        self._mirrored = None
        self._note_news()

    async def _settle(self) -> None:
        await self.wait_complete()
        self._settled.set()

    def _note_news(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _is_awaited(self, ref: ServerRef) -> bool:
        life = ref._record.life
        if life.state in ("ready", "degraded"):
            return not LIST_METHODS.keys() <= self._kept.get(ref.name, ListedJson()).asked
        started = life.wanted.mode == "run" or ref.name in self.starting
        return life.state in ("pending", "connecting") and started and life.last_error is None

    def _look_again(self, server: str, *kinds: str) -> None:
        kept = self._kept.setdefault(server, ListedJson())
        kept.asked.add("tools")  # a connect ends after the list of tools
        kept.outdated.update(kinds)
        if self._nursery is not None:
            for kind in set(kinds) - kept.asking:
                kept.asking.add(kind)
                self._nursery.start_soon(self._ask, server, kept, kind)

    async def _ask(self, server: str, kept: ListedJson, kind: str) -> None:
        """Request a list until it is up to date. A failure keeps the former list, and is retried."""

        def describe(error: Exception, wait: float) -> str | None:
            kept.asked.add(kind)
            self._note_news()
            if server not in self.group or self.group[server].state not in ("ready", "degraded"):
                return None  # stop trying: the next connection requests the list
            return f"server {server!r}: its {kind} could not be listed: {problem_of(error)}; again in {wait:.3g} s"

        # A change that arrives during a request sets `outdated` again and starts no second task, because `asking` has
        # the kind. So clear `outdated` before the request, and discard from `asking` in the step that finds nothing
        # outdated; otherwise a change in between is lost, and clients keep an old list.
        while kind in kept.outdated:
            kept.outdated.discard(kind)
            await keep_trying(partial(self._request, server, kind, kept), AFTER_FAILURE, describe)
            kept.asked.add(kind)
            self._note_news()
        kept.asking.discard(kind)

    async def _request(self, server: str, kind: str, kept: ListedJson) -> None:
        found: tuple[Json, ...] = ()
        try:
            found = tuple(map(json_of, await getattr(self.group[server], LIST_METHODS[kind])()))
        except MCPError as exc:
            if exc.code != METHOD_NOT_FOUND:  # a server without the method has an empty list
                raise
        if found != getattr(kept, kind):
            setattr(kept, kind, found)
            self._on_change("prompts" if kind == "prompts" else "resources")


class OneServer(Front):
    """One server of a front under its own names, for a client that names the server.

    The server gets requests for any tool, prompt or resource, and answers unknown names itself.
    """

    def __init__(self, front: Front, name: str) -> None:
        super().__init__(front.group, "{tool}")
        self._front = front
        self._name = name
        self._kept = front._kept
        self._seen: dict[Changed, object] = {}
        for kind in LIST_KINDS:
            self.has_changed(kind)

    @property
    def ref(self) -> ServerRef:
        """The server. Raises `ServerUnavailable` if removed from the gateway."""
        found = self.group._roster.members.get(self._name)
        if found is None:
            gone = f"server {self._name!r} was removed from the gateway; nothing was sent; add it there again"
            raise ServerUnavailable(gone, server=self._name, state="stopped", outcome="not_sent")
        return found.ref

    def find_tool(self, public_name: str) -> tuple[ServerRef, str]:
        return self.ref, public_name

    find_prompt = find_tool

    def find_resource(self, uri: str) -> ServerRef:
        return self.ref

    def find_template(self, text: str) -> ServerRef:
        return self.ref

    def _shown(self) -> tuple[Iterable[ServerRef], Iterable[tuple[CatalogTool, str]]]:
        # Each session of one server has a front, and calls this at each change of the group: don't look at all tools.
        found = self.group.get(self._name)
        return [] if found is None else [found], ((tool, tool.name) for tool in self.group.tools.of(self._name))

    def _all(self) -> Iterable[tuple[str, ListedJson]]:
        return [(self._name, self._kept[self._name])] if self._name in self._kept else []

    def own_servers(self) -> tuple[ServerRef, ...]:
        return (self.ref,)

    servers = own_servers

    def instructions(self) -> str | None:
        info = self.ref._record.info
        return None if info is None else info.instructions

    def has_changed(self, kind: Changed) -> bool:
        kinds = ("resources", "templates") if kind == "resources" else (kind,)
        now = [getattr(self, each)() for each in kinds]
        before, self._seen[kind] = self._seen.get(kind), now
        return now != before and all(map(self._has, kinds))  # clients wait for a first list anyway

    @property
    def complete(self) -> bool:
        return True

    async def wait_listed(self, kind: str = "tools") -> None:
        """Start the server if lazy, and wait for its list. Raises `ServerUnavailable` if not connected."""
        ref = self.ref
        if ref._record.life.wanted.mode == "rest" and not self._has(kind):
            ref._caller.wake()
        while not self._has(kind):
            news, life = self._front._news, ref._record.life
            if life.state not in ("pending", "connecting", "ready", "degraded"):
                why = "" if life.error is None else f": {problem_of(life.error)}"
                text = f"server {self._name!r} is not connected to the gateway ({life.state}){why}"
                raise ServerUnavailable(
                    text, server=self._name, state=life.state, last_error=life.error, outcome="not_sent"
                )
            await news.wait()
            ref = self.ref

    def _has(self, kind: str) -> bool:
        return kind in self._kept.get(self._name, ListedJson()).asked

    def lasting(self, method: str) -> int | None:
        """See `Front.lasting`; None if the server does not support the method."""
        return None if math.isinf(self.ref._record.catalog.lasting.get(method, 0)) else super().lasting(method)


def json_of(model: Any) -> Json:
    dumped: Json = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _tool(tool: Any, public_name: str) -> Json:
    shown = {**json_of(tool), "name": public_name}
    shown.pop("execution", None)  # about tasks, which are not passed on
    return shown


def _matches(template: str, uri: str) -> bool:
    with suppress(InvalidUriTemplate):
        return UriTemplate.parse(template).match(uri) is not None
    return False
