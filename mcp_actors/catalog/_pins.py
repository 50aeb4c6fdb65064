"""Detect tools that a server has changed, by hashes of accepted definitions.

A server may list harmless tools while a person looks, and other ones later: a description with new instructions to the
model, a schema with one more argument, a hint that a tool is read-only. A pin is the hash of everything that the
catalogue shows of a tool. The first listing of a server is trusted, because there is nothing to compare it with. Later
listings are compared with the accepted one, also after a restart and, if pins are remembered, in the next run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from ._tools import ListedTool, wire_annotations
from .schemas import listed
from .values import FrozenDict, digest

OnToolChange = Literal["allow", "warn", "block"]
"""The policy for a tool that was added or changed: show it, show it and log a warning, or hide it until approved."""

_IDENTITY: Final = "identity"
_TOOL: Final = "tools/"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def pin(tool: ListedTool) -> str:
    """Return the SHA-256 of a tool's definition: its name, title, description, schemas, annotations and meta.

    It is the same in every run and release, and does not depend on how the server formats its JSON: the order of
    members, or ``1.0`` instead of ``1``.
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
    """Return the SHA-256 of a server's identity: the command that it is started from, or its URL.

    Args:
        identity: JSON-like data without credentials, because a short credential could be guessed from the hash.
    """
    return digest(identity)


def _frozen(value: Mapping[str, str]) -> Mapping[str, str]:
    return FrozenDict(value)


@attrs.frozen(kw_only=True)
class Pins:
    """The pins of one server, immutable.

    Attributes:
        tools: the pin of each tool, by the server's own name of it.
        identity: the pin of the server's identity, or None if it is unknown.
    """

    tools: Mapping[str, str] = attrs.field(default=FrozenDict(), converter=_frozen, hash=False)
    identity: str | None = None

    def approve(self, seen: Pins, names: Iterable[str] | None = None) -> Pins:
        """Return these pins with tools of another listing accepted.

        Args:
            seen: the pins of the listing that a person has reviewed, not of a newer one.
            names: the tools to approve; for a tool that is not in `seen`, its removal. Default: all of them.

        Returns:
            The accepted pins. If the identity has changed, nothing that was accepted under the old one remains.
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
        """Return the pins as a JSON object of strings."""
        identity = {} if self.identity is None else {_IDENTITY: self.identity}
        return identity | {f"{_TOOL}{name}": each for name, each in self.tools.items()}

    @classmethod
    def from_json(cls, data: object) -> Pins:
        """Return the pins from the output of `to_json`.

        Raises:
            ValueError: the data is damaged, or something else.
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
    """Return the pins of a listing. If several tools have the same name, the first one counts.

    Args:
        tools: the listed tools.
        identity: the server's identity (see `identity_pin`), or None if it is unknown.
    """
    pins: dict[str, str] = {}
    for tool in tools:
        if tool.name not in pins:
            pins[tool.name] = pin(tool)
    return Pins(tools=pins, identity=None if identity is None else identity_pin(identity))


@attrs.frozen(kw_only=True)
class PinVerdict:
    """The difference between a listing and the accepted one. Equal verdicts need to be logged only once.

    Attributes:
        added: the tools that were never accepted, in listed order.
        changed: the tools that were accepted with another definition, in listed order; all if the identity changed.
        removed: the tools that were accepted and are no longer listed.
        identity_changed: whether the server's identity has changed.
        hidden: the tools that must be hidden until they are approved.
        accepted: the pins to compare the next listing with, and to remember.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    identity_changed: bool = False
    hidden: frozenset[str] = frozenset()
    accepted: Pins

    def __bool__(self) -> bool:
        """Return whether the listing differs from the accepted one."""
        return bool(self.added or self.changed or self.removed or self.identity_changed)

    def summary(self) -> str:
        """Return the difference in words: ``"added: 'x', 'y'; changed: 'z'"``. Names are shortened."""
        parts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        said = [f"{what}: {listed(names)}" for what, names in parts.items() if names]
        return "; ".join(["its command or URL has changed"] * self.identity_changed + said) or "nothing"


def judge(accepted: Pins | None, seen: Pins, policy: OnToolChange) -> PinVerdict:
    """Compare a listing with the accepted one.

    - ``"allow"`` and ``"warn"`` accept the listing, so a difference is reported once (the caller logs it, or not);
    - ``"block"`` accepts nothing by itself: an added or changed tool is hidden in every listing until it is approved
      (`Pins.approve`) or has its accepted definition again. A tool that disappears and returns must be unchanged.

    Args:
        accepted: the accepted pins; None for the very first listing, which is trusted.
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
    """Return whether two identities are known to differ."""
    return accepted is not None and seen is not None and accepted != seen
