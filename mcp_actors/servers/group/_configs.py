"""Read the configurations of a group, and compare them with earlier ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import trio
from attrs import Factory, define, fields, frozen

from ..._collapse import first_of
from ..._errors import ConfigError
from ...config import LoadedConfig, ServerConfig, check_unique_names, load_config

__all__ = ["Configured", "Difference", "Given", "changed_fields", "check_added", "compare", "read_configs"]

logger = logging.getLogger("mcp_actors.servers")

Configured: TypeAlias = ServerConfig | LoadedConfig | str | os.PathLike[str] | Mapping[str, Any]
"""An argument of `open_servers`: a server, a result of `load_config`, or a path or mapping for it."""


@define
class Given:
    """The servers of a group, and the entries that could not be loaded.

    Attributes:
        servers: the configurations, in the order in which they were given.
        failed: the error of each server or file that could not be loaded, by its name or path.
        required: the names in `failed` that prevent the group from starting.
        unread: the names in `failed` that are whole files or mappings.
        problems: what is to be logged about them, if the group uses this configuration.
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    required: set[str] = Factory(set)
    unread: set[str] = Factory(set)
    problems: list[object] = Factory(list)

    @property
    def enabled(self) -> list[ServerConfig]:
        """The enabled servers."""
        return [config for config in self.servers if config.enabled]

    def add(self, loaded: LoadedConfig) -> None:
        """Add the servers and errors of one source."""
        self.servers += loaded.servers
        self.failed.update(loaded.failed)
        self.required |= loaded.required
        self.unread |= {loaded.source} & loaded.failed.keys()
        self.problems += (*loaded.errors, *loaded.warnings)


async def read_configs(configs: Iterable[Configured], *, strict: bool, whole: bool = False) -> Given:
    """Read every configuration, the files among them in a thread. Log problems that are not raised.

    **Cancellation**: leaves at once and abandons a thread that waits for a slow file system.

    Raises:
        ConfigError: a file cannot be read, an argument is not a configuration, two servers share a name, or a required
            entry (any entry if `strict`) cannot be used; or, if `whole`, a file is not valid as a whole. The first such
            error is raised; the others are notes.
    """
    given = Given()
    for config in configs:
        if isinstance(config, ServerConfig):
            given.servers.append(config)
        elif isinstance(config, LoadedConfig):
            given.add(config)
        elif isinstance(config, Mapping):
            given.add(load_config(config))
        elif isinstance(config, (str, os.PathLike)):
            given.add(await trio.to_thread.run_sync(load_config, config, abandon_on_cancel=True))
        else:
            raise ConfigError(
                f"open_servers takes ServerConfig objects, paths and mappings, not {type(config).__name__}; "
                'write ServerConfig("name", Stdio("command")) or "mcp.json"',
                source="open_servers",
            )
    required = given.required | (given.unread if whole else set())
    needed = [error for name, error in given.failed.items() if strict or name in required]
    if needed:
        raise first_of(needed)
    check_unique_names(given.servers)
    for problem in given.problems:
        logger.warning("%s", problem)
    return given


@frozen(kw_only=True)
class Difference:
    """The servers of a group that differ from a new configuration.

    Attributes:
        added: the new ones, in the new order.
        removed: the names of those that are gone, in the old order.
        changed: those that differ, in the new order.
        unchanged: the names of all others: in the new order, then those whose new entries are invalid.
        order: the names of all servers in the new order.
    """

    added: tuple[ServerConfig, ...]
    removed: tuple[str, ...]
    changed: tuple[ServerConfig, ...]
    unchanged: tuple[str, ...]

    order: tuple[str, ...]


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
        order=(*now, *kept),
    )


def changed_fields(old: ServerConfig, new: ServerConfig) -> tuple[str, ...]:
    """Return the names of the fields in which two configurations of a server differ."""
    compared = (field.name for field in fields(ServerConfig) if field.eq)
    return tuple(name for name in compared if getattr(old, name) != getattr(new, name))


def check_added(config: object) -> None:
    """Validate the argument of `ServerGroup.add`.

    Raises:
        ConfigError: it is not the configuration of an enabled server.
    """
    if not isinstance(config, ServerConfig):
        problem = f"add() takes a ServerConfig, not {type(config).__name__}; for files and mappings, use reload()"
        raise ConfigError(problem, source="ServerGroup.add")
    if not config.enabled:
        problem = "this server is disabled; add it with enabled=True"
        raise ConfigError(f"server {config.name!r}: {problem}", source="ServerGroup.add", path="enabled")
