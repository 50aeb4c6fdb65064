"""A group of servers: a mapping plus consistent views of their state.

The lifecycle actor, not the group, changes the set of servers. `translate` turns kernel errors about the group's
supervisor into errors about servers.

Owns: nothing.
Writes: the roster's configuration errors; readings of configuration sources; subscribers of events; the lifecycle
actor's mailbox; mailboxes of server actors.
Calls: catalog, config, kernel, servers, servers.record, servers.ref, _facts, _lifecycle, _tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Never, TypeVar

import trio
from mcp.types import CallToolResult

from ..._collapse import first_of, leaves
from ..._errors import (
    ActorCrashed,
    ActorStartError,
    ActorStopped,
    ConfigError,
    RestartLimitReached,
    ServerError,
    ServerUnavailable,
)
from ..._misuse import CALL_ARGUMENTS, check_trio, explained_methods, outside_trio, unknown_argument
from ...catalog import CatalogTool, check_call, result_value
from ...config import ProgressCallback, ServerConfig, ToolContext
from ...kernel import EventHub, EventStream, SupervisorRef, TreeNode
from .._sources import Configured, Sources, anchored
from ..record import ACTIVE
from ..ref import PendingRequest, ServerRef, reconnect, wait_started
from ._facts import GroupFacts, Shelf, closed
from ._lifecycle import Add, Reload, ReloadSummary, Remove, Replace
from ._tree import GROUP, LIFECYCLE, Roster, ended_by, has_ended_group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...kernel import Call
    from ..record import ServerRecord
    from ._lifecycle import Reloaded


T = TypeVar("T")


@explained_methods
class ServerGroup(GroupFacts[ServerRef]):
    """The servers of an ``open_servers`` block: a mapping of names to `ServerRef`, in configured order.

    Every view is computed from each server's current state when it is read. All tuples are in configured order.
    """

    def __init__(self, roster: Roster, supervisor: SupervisorRef, hub: EventHub, *, sources: Sources) -> None:
        self._roster = roster
        self._hub = hub
        self._supervisor = supervisor
        self._lifecycle = supervisor.child(LIFECYCLE)
        self._sources = sources
        self._shelf = Shelf(roster.naming)

    def _server(self, ref: ServerRef, /) -> ServerRef:
        return ref

    def tree(self) -> TreeNode:
        """Return the current tree of the actors behind the servers; ``print(servers.tree())`` draws it.

        Raises:
            RuntimeError: the caller is in another thread.
        """
        if not self._roster.timer.lives_here:
            raise outside_trio("this group of servers")
        return self._supervisor.tree()

    async def call(self, public_name: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool by its public name, and return its result as plain values; otherwise like `ServerRef.call`."""
        check_call(public_name, positional, arguments, self._schema_of)
        return result_value(await self.call_tool(public_name, arguments))

    async def call_tool(
        self,
        /,
        public_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
        **unknown: Never,
    ) -> CallToolResult:
        """Call a tool by its public name; otherwise like `ServerRef.call_tool`.

        A call of a ``deferred`` tool waits for the connection, and is sent if the server still lists the tool.

        Raises:
            ToolNotFound: no tool has the name now.
        """
        if unknown:
            raise unknown_argument("call_tool()", next(iter(unknown)), CALL_ARGUMENTS)
        tool = self.find_tool(public_name)
        server = self._members[tool.server].ref
        return await server.call_tool(tool.name, arguments, progress=progress, meta=meta, idempotent=idempotent)

    def send_tool_call(
        self,
        /,
        public_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
        **unknown: Never,
    ) -> PendingRequest[CallToolResult]:
        """Prepare a call by public name; otherwise like `ServerRef.send_tool_call`.

        Raises:
            ToolNotFound: no tool has the name now.
        """
        if unknown:
            raise unknown_argument("call_tool()", next(iter(unknown)), CALL_ARGUMENTS)
        tool = self.find_tool(public_name)
        server = self._members[tool.server].ref
        return server.send_tool_call(tool.name, arguments, progress=progress, meta=meta, idempotent=idempotent)

    async def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """Return the catalogue's tools that are permitted in a context.

        The predicate of each server's `ToolFilter` is called for each tool. A predicate that raises hides the tool and
        is logged. No request is sent, and no result is cached.

        Args:
            context: the agent and run to list tools for. Optional if no server has a predicate.

        Raises:
            ConfigError: a server has a predicate, but no context was given.
        """
        await trio.lowlevel.checkpoint()
        return await self._permitted(context)

    # --- life -------------------------------------------------------------------------------------------------------

    async def reconnect(self, *names: str, failed_only: bool = True) -> None:
        """Close servers, then connect them again concurrently, each with a fresh restart budget.

        All are closed before the first connects, as by `ServerRef.restart`. Queued requests are kept for the new
        connections. Of concurrent calls of `reconnect`, `start`, `stop` and `restart` for one server the latest wins.
        One new connection may complete several such calls, if begun after the last.

        **Cancellation**: leaves at once; the reconnect continues.

        Args:
            names: the servers to reconnect. Default: servers in state ``backoff`` or ``failed`` (a connecting server
                has its attempt already), or all with ``failed_only=False``.
            failed_only: whether a call without names leaves healthy servers alone. Default True.

        Raises:
            ConnectFailed: a required server could not be connected: the first one in configured order; further failures
                are notes. Servers that ran before are connected again; servers that this call started are stopped
                again.
            ServerUnavailable: a server was stopped or removed meanwhile, or the group was closed.
            KeyError: no server has the name.
        """
        for name in names:
            self[name]
        entries = [member.entry for member in self._members.values()]
        if names:
            servers = [each for each in entries if each.name in names]
        else:
            servers = [each for each in entries if each.record.life.leaving != "removal"]
        await reconnect(self._lifecycle, servers, failed_only=failed_only and not names)

    async def add(self, config: ServerConfig) -> ServerRef:
        """Add a server after the others, connect to it, and return it.

        Waits for the first connect like `open_servers`: an optional server that fails shows the failure in its state
        and is retried in the background; a lazy server is not connected. Nothing changes for other servers. A server
        with the same name that is being removed is awaited.

        **Cancellation**: leaves at once; the server is added nevertheless.

        Raises:
            ConnectFailed: a required server could not be connected. It is not added, and leaves nothing behind.
            ConfigError: not a `ServerConfig`, disabled, or the name is taken.
            ServerUnavailable: the group was closed, or the server was stopped or removed meanwhile.
        """
        _check_config(config, "add")
        await wait_started([await self._change(Add(config))])
        return self._roster.member(config.name).ref

    async def replace(self, config: ServerConfig) -> ServerRef:
        """Change the configuration of the server with the same name, and nothing else; return the server.

        If any field differs, including credentials, the server is connected again as by `reload`. Waits for the connect
        like `add`. The group's sources are not changed: the next `reload` without arguments, or the next change of a
        watched source, brings the source's configuration back.

        **Cancellation**: leaves at once; the server is changed nevertheless.

        Raises:
            ConnectFailed: a required server could not be connected. It is ``failed``.
            ConfigError: not a `ServerConfig`, or disabled.
            KeyError: no server has the name; use `add`.
            ServerUnavailable: the group was closed, or the server was stopped or removed meanwhile.
        """
        _check_config(config, "replace")
        member = self._roster.member(config.name)
        await wait_started([await self._change(Replace(config))])
        return member.ref

    async def remove(self, name: str) -> None:
        """Stop a server and forget it, with its tools, errors and queue.

        The server first finishes accepted requests, within ``drain_timeout`` (see `open_servers`); new requests fail.
        Returns when process, tasks and sockets are gone. The file in a ``catalog_store`` stays. Tools that were
        accepted once still count when the server is added again, also without a store.

        **Cancellation**: leaves at once; the server is removed nevertheless.

        Raises:
            KeyError: no server has the name.
            ServerUnavailable: the group was closed.
        """
        await self._change(Remove(name))

    async def reload(self, *configs: Configured) -> ReloadSummary:
        """Change what differs from a configuration, and nothing else.

        The whole configuration is read and validated first; an error changes nothing. Then

        - servers that are gone are stopped and forgotten,
        - servers that differ in any field, including credentials, are connected again; ref and queue stay, calls in
          flight end as at a `restart`, and a server that was stopped explicitly stays stopped,
        - new servers are added,
        - equal servers notice nothing: refs, queues and calls in flight stay.

        The views are in the new order afterwards. An unusable entry is logged and listed in the result; a server that
        runs under its name keeps its configuration. Waits for connects like `add`.

        **Cancellation**: while files are read, nothing changes. Later it leaves at once, and the changes are made
        nevertheless. Concurrent reloads run one after the other.

        Args:
            configs: as for `open_servers`. Default: the configurations of the last open or reload, whose files are read
                again; added servers (`add`) stay unchanged. With arguments, all servers missing there are removed,
                including added ones.

        Raises:
            ConfigError: a file or mapping is not valid, or a required entry is not. Nothing was changed.
            ConnectFailed: a required server could not be connected: the first one; further failures are notes. All
                changes were made: the server is in `failed`, and is retried.
            ServerUnavailable: a server was stopped or removed meanwhile, or the group was closed.
        """
        check_trio("this group of servers", here=self._roster.timer.lives_here)
        new = tuple(map(anchored, configs))
        while (done := await self._reload(new)) is None:
            pass  # other sources, or a newer reading of a followed source, came during the reading
        await wait_started(done.wishes)
        return done.summary

    async def _reload(self, new: tuple[Configured, ...]) -> Reloaded | None:
        """Read and apply these or the current configurations; return None if the reading is outdated."""
        configs = new or self._sources.configs
        merged = await self._sources.read(configs, whole=True)

        def adopt() -> bool:
            if (not new and configs is not self._sources.configs) or self._sources.is_outdated(merged):
                return False
            self._sources.adopt(merged, configs)
            self._roster.note_merged(merged)
            return True

        return await self._change(Reload(merged, adopt, keep_added=not new))

    async def _change(self, message: Call[T]) -> T:
        if self._roster.closing:
            raise closed(self._roster)
        check_trio("this group of servers", here=self._roster.timer.lives_here)
        try:
            return await self._lifecycle.call(message)
        except (ActorStopped, ActorCrashed, ActorStartError):
            raise closed(self._roster) from self._roster.end

    async def wait_ready(self, *names: str) -> None:
        """Wait until these servers, or all servers, serve at the same moment.

        Raises:
            ServerUnavailable: a server has failed or was stopped, and is not being started.
            KeyError: no server has the name.
        """
        refs = [self[name] for name in names] or list(self.configured)
        await trio.lowlevel.checkpoint()
        while waiting := [ref for ref in refs if ref.state not in ACTIVE]:
            for ref in waiting:
                await ref.wait_ready()

    def watch_events(self, *, size: int = 1024) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to all events: `StateChanged`, `ToolsChanged`, and the kernel's events.

        ``async with`` yields the stream, which ends with the block or with the group.

        Args:
            size: how many events may wait for the reader. When full, the oldest is dropped and counted (see
                ``EventStream.missed``).

        Raises:
            ServerUnavailable: the block of the group has exited.
        """
        return self._hub.subscribe(partial(closed, self._roster, "this group of servers has no more events"), size=size)


def _check_config(config: object, method: str) -> None:
    if not isinstance(config, ServerConfig):
        problem = f"{method}() takes a ServerConfig, not {type(config).__name__}; for files and mappings, use reload()"
        raise ConfigError(problem, source=f"ServerGroup.{method}")
    if not config.enabled:
        problem = f"this server is disabled; {method} it with enabled=True"
        raise ConfigError(f"server {config.name!r}: {problem}", source=f"ServerGroup.{method}", path="enabled")


# --- Errors of a group; translate the kernel's failures into them -----------------------------------------------------


@contextmanager
def translate(roster: Roster) -> Iterator[None]:
    """Raise errors about servers instead of the kernel's errors about the group's supervisor."""
    failure: BaseException
    try:
        yield
    except ActorStartError as exc:
        if roster.opened.is_set():
            raise
        failure = _start_failure(roster.records.values(), exc)
    except RestartLimitReached as exc:
        if exc.actor != GROUP:
            raise
        records = roster.records.values()
        failure = (ended_by(records) or exc) if roster.opened.is_set() else _start_failure(records, exc)
    except BaseExceptionGroup as group:
        # Not `group.split`, which would also search the groups that the block has raised.
        others = [exc for exc in group.exceptions if not (isinstance(exc, RestartLimitReached) and exc.actor == GROUP)]
        unavailable = ended_by(roster.records.values())
        if not others or len(others) == len(group.exceptions) or unavailable is None:
            raise
        failure = unavailable
        if not all(_is_echo(each, unavailable) for each in others):
            failure = BaseExceptionGroup(group.message, [failure, *others])
    else:
        return
    # Not `from exc`: the kernel's account of actors would bury the server's own cause in the traceback.
    raise failure from failure.__cause__


def _start_failure(records: Iterable[ServerRecord], exc: Exception) -> BaseException:
    """Return the first failed connect in configured order; further failures become its notes."""
    errors = (record.life.last_error for record in records if record.required or has_ended_group(record))
    failures = [error for error in errors if error is not None]
    if others := [error.server for error in failures[1:] if isinstance(error, ServerError)]:
        failures[0].args = (f"{failures[0]} (also failed: {', '.join(map(repr, others))})",)
    return first_of(failures) if failures else exc


def _is_echo(others: BaseException, failure: ServerUnavailable) -> bool:
    """Return True if the block raised only errors about the server that ended it."""
    return all(isinstance(leaf, ServerError) and leaf.server == failure.server for leaf in leaves(others))
