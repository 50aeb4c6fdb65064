"""Decide which listed tools may be shown and called.

An `Admission` outlives connections, so a reconnect does not make changed tools acceptable. A server may list thousands
of tools, so filtering and hashing have checkpoints.

Owns: pins of accepted tools; the last listing; the verdict about the last listing.
Writes: nothing.
Calls: catalog, config.
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from typing import TYPE_CHECKING, Self

from attrs import field, frozen
from mcp.types import Tool

from .._errors import ToolNotFound
from .._misuse import nearest
from .._tasks import TimeSlice
from .._text import plain_text, some_of
from ..catalog import CatalogEntry, Pins, PinVerdict, identity_pin, judge, pin
from ..catalog._names import DEFAULT_NAMING
from ..catalog._tools import digest
from ..config import Http, Socket, Sse, Stdio, is_auth_flow
from ..config._values import mask_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..config import ServerConfig, Transport


@frozen(kw_only=True)
class ToolChanges:
    """A server's tools that are hidden until approved (``ServerConfig(on_tool_change="block")``).

    Attributes:
        server: the server's name.
        tools: the hidden definitions as listed by the server, for review.
        added: the names of tools that were never accepted.
        changed: the names of tools that were accepted with another definition.
        removed: the names of accepted tools that are no longer listed; removals need no approval.
        identity_changed: whether the server's command or URL has changed.
    """

    server: str
    tools: tuple[Tool, ...] = field(default=(), eq=False)
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    identity_changed: bool = False
    _seen: Pins = field(default=Pins(), repr=False, alias="seen")

    def __bool__(self) -> bool:
        """Return True if a tool waits for approval."""
        return bool(self.tools)


class Admission:
    """Decides which tools of a server are admitted.

    Attributes:
        accepted: the pins of the accepted tools; None before the first judged listing, which is trusted.
        identity: the pin of the server's command or URL; None for an in-process server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.accepted: Pins | None = None
        self._config = config
        self._filter = config.tool_filter
        self._shows = cache(config.tool_filter.shows)  # cached by name: patterns take time
        self._policy = config.on_tool_change
        self._listed: tuple[KnownTool, ...] = ()
        self._seen = Pins()
        self._verdict: PinVerdict | None = None
        self._callable: frozenset[str] | None = None

    def configure(self, config: ServerConfig) -> PinVerdict | None:
        """Take over a changed configuration. Accepted tools stay accepted; the next listing is judged anew.

        If tools need approval, judge the known listing at once: a new filter may show more. Return the difference
        between this listing and the accepted tools, if new.
        """
        _ = self.identity  # computed before the change: the new command or URL has not listed these tools
        self._config, self._filter, self._policy = config, config.tool_filter, config.on_tool_change
        self._shows = cache(config.tool_filter.shows)
        verdict = None
        if self._policy != "block":
            self._callable = self._verdict = None
        elif self._listed and self.accepted is not None:
            verdict = self.admit(self._listed)
        del self.__dict__["identity"]
        return verdict

    def copy_for_isolated(self) -> Admission:
        """Return a copy for an isolated attempt, with the tools accepted now."""
        other = Admission(self._config)
        other.accepted, other._callable = self.accepted, self._callable
        return other

    @cached_property
    def identity(self) -> str | None:
        # Computed late: while servers start, their processes need the processor more.
        return launch_pin(self._config)

    # --- listings ---------------------------------------------------------------------------------------------------

    async def prepare(self, listed: Iterable[KnownTool]) -> None:
        """Match each name of a listing with the filter, with checkpoints, so that `filtered` finds cached answers.

        **Cancellation**: leaves at the next tool. A short list has no checkpoint.
        """
        if self._filter.shows_all:
            return
        of, time_slice = self._filter, TimeSlice()
        shows = cache(of.shows)
        for tool in listed:
            shows(tool.name)
            await time_slice.checkpoint()
        if of is self._filter:  # the configuration may have changed meanwhile
            self._shows = shows

    def filtered(self, listed: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
        shows = self._shows
        return tuple(listed) if self._filter.shows_all else tuple([t for t in listed if shows(t.name)])

    @property
    def filtered_out(self) -> int:
        return len(self._listed) - len(self.filtered(self._listed))

    def misnamed(self) -> str | None:
        """Describe the filter's names that no listed tool has, with the nearest names; None without any."""
        named = (*(self._filter.allow or ()), *self._filter.deny)
        if not named:
            return None
        listed = {tool.name for tool in self._listed}
        missing = [name for name in named if name not in listed]
        shown = some_of(missing, 5, lambda name: _with_nearest(name, self._listed))  # one log line
        return plain_text(shown) if missing else None

    def admit_static(self, declared: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
        shown = self.filtered(declared)
        if self._policy == "block":
            self._callable = frozenset(tool.name for tool in shown)
        return shown

    def admit(self, listed: tuple[KnownTool, ...]) -> PinVerdict | None:
        """Judge a listing by the accepted tools. Return the difference, if new."""
        self._listed = listed
        if self._policy == "allow":
            return None
        self._seen = self._pins(self.filtered(listed))
        before = self._verdict
        verdict = self._judge()
        return verdict if verdict and verdict != before else None

    def judge_by(self, accepted: Pins) -> None:
        """Judge every listing, including the first, by these pins; empty pins accept nothing."""
        self.accepted = accepted

    def restore(self, listed: tuple[KnownTool, ...], accepted: Pins | None) -> None:
        """Judge the listing of an earlier run by the pins of that run."""
        self.accepted = accepted
        self.admit(listed)
        # Without pins, `admit` has accepted the remembered listing, which would now be trusted without having been
        # listed in this run.
        self.accepted = accepted

    def _judge(self) -> PinVerdict:
        self._verdict = verdict = judge(self.accepted, self._seen, self._policy)
        self.accepted = verdict.accepted
        if self._policy == "block":
            self._callable = frozenset(self._seen.tools) - verdict.hidden
        return verdict

    def admitted(self) -> tuple[KnownTool, ...]:
        return self._shown(self.filtered(self._listed), self._hidden)

    def admissible(self, listed: tuple[KnownTool, ...]) -> Iterable[KnownTool]:
        """Return the tools of any listing, even an outdated one, that may be shown and called."""
        if listed is self._listed:
            return self.admitted()
        if self._policy != "block" or self.accepted is None:
            return self.filtered(listed)
        filtered = self.filtered(listed)
        return self._shown(filtered, judge(self.accepted, self._pins(filtered), self._policy).hidden)

    def _pins(self, tools: Iterable[KnownTool]) -> Pins:
        return Pins(tools={each.name: each.pin for each in tools}, identity=self.identity)

    @staticmethod
    def _shown(tools: tuple[KnownTool, ...], hidden: frozenset[str]) -> tuple[KnownTool, ...]:
        return tuple(tool for tool in tools if tool.name not in hidden) if hidden else tools

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset() if self._verdict is None else self._verdict.hidden

    @property
    def pending(self) -> dict[str, KnownTool]:
        hidden = self._hidden
        return {each.name: each for each in self.filtered(self._listed) if each.name in hidden} if hidden else {}

    @property
    def waiting(self) -> int:
        return len(self._hidden)

    def check_call(self, name: str) -> None:
        """Refuse a call of a hidden tool.

        Raises:
            ToolNotFound: the filter hides the tool; or, with ``on_tool_change="block"``, the tool is not accepted or
                not listed.
        """
        server = self._config.name
        if not self._filter.shows(name):
            raise ToolNotFound(
                f"server {server!r}: tool {name!r:.80} is hidden by its ToolFilter; nothing was sent; to call it, "
                "change ServerConfig.tool_filter",
                server=server,
            )
        if self._callable is None or name in self._callable:
            return
        reason = "was added or changed since its tools were accepted" if name in self._hidden else "is not listed"
        raise ToolNotFound(
            f"server {server!r}: tool {name!r:.80} {reason} (on_tool_change='block'); nothing was sent; review the "
            "server's tool_changes and await its approve_tools(...)",
            server=server,
        )

    # --- approval ---------------------------------------------------------------------------------------------------

    def changes(self) -> ToolChanges:
        verdict = self._verdict
        if verdict is None or self._policy != "block":
            return ToolChanges(server=self._config.name)
        return ToolChanges(
            server=self._config.name,
            tools=tuple(each.tool.model_copy(deep=True) for each in self.pending.values()),
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            seen=self._seen,
        )

    def approve(self, changes: ToolChanges, names: tuple[str, ...]) -> None:
        """Accept the named reviewed tools, or all if none is named. A tool changed since the review stays hidden.

        Raises:
            TypeError: `changes` is not a `ToolChanges`.
            ToolNotFound: a named tool is not among the changes, or the changes belong to another server.
        """
        given: object = changes
        if not isinstance(given, ToolChanges):
            remedy = "pass this server's tool_changes, and then the names"
            raise TypeError(f"server {self._config.name!r}: approve_tools() got {given!r:.60}; {remedy}")
        if changes.server != self._config.name:
            raise ToolNotFound(
                f"server {self._config.name!r}: approve_tools() got the changes of server {changes.server!r}; nothing "
                "was approved; pass this server's tool_changes",
                server=self._config.name,
            )
        known = (*changes.added, *changes.changed, *changes.removed)
        for name in names:
            if name not in known:
                raise ToolNotFound(
                    f"server {self._config.name!r}: tool {name!r:.80} does not wait for approval; nothing was "
                    f"approved; the tools that wait are: {', '.join(map(repr, known)) or 'none'}",
                    server=self._config.name,
                )
        if not known and not changes.identity_changed:
            return
        accepted = self.accepted or Pins()
        self.accepted = accepted.approve(changes._seen, names or None)
        self._judge()


def _with_nearest(name: str, listed: Iterable[KnownTool]) -> str:
    near = nearest(name, (tool.name for tool in listed))
    return f"{name!r:.80}" + (f" (did you mean {near[0]!r}?)" if near else "")


# --- A listed tool with its hash and immutable form -------------------------------------------------------------------

# After freezing and hashing, to decide whether tools are new, hidden or shown takes only comparisons of names and
# hashes, in one synchronous step. A remembered tool is hashed when needed, perhaps never (`KnownTool.remembered`).


@frozen(eq=False)
class KnownTool:
    """A server's tool. Tools are equal if their JSON is: Python equality would take 1 for true.

    Attributes:
        tool: the tool as listed by the server; never modified.
        entry: the entry in the group's catalogue.
        name: the name on the server.
    """

    tool: Tool
    entry: CatalogEntry = field(repr=False)
    name: str  # a field and not a property, because listings are searched by name several times

    @classmethod
    def of(cls, server: str, tool: Tool, naming: str = DEFAULT_NAMING) -> Self:
        """Freeze and hash a tool, and derive its public name from the group's template."""
        known = cls(tool, CatalogEntry.of(server, tool, naming), tool.name)
        _ = known.pin
        return known

    @classmethod
    def remembered(cls, server: str, tool: Tool, naming: str) -> Self:
        """Prepare to show a tool listed in an earlier run, without the hash."""
        return cls(tool, CatalogEntry.of(server, tool, naming, remembered=True), tool.name)

    @cached_property
    def pin(self) -> str:
        """The SHA-256 of the tool."""
        return pin(self.tool)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KnownTool):
            return NotImplemented
        # Do not compare the models: for thousands of tools that would be a long step.
        return self.pin == other.pin and _beyond_pin(self.tool) == _beyond_pin(other.tool)


def _beyond_pin(tool: Tool) -> object:
    """Return what the hash of a tool does not cover."""
    return tool.execution, tool.icons


async def known_tools(
    server: str, tools: Iterable[Tool], naming: str, before: Iterable[KnownTool]
) -> tuple[KnownTool, ...]:
    """Apply `KnownTool.of` to each tool. Of several tools with the same name only the first counts.

    An unchanged tool stays the same object, so that similar lists are compared quickly, and replacing a list does not
    release all tools in one step.

    **Cancellation**: leaves at the next tool. A short list has no checkpoint.
    """
    known: dict[str, KnownTool] = {}
    earlier = {each.name: each for each in before}
    time_slice = TimeSlice()
    for tool in tools:
        if tool.name not in known:
            now, then = KnownTool.of(server, tool, naming), earlier.get(tool.name)
            if then is not None and then == now:
                then.entry.prepare()  # `then` may be a remembered tool
                now = then
            known[tool.name] = now
            await time_slice.checkpoint()
    return tuple(known.values())


# --- Identify a configured server across runs of a program ------------------------------------------------------------

# The identity comes from the configuration as written, without values of ``env``, headers or ``auth``, and with masked
# arguments and URLs: short credentials can be guessed from their hash.


def fingerprint(config: ServerConfig) -> str | None:
    """Return a hexadecimal key for the memory of a server; None for an in-process server.

    A server from a configuration file is identified by file and name, not by command. So another command under the same
    name is noticed, and programs with different files do not disturb each other. A server configured in code is
    identified by name and `launch_identity`.
    """
    identity = launch_identity(config.transport)
    if identity is None:
        return None
    if config.source is not None and os.path.isabs(config.source):
        return digest({"name": config.name, "source": config.source})
    return digest({"name": config.name, **identity})


def launch_pin(config: ServerConfig) -> str | None:
    identity = launch_identity(config.transport)
    return None if identity is None else identity_pin({"launch": digest({"name": config.name, **identity})})


def launch_identity(transport: Transport) -> dict[str, object] | None:
    """Return a server's command or URL as JSON-like data.

    None for an in-process server: the next run could not recognize the server.
    """
    match transport:
        case Stdio(command=command, args=args, cwd=cwd, env=env, env_from=env_from):
            variables = {"env": sorted(env), "env_from": sorted(env_from)}
            return {"kind": "stdio", "command": command, "args": mask_args(args), "cwd": cwd, **variables}
        case Http(headers=headers, auth=auth) | Sse(headers=headers, auth=auth):
            kind = "sse" if isinstance(transport, Sse) else "http"
            scheme = None if auth is None else type(auth).__qualname__ if is_auth_flow(auth) else "bearer"
            names = sorted(name.lower() for name in headers)
            return {"kind": kind, "url": transport.display_url, "headers": names, "auth": scheme}
        case Socket(server=server):
            return {"kind": "socket", "address": transport.display_address, "server": server}
    return None
