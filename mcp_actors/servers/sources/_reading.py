"""Read the sources of a group, and keep the last readings.

Theory of operation
-------------------
A source blocks, so every call of one runs in a worker thread: one thread for each source, and all sources are read at
the same time. A thread that hangs is abandoned when its caller is cancelled; nothing ever joins it, so leaving a group
never waits for a database. A followed source must answer within `PATIENCE` seconds. One that does not is asked again
when its thread has ended, and fails at once until then. One whose last look has failed is asked again only by the task
that follows it, and by `ServerGroup.reload`: a table behind a dead network delays the files only once.

A source is looked at before it is read. A change between the two is then found by the next look; in the opposite order
it would be lost. Two readings ask each source in the order in which they began. They may end in the other order: the
older one has read a file and waits for a table that hangs, when the newer one reads the file and no longer waits for
this table. So each reading has a number, and one whose content of any source is older than the kept one is not used
(`Sources.is_outdated`).

Everything is read, merged and validated before the group changes anything (`_given.merge`). The reading is kept
(`Sources.adopt`) in the step in which the group begins to apply it, when nothing can refuse it any more. It replaces a
source that cannot be reached later, or a file that cannot be parsed: the servers of that stay as they are, and the
error is reported.

The look and what was read after it are kept together or not at all (`Reading`). So a reading that was cancelled or
refused, or that failed, leaves its sources *due*: a look that is not the kept one, or a kept reading that lacks
something, is a reason to read again (`Sources.is_due`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

import attrs
import trio
from attrs import define, field

from ... import config as configuration
from ..._collapse import caused_by
from ..._errors import ConfigError
from ..._foreign import Log
from ..._tasks import NoThread, run_in_thread
from ...config import LoadedConfig, Rank, ServerConfig, Source
from ._given import OF_CODE, Configured, Given, Part, Reading, merge

logger = Log("mcp_actors.servers")

T = TypeVar("T")

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
            again: whether problems that were logged before are not logged again while their source is the same.

        Returns:
            The errors that are new.
        """
        self._last, self.refused = given.read, None
        if configs is not self.configs:
            self.configs = configs
            self.changed.set()
            self.changed = trio.Event()
        problems = {(stamp, str(problem)): problem for stamp, problem in given.problems}
        new = [key for key in problems if not again or key not in self._logged]
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
        return config if isinstance(config, Source) else None

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
        raise ConfigError(
            f"open_servers takes ServerConfig objects, paths, mappings and sources, not {type(config).__name__}; "
            f"{remedy}",
            source="open_servers",
        )

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
            before[source.name] = _lasting(_failed(source.name, content), before.get(source.name))
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
