"""The servers that several sources have together."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from attrs import Factory, define

from ... import config as configuration
from ..._collapse import first_of
from ..._errors import ConfigError
from ...config import LoadedConfig, Rank, ServerConfig, Source, check_unique_names

Configured: TypeAlias = ServerConfig | LoadedConfig | Source | str | os.PathLike[str] | Mapping[str, Any]
"""An argument of `open_servers`: a server, a source, a result of `load_config`, or a path or mapping for it."""


class Part(NamedTuple):
    """The content of one argument, or of one file of a directory.

    Attributes:
        loaded: the servers and errors.
        rank: which part wins if several have a server of the same name.
        strict: whether it must be valid as a whole.
        stamp: the look at its source before it was read; None if it has none.
    """

    loaded: LoadedConfig
    rank: Rank
    strict: bool = False
    stamp: Hashable = None


@define
class Given:
    """The servers of a group, and the entries that could not be loaded.

    Attributes:
        servers: the configurations, in the order in which they were given.
        failed: the error of each server, file or table that could not be loaded, by its name.
        problems: what is to be logged, if the group uses this configuration: each with the stamp of its source.
        read: what each source gave, by the name of the source.
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    problems: list[tuple[Hashable, object]] = Factory(list)
    read: dict[str, tuple[LoadedConfig, ...]] = Factory(dict)

    @property
    def enabled(self) -> list[ServerConfig]:
        """The enabled servers."""
        return [config for config in self.servers if config.enabled]


def merge(parts: Iterable[Part], *, strict: bool) -> Given:
    """Put the parts of a configuration together. Of several servers of the same name, the first source wins.

    Raises:
        ConfigError: one source has two servers of the same name, or a required entry (any entry if `strict`) cannot be
            used, or a part that must be valid is not. The first such error is raised; the others are notes.
    """
    parts = tuple(parts)
    given, winners = Given(), _winners(parts)
    needed: set[str] = set()
    for part in parts:
        loaded = part.loaded
        for config in loaded.servers:
            winner = winners[config.name].loaded.source
            if winner == loaded.source:
                given.servers.append(config)
            else:
                problem = f"server {config.name!r}: {loaded.source} is ignored for it, because {winner} comes first"
                given.problems.append((part.stamp, f"{problem}; rename or remove one of the two"))
        for name, error in loaded.failed.items():
            if name not in winners or winners[name].loaded.source == loaded.source:
                given.failed[name] = error
        needed |= loaded.required | ({loaded.source} & loaded.failed.keys() if part.strict else set())
        given.problems += ((part.stamp, problem) for problem in (*loaded.errors, *loaded.warnings))
    _check_overrides(given, parts)
    if errors := [error for name, error in given.failed.items() if strict or name in needed]:
        raise first_of(errors)
    check_unique_names(given.servers)
    return given


def _check_overrides(given: Given, parts: Iterable[Part]) -> None:
    """Add an error for each variable that overrides a value of no server, or of several, which then are not used."""
    if all(part.rank is Rank.CODE for part in parts):
        return  # the variables are for another group of this program
    names = dict.fromkeys((*(config.name for config in given.servers), *given.failed))
    failed = configuration.check_overrides(names, os.environ)
    given.servers = [config for config in given.servers if config.name not in failed]
    given.failed |= failed
    given.problems += ((None, error) for error in dict.fromkeys(failed.values()))


def _winners(parts: Iterable[Part]) -> dict[str, Part]:
    """Return the part that has each server, also if its entry there is not valid, or is disabled."""
    winners: dict[str, Part] = {}
    for part in sorted(parts, key=lambda part: part.rank):
        for name in (*(config.name for config in part.loaded.servers), *part.loaded.failed):
            winners.setdefault(name, part)
    return winners
