"""What asyncio programs hold: the refs and groups of `mcp_actors`, awaitable from asyncio.

Each method is that of the Trio object of the same name; see ``_rules`` for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import trio

from ..._errors import ActorStopped, ServerUnavailable
from ...config import permitted
from ...kernel import ActorRef, SupervisorRef
from ...servers import ServerGroup, ServerRef
from ._rules import View, awaited, awaited_step, looking, sent, streaming

if TYPE_CHECKING:
    from ...catalog import CatalogSnapshot, CatalogTool
    from ...config import ServerConfig, ToolContext
    from ...kernel import ActorState, Call, ChildSpec
    from ...servers import ServerInfo, ServerState, ToolChanges
    from .._bridge import Bridge

__all__ = ["AsyncioActorRef", "AsyncioServerGroup", "AsyncioServerRef", "AsyncioSupervisorRef", "view_of"]

T = TypeVar("T")


class AsyncioActorRef(View[ActorRef]):
    """A `mcp_actors.kernel.ActorRef` for asyncio programs."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"actor {self.name!r}"

    def _over(self) -> Exception:
        return ActorStopped(f"{self._who}: has stopped, because the block that opened it was left", actor=self.name)

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._target.name

    @property
    def state(self) -> ActorState:
        """``starting, running, backoff, stopping, stopped`` or ``failed``."""
        return self._target.state

    async def call(self, message: Call[T]) -> T:
        """Send a message and wait for its answer, as `mcp_actors.kernel.ActorRef.call`.

        **Cancellation**: the caller leaves at once: a message that still waits is never served, one that is being
        handled has its handler cancelled.
        """
        return await self._bridge.send(self, lambda: self._target.send_request(message))

    async def wait_stopped(self) -> None:
        """Wait until the actor has stopped and will not come back by itself (state ``stopped`` or ``failed``).

        **Cancellation**: only ends the waiting.
        """
        with suppress(ActorStopped):  # because Trio's side has ended, and all actors with it
            await self._bridge.call(self, self._target.wait_stopped)

    tell: Final = awaited(ActorRef.tell)
    tell_nowait: Final = awaited_step(ActorRef.tell_nowait)
    wait_state: Final = awaited(ActorRef.wait_state)
    statistics: Final = looking(ActorRef.statistics)


class AsyncioSupervisorRef(AsyncioActorRef):
    """A `mcp_actors.kernel.SupervisorRef` for asyncio programs."""

    __slots__ = ()

    _target: SupervisorRef

    def child(self, id: str) -> AsyncioActorRef:
        """The reference to a child, by its id, as `mcp_actors.kernel.SupervisorRef.child`."""
        return view_of(self._bridge, self._target.child(id))

    async def start_child(self, spec: ChildSpec) -> AsyncioActorRef:
        """Add a child at the end of the table and start it, as `mcp_actors.kernel.SupervisorRef.start_child`."""
        return view_of(self._bridge, await self._bridge.call(self, lambda: self._target.start_child(spec)))

    async def restart_child(self, id: str) -> AsyncioActorRef:
        """Start a child that does not run, as `mcp_actors.kernel.SupervisorRef.restart_child`."""
        return view_of(self._bridge, await self._bridge.call(self, lambda: self._target.restart_child(id)))

    stop_child: Final = awaited(SupervisorRef.stop_child)
    delete_child: Final = awaited(SupervisorRef.delete_child)
    which_children: Final = awaited(SupervisorRef.which_children)
    count_children: Final = awaited(SupervisorRef.count_children)
    watch_events: Final = streaming(SupervisorRef.watch_events)


class AsyncioServerRef(View[ServerRef]):
    """A `mcp_actors.ServerRef` for asyncio programs."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"server {self.name!r}"

    def _over(self) -> Exception:
        return ServerUnavailable(
            f"{self._who}: its group was left, so it does not serve any more; open_servers again",
            server=self.name,
            state="stopped",
        )

    @property
    def name(self) -> str:
        """Its configured name."""
        return self._target.name

    @property
    def config(self) -> ServerConfig:
        """What it was configured with."""
        return self._target.config

    @property
    def state(self) -> ServerState:
        """Its state, as ``ServerRef.state``."""
        return self._target.state

    @property
    def info(self) -> ServerInfo:
        """What the server said about itself when it was connected last, as `mcp_actors.ServerRef.info`."""
        return self._target.info

    @property
    def tool_changes(self) -> ToolChanges:
        """What of its tools waits for approval, as `mcp_actors.ServerRef.tool_changes`."""
        return self._target.tool_changes

    statistics: Final = looking(ServerRef.statistics)
    wait_state: Final = awaited(ServerRef.wait_state)
    wait_ready: Final = awaited(ServerRef.wait_ready)

    call_tool: Final = sent(ServerRef.call_tool, ServerRef.send_tool_call, callbacks=("progress",))
    list_tools: Final = awaited(ServerRef.list_tools)
    approve_tools: Final = awaited(ServerRef.approve_tools)
    list_resources: Final = awaited(ServerRef.list_resources)
    list_resource_templates: Final = awaited(ServerRef.list_resource_templates)
    read_resource: Final = awaited(ServerRef.read_resource)
    subscribe: Final = streaming(ServerRef.subscribe)
    list_prompts: Final = awaited(ServerRef.list_prompts)
    get_prompt: Final = awaited(ServerRef.get_prompt)
    complete: Final = awaited(ServerRef.complete)
    set_log_level: Final = awaited(ServerRef.set_log_level)
    check_health: Final = awaited(ServerRef.check_health)
    send_roots_list_changed: Final = awaited(ServerRef.send_roots_list_changed)

    restart: Final = awaited(ServerRef.restart)
    stop: Final = awaited(ServerRef.stop)
    start: Final = awaited(ServerRef.start)


class AsyncioServerGroup(View[ServerGroup], Mapping[str, AsyncioServerRef]):
    """A `mcp_actors.ServerGroup` for asyncio programs: a mapping of names to `AsyncioServerRef`."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return "this group of servers"

    def _over(self) -> Exception:
        return ServerUnavailable(
            "this group of servers was left, so it does not serve any more; open_servers again",
            server="*",
            state="stopped",
        )

    def __getitem__(self, name: str) -> AsyncioServerRef:
        """The server of that name. A `KeyError` lists the names there are."""
        return AsyncioServerRef(self._bridge, self._target[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._target)

    def __len__(self) -> int:
        return len(self._target)

    def __eq__(self, other: object) -> bool:
        return View.__eq__(self, other)  # a group is a mapping, but not compared as one

    def __hash__(self) -> int:
        return View.__hash__(self)

    @property
    def configured(self) -> tuple[AsyncioServerRef, ...]:
        """All servers that are enabled."""
        return self._refs(self._target.configured)

    @property
    def connected(self) -> tuple[AsyncioServerRef, ...]:
        """The servers whose connection stands."""
        return self._refs(self._target.connected)

    @property
    def active(self) -> tuple[AsyncioServerRef, ...]:
        """The servers that serve. A server that dies leaves this view at once."""
        return self._refs(self._target.active)

    @property
    def failed(self) -> tuple[AsyncioServerRef, ...]:
        """The servers that are down without anybody's wish: about to be tried again, or given up."""
        return self._refs(self._target.failed)

    def _refs(self, refs: tuple[ServerRef, ...]) -> tuple[AsyncioServerRef, ...]:
        return tuple(AsyncioServerRef(self._bridge, ref) for ref in refs)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """What is wrong with which server, by name. An entry goes when its server is ready."""
        return self._target.errors

    @property
    def tools(self) -> CatalogSnapshot:
        """All tools, under their public names, as `mcp_actors.ServerGroup.tools`."""
        return self._target.tools

    async def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """The tools of the catalogue that are to be shown to somebody, as `mcp_actors.ServerGroup.list_tools`.

        The predicates are the program's, so they are called here, on the event loop.
        """
        await self._bridge.call(self, trio.lowlevel.checkpoint)  # of a group that was left, nothing is shown
        return permitted(self.tools, {name: self[name].config.tools for name in self}, context)

    status: Final = looking(ServerGroup.status)
    find_tool: Final = looking(ServerGroup.find_tool)
    call_tool: Final = sent(ServerGroup.call_tool, ServerGroup.send_tool_call, callbacks=("progress",))
    reconnect: Final = awaited(ServerGroup.reconnect)
    wait_ready: Final = awaited(ServerGroup.wait_ready)
    watch_events: Final = streaming(ServerGroup.watch_events)


@overload
def view_of(bridge: Bridge, thing: ServerGroup) -> AsyncioServerGroup: ...
@overload
def view_of(bridge: Bridge, thing: ServerRef) -> AsyncioServerRef: ...
@overload
def view_of(bridge: Bridge, thing: SupervisorRef) -> AsyncioSupervisorRef: ...
@overload
def view_of(bridge: Bridge, thing: ActorRef) -> AsyncioActorRef: ...
def view_of(bridge: Bridge, thing: Any) -> Any:
    """The asyncio side of a group, of a server, of a supervisor or of another actor.

    Raises:
        TypeError: it is none of these.
    """
    match thing:
        case ServerGroup():
            return AsyncioServerGroup(bridge, thing)
        case ServerRef():
            return AsyncioServerRef(bridge, thing)
        case SupervisorRef():
            return AsyncioSupervisorRef(bridge, thing)
        case ActorRef():
            return AsyncioActorRef(bridge, thing)
        case _:
            raise TypeError(
                f"there is no asyncio side of {thing!r}; "
                "give a ServerGroup, a ServerRef, a SupervisorRef or an ActorRef"
            )
