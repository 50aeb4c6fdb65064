"""Compare the configurations of a group with earlier ones."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from attrs import fields

from ...config import ServerConfig
from ._given import OF_CODE, Given


class Difference(NamedTuple):
    """The servers of a group that differ from a new configuration.

    Attributes:
        added: the new ones, in the new order.
        removed: the names of those that are gone, in the old order.
        changed: those that differ, in the new order.
        unchanged: the names of all others: in the new order, then those whose new entries are invalid, and those that
            are kept in any case.
        servers: all servers in the new order.
    """

    added: tuple[ServerConfig, ...]
    removed: tuple[str, ...]
    changed: tuple[ServerConfig, ...]
    unchanged: tuple[str, ...]

    servers: tuple[ServerConfig, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """The names of all servers in the new order."""
        return tuple(config.name for config in self.servers)


def compare(old: Mapping[str, ServerConfig], new: Given, keep: Container[str] = ()) -> Difference:
    """Compare the servers of a group with a new configuration.

    Two configurations are the same if they are equal, secrets included. A server whose new entry is invalid is left as
    it is: a slip of the pen in one entry must not stop the server that it is about. So is a server with a name in
    `keep`, whatever the new configuration says of it.
    """
    now = {config.name: config for config in new.enabled if config.name not in keep}
    kept = tuple(name for name in old if name not in now and (name in new.failed or name in keep))
    return Difference(
        added=tuple(config for name, config in now.items() if name not in old),
        removed=tuple(name for name in old if name not in now and name not in kept),
        changed=tuple(config for name, config in now.items() if name in old and config != old[name]),
        unchanged=(*(name for name, config in now.items() if name in old and config == old[name]), *kept),
        servers=(*now.values(), *(old[name] for name in kept)),
    )


def changed_fields(old: ServerConfig, new: ServerConfig) -> tuple[str, ...]:
    """Return the names of the fields in which two configurations of a server differ."""
    compared = (field.name for field in fields(ServerConfig) if field.eq)
    return tuple(name for name in compared if getattr(old, name) != getattr(new, name))


def change_lines(
    old: Mapping[str, ServerConfig], homes: Mapping[str, str], difference: Difference, new: Given
) -> list[tuple[int, str]]:
    """Describe a difference for people: the level and the text of one line for each source. No line has a value.

    Args:
        old: the former servers.
        homes: the name of the source of each of them.
        difference: how the new ones differ.
        new: the new configuration.
    """
    what: dict[str, list[str]] = {}
    for home, those in _by_home((config.name for config in difference.added), new.homes).items():
        what.setdefault(home, []).append(f"added {', '.join(map(repr, those))}")
    fields_of = {config.name: ", ".join(changed_fields(old[config.name], config)) for config in difference.changed}
    for home, those in _by_home(fields_of, new.homes).items():
        what.setdefault(home, []).append(f"changed {', '.join(f'{name!r} ({fields_of[name]})' for name in those)}")
    levels = dict.fromkeys(what, logging.INFO)
    had = _by_home(old, homes)
    for home, those in _by_home(difference.removed, homes).items():
        text = f"removed {', '.join(map(repr, those))}"
        levels[home] = logging.INFO
        if home in new.sources and len(those) == len(had[home]) and home not in new.homes.values():
            levels[home] = logging.WARNING
            text += ", all the servers that it had; check that it is empty on purpose"
        what.setdefault(home, []).append(text)
    return [(levels[home], f"{home}: {'; '.join(texts)}") for home, texts in what.items()]


def _by_home(names: Iterable[str], homes: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(homes.get(name, OF_CODE), []).append(name)
    return found
