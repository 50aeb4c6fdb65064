"""The methods of a group for programs without an event loop.

Written by ``python -m tests.doors``; do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Never

import trio
from mcp.types import CallToolResult

from .._misuse import explained_methods
from ..bridge._views import GroupView
from ..catalog import CatalogTool, check_call, result_value
from ..config import ProgressCallback, ServerConfig, ToolContext
from ..kernel import TreeNode
from ..servers import ReloadSummary, ServerRef
from ..servers._sources import Configured, anchored
from ._generated_ref import SyncServerRef
from ._wait import ThreadBridge, completed, config_from_thread, in_caller


@explained_methods
class SyncServerGroup(GroupView[SyncServerRef]):
    """A `mcp_actors.ServerGroup` for programs without an event loop: a mapping of names to its references."""

    __slots__ = ()

    _bridge: ThreadBridge

    def _server(self, ref: ServerRef, /) -> SyncServerRef:
        return SyncServerRef(self._bridge, ref)

    def tree(self) -> TreeNode:
        """Return the current tree of the actors behind the servers; ``print(servers.tree())`` draws it."""
        return completed(self._step(self._target.tree))

    def call(self, public_name: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool by its public name, and return its result as plain values; otherwise like `ServerRef.call`."""
        check_call(public_name, positional, arguments, self._schema_of)
        return result_value(self.call_tool(public_name, arguments))

    def call_tool(
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
        return completed(
            self._bridge.ask(
                self,
                partial(
                    self._target.send_tool_call,
                    public_name,
                    arguments,
                    progress=None if progress is None else in_caller(self._bridge, progress),
                    meta=meta,
                    idempotent=idempotent,
                    **unknown,
                ),
            )
        )

    def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """Return the catalogue's tools that are permitted in a context.

        The predicate of each server's `ToolFilter` is called for each tool. A predicate that raises hides the tool and
        is logged. No request is sent, and no result is cached.

        Args:
            context: the agent and run to list tools for. Optional if no server has a predicate.

        Raises:
            ConfigError: a server has a predicate, but no context was given.
        """
        completed(self._bridge.call(self, trio.lowlevel.checkpoint))
        return completed(self._permitted(context))

    def reconnect(self, *names: str, failed_only: bool = True) -> None:
        """Close servers, then connect them again concurrently, each with a fresh restart budget.

        All are closed before the first connects, as by `ServerRef.restart`. Queued requests are kept for the new
        connections. Of concurrent calls of `reconnect`, `start`, `stop` and `restart` for one server the latest wins.
        One new connection may complete several such calls, if begun after the last.

        **Ctrl-C**: leaves at once; the reconnect continues.

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
        completed(self._bridge.call(self, partial(self._target.reconnect, *names, failed_only=failed_only)))

    def add(self, config: ServerConfig) -> SyncServerRef:
        """Add a server after the others, connect to it, and return it.

        Waits for the first connect like `open_servers`: an optional server that fails shows the failure in its state
        and is retried in the background; a lazy server is not connected. Nothing changes for other servers. A server
        with the same name that is being removed is awaited.

        **Ctrl-C**: leaves at once; the server is added nevertheless.

        Raises:
            ConnectFailed: a required server could not be connected. It is not added, and leaves nothing behind.
            ConfigError: not a `ServerConfig`, disabled, or the name is taken.
            ServerUnavailable: the group was closed, or the server was stopped or removed meanwhile.
        """
        return self._server(
            completed(self._bridge.call(self, partial(self._target.add, config_from_thread(self._bridge, config))))
        )

    def replace(self, config: ServerConfig) -> SyncServerRef:
        """Change the configuration of the server with the same name, and nothing else; return the server.

        If any field differs, including credentials, the server is connected again as by `reload`. Waits for the connect
        like `add`. The group's sources are not changed: the next `reload` without arguments, or the next change of a
        watched source, brings the source's configuration back.

        **Ctrl-C**: leaves at once; the server is changed nevertheless.

        Raises:
            ConnectFailed: a required server could not be connected. It is ``failed``.
            ConfigError: not a `ServerConfig`, or disabled.
            KeyError: no server has the name; use `add`.
            ServerUnavailable: the group was closed, or the server was stopped or removed meanwhile.
        """
        return self._server(
            completed(self._bridge.call(self, partial(self._target.replace, config_from_thread(self._bridge, config))))
        )

    def remove(self, name: str) -> None:
        """Stop a server and forget it, with its tools, errors and queue.

        The server first finishes accepted requests, within ``drain_timeout`` (see `open_servers`); new requests fail.
        Returns when process, tasks and sockets are gone. The file in a ``catalog_store`` stays. Tools that were
        accepted once still count when the server is added again, also without a store.

        **Ctrl-C**: leaves at once; the server is removed nevertheless.

        Raises:
            KeyError: no server has the name.
            ServerUnavailable: the group was closed.
        """
        completed(self._bridge.call(self, partial(self._target.remove, name)))
        self._bridge.adapted.pop(name, None)

    def reload(self, *configs: Configured) -> ReloadSummary:
        """Change what differs from a configuration, and nothing else.

        The whole configuration is read and validated first; an error changes nothing. Then

        - servers that are gone are stopped and forgotten,
        - servers that differ in any field, including credentials, are connected again; ref and queue stay, calls in
          flight end as at a `restart`, and a server that was stopped explicitly stays stopped,
        - new servers are added,
        - equal servers notice nothing: refs, queues and calls in flight stay.

        The views are in the new order afterwards. An unusable entry is logged and listed in the result; a server that
        runs under its name keeps its configuration. Waits for connects like `add`.

        **Ctrl-C**: while files are read, nothing changes. Later it leaves at once, and the changes are made
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
        adapted = [config_from_thread(self._bridge, anchored(config)) for config in configs]
        return completed(self._bridge.call(self, partial(self._target.reload, *adapted)))

    def wait_ready(self, *names: str) -> None:
        """Wait until these servers, or all servers, serve at the same moment.

        Raises:
            ServerUnavailable: a server has failed or was stopped, and is not being started.
            KeyError: no server has the name.
        """
        completed(self._bridge.call(self, partial(self._target.wait_ready, *names)))
