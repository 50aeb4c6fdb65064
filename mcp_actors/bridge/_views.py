"""The refs and groups that asyncio programs hold.

A view holds a bridge, and an object of Trio's side. Its sync methods read single values, or copy a collection in one
operation, because another thread may change the object.

| method on Trio's side | method of the view |
|---|---|
| async, such as `list_tools` | async; `Bridge.call`, a task on Trio's side |
| `call_tool`, `get_prompt`, `complete`, `read_resource` | async; `Bridge.ask`, a task only after a failure |
| `ActorRef.call` | async; `Bridge.send`, no task |
| sync, acts or reads much (`tree`) | async; `View._step`, one step on Trio's side |
| sync, reads a little | sync; in the thread of the caller |
| ``async with`` of a stream | the same, with an `AsyncioStream` |

Owns: nothing.
Writes: messages to actors.
Calls: kernel, servers, servers.group, servers.ref, _bridge, _callbacks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import trio

from .._errors import ActorStopped, ServerUnavailable
from .._misuse import explained_methods
from .._pickling import Handle
from ..kernel import (
    ActorRef,
    ActorState,
    ActorStatistics,
    CallFor,
    ChildInfo,
    ChildrenCount,
    ChildSpec,
    Down,
    Event,
    M,
    M_contra,
    Monitor,
    Receives,
    SupervisorRef,
    TreeNode,
)
from ..servers import ServerGroup, ServerRef
from ..servers.group import AnyServer, GroupFacts
from ..servers.ref import ServerFacts
from ._bridge import Asker, AsyncioStream, open_stream
from ._callbacks import ServerAsker

if TYPE_CHECKING:
    from ..kernel import Actor, Call
    from ._bridge import Bridge

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
Ref = TypeVar("Ref", bound="AsyncioActorRef[Any]")


class View(Handle, Asker, Generic[T_co]):
    """The asyncio side of an object on Trio's side. Views of the same object are equal."""

    __slots__ = ("_bridge", "_target")

    def __init__(self, bridge: Bridge, target: T_co) -> None:
        self._bridge = bridge
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target).replace(type(self._target).__name__, type(self).__name__, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and other._target == self._target

    def __hash__(self) -> int:
        return hash(self._target)

    async def _step(self, fn: Callable[[], R]) -> R:
        """Call a sync function on Trio's side, while nothing else acts there."""

        async def step() -> R:
            await trio.lowlevel.checkpoint_if_cancelled()
            return fn()

        return await self._bridge.call(self, step)


# --- Refs and groups --------------------------------------------------------------------------------------------------


@explained_methods
class AsyncioActorRef(View[ActorRef[Any]], Receives[M_contra]):
    """A `mcp_actors.kernel.ActorRef` for asyncio programs; ``AsyncioActorRef[Add | Get]`` takes these messages.

    Each member is like the `ActorRef` member of the same name.
    """

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"actor {self.name!r}"

    def _ended_error(self, why: str | None) -> Exception:
        message = f"{self._who} has stopped because {why or 'the block that opened it has exited; open it again'}"
        return ActorStopped(message, actor=self.name, handed_over=False)

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._target.name

    @property
    def path(self) -> str:
        """The name after the names of the supervisors above."""
        return self._target.path

    @property
    def state(self) -> ActorState:
        """``starting, running, backoff, stopping, stopped`` or ``failed``."""
        return self._target.state

    @property
    def supervisor(self) -> AsyncioSupervisorRef | None:
        """The reference to the supervisor."""
        above = self._target.supervisor
        return None if above is None else view_of(self._bridge, above)

    async def call(self, message: CallFor[Receives[M_contra], T]) -> T:
        """Send a message and wait for its answer, like `mcp_actors.kernel.ActorRef.call`.

        **Cancellation**: the caller leaves at once. A message that is still queued is never handled; otherwise its
        handler is cancelled.
        """
        return await self._bridge.send(self, lambda: self._target.send_request(cast("Call[T]", message)))

    async def tell(self, message: M_contra) -> None:
        """Send a message without waiting for an answer, like `mcp_actors.kernel.ActorRef.tell`."""
        await self._bridge.call(self, lambda: self._target.tell(message))

    async def tell_nowait(self, message: M_contra) -> None:
        """Send a message without waiting for room, like `mcp_actors.kernel.ActorRef.tell_nowait`."""
        await self._step(lambda: self._target.tell_nowait(message))

    async def wait_stopped(self) -> None:
        """Wait until the actor has stopped and will not come back by itself (state ``stopped`` or ``failed``).

        **Cancellation**: ends only the waiting.
        """
        with suppress(ActorStopped):  # because Trio's side has ended, and all actors with it
            await self._bridge.call(self, self._target.wait_stopped)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncioMonitor]:
        """Watch this actor in a block, like `mcp_actors.kernel.ActorRef.watch`."""
        monitor = Monitor(self._target)
        view = AsyncioMonitor(self._bridge, monitor)
        await view._step(monitor.begin)
        try:
            yield view
        finally:
            with suppress(RuntimeError):  # Trio's side has ended, and the monitor with it
                self._bridge.to_trio(monitor.cancel)

    async def wait_state(self, *states: ActorState) -> ActorState:
        """Wait until the state is one of `states`, and return it, like `mcp_actors.kernel.ActorRef.wait_state`.

        **Cancellation**: ends only the waiting.
        """
        return await self._bridge.call(self, lambda: self._target.wait_state(*states))

    def statistics(self) -> ActorStatistics:
        """Return a snapshot of the actor's counters."""
        return self._target.statistics()


class AsyncioMonitor(View[Monitor]):
    """A `mcp_actors.kernel.Monitor` for asyncio programs."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"monitor of actor {self._target.ref.name!r}"

    def _ended_error(self, why: str | None) -> Exception:
        return self.ref._ended_error(why)

    @property
    def ref(self) -> AsyncioActorRef:
        """The watched actor."""
        return view_of(self._bridge, self._target.ref)

    async def wait(self) -> Down:
        """Wait until the actor goes down, and return the notice, like `mcp_actors.kernel.Monitor.wait`."""
        return await self._bridge.call(self, self._target.wait)

    async def cancel(self) -> None:
        """Stop watching."""
        await self._step(self._target.cancel)


@explained_methods
class AsyncioSupervisorRef(AsyncioActorRef[Any]):
    """A `mcp_actors.kernel.SupervisorRef` for asyncio programs."""

    __slots__ = ()

    _target: SupervisorRef

    @overload
    def child(self, id: str) -> AsyncioActorRef: ...
    @overload
    def child(self, id: str, kind: type[Ref]) -> Ref: ...
    @overload
    def child(self, id: str, kind: type[Actor[M]]) -> AsyncioActorRef[M]: ...
    def child(self, id: str, kind: type[Receives[Any]] = AsyncioActorRef) -> AsyncioActorRef:
        """Return the reference to a child, like `mcp_actors.kernel.SupervisorRef.child`.

        As ``kind`` give the class of the child, or `AsyncioSupervisorRef` for a supervisor.
        """
        found: ActorRef = self._target.child(id, _on_trio(kind))
        return view_of(self._bridge, found)

    @overload
    def find(self, path: str) -> AsyncioActorRef: ...
    @overload
    def find(self, path: str, kind: type[Ref]) -> Ref: ...
    @overload
    def find(self, path: str, kind: type[Actor[M]]) -> AsyncioActorRef[M]: ...
    def find(self, path: str, kind: type[Receives[Any]] = AsyncioActorRef) -> AsyncioActorRef:
        """Return the reference to an actor below this supervisor, like `mcp_actors.kernel.SupervisorRef.find`.

        For ``kind`` see `child`.
        """
        found: ActorRef = self._target.find(path, _on_trio(kind))
        return view_of(self._bridge, found)

    async def start_child(self, spec: ChildSpec[M]) -> AsyncioActorRef[M]:
        """Add a child at the end of the table and start it, like `mcp_actors.kernel.SupervisorRef.start_child`."""
        return view_of(self._bridge, await self._bridge.call(self, lambda: self._target.start_child(spec)))

    @overload
    async def restart_child(self, id: str) -> AsyncioActorRef: ...
    @overload
    async def restart_child(self, id: str, kind: type[Ref]) -> Ref: ...
    @overload
    async def restart_child(self, id: str, kind: type[Actor[M]]) -> AsyncioActorRef[M]: ...
    async def restart_child(self, id: str, kind: type[Receives[Any]] = AsyncioActorRef) -> AsyncioActorRef:
        """Start a child that does not run, like `mcp_actors.kernel.SupervisorRef.restart_child`."""
        found: ActorRef = await self._bridge.call(self, lambda: self._target.restart_child(id, _on_trio(kind)))
        return view_of(self._bridge, found)

    async def tree(self) -> TreeNode:
        """Return the tree below this supervisor now."""
        return await self._step(self._target.tree)

    async def stop_child(self, id: str, *, keep_mailbox: bool = False, drain: bool = False) -> None:
        """Stop a child in any state, like `mcp_actors.kernel.SupervisorRef.stop_child`."""
        await self._bridge.call(self, lambda: self._target.stop_child(id, keep_mailbox=keep_mailbox, drain=drain))

    async def delete_child(self, id: str) -> None:
        """Remove a child that does not run from the table, like `mcp_actors.kernel.SupervisorRef.delete_child`."""
        await self._bridge.call(self, lambda: self._target.delete_child(id))

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """Return the child table, in order."""
        return await self._bridge.call(self, self._target.which_children)

    async def count_children(self) -> ChildrenCount:
        """Return the number of children by kind."""
        return await self._bridge.call(self, self._target.count_children)

    def watch_events(self, *, size: int = 1024) -> AbstractAsyncContextManager[AsyncioStream[Event]]:
        """Subscribe to the events of the tree in a block, like `mcp_actors.kernel.SupervisorRef.watch_events`."""
        return open_stream(self._bridge, self, lambda: self._target.watch_events(size=size))


# ``python -m tests.doors`` writes the methods that act, in the ``_generated`` files.


class ServerView(ServerFacts, View[ServerRef]):
    """A view of a `mcp_actors.ServerRef`, with the members that only read."""

    __slots__ = ("_actor", "_record")

    def __init__(self, bridge: Bridge, target: ServerRef) -> None:
        super().__init__(bridge, target)
        self._record, self._actor = target._record, target._actor

    @property
    def _who(self) -> str:
        return f"server {self.name!r}"

    def _ended_error(self, why: str | None) -> Exception:
        return ServerAsker(self.name)._ended_error(why)


class GroupView(View[ServerGroup], GroupFacts[AnyServer]):
    """A view of a `mcp_actors.ServerGroup`, with the members that only read."""

    __slots__ = ("_roster", "_shelf", "_sources")

    def __init__(self, bridge: Bridge, target: ServerGroup) -> None:
        super().__init__(bridge, target)
        self._roster, self._sources, self._shelf = target._roster, target._sources, target._shelf

    @property
    def _who(self) -> str:
        return "this group of servers"

    def _ended_error(self, why: str | None) -> Exception:
        message = f"{self._who} is stopped because {why or 'its open_servers() block has exited; open it again'}"
        return ServerUnavailable(message, server="*", state="stopped", outcome="not_sent")

    def __eq__(self, other: object) -> bool:
        return View.__eq__(self, other)  # a mapping would compare the items

    def __hash__(self) -> int:
        return View.__hash__(self)


def _on_trio(kind: type[Receives[Any]]) -> type[Any]:
    if not issubclass(kind, AsyncioActorRef):
        return kind
    return SupervisorRef if issubclass(kind, AsyncioSupervisorRef) else ActorRef


@overload
def view_of(bridge: Bridge, ref: SupervisorRef) -> AsyncioSupervisorRef: ...
@overload
def view_of(bridge: Bridge, ref: ActorRef[M]) -> AsyncioActorRef[M]: ...
def view_of(bridge: Bridge, ref: ActorRef[Any]) -> AsyncioActorRef[Any]:
    return (AsyncioSupervisorRef if isinstance(ref, SupervisorRef) else AsyncioActorRef)(bridge, ref)
