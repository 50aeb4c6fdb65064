"""Determine the kind of a server: command, script or URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...transports import Kind
from .._places import bad, child, did_you_mean, found
from . import _keys
from ._fields import Fields


def kind_of(entry: Mapping[str, Any], transport: Fields) -> Kind:
    """Return how the server is reached.

    Raises:
        ConfigError: the entry has neither a command nor a URL, or contradicts itself.
    """
    source, path = transport.source, transport.path
    said = [key for key in ("type", "transport") if entry.get(key) is not None]
    kinds = {key: _declared(entry[key], child(path, key), source) for key in said}
    if len(set(kinds.values())) > 1:
        raise bad(source, path, "'type' and 'transport' differ; remove one of them")
    declared = next(iter(kinds.values()), None)
    command, url = transport.keys.get("command"), transport.keys.get("url")
    if command and url:
        names = [place.removeprefix(path).lstrip(".") for place in (command, url)]
        raise bad(source, path, f"both {names[0]!r} and {names[1]!r} are given; remove one of them")
    if not command and not url:
        raise bad(source, path, _nothing_to_reach(entry, declared))
    if declared is not None and (declared == "stdio") != bool(command):
        given = "'command'" if command else "'url'"
        raise bad(source, path, f"{said[0]!r} is {declared!r}, which contradicts {given}; remove one of them")
    if declared is None and url:
        return "http" if "httpUrl" in entry else "url"
    return declared or "stdio"


def _nothing_to_reach(entry: Mapping[str, Any], declared: Kind | None) -> str:
    unknown = (key for key in entry if key not in _keys.KNOWN)
    near = next(filter(None, (did_you_mean(key, ("command", "url")) for key in unknown)), "")
    if declared is None:
        return f"neither 'command' nor 'url' is given; write the program to start, or the URL to connect to{near}"
    wanted = "command" if declared == "stdio" else "url"
    return f"the type is {declared!r}, but there is no {wanted!r}; write it{near}"


def _declared(word: object, place: str, source: str) -> Kind:
    kind = _keys.KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        choices = "'stdio', 'http' or 'sse'"
        raise bad(source, place, f"found {found(word)}; write {choices}{did_you_mean(word, _keys.KINDS)}")
    return kind


def leave_out_unsuited(kind: Kind, transport: Fields, warn: Callable[[str, str], None]) -> None:
    """Drop the fields of the other kind of server with a warning; other programs drop them silently."""
    of_others, what = (
        (_keys.ONLY_URL, "a server with a URL")
        if kind in ("stdio", "script")
        else (_keys.ONLY_COMMAND, "a server with a command")
    )
    for field in of_others:
        if field in transport.values and _keys.SETTINGS not in transport.keys[field]:
            place = transport.keys[field]
            if transport.drop(field):
                warn(place, f"this has no effect, because it is only for {what}")
