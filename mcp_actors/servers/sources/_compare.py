"""Compare the configurations of a group with earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attrs import fields

from ...config import ServerConfig
from ._given import Given


class Difference(NamedTuple):
    """The servers of a group that differ from a new configuration.

    Attributes:
        added: the new ones, in the new order.
        removed: the names of those that are gone, in the old order.
        changed: those that differ, in the new order.
        unchanged: the names of all others: in the new order, then those whose new entries are invalid.
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


def compare(old: Mapping[str, ServerConfig], new: Given) -> Difference:
    """Compare the servers of a group with a new configuration.

    Two configurations are the same if they are equal, secrets included. A server whose new entry is invalid is left as
    it is: a slip of the pen in one entry must not stop the server that it is about.
    """
    now = {config.name: config for config in new.enabled}
    kept = tuple(name for name in old if name not in now and name in new.failed)
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
