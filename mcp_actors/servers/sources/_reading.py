"""Read the sources of a group, and keep the last readings.

Theory of operation
-------------------
A source blocks, so every call of one runs in a worker thread: one thread for each source, and all sources are read at
the same time. A thread that hangs is abandoned when its caller is cancelled; nothing ever joins it, so leaving a group
never waits for a database. A followed source must answer within `PATIENCE` seconds. One that does not is asked again
when its thread has ended, and fails at once until then: a table behind a dead network delays the files only once.

A source is looked at before it is read. A change between the two is then found by the next look; in the opposite order
it would be lost. Two readings ask each source in the order in which they began, and so they end in this order too: an
older one never replaces a newer one.

Everything is read, merged and validated before the group changes anything (`_given.merge`). Only then is the reading
kept (`Sources.adopt`). It replaces a source that cannot be reached later, or a file that cannot be parsed: the servers
of that stay as they are, and the error is reported.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import attrs
import trio
from attrs import define, field

from ... import config as configuration
from ..._collapse import caused_by
from ..._errors import ConfigError
from ..._foreign import Log
from ...config import LoadedConfig, Rank, ServerConfig, Source
from ._given import Configured, Given, Part, merge

logger = Log("mcp_actors.servers")

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds within which a followed source must answer, whatever timeouts it has of its own."""

_OF_CODE: Final = "the arguments of open_servers"


@define(eq=False)
class Sources:
    """The configurations of a group.

    Attributes:
        strict: whether every entry is required.
        env_file: the ``.env`` file for files and mappings, or None.
        configs: the arguments that the group was opened or reloaded with last.
        changed: set when `configs` are replaced.
        stamps: the look at each source before it was read last, by the name of the source.
    """

    strict: bool
    env_file: str | os.PathLike[str] | None = None
    configs: tuple[Configured, ...] = ()
    changed: trio.Event = field(factory=trio.Event)
    stamps: dict[str, Hashable] = field(factory=dict)
    _last: dict[str, tuple[LoadedConfig, ...]] = field(factory=dict)
    _logged: set[tuple[Hashable, str]] = field(factory=set)
    _threads: dict[str, trio.CapacityLimiter] = field(factory=dict)
    _silent: set[str] = field(factory=set)

    @property
    def watched(self) -> list[Source]:
        """The sources that may change by themselves."""
        return [source for _, source in self._paired(self.configs) if source is not None]

    async def read(self, configs: Iterable[Configured], *, lenient: bool = False, whole: bool = False) -> Given:
        """Read every configuration, in threads where that may block.

        **Cancellation**: leaves at once and abandons a thread that waits for a slow file system or database.

        Args:
            configs: what to read.
            lenient: whether files that cannot be used keep what they gave last, as tables and directories do.
            whole: whether files and mappings must be valid as a whole.

        Raises:
            ConfigError: a file cannot be read, an argument is not a configuration, two servers share a name, or a
                required entry (any entry if `strict`) cannot be used. The first such error is raised; the others are
                notes.
        """
        paired = self._paired(configs)
        await trio.lowlevel.checkpoint_if_cancelled()
        found: dict[str, tuple[LoadedConfig, ...] | ConfigError] = {}
        async with trio.open_nursery() as nursery:
            for _, source in paired:
                if source is not None:
                    nursery.start_soon(self._read, source, found, lenient)
        parts: list[Part] = []
        read: dict[str, tuple[LoadedConfig, ...]] = {}
        for config, source in paired:
            if source is None:
                parts.append(await self._given_directly(config, whole=whole))
                continue
            is_file = isinstance(config, (str, os.PathLike))
            read[source.name] = self._parts_of(source, found[source.name], lenient=lenient or not is_file)
            stamp = self.stamps[source.name]
            whole_file = whole and is_file and not lenient
            parts += (Part(loaded, source.rank, strict=whole_file, stamp=stamp) for loaded in read[source.name])
        given = merge(parts, strict=self.strict)
        given.read = read
        return given

    def adopt(self, given: Given, configs: tuple[Configured, ...], *, again: bool = False) -> list[ConfigError]:
        """Keep a reading that the group uses now, and log its problems.

        Args:
            given: the reading.
            configs: what was read.
            again: whether problems that were logged before are not logged again while their source is the same.

        Returns:
            The errors that are new.
        """
        self._keep(configs, given.read)
        problems = {(stamp, str(problem)): problem for stamp, problem in given.problems}
        new = [key for key in problems if not again or key not in self._logged]
        self._logged = set(problems)
        for key in new:
            kept = again and isinstance(problems[key], ConfigError)
            logger.warning("%s%s", key[1], "; servers that run keep their configuration" if kept else "")
        return [problem for key in new if isinstance(problem := problems[key], ConfigError)]

    @contextmanager
    def undone_if_refused(self, configs: tuple[Configured, ...]) -> Iterator[None]:
        """Keep what there was before the block if the group refuses a reading, which changes nothing then.

        A reading is adopted before it is passed on, not afterwards: another change may come in between, and would
        follow sources that are no longer used.
        """
        before, last = self.configs, self._last
        try:
            yield
        except ConfigError:
            if self.configs is configs:  # else another change has come in between
                self._keep(before, last)
            raise

    def _keep(self, configs: tuple[Configured, ...], last: dict[str, tuple[LoadedConfig, ...]]) -> None:
        self._last = last
        if configs is not self.configs:
            self.configs = configs
            self.changed.set()
            self.changed = trio.Event()

    async def look(self, source: Source) -> Hashable:
        """Return the stamp of a source; the text of the error is the stamp of one that cannot be reached."""
        return _stamp(await self._ask(source, lambda: _asked(source, source.look), patient=False))

    def _paired(self, configs: Iterable[Configured]) -> list[tuple[Configured, Source | None]]:
        """Return each configuration with the source that it is, or that is made of it."""
        return [(config, self._source_of(config)) for config in configs]

    def _source_of(self, config: Configured) -> Source | None:
        if isinstance(config, ServerConfig):  # nearly all are, and looking for the methods of a source is slow
            return None
        if isinstance(config, (str, os.PathLike)):
            return configuration.FileSource(config, env_file=self.env_file)
        return config if isinstance(config, Source) else None

    async def _given_directly(self, config: Configured, *, whole: bool) -> Part:
        """Return the part of an argument other than a source.

        Raises:
            ConfigError: it is not a configuration.
        """
        if isinstance(config, ServerConfig):
            return Part(LoadedConfig((config,), source=_OF_CODE), Rank.CODE)
        if isinstance(config, LoadedConfig):
            return Part(config, Rank.FILE, strict=whole)
        if isinstance(config, Mapping):
            job = partial(configuration.load_config, config, env_file=self.env_file)
            # A thread only for the file, because a small mapping takes less time than the way there.
            loaded = job() if self.env_file is None else await trio.to_thread.run_sync(job, abandon_on_cancel=True)
            return Part(loaded, Rank.FILE, strict=whole)
        remedy = 'write ServerConfig("name", Stdio("command")) or "mcp.json"'
        if isinstance(config, (list, tuple)):
            remedy = "pass each one as an argument: open_servers(*configs)"
        raise ConfigError(
            f"open_servers takes ServerConfig objects, paths, mappings and sources, not {type(config).__name__}; "
            f"{remedy}",
            source="open_servers",
        )

    async def tell(self, source: Source, job: Callable[[], None]) -> ConfigError | None:
        """Run a job in the thread of a source. Return the error if it fails, or takes too long."""
        return await self._ask(source, lambda: _asked(source, job), patient=False)

    async def _read(
        self, source: Source, found: dict[str, tuple[LoadedConfig, ...] | ConfigError], lenient: bool
    ) -> None:
        """Read a source, and note its look and its content."""
        both = await self._ask(source, lambda: (_asked(source, source.look), _asked(source, source.read)), not lenient)
        look, found[source.name] = (both, both) if isinstance(both, ConfigError) else both
        self.stamps[source.name] = _stamp(look)

    def _parts_of(
        self, source: Source, found: tuple[LoadedConfig, ...] | ConfigError, *, lenient: bool
    ) -> tuple[LoadedConfig, ...]:
        """Return the parts of a source. If it is lenient, what it cannot give is what it gave last."""
        last = {loaded.source: loaded for loaded in self._last.get(source.name, ())}
        if isinstance(found, ConfigError):
            if not lenient:
                raise found
            # Nothing is known about any of its parts, so all of them stay.
            last[source.name] = _lasting(_failed(source.name, found), last.get(source.name))
            return tuple(last.values())
        return tuple(_lasting(each, last.get(each.source)) for each in found) if lenient else found

    async def _ask(self, source: Source, question: Callable[[], T], patient: bool) -> T | ConfigError:
        """Run a call of a source; the error of one that is not answered in time is returned."""
        thread = self._threads.setdefault(source.name, trio.CapacityLimiter(1))
        if source.name not in self._silent or not thread.borrowed_tokens:
            with trio.move_on_after(math.inf if patient else PATIENCE):
                answer = await _in_thread(question, thread)
                self._silent.discard(source.name)
                return answer
            self._silent.add(source.name)
        return ConfigError(f"{source.name}: it has not answered within {PATIENCE:g} s", source=source.name)


async def _in_thread(question: Callable[[], T], thread: trio.CapacityLimiter) -> T:
    return await trio.to_thread.run_sync(question, abandon_on_cancel=True, limiter=thread)


def _failed(name: str, error: ConfigError) -> LoadedConfig:
    return LoadedConfig((), (error,), source=name, failed={name: error})


def _lasting(loaded: LoadedConfig, last: LoadedConfig | None) -> LoadedConfig:
    """Return a part with the servers that it gave last, if it has none because it is not valid as a whole."""
    if last is None or loaded.source not in loaded.failed:
        return loaded
    return attrs.evolve(loaded, servers=last.servers, failed={**last.failed, **loaded.failed})


def _stamp(look: Hashable | ConfigError) -> Hashable:
    return str(look) if isinstance(look, ConfigError) else look


# --- in worker threads ----------------------------------------------------------------------------------------------


def _asked(source: Source, question: Callable[[], T]) -> T | ConfigError:
    """Return the answer of a source, or the error. A source of the user may raise anything."""
    try:
        return question()
    except ConfigError as error:
        return error
    except Exception as error:
        problem = f"{source.name}: reading it raised {type(error).__name__} (see the cause of this error)"
        return caused_by(ConfigError(problem, source=source.name), error)
