"""The servers that several sources have together."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import attrs
from attrs import Factory, define

from ... import config as configuration
from ..._collapse import first_of
from ..._errors import ConfigError
from ...config import LoadedConfig, Rank, ServerConfig, Source, check_unique_names

Configured: TypeAlias = ServerConfig | LoadedConfig | Source | str | os.PathLike[str] | Mapping[str, Any]
"""An argument of `open_servers`: a server, a source, a result of `load_config`, or a path or mapping for it."""

T = TypeVar("T")

OF_CODE: Final = "the arguments of open_servers"
"""Names the source of servers that are configured in Python."""


def anchored(argument: T) -> T | str:
    """Return a path as an absolute one, because the program may enter another directory; anything else as it is."""
    if not isinstance(argument, (str, os.PathLike)):
        return argument
    try:
        return configuration.FileSource(argument).name
    except ConfigError:
        return argument  # reading it raises the error


class Part(NamedTuple):
    """The content of one argument, or of one file of a directory.

    Attributes:
        loaded: the servers and errors.
        rank: which part wins if several have a server of the same name.
        strict: whether it must be valid as a whole.
        stamp: the look at its source before it was read; None if it has none.
        home: the name of the source that it is a part of; None if it is the whole of an argument.
    """

    loaded: LoadedConfig
    rank: Rank
    strict: bool = False
    stamp: Hashable = None
    home: str | None = None

    @property
    def source(self) -> str:
        """The name of its source."""
        return self.home or self.loaded.source


class Reading(NamedTuple):
    """The content of a source, and the look at it before it was read.

    Attributes:
        parts: the servers and errors.
        stamp: the look.
        due: whether the source, or a file in it, could not be used as a whole, so that it is to be read again.
        number: counts the readings of the group, in the order in which they began.
    """

    parts: tuple[LoadedConfig, ...]
    stamp: Hashable
    due: bool
    number: int


@define
class Given:
    """The servers of a group, and the entries that could not be loaded.

    Attributes:
        servers: the configurations, in the order in which they were given.
        failed: the error of each server, file or table that could not be loaded, by its name.
        problems: what is to be logged, if the group uses this configuration: each with the stamp of its source.
        read: what each source gave, by the name of the source.
        homes: the name of the source of each server.
        sources: the names of the sources, also of those that have no server.
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    problems: list[tuple[Hashable, object]] = Factory(list)
    read: dict[str, Reading] = Factory(dict)
    homes: dict[str, str] = Factory(dict)
    sources: frozenset[str] = frozenset()

    def ignore(self, names: Collection[str]) -> None:
        """Note as a problem that servers with these names are not taken from here, as `ServerGroup.add` came first."""
        for config in self.servers:
            if config.name in names:
                home = self.homes[config.name]
                problem = f"server {config.name!r}: {home} is ignored for it, because add() added one of this name"
                self.problems.append((None, f"{problem}; rename or remove one of the two"))

    @property
    def enabled(self) -> list[ServerConfig]:
        """The enabled servers."""
        return [config for config in self.servers if config.enabled]


def merge(parts: Iterable[Part], *, strict: bool) -> Given:
    """Put the parts of a configuration together. Of several servers of the same name, the first source wins.

    A name that several parts of one source have, as the files of a directory, is an error, and none of them is used:
    any of them may be the one that was meant.

    Raises:
        ConfigError: one part has two servers of the same name, or a required entry (any entry if `strict`) cannot be
            used, or a part that must be valid is not. The first such error is raised; the others are notes.
    """
    parts = tuple(_without_repeated(tuple(parts)))
    given, winners = Given(sources=frozenset(part.source for part in parts)), _winners(parts)
    needed: set[str] = set()
    for part in parts:
        loaded = part.loaded
        for config in loaded.servers:
            winner = winners[config.name].loaded.source
            if winner == loaded.source:
                given.servers.append(config)
                given.homes[config.name] = part.source
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


def _without_repeated(parts: tuple[Part, ...]) -> Iterator[Part]:
    """Yield the parts with an error instead of each server whose name another part of the same source has."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for part in parts:
        if part.home is not None:
            for name in dict.fromkeys((*(config.name for config in part.loaded.servers), *part.loaded.failed)):
                places.setdefault((part.home, name), {})[part.loaded.source] = None
    repeated = {key: found for key, found in places.items() if len(found) > 1}
    for part in parts:
        loaded = part.loaded
        twice = {
            name: ConfigError(
                f"server {name!r}: {' and '.join(found)} have a server of this name; rename it in one of them",
                source=home,
            )
            for (home, name), found in repeated.items()
            if home == part.home and loaded.source in found
        }
        if twice:
            needed = {config.name for config in loaded.servers if config.required} | loaded.required
            loaded = attrs.evolve(
                loaded,
                servers=tuple(config for config in loaded.servers if config.name not in twice),
                errors=(*loaded.errors, *twice.values()),
                failed={**loaded.failed, **twice},
                required=loaded.required | (needed & twice.keys()),
            )
        yield part._replace(loaded=loaded)


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
