"""What `open_servers` was given: configurations, and files and mappings in which there are some."""

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
"""What `open_servers` takes: a server, what `load_config` returned, or what it would be given."""


@define
class Given:
    """The servers of a group, and what could not be loaded.

    Attributes:
        servers: the configurations, in the order in which they were given.
        failed: the name of a server that could not be loaded, or the path of a file, and what is wrong with it.
        required: the names in `failed` without which the group must not start.
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    required: set[str] = Factory(set)

    @property
    def enabled(self) -> list[ServerConfig]:
        """The servers that are to be connected."""
        return [config for config in self.servers if config.enabled]

    def add(self, loaded: LoadedConfig) -> None:
        """Add what was loaded from one source."""
        self.servers += loaded.servers
        self.failed.update(loaded.failed)
        self.required |= loaded.required
        for problem in (*loaded.errors, *loaded.warnings):
            logger.warning("%s", problem)


async def read_configs(configs: Iterable[Configured], *, strict: bool) -> Given:
    """Read the files among what was given.

    **Cancellation**: leaves at once; a thread that waits for a slow file system is left to itself.

    Raises:
        ConfigError: a file cannot be read, this is no configuration, two servers have one name, or an entry that is
            needed cannot be used: one that is required, or any if `strict`. The first such, the others are notes.
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
