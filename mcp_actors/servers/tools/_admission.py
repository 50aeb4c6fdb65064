"""Which of the tools that a server lists may be shown and called: what its filter and its pins say.

Nothing here is forgotten when the server reconnects: a listing is judged against what was accepted, whatever connection
it comes over.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from attrs import field, frozen

from ..._errors import ToolNotFound
from ...catalog import Pins, PinVerdict, judge
from ._identity import launch_pin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import Tool

    from ...config import ServerConfig
    from ._known import KnownTool

__all__ = ["Admission", "ToolChanges"]


@frozen(kw_only=True)
class ToolChanges:
    """What of a server's tools is hidden until it is approved (``ServerConfig(on_tool_change="block")``).

    Attributes:
        server: whose tools they are.
        tools: the definitions that wait, as the server lists them: to be looked at.
        added: the names of those that were never accepted.
        changed: the names of those that were accepted as something else.
        removed: the names of those that were accepted and are not listed any more. They need no approval.
        identity_changed: whether what the server is started from, or reached at, is not what it was.
    """

    server: str
    tools: tuple[Tool, ...] = field(default=(), eq=False)
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    identity_changed: bool = False
    _seen: Pins = field(factory=Pins, repr=False, alias="seen")

    def __bool__(self) -> bool:
        """Whether anything waits for approval."""
        return bool(self.tools)


class Admission:
    """What is admitted of the tools of one server.

    Attributes:
        accepted: the pins of what was accepted so far; None before the first listing, which is trusted.
        identity: the pin of what the server is started from, or reached at; None if nobody can say.

    Args:
        config: the server's configuration.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.accepted: Pins | None = None
        self._config = config
        self._filter = config.tools
        self._policy = config.on_tool_change
        self._listed: tuple[KnownTool, ...] = ()
        self._seen = Pins()
        self._verdict: PinVerdict | None = None
        self._callable: frozenset[str] | None = None

    def lent(self) -> Admission:
        """Return another one for a connection of somebody's own, which knows what is accepted now."""
        other = Admission(self._config)
        other.accepted, other._callable = self.accepted, self._callable
        return other

    @cached_property
    def identity(self) -> str | None:
        # Not before somebody asks: while servers start, their processes have better use for the processor.
        return launch_pin(self._config)

    # --- listings ---------------------------------------------------------------------------------------------------

    def filtered(self, listed: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
        """Return the tools that the filter shows."""
        return tuple(tool for tool in listed if self._filter.shows(tool.name))

    def stand_in(self, declared: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
        """Return what is shown of these, which somebody has declared in the place of a listing that there is not."""
        shown = self.filtered(declared)
        if self._policy == "block":
            self._callable = frozenset(tool.name for tool in shown)
        return shown

    def admit(self, listed: tuple[KnownTool, ...]) -> PinVerdict | None:
        """Judge what the server lists now. Returns how it differs from what was accepted, if that is to be told."""
        self._listed = listed
        if self._policy == "allow":
            return None
        self._seen = self._pins(self.filtered(listed))
        before = self._verdict
        verdict = self._judge()
        return verdict if verdict and verdict != before else None

    def judge_by(self, accepted: Pins) -> None:
        """Trust no listing, not even the first: this is what was accepted before; empty pins if nobody knows."""
        self.accepted = accepted

    def recall(self, listed: tuple[KnownTool, ...], accepted: Pins | None) -> None:
        """Judge what the server listed in an earlier run, by what was accepted then. Nothing is told of it."""
        self.accepted = accepted
        self.admit(listed)
        self.accepted = accepted  # what was remembered without pins was not accepted by anybody

    def _judge(self) -> PinVerdict:
        self._verdict = verdict = judge(self.accepted, self._seen, self._policy)
        self.accepted = verdict.accepted
        if self._policy == "block":
            self._callable = frozenset(self._seen.tools) - verdict.hidden
        return verdict

    def admitted(self) -> tuple[KnownTool, ...]:
        """The tools that may be shown and called."""
        return self._shown(self.filtered(self._listed), self._hidden)

    def admissible(self, listed: tuple[KnownTool, ...]) -> tuple[KnownTool, ...]:
        """Which tools of a listing, which may be an old one, may be shown and called."""
        filtered = self.filtered(listed)
        if self._policy != "block" or self.accepted is None:
            return filtered
        return self._shown(filtered, judge(self.accepted, self._pins(filtered), self._policy).hidden)

    def _pins(self, tools: Iterable[KnownTool]) -> Pins:
        return Pins(tools={each.name: each.pin for each in tools}, identity=self.identity)

    @staticmethod
    def _shown(tools: tuple[KnownTool, ...], hidden: frozenset[str]) -> tuple[KnownTool, ...]:
        return tuple(tool for tool in tools if tool.name not in hidden)

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset() if self._verdict is None else self._verdict.hidden

    @property
    def waiting(self) -> int:
        """How many tools are hidden until they are approved."""
        return len(self._hidden)

    def check_call(self, name: str) -> None:
        """Refuse a call of a tool that may not be called.

        Raises:
            ToolNotFound: the filter hides it; or it is not what was accepted, or not listed at all, so that nobody
                knows what it is.
        """
        server = self._config.name
        if not self._filter.shows(name):
            raise ToolNotFound(
                f"server {server!r}: its tool {name!r:.80} is hidden by the ToolFilter of its configuration, and was "
                "not called; change ServerConfig.tools if it is to be called",
                server=server,
            )
        if self._callable is None or name in self._callable:
            return
        if name in self._hidden:
            what = "was added or changed since its tools were accepted"
        else:
            what = "is not listed, so that nobody knows what it is"
        raise ToolNotFound(
            f"server {server!r}: its tool {name!r:.80} {what}, and was not called (on_tool_change='block'); look at "
            "tool_changes of the server, and await its approve_tools(...)",
            server=server,
        )

    # --- approval ---------------------------------------------------------------------------------------------------

    def changes(self) -> ToolChanges:
        """What waits for approval now."""
        verdict, hidden = self._verdict, self._hidden
        if verdict is None or self._policy != "block":
            return ToolChanges(server=self._config.name)
        return ToolChanges(
            server=self._config.name,
            tools=tuple(each.tool.model_copy(deep=True) for each in self.filtered(self._listed) if each.name in hidden),
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            seen=self._seen,
        )

    def approve(self, changes: ToolChanges, names: tuple[str, ...]) -> None:
        """Accept what somebody has looked at, of these tools or of all. What has changed since stays hidden.

        Raises:
            ToolNotFound: one of these tools is not among what was looked at, or that is of another server.
        """
        if changes.server != self._config.name:
            raise ToolNotFound(
                f"server {self._config.name!r}: these are changes of server {changes.server!r}, and nothing was "
                "accepted; give what tool_changes of this server was",
                server=self._config.name,
            )
        known = (*changes.added, *changes.changed, *changes.removed)
        for name in names:
            if name not in known:
                raise ToolNotFound(
                    f"server {self._config.name!r}: no tool {name!r:.80} waits for approval; those that do are: "
                    f"{', '.join(map(repr, known)) or 'none'}",
                    server=self._config.name,
                )
        if not known and not changes.identity_changed:
            return
        accepted = self.accepted or Pins()
        self.accepted = accepted.approve(changes._seen, names or None)
        self._judge()
