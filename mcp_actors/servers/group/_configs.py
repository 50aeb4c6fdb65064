"""Read the configurations, files and mappings that `open_servers` was given."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import trio
from attrs import Factory, define

from ..._collapse import first_of
from ..._errors import ConfigError
from ...config import LoadedConfig, ServerConfig, check_unique_names, load_config

__all__ = ["Configured", "Given", "read_configs"]

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
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    required: set[str] = Factory(set)

    @property
    def enabled(self) -> list[ServerConfig]:
        """The enabled servers."""
        return [config for config in self.servers if config.enabled]

    def add(self, loaded: LoadedConfig) -> None:
        """Add the servers and errors of one source."""
        self.servers += loaded.servers
        self.failed.update(loaded.failed)
        self.required |= loaded.required
        for problem in (*loaded.errors, *loaded.warnings):
            logger.warning("%s", problem)


async def read_configs(configs: Iterable[Configured], *, strict: bool) -> Given:
    """Read every configuration, the files among them in a thread.

    **Cancellation**: leaves at once and abandons a thread that waits for a slow file system.

    Raises:
        ConfigError: a file cannot be read, an argument is not a configuration, two servers share a name, or a required
            entry (any entry if `strict`) cannot be used. The first such error is raised; the others are notes.
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
    needed = [error for name, error in given.failed.items() if strict or name in given.required]
    if needed:
        raise first_of(needed)
    check_unique_names(given.servers)
    return given
