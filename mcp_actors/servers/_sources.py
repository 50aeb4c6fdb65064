"""Read, merge and compare the configurations of a group.

A source is a file, a directory, a database or code of the program. A source may block, hang, fail, or change during a
reading, and must not stop a running server by accident. So each source has a worker thread, and everything is read,
merged and validated before the group changes anything.

Owns: configurations of the group; readings of sources; worker threads.
Writes: the log.
Calls: config.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import trio
from attrs import Factory, asdict, define, evolve, field, fields, frozen

from .. import config as configuration
from .._collapse import caused_by, first_of
from .._errors import ConfigError
from .._foreign import Log
from .._misuse import type_of
from .._tasks import NoThread, run_in_thread
from ..config import LoadedConfig, Rank, ServerConfig, Source, check_unique_names
from ..config._template import check_variables, written_at

logger = Log("mcp_actors.servers")

Configured: TypeAlias = ServerConfig | LoadedConfig | Source | str | os.PathLike[str] | Mapping[str, Any]
"""An argument of `open_servers`."""

T = TypeVar("T")

OF_CODE: Final = "the arguments of open_servers"
"""The name of the source for servers configured in Python."""


SOURCE_TIMEOUT: Final = 30.0
"""Seconds within which a followed source must answer, whatever timeouts the source has."""


@define(eq=False)
class Sources:
    """The configurations of a group.

    Attributes:
        strict: whether every entry is required.
        configs: the arguments of the last opening or reload.
        changed: set when `configs` are replaced.
        tried: the stamp before the last reading of each source, used or not.
        refused: the error for which the group refused a followed reading; None once a reading is used.
    """

    strict: bool
    env_file: str | os.PathLike[str] | None = None
    configs: tuple[Configured, ...] = ()
    changed: trio.Event = field(factory=trio.Event)
    tried: dict[str, Hashable] = field(factory=dict)
    refused: ConfigError | None = None
    _begun: int = 0
    _last: dict[str, Reading] = field(factory=dict)
    _read_at: dict[str, datetime] = field(factory=dict)
    _logged: set[tuple[Hashable, str]] = field(factory=set)
    _threads: dict[str, trio.CapacityLimiter] = field(factory=dict)
    _silent: set[str] = field(factory=set)
    _failing: dict[str, ConfigError] = field(factory=dict)

    @property
    def watched(self) -> list[Source]:
        return [source for _, source in self._paired(self.configs) if source is not None]

    async def read(self, configs: Iterable[Configured], *, lenient: bool = False, whole: bool = False) -> Merged:
        """Read every configuration, in threads where that may block.

        **Cancellation**: leaves at once and abandons hanging threads.

        Args:
            configs: what to read.
            lenient: True for the watch. Then unusable files keep their last content, as tables and directories always
                do, and only sources that are due are read again.
            whole: whether files and mappings must be valid as a whole.

        Raises:
            ConfigError: a file cannot be read, an argument is not a configuration, two sources or servers share a name,
                or a required entry (any entry if `strict`) cannot be used. The first error is raised; notes list the
                rest.
        """
        paired = self._paired(configs)
        _check_names(source.name for _, source in paired if source is not None)
        self._begun = number = self._begun + 1
        await trio.lowlevel.checkpoint_if_cancelled()
        found: dict[str, _Found] = {}
        async with trio.open_nursery() as nursery:
            for _, source in paired:
                if source is not None:
                    nursery.start_soon(self._read, source, found, lenient)
        self.tried |= {name: each.stamp for name, each in found.items()}
        parts: list[Part] = []
        read: dict[str, Reading] = {}
        for config, source in paired:
            if source is None:
                parts.append(await self._given_directly(config, whole=whole))
                continue
            is_file = isinstance(config, (str, os.PathLike))
            kept = self._kept(source, found[source.name], number, lenient=lenient, is_file=is_file)
            read[source.name] = kept
            whole_file = whole and is_file and not lenient
            parts += (Part(each, source.rank, whole_file, kept.stamp, source.name) for each in kept.parts)
        merged = merge(parts, strict=self.strict)
        merged.read = read
        return merged

    @property
    def statuses(self) -> tuple[SourceStatus, ...]:
        """A snapshot of each source in use. Any thread may ask."""
        return tuple(self._status(name, reading) for name, reading in self._last.items())

    def _status(self, name: str, reading: Reading) -> SourceStatus:
        refusal = self.refused if self.tried.get(name) != reading.stamp else None
        errors = (error for part in reading.parts for error in part.errors)
        error = self._failing.get(name) or refusal or next(errors, None)
        current = error is None and not reading.due
        at, refused = self._read_at[name], refusal is not None
        return SourceStatus(name=name, read_at=at, error=error, refused=refused, current=current)

    def is_outdated(self, merged: Merged) -> bool:
        """Return True, and mark all sources due, if the group already uses newer content of any source."""
        last = self._last
        # A slow older reading may end after a newer one was adopted: the newer did not wait for a hanging source.
        # Applying the older would silently undo a change that the group already runs. Compare numbers per source, not
        # per reading: the newer may have kept old content of the hanging source.
        outdated = any(name in last and last[name].number > each.number for name, each in merged.read.items())
        if outdated:
            self.mark_due()
        return outdated

    def adopt(self, merged: Merged, configs: tuple[Configured, ...], *, again: bool = False) -> list[ConfigError]:
        """Keep a reading that the group begins to use; log its problems, and return the new errors.

        Called in the step in which the group begins to use the reading. With `again`, no error is logged twice while
        its source is unchanged. Warnings are never logged twice.
        """
        for name, reading in merged.read.items():
            if name not in self._last or self._last[name].number != reading.number:
                self._read_at[name] = datetime.now(UTC)
        self._last, self.refused = merged.read, None
        if configs is not self.configs:
            self.configs = configs
            self.changed.set()
            self.changed = trio.Event()
        problems = {(stamp, str(problem)): problem for stamp, problem in merged.problems}
        repeated = {key for key in self._logged if again or not isinstance(problems.get(key), ConfigError)}
        new = [key for key in problems if key not in repeated]
        self._logged = set(problems)
        for key in new:
            kept = again and isinstance(problems[key], ConfigError)
            logger.warning("%s%s", key[1], "; servers that run keep their configuration" if kept else "")
        return [problem for key in new if isinstance(problem := problems[key], ConfigError)]

    async def look(self, source: Source) -> Hashable:
        """Return the stamp of a source; if unreachable, the text of the error.

        Raises:
            NoThread: no thread could be started.
        """
        look = await self._ask(source, lambda: self._look(source), patient=False)
        if isinstance(look, NoThread):
            raise look
        return _stamp(look)

    def is_due(self, source: Source, stamp: Hashable) -> bool:
        """Return True unless the group uses everything that a source with this stamp has.

        A cancelled, failed or refused reading leaves its source due.

        A source that was changed back after a refused change is due, too: only the next reading clears `refused`.
        """
        last = self._last.get(source.name)
        taken_back = self.refused is not None and self.tried.get(source.name) != stamp
        return last is None or last.due or last.stamp != stamp or taken_back

    def mark_due(self) -> None:
        """Mark all sources as due: even unchanged, they may have servers that the group left out."""
        self._last = {name: reading._replace(due=True) for name, reading in self._last.items()}

    def _paired(self, configs: Iterable[Configured]) -> list[tuple[Configured, Source | None]]:
        return [(config, self._source_of(config)) for config in configs]

    def _source_of(self, config: Configured) -> Source | None:
        if isinstance(config, ServerConfig):  # the usual case; looking for a source's methods is slow
            return None
        if isinstance(config, (str, os.PathLike)):
            return configuration.FileSource(config, env_file=self.env_file)
        return config if isinstance(config, Source) and not isinstance(config, type) else None

    async def _given_directly(self, config: Configured, *, whole: bool) -> Part:
        if isinstance(config, ServerConfig):
            return Part(LoadedConfig((config,), source=OF_CODE), Rank.CODE)
        if isinstance(config, LoadedConfig):
            return Part(config, Rank.FILE, strict=whole)
        if isinstance(config, Mapping):
            job = partial(configuration.load_config, config, env_file=self.env_file)
            # Only reading `env_file` needs a thread: starting one takes longer than parsing a small mapping.
            loaded = job() if self.env_file is None else await run_in_thread(job)
            return Part(loaded, Rank.FILE, strict=whole)
        remedy = 'write ServerConfig("name", Stdio("command")) or "mcp.json"'
        if isinstance(config, (list, tuple)):
            remedy = "pass each one as an argument: open_servers(*configs)"
        problem = f"takes ServerConfig objects, paths, mappings and sources, not {type_of(config)}; {remedy}"
        raise ConfigError(f"open_servers {problem}", source="open_servers")

    async def run_job(self, source: Source, job: Callable[[], None]) -> ConfigError | None:
        """Run a job in the thread of a source; return the error of a failure or timeout."""
        return await self._ask(source, lambda: _asked(source, job), patient=False)

    async def _read(self, source: Source, found: dict[str, _Found], lenient: bool) -> None:
        """Look at a source and read it; if `lenient`, only if due, and if the last look succeeded.

        The watch is `lenient`, so a table behind a dead network delays the files only once.
        """
        # Check before waiting for the thread, and again within: another call may have failed meanwhile.
        if lenient and (failing := self._failing.get(source.name)) is not None:
            found[source.name] = _Found(str(failing), failing)
            return

        def question() -> _Found | ConfigError:
            if lenient and (failing := self._failing.get(source.name)) is not None:
                return failing
            # Look first: a change after the look makes the next look differ, and so is read later. A look after the
            # reading could already see the change, and the old content would pass as current forever.
            look = self._look(source)
            last = self._last.get(source.name)
            if lenient and last is not None and not isinstance(look, ConfigError) and not self.is_due(source, look):
                return _Found(look, last)
            return _Found(
                _stamp(look), look if isinstance(look, ConfigError) else _asked(source, partial(_content, source))
            )

        answer = await self._ask(source, question, not lenient)
        found[source.name] = _Found(str(answer), answer) if isinstance(answer, ConfigError) else answer

    def _look(self, source: Source) -> Hashable | ConfigError:
        look = _asked(source, source.look)
        if isinstance(look, ConfigError):
            self._failing[source.name] = look
        else:
            self._failing.pop(source.name, None)
        return look

    def _kept(self, source: Source, found: _Found, number: int, *, lenient: bool, is_file: bool) -> Reading:
        """Return the content of a source, or the last content of a failed source.

        Raises:
            ConfigError: a file cannot be read, and the reading is not `lenient`.
        """
        content, last = found.content, self._last.get(source.name)
        if isinstance(content, Reading):
            return last or content  # `last` is None if `reload` has replaced the sources meanwhile
        if isinstance(content, ConfigError) and is_file and not lenient:
            raise content
        before = {} if last is None else {loaded.source: loaded for loaded in last.parts}
        if isinstance(content, ConfigError):
            # All parts stay, because nothing is known about any.
            failed = LoadedConfig((), (content,), source=source.name, failed={source.name: content})
            before[source.name] = _lasting(failed, before.get(source.name))
            return Reading(tuple(before.values()), found.stamp, due=True, number=0 if last is None else last.number)
        # A file may have been invalid, or out of reach for want of a descriptor: read again in either case.
        due = any(each.source in each.failed for each in content)
        if lenient or not is_file:
            content = tuple(_lasting(each, before.get(each.source)) for each in content)
        return Reading(content, found.stamp, due, number)

    async def _ask(self, source: Source, question: Callable[[], T], patient: bool) -> T | ConfigError:
        # Opening and `ServerGroup.reload` are patient, and wait without a limit. A blocked thread cannot be stopped,
        # only abandoned. The limiter of one token keeps a second call off a thread that still runs: each look would
        # otherwise abandon another thread. After a timeout the source fails at once, until the abandoned thread returns
        # its token. A cancelled caller does not mark the source as silent: the next call may wait.
        thread = self._threads.setdefault(source.name, trio.CapacityLimiter(1))
        if source.name not in self._silent or not thread.borrowed_tokens:
            with trio.move_on_after(math.inf if patient else SOURCE_TIMEOUT):
                try:
                    answer = await run_in_thread(question, thread)
                except NoThread as error:
                    return NoThread(f"{source.name}: {error}", source=source.name)
                self._silent.discard(source.name)
                return answer
            self._silent.add(source.name)
        return ConfigError(f"{source.name}: it has not answered within {SOURCE_TIMEOUT:g} s", source=source.name)


class _Found(NamedTuple):
    """The stamp of a source, and its content: new, an error, or the last `Reading` if the source was not due."""

    stamp: Hashable
    content: tuple[LoadedConfig, ...] | Reading | ConfigError


def _check_names(names: Iterable[str]) -> None:
    """Raise ConfigError for two sources with the same name, the key for everything about a source."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            problem = f"two sources have the name {name!r}; remove one of them, or give it another name"
            raise ConfigError(problem, source="open_servers")
        seen.add(name)


def _lasting(loaded: LoadedConfig, last: LoadedConfig | None) -> LoadedConfig:
    """Return a part; with its last servers if the new content is invalid as a whole."""
    if last is None or loaded.source not in loaded.failed:
        return loaded
    return evolve(loaded, servers=last.servers, failed={**last.failed, **loaded.failed})


def _stamp(look: Hashable | ConfigError) -> Hashable:
    return str(look) if isinstance(look, ConfigError) else look


# --- In worker threads ------------------------------------------------------------------------------------------------


def _asked(source: Source, question: Callable[[], T]) -> T | ConfigError:
    """Return the answer of a source, or the error: a user's source may raise anything."""
    try:
        return question()
    except ConfigError as error:
        return error
    except Exception as error:
        problem = f"{source.name}: reading it raised {type(error).__name__} (see the cause of this error)"
        return caused_by(ConfigError(problem, source=source.name), error)


def _content(source: Source) -> tuple[LoadedConfig, ...]:
    """Read a source; raise ConfigError if `read` returns the wrong type."""
    content: object = source.read()
    found = type(content).__name__
    if isinstance(content, (tuple, list)):
        others = [type(each).__name__ for each in content if not isinstance(each, LoadedConfig)]
        if not others:
            return tuple(content)
        found = f"{found} of {others[0]}"
    remedy = "return a tuple of LoadedConfig: (load_config(...),)"
    raise ConfigError(f"{source.name}: read() returned {found}; {remedy}", source=source.name)


# --- The servers that several sources have together -------------------------------------------------------------------


def anchored(argument: T) -> T | str:
    """Return a path as an absolute path, because the program may change its directory; anything else as is."""
    if not isinstance(argument, (str, os.PathLike)):
        return argument
    try:
        return configuration.FileSource(argument).name
    except ConfigError:
        return argument  # reading it raises the error


def anchored_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `open_servers`, by name, with absolute paths.

    The bridge and `sync` start Trio later, and the program may have changed its directory by then.
    """
    store = given["catalog_store"]
    if isinstance(store, (str, os.PathLike)) and store:
        store = os.path.abspath(store)
    paths = {"configs": tuple(map(anchored, given["configs"])), "env_file": anchored(given["env_file"])}
    return given | paths | {"catalog_store": store}


class Part(NamedTuple):
    """The content of one argument, or of one file of a directory.

    Attributes:
        rank: decides which part wins if several have a server of the same name.
        strict: whether the part must be valid as a whole.
        stamp: the look before the reading; None without a source.
        home: the name of the source; None for an argument without a source.
    """

    loaded: LoadedConfig
    rank: Rank
    strict: bool = False
    stamp: Hashable = None
    home: str | None = None

    @property
    def source(self) -> str:
        return self.home or self.loaded.source


@frozen(kw_only=True)
class SourceStatus:
    """A snapshot of a source of configurations: a file, a directory or a table.

    Attributes:
        name: the path of the file or directory, or the name of the table.
        read_at: when its content was last read and used, in UTC.
        error: why the source, or an entry, cannot be used; None if everything is used.
        refused: True if the group keeps its previous reading, for example because a required entry is invalid.
        current: True if the group runs what the last look found.
    """

    name: str
    read_at: datetime
    error: ConfigError | None
    refused: bool
    current: bool

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as values that `json.dumps` takes."""
        error = None if self.error is None else str(self.error)
        return {**asdict(self), "read_at": self.read_at.isoformat(), "error": error}


class Reading(NamedTuple):
    """The content of a source, and the look before reading.

    Attributes:
        due: whether to read again, because the source, or a file in a directory, could not be used as a whole.
        number: counts the readings of the group, in the order in which they began.
    """

    parts: tuple[LoadedConfig, ...]
    stamp: Hashable
    due: bool
    number: int


@define
class Merged:
    """The servers of a group, and the entries that could not be loaded.

    Attributes:
        failed: the error of each server, file or table that could not be loaded, by name.
        problems: log messages for when the group uses this configuration, each with the stamp of its source.
        homes: the name of the source of each server.
        sources: the names of all sources, even without servers.
    """

    servers: list[ServerConfig] = Factory(list)
    failed: dict[str, ConfigError] = Factory(dict)
    problems: list[tuple[Hashable, object]] = Factory(list)
    read: dict[str, Reading] = Factory(dict)
    homes: dict[str, str] = Factory(dict)
    sources: frozenset[str] = frozenset()

    def ignore(self, names: Collection[str]) -> None:
        """Note as a problem that servers with these names are ignored here: `ServerGroup.add` came first."""
        for config in self.servers:
            if config.name in names:
                home = self.homes[config.name]
                problem = f"server {config.name!r}: {home} is ignored for it, because add() added one of this name"
                self.problems.append((None, f"{problem}; rename or remove one of the two"))

    def refuse_unset(self, old: Mapping[str, ServerConfig]) -> None:
        """Note as failed each changed server that needs an unset variable. Its old configuration stays (`compare`)."""
        for config in self.enabled:
            if config != old.get(config.name, config):
                try:
                    check_variables(config.transport, os.environ, where=written_at(config))
                except ConfigError as error:
                    self.servers.remove(config)
                    self.failed[config.name] = error

    @property
    def enabled(self) -> list[ServerConfig]:
        return [config for config in self.servers if config.enabled]


def merge(parts: Iterable[Part], *, strict: bool) -> Merged:
    """Merge the parts of a configuration. Of several servers with the same name, the first source wins.

    A name in several parts of one source, such as two files of a directory, is an error, and none of these servers is
    used: any may be the intended one.

    Raises:
        ConfigError: one part has two servers of the same name, a required entry (any entry if `strict`) cannot be used,
            or a `strict` part is invalid. The first error is raised; notes list the rest.
    """
    parts = tuple(_without_repeated(tuple(parts)))
    merged, winners = Merged(sources=frozenset(part.source for part in parts)), _winners(parts)
    needed: set[str] = set()
    for part in parts:
        loaded = part.loaded
        for config in loaded.servers:
            winner = winners[config.name].loaded.source
            if winner == loaded.source:
                merged.servers.append(config)
                merged.homes[config.name] = part.source
            else:
                problem = f"server {config.name!r}: {loaded.source} is ignored for it, because {winner} comes first"
                merged.problems.append((part.stamp, f"{problem}; rename or remove one of the two"))
        for name, error in loaded.failed.items():
            if name not in winners or winners[name].loaded.source == loaded.source:
                merged.failed[name] = error
        needed |= loaded.required | ({loaded.source} & loaded.failed.keys() if part.strict else set())
        merged.problems += ((part.stamp, problem) for problem in (*loaded.errors, *loaded.warnings))
    _check_overrides(merged, parts)
    if errors := [error for name, error in merged.failed.items() if strict or name in needed]:
        raise first_of(errors)
    check_unique_names(merged.servers)
    return merged


def _without_repeated(parts: tuple[Part, ...]) -> Iterator[Part]:
    """Yield the parts; a name in two parts of the same source is an error instead of a server."""
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
            loaded = evolve(
                loaded,
                servers=tuple(config for config in loaded.servers if config.name not in twice),
                errors=(*loaded.errors, *twice.values()),
                failed={**loaded.failed, **twice},
                required=loaded.required | (needed & twice.keys()),
            )
        yield part._replace(loaded=loaded)


def _check_overrides(merged: Merged, parts: Iterable[Part]) -> None:
    """Add an error for each variable that overrides values of no server, or of several; drop these servers."""
    if all(part.rank is Rank.CODE for part in parts):
        return  # the variables are for another group of this program
    names = dict.fromkeys((*(config.name for config in merged.servers), *merged.failed))
    failed = configuration.check_overrides(names, os.environ)
    merged.servers = [config for config in merged.servers if config.name not in failed]
    merged.failed |= failed
    merged.problems += ((None, error) for error in dict.fromkeys(failed.values()))


def _winners(parts: Iterable[Part]) -> dict[str, Part]:
    """Return the part that defines each name, even if invalid or disabled there."""
    winners: dict[str, Part] = {}
    for part in sorted(parts, key=lambda part: part.rank):
        for name in (*(config.name for config in part.loaded.servers), *part.loaded.failed):
            winners.setdefault(name, part)
    return winners


# --- Compare the configurations of a group with earlier ones ----------------------------------------------------------


class ServerDifference(NamedTuple):
    """The servers of a group that differ from a new configuration.

    All but `removed` are in the new order; servers whose new entries are invalid or ignored come last.

    Attributes:
        removed: the names of removed servers, in the old order.
        unchanged: the names of all remaining servers.
        servers: all servers.
    """

    added: tuple[ServerConfig, ...]
    removed: tuple[str, ...]
    changed: tuple[ServerConfig, ...]
    unchanged: tuple[str, ...]
    servers: tuple[ServerConfig, ...]


def compare(old: Mapping[str, ServerConfig], new: Merged, keep: Container[str] = ()) -> ServerDifference:
    """Compare the servers of a group with a new configuration.

    Configurations are compared with their secrets. A server with an invalid new entry stays as is, because a typo must
    not stop a server. So does a server with a name in `keep`, whatever the new configuration says.
    """
    now = {config.name: config for config in new.enabled if config.name not in keep}
    kept = tuple(name for name in old if name not in now and (name in new.failed or name in keep))
    return ServerDifference(
        added=tuple(config for name, config in now.items() if name not in old),
        removed=tuple(name for name in old if name not in now and name not in kept),
        changed=tuple(config for name, config in now.items() if name in old and config != old[name]),
        unchanged=(*(name for name, config in now.items() if name in old and config == old[name]), *kept),
        servers=(*now.values(), *(old[name] for name in kept)),
    )


def changed_fields(old: ServerConfig, new: ServerConfig) -> tuple[str, ...]:
    compared = (field.name for field in fields(ServerConfig) if field.eq)
    return tuple(name for name in compared if getattr(old, name) != getattr(new, name))


def change_lines(
    old: Mapping[str, ServerConfig], homes: Mapping[str, str], difference: ServerDifference, new: Merged
) -> list[tuple[int, str]]:
    """Describe a difference for people: level and text of one line per source, without values."""
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
