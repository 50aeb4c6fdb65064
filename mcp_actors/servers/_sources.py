"""Read the sources of a group, and compare what they give.

`Sources` keeps the arguments of a group and the last reading of each source. It looks at sources, reads them, and runs
jobs in their threads. `merge` puts the servers of several sources together (`Given`). `compare` finds how a new
configuration differs from the servers of the group, and `change_lines` describes that for the log.

The group makes the `Sources`, and applies what is found. ``_watch`` asks for changes, notes here what was refused, and
has tables written by `Sources.tell`. The lifecycle actor compares with what is here, and marks all sources as due when
an added server was removed. The bridge uses `anchored`. A source is a file, a directory, a database or code of the
program. The file raises or returns `ConfigError`. It uses the configuration, reads the environment for overrides, and
logs the problems of a reading. It imports no other file of ``servers`` and nothing of the kernel.

Theory of operation
-------------------
A source blocks, so every call of one runs in a worker thread: one thread for each source, and all sources are read at
the same time. A thread that hangs is abandoned when its caller is cancelled, and is not joined: a database that hangs
cannot keep a group open. A look, a reading for a group that follows its sources, and the writing of states must end
within `PATIENCE` seconds; opening and `ServerGroup.reload` wait without a limit. A source that has not answered in time
is asked again when its thread has ended, and fails at once until then. One whose last look has failed is looked at
again only by the task that follows it, and by `ServerGroup.reload`: a table behind a dead network delays the files only
once.

A source is looked at before it is read. A change between the two is then found by the next look; in the opposite
order it would be lost. Two readings ask each source in the order in which they began. They may end in the other
order: the older one has read a file and waits for a table that hangs, when the newer one reads the file and no longer
waits for this table. So each reading has a number, and one whose content of any source is older than the kept one is
not used (`Sources.is_outdated`).

Everything is read, merged and validated before the group changes anything (`merge`). The reading is kept
(`Sources.adopt`) in the step in which the group begins to apply it, when nothing can refuse it any more. It replaces a
source that cannot be reached later, or a file that cannot be parsed: the servers of that stay as they are, and the
error is reported. Only opening and `ServerGroup.reload` raise the error of a file that is an argument.

The look and what was read after it are kept together or not at all (`Reading`). So a reading that was cancelled or
refused, or that failed, leaves its sources *due*: a look that is not the kept one, or a kept reading that lacks
something, is a reason to read again (`Sources.is_due`).
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
"""An argument of `open_servers`: a server, a source, a result of `load_config`, or a path or mapping for it."""

T = TypeVar("T")

OF_CODE: Final = "the arguments of open_servers"
"""Names the source of servers that are configured in Python."""


PATIENCE: Final = 30.0
"""Seconds within which a followed source must answer, whatever timeouts it has of its own."""


@define(eq=False)
class Sources:
    """The configurations of a group.

    Attributes:
        strict: whether every entry is required.
        env_file: the ``.env`` file for files and mappings, or None.
        configs: the arguments that the group was opened or reloaded with last.
        changed: set when `configs` are replaced.
        tried: the look at each source before it was read last, whether or not that reading was used.
        refused: the error of the followed reading that the group has refused; None once a reading is used.
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
        """The sources that may change by themselves."""
        return [source for _, source in self._paired(self.configs) if source is not None]

    async def read(self, configs: Iterable[Configured], *, lenient: bool = False, whole: bool = False) -> Given:
        """Read every configuration, in threads where that may block.

        **Cancellation**: leaves at once and abandons a thread that waits for a slow file system or database.

        Args:
            configs: what to read.
            lenient: whether this is a reading of a group that follows its sources. Files that cannot be used keep what
                they gave last then, as tables and directories always do, and what has not changed is not read again.
            whole: whether files and mappings must be valid as a whole.

        Raises:
            ConfigError: a file cannot be read, an argument is not a configuration, two sources or servers share a
                name, or a required entry (any entry if `strict`) cannot be used. The first such error is raised; the
                others are notes.
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
        given = merge(parts, strict=self.strict)
        given.read = read
        return given

    @property
    def statuses(self) -> tuple[SourceStatus, ...]:
        """A snapshot of each source that the group uses. Any thread may ask."""
        return tuple(self._status(name, reading) for name, reading in self._last.items())

    def _status(self, name: str, reading: Reading) -> SourceStatus:
        refusal = self.refused if self.tried.get(name) != reading.stamp else None
        errors = (error for part in reading.parts for error in part.errors)
        error = self._failing.get(name) or refusal or next(errors, None)
        current = error is None and not reading.due
        at, refused = self._read_at[name], refusal is not None
        return SourceStatus(name=name, read_at=at, error=error, refused=refused, current=current)

    def is_outdated(self, given: Given) -> bool:
        """Return True if the group uses newer content of one of its sources. Then all of them are read again."""
        last = self._last
        outdated = any(name in last and last[name].number > each.number for name, each in given.read.items())
        if outdated:
            self.mark_due()
        return outdated

    def adopt(self, given: Given, configs: tuple[Configured, ...], *, again: bool = False) -> list[ConfigError]:
        """Keep a reading that the group uses from now on, and log its problems.

        Args:
            given: the reading.
            configs: what was read.
            again: True logs no error a second time while its source is the same. No warning is logged a second time.

        Returns:
            The errors that are new.
        """
        for name, reading in given.read.items():
            if name not in self._last or self._last[name].number != reading.number:
                self._read_at[name] = datetime.now(UTC)
        self._last, self.refused = given.read, None
        if configs is not self.configs:
            self.configs = configs
            self.changed.set()
            self.changed = trio.Event()
        problems = {(stamp, str(problem)): problem for stamp, problem in given.problems}
        repeated = {key for key in self._logged if again or not isinstance(problems.get(key), ConfigError)}
        new = [key for key in problems if key not in repeated]
        self._logged = set(problems)
        for key in new:
            kept = again and isinstance(problems[key], ConfigError)
            logger.warning("%s%s", key[1], "; servers that run keep their configuration" if kept else "")
        return [problem for key in new if isinstance(problem := problems[key], ConfigError)]

    async def look(self, source: Source) -> Hashable:
        """Return the stamp of a source; the text of the error is the stamp of one that cannot be reached.

        Raises:
            NoThread: no thread could be started for it.
        """
        look = await self._ask(source, lambda: self._look(source), patient=False)
        if isinstance(look, NoThread):
            raise look
        return _stamp(look)

    def is_due(self, source: Source, stamp: Hashable) -> bool:
        """Return True unless the group uses all that a source with this stamp gives.

        A refused change that was taken back is a change too: the next reading says that nothing is refused any more.
        """
        last = self._last.get(source.name)
        taken_back = self.refused is not None and self.tried.get(source.name) != stamp
        return last is None or last.due or last.stamp != stamp or taken_back

    def mark_due(self) -> None:
        """Read all sources again, although they look the same: they may have what the group has left out."""
        self._last = {name: reading._replace(due=True) for name, reading in self._last.items()}

    def _paired(self, configs: Iterable[Configured]) -> list[tuple[Configured, Source | None]]:
        """Return each configuration with the source that it is, or that is made of it."""
        return [(config, self._source_of(config)) for config in configs]

    def _source_of(self, config: Configured) -> Source | None:
        if isinstance(config, ServerConfig):  # nearly all are, and looking for the methods of a source is slow
            return None
        if isinstance(config, (str, os.PathLike)):
            return configuration.FileSource(config, env_file=self.env_file)
        return config if isinstance(config, Source) and not isinstance(config, type) else None

    async def _given_directly(self, config: Configured, *, whole: bool) -> Part:
        """Return the part of an argument other than a source.

        Raises:
            ConfigError: it is not a configuration.
        """
        if isinstance(config, ServerConfig):
            return Part(LoadedConfig((config,), source=OF_CODE), Rank.CODE)
        if isinstance(config, LoadedConfig):
            return Part(config, Rank.FILE, strict=whole)
        if isinstance(config, Mapping):
            job = partial(configuration.load_config, config, env_file=self.env_file)
            # A thread only for the file, because a small mapping takes less time than the way there.
            loaded = job() if self.env_file is None else await run_in_thread(job)
            return Part(loaded, Rank.FILE, strict=whole)
        remedy = 'write ServerConfig("name", Stdio("command")) or "mcp.json"'
        if isinstance(config, (list, tuple)):
            remedy = "pass each one as an argument: open_servers(*configs)"
        problem = f"takes ServerConfig objects, paths, mappings and sources, not {type_of(config)}; {remedy}"
        raise ConfigError(f"open_servers {problem}", source="open_servers")

    async def tell(self, source: Source, job: Callable[[], None]) -> ConfigError | None:
        """Run a job in the thread of a source. Return the error if it fails, or takes too long."""
        return await self._ask(source, lambda: _asked(source, job), patient=False)

    async def _read(self, source: Source, found: dict[str, _Found], lenient: bool) -> None:
        """Look at a source and read it; if `lenient`, only if it is due, and if the last look has not failed."""
        # Before it waits for the thread, and again in the thread, where another call may have failed meanwhile.
        if lenient and (failing := self._failing.get(source.name)) is not None:
            found[source.name] = _Found(str(failing), failing)
            return

        def question() -> _Found | ConfigError:
            if lenient and (failing := self._failing.get(source.name)) is not None:
                return failing
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
        """Look at a source, in its thread, and note whether that has failed."""
        look = _asked(source, source.look)
        if isinstance(look, ConfigError):
            self._failing[source.name] = look
        else:
            self._failing.pop(source.name, None)
        return look

    def _kept(self, source: Source, found: _Found, number: int, *, lenient: bool, is_file: bool) -> Reading:
        """Return what a source gives, and for what it cannot give what it gave last, unless it is a file.

        Raises:
            ConfigError: it is a file that cannot be read, and the reading is not `lenient`.
        """
        content, last = found.content, self._last.get(source.name)
        if isinstance(content, Reading):
            return last or content  # without a last one, `ServerGroup.reload` has replaced the sources meanwhile
        if isinstance(content, ConfigError) and is_file and not lenient:
            raise content
        before = {} if last is None else {loaded.source: loaded for loaded in last.parts}
        if isinstance(content, ConfigError):
            # Nothing is known about any of its parts, so all of them stay.
            failed = LoadedConfig((), (content,), source=source.name, failed={source.name: content})
            before[source.name] = _lasting(failed, before.get(source.name))
            return Reading(tuple(before.values()), found.stamp, due=True, number=0 if last is None else last.number)
        # A file may have been invalid or, for want of a descriptor, out of reach: it is read again in either case.
        due = any(each.source in each.failed for each in content)
        if lenient or not is_file:
            content = tuple(_lasting(each, before.get(each.source)) for each in content)
        return Reading(content, found.stamp, due, number)

    async def _ask(self, source: Source, question: Callable[[], T], patient: bool) -> T | ConfigError:
        """Run a call of a source; the error of one that is not answered in time is returned."""
        thread = self._threads.setdefault(source.name, trio.CapacityLimiter(1))
        if source.name not in self._silent or not thread.borrowed_tokens:
            with trio.move_on_after(math.inf if patient else PATIENCE):
                try:
                    answer = await _in_thread(question, thread)
                except NoThread as error:
                    return NoThread(f"{source.name}: {error}", source=source.name)
                self._silent.discard(source.name)
                return answer
            self._silent.add(source.name)
        return ConfigError(f"{source.name}: it has not answered within {PATIENCE:g} s", source=source.name)


class _Found(NamedTuple):
    """The look at a source, and what it gave then; the last reading if it was not read, because it looks the same."""

    stamp: Hashable
    content: tuple[LoadedConfig, ...] | Reading | ConfigError


async def _in_thread(question: Callable[[], T], thread: trio.CapacityLimiter) -> T:
    return await run_in_thread(question, thread)


def _check_names(names: Iterable[str]) -> None:
    """Refuse two sources of one name: everything that is kept of a source is kept by its name.

    Raises:
        ConfigError: a name is repeated.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            problem = f"two sources have the name {name!r}; remove one of them, or give it another name"
            raise ConfigError(problem, source="open_servers")
        seen.add(name)


def _lasting(loaded: LoadedConfig, last: LoadedConfig | None) -> LoadedConfig:
    """Return a part with the servers that it gave last, if it has none because it is not valid as a whole."""
    if last is None or loaded.source not in loaded.failed:
        return loaded
    return evolve(loaded, servers=last.servers, failed={**last.failed, **loaded.failed})


def _stamp(look: Hashable | ConfigError) -> Hashable:
    return str(look) if isinstance(look, ConfigError) else look


# --- In worker threads ------------------------------------------------------------------------------------------------


def _asked(source: Source, question: Callable[[], T]) -> T | ConfigError:
    """Return the answer of a source, or the error. A source of the user may raise anything."""
    try:
        return question()
    except ConfigError as error:
        return error
    except Exception as error:
        problem = f"{source.name}: reading it raised {type(error).__name__} (see the cause of this error)"
        return caused_by(ConfigError(problem, source=source.name), error)


def _content(source: Source) -> tuple[LoadedConfig, ...]:
    """Read a source.

    Raises:
        ConfigError: it returns something else.
    """
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
    """Return a path as an absolute one, because the program may enter another directory; anything else as it is."""
    if not isinstance(argument, (str, os.PathLike)):
        return argument
    try:
        return configuration.FileSource(argument).name
    except ConfigError:
        return argument  # reading it raises the error


def anchored_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a door of `open_servers`, by their names, with absolute paths.

    For the doors on asyncio and in threads, which pass on all arguments that they do not adapt. They start Trio later:
    the program may have entered another directory by then.
    """
    store = given["catalog_store"]
    if isinstance(store, (str, os.PathLike)) and store:
        store = os.path.abspath(store)
    paths = {"configs": tuple(map(anchored, given["configs"])), "env_file": anchored(given["env_file"])}
    return given | paths | {"catalog_store": store}


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


@frozen(kw_only=True)
class SourceStatus:
    """A snapshot of a source of configurations: a file, a directory or a table.

    Attributes:
        name: the path of the file or directory, or the name of the table.
        read_at: when its content was last read and used, in UTC.
        error: why it, or an entry of it, cannot be used; None if all of it is used.
        refused: True if the group goes on with what it read before, for example because a required entry is invalid.
        current: True if the group runs what was written there at the last look.
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

    def refuse_unset(self, old: Mapping[str, ServerConfig]) -> None:
        """Note as failed what has changed and needs a variable that is not set: such a server is left as it is."""
        for config in self.enabled:
            if config != old.get(config.name, config):
                try:
                    check_variables(config.transport, os.environ, where=written_at(config))
                except ConfigError as error:
                    self.servers.remove(config)
                    self.failed[config.name] = error

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
            loaded = evolve(
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


# --- Compare the configurations of a group with earlier ones ----------------------------------------------------------


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
