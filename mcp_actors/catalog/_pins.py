"""Pins: what the tools of a server were when they were accepted, to notice when they are no longer that.

A server may list one thing when it is looked at, and another one later: a description with other instructions to the
model, a schema with one more argument, a hint that a tool is harmless. A pin is the hash of all that the catalogue
shows of a tool. The first listing of a server is trusted, as there is nothing to compare it with; from then on each
listing is judged against what was accepted, also after a restart, and if pins are remembered, in the next run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from ._tools import ListedTool, wire_annotations
from .schemas import listed
from .values import FrozenDict, digest

__all__ = ["OnToolChange", "PinVerdict", "Pins", "identity_pin", "judge", "pin", "pins_of"]

OnToolChange = Literal["allow", "warn", "block"]
"""What becomes of a tool that was added or changed: it is shown, shown and told, or hidden until it is approved."""

_IDENTITY: Final = "identity"
_TOOL: Final = "tools/"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def pin(tool: ListedTool) -> str:
    """Return the SHA-256 of a tool's definition: its name, title, description, schemas, annotations and meta.

    It is the same in every run and release. How the server writes its JSON does not matter: neither the order of
    members nor whether a whole number has a fraction.
    """
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": wire_annotations(tool.annotations),
        "_meta": tool.meta,
    }
    return digest({key: value for key, value in definition.items() if value is not None})


def identity_pin(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a server is started from or reached at.

    Args:
        identity: JSON-like data. It must hold no credential: who has the hash could find a short one by trying.
    """
    return digest(identity)


def _frozen(value: Mapping[str, str]) -> Mapping[str, str]:
    return FrozenDict(value)


@attrs.frozen(kw_only=True)
class Pins:
    """The pins of one server. They never change; what is judged or approved gives others.

    Attributes:
        tools: the pin of each tool, by the name that the server gives it.
        identity: the pin of what the server is started from; None if nobody said.
    """

    tools: Mapping[str, str] = attrs.field(default=FrozenDict(), converter=_frozen, hash=False)
    identity: str | None = None

    def approve(self, seen: Pins, names: Iterable[str] | None = None) -> Pins:
        """Return these pins with what was seen now accepted.

        Args:
            seen: the pins of the listing that somebody has looked at. Give those, and not newer ones: what is approved
                is what was seen.
            names: the tools to approve; of one that is not in `seen`, that it is gone. Default: all there is and is
                not.

        Returns:
            The accepted pins. If the identity is another one, nothing is left of what was accepted under the old one.
        """
        identity = seen.identity or self.identity
        if names is None:
            return Pins(tools=seen.tools, identity=identity)
        kept = {} if _is_other(self.identity, seen.identity) else dict(self.tools)
        for name in names:
            kept.pop(name, None)
            if name in seen.tools:
                kept[name] = seen.tools[name]
        return Pins(tools=kept, identity=identity)

    def to_json(self) -> dict[str, str]:
        """Return the pins as one JSON object of strings."""
        identity = {} if self.identity is None else {_IDENTITY: self.identity}
        return identity | {f"{_TOOL}{name}": each for name, each in self.tools.items()}

    @classmethod
    def from_json(cls, data: object) -> Pins:
        """Return the pins that `to_json` gave.

        Raises:
            ValueError: this is something else, or damaged.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"pins must be an object of hashes by name, not a {type(data).__name__}")
        tools: dict[str, str] = {}
        identity = None
        for key, value in data.items():
            if not isinstance(value, str) or not _DIGEST.fullmatch(value):
                raise ValueError(f"the pin {key!r:.80} is not a SHA-256 in hexadecimal")
            if key == _IDENTITY:
                identity = value
            elif isinstance(key, str) and key.startswith(_TOOL):
                tools[key.removeprefix(_TOOL)] = value
            else:
                raise ValueError(f"unknown pin {key!r:.80}")
        return cls(tools=tools, identity=identity)


def pins_of(tools: Iterable[ListedTool], *, identity: Mapping[str, Any] | None = None) -> Pins:
    """Return the pins of a listing. Of several tools of one name the first counts.

    Args:
        tools: what the server listed.
        identity: what it is started from or reached at, see `identity_pin`. None: nobody can say.
    """
    pins: dict[str, str] = {}
    for tool in tools:
        if tool.name not in pins:
            pins[tool.name] = pin(tool)
    return Pins(tools=pins, identity=None if identity is None else identity_pin(identity))


@attrs.frozen(kw_only=True)
class PinVerdict:
    """What is to be thought of a listing. Two that are equal say the same, so it need be told once.

    Attributes:
        added: the tools that were never accepted, in listed order.
        changed: those that were accepted as something else, in listed order. All, if the server is another one.
        removed: those that were accepted and are gone.
        identity_changed: True if what the server is started from is not what it was.
        hidden: the tools that are not to be shown before they are approved.
        accepted: what the next listing is to be judged against, and what is to be remembered.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    identity_changed: bool = False
    hidden: frozenset[str] = frozenset()
    accepted: Pins

    def __bool__(self) -> bool:
        """Whether the listing differs from what was accepted."""
        return bool(self.added or self.changed or self.removed or self.identity_changed)

    def summary(self) -> str:
        """Return what differs, in words: ``"added: 'x', 'y'; changed: 'z'"``. Foreign names are shortened."""
        parts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        said = [f"{what}: {listed(names)}" for what, names in parts.items() if names]
        return "; ".join(["it is started from something else"] * self.identity_changed + said) or "nothing"


def judge(accepted: Pins | None, seen: Pins, policy: OnToolChange) -> PinVerdict:
    """Compare a listing with what was accepted of its server.

    - ``"allow"`` and ``"warn"`` accept what they see, so that a difference is found once (what to tell is up to the
      caller);
    - ``"block"`` accepts nothing by itself: what was added or changed is hidden in every listing, until it is
      approved (`Pins.approve`) or is again what was accepted. A tool that goes and comes back must be what it was.

    Args:
        accepted: what was accepted so far; None if this is the first listing there ever was, which is trusted.
        seen: the pins of the listing.
        policy: ``ServerConfig.on_tool_change``.
    """
    if accepted is None:
        return PinVerdict(accepted=seen)
    other = _is_other(accepted.identity, seen.identity)
    known = accepted.tools
    added = tuple(name for name in seen.tools if name not in known)
    changed = tuple(name for name, each in seen.tools.items() if name in known and (other or known[name] != each))
    return PinVerdict(
        added=added,
        changed=changed,
        removed=tuple(name for name in known if name not in seen.tools),
        identity_changed=other,
        hidden=frozenset((*added, *changed)) if policy == "block" else frozenset(),
        accepted=accepted if policy == "block" else accepted.approve(seen),
    )


def _is_other(accepted: str | None, seen: str | None) -> bool:
    """Whether two identities are known to differ."""
    return accepted is not None and seen is not None and accepted != seen
