"""Convert the lists of tools in an entry into a `ToolFilter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...._errors import ConfigError
from ...tools import GLOB, ToolFilter
from .._places import bad, child, found
from ._fields import Fields
from ._keys import HIDDEN_TOOLS, SHOWN_TOOLS


def read_tools(entry: Mapping[str, Any], server: Fields) -> None:
    """Store the filter that the lists of an entry make. A tool in both lists is hidden.

    Raises:
        ConfigError: one of them is not a list of names.
    """
    shown, hidden = (_listed(entry, keys, server) for keys in (SHOWN_TOOLS, HIDDEN_TOOLS))
    if shown is None and not hidden:
        return
    key = next(key for key in (*SHOWN_TOOLS, *HIDDEN_TOOLS) if entry.get(key) is not None)
    denied = set(hidden or ())
    allow = None if shown is None else [name for name in shown if name not in denied]
    names = None if allow is None else [name for name in allow if not GLOB.search(name)]
    patterns = [name for name in allow or () if GLOB.search(name)]
    patterns += [f"!{name}" for name in denied if GLOB.search(name)]
    deny = [name for name in hidden or () if not GLOB.search(name)]
    try:
        server.put("tools", ToolFilter(allow=names, deny=deny, patterns=patterns or None), key)
    except ConfigError as error:
        if error.source == server.source:
            raise
        raise bad(server.source, child(server.path, key), str(error)) from None


def _listed(entry: Mapping[str, Any], keys: tuple[str, ...], server: Fields) -> list[str] | None:
    given = [key for key in keys if entry.get(key) is not None and not isinstance(entry[key], Mapping)]
    if len(given) > 1:
        raise bad(server.source, server.path, f"{given[0]!r} and {given[1]!r} set the same option; remove one of them")
    if not given:
        return None
    place, value = child(server.path, given[0]), entry[given[0]]
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        raise bad(server.source, place, f"found {found(value)}; write a list of names of tools")
    return list(dict.fromkeys(value))
