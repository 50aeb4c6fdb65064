"""The refs and groups that asyncio programs hold.

Each class ``Asyncio…`` here is a view: it holds an object of Trio's side and a bridge. One line makes most methods from
those of the object, and keeps their arguments, documentation and types, for type checkers too; the other members are
written out.

| method on Trio's side | rule | method of the view |
|---|---|---|
| async | `async_view` | async; called on Trio's side |
| async, sends a request to a server | `request_view` | the same, with a task on Trio's side only if it needs one |
| sync, acts, or reads much (`tree`) | `step_view` | async; called on Trio's side, where nothing else acts meanwhile |
| sync, only reads a little | `sync_view` | sync; called in the thread of its caller |
| ``async with`` of a stream | `stream_view` | the same, with an `AsyncioStream` |

Sync methods go past the bridge, in any thread, so they read single values, or copies that are made in one step.
`AsyncioServerGroup.list_tools` calls the predicates of filters on the event loop. `view_of` makes the view of an
object. `list_tools_again`, for `adapters`, lists the tools of several servers in asyncio tasks, and logs failures.

``_open`` makes the first views; this file starts neither side. It uses ``_callbacks`` for functions and configurations
of the program, removes entries of `Bridge.adapted`, and imports the kernel, the servers and the configuration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial, wraps
from inspect import unwrap
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    Never,
    NoReturn,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

import trio
from mcp import MCPError

from .._errors import ActorStopped, McpActorsError, ServerUnavailable
from .._foreign import Log
from .._misuse import explained_methods
from .._text import problem_of
from ..catalog import check_call, result_value
from ..config import permitted
from ..kernel import ActorRef, M, M_contra, Monitor, Receives, SupervisorRef
from ..servers import ServerGroup, ServerRef
from ..servers._sources import anchored
from ._bridge import Asker, open_stream
from ._callbacks import ServerAsker, config_from_loop, on_loop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        InputRequiredResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
    )

    from ..catalog import CatalogSnapshot, CatalogTool
    from ..config import ServerConfig, ToolContext
    from ..kernel import Actor, ActorState, Call, CallFor, ChildSpec
    from ..servers import PendingRequest, ReloadSummary, ServerInfo, ServerState, SourceStatus, ToolChanges
    from ..servers._sources import Configured
    from ..servers.ref import PromptRequest, ResourceRequest, ToolCall
    from ._bridge import AsyncioStream, Bridge

logger = Log("mcp_actors.bridge")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
Awaited: TypeAlias = Coroutine[Any, Any, R]
Ref = TypeVar("Ref", bound="AsyncioActorRef[Any]")
AnyServer = TypeVar("AnyServer", bound="ServerView")


# --- The rules by which methods are made ------------------------------------------------------------------------------


class View(Asker, Generic[T_co]):
    """The asyncio side of one object on Trio's side. Two views of the same object are equal."""

    __slots__ = ("_bridge", "_target")

    def __init__(self, bridge: Bridge, target: T_co) -> None:
        self._bridge = bridge
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and other._target == self._target

    def __hash__(self) -> int:
        return hash(self._target)

    def _adapted(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return an async function for Trio's side that calls one of the program."""
        return on_loop(self._bridge, callback)

    # Frameworks copy agents, and with them the views that these hold.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._who}: cannot be pickled, because it works only in its own process; open it in the other process"
        )


def async_view(
    method: Callable[Concatenate[T, P], Awaitable[R]], *, callbacks: tuple[str, ...] = ()
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from an async one.

    Args:
        method: the method of the object.
        callbacks: as for `request_view`.
    """

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _adapt_callbacks(view, callbacks, kwargs)
        return await view._bridge.call(view, partial(method, view._target, *args, **kwargs))

    return crossed


def request_view(
    method: Callable[Concatenate[T, P], Awaitable[R]],
    send: Callable[..., PendingRequest[Any]],
    *,
    callbacks: tuple[str, ...] = (),
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from an async one that sends a request to a server.

    Args:
        method: the method of the object.
        send: prepares the same request, for callers that are not Trio tasks.
        callbacks: the keyword arguments that are async functions of the program; they are called on the event loop.
    """
    unwrap(send).__qualname__ = method.__qualname__  # errors of Python name the method that the caller used

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _adapt_callbacks(view, callbacks, kwargs)
        return await view._bridge.ask(view, partial(send, view._target, *args, **kwargs))

    return crossed


def _adapt_callbacks(view: View[Any], names: tuple[str, ...], kwargs: dict[str, Any]) -> None:
    for name in names:
        if (callback := kwargs.get(name)) is not None:
            kwargs[name] = view._adapted(callback)


def step_view(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make an async method of a view from a sync one that changes something, or during which nothing may change."""

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def step() -> R:
            await trio.lowlevel.checkpoint_if_cancelled()
            return method(view._target, *args, **kwargs)

        return await view._bridge.call(view, step)

    return crossed


def sync_view(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[View[Any], P], R]:
    """Make a sync method of a view from one that only reads."""

    @wraps(method)
    def read(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(view._target, *args, **kwargs)

    return read


def stream_view(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Callable[Concatenate[View[Any], P], AbstractAsyncContextManager[AsyncioStream[R]]]:
    """Make a view's method from one that opens a stream in an ``async with``."""

    @wraps(method)
    def subscribe(
        view: View[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncioStream[R]]:
        return open_stream(view._bridge, view, partial(method, view._target, *args, **kwargs))

    return subscribe


# --- Refs of actors and servers, and groups of servers, for asyncio programs ------------------------------------------

# Each object here is a *view* of an object on Trio's side, and calls its method of the same name through the bridge.
# Methods that wait or change something are async here, even where they are synchronous on Trio, and so is `tree`; other
# methods that only read are synchronous.


_BEGIN: Final = step_view(Monitor.begin)


class AsyncioActorRef(View[ActorRef[Any]], Receives[M_contra]):
    """A `mcp_actors.kernel.ActorRef` for asyncio programs; ``AsyncioActorRef[Add | Get]`` takes these messages."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"actor {self.name!r}"

    def _ended_error(self, why: str | None) -> Exception:
        message = f"{self._who} has stopped because {why or 'the block that opened it has exited; open it again'}"
        return ActorStopped(message, actor=self.name)

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._target.name

    @property
    def path(self) -> str:
        """Its name after those of the supervisors above it, like `mcp_actors.kernel.ActorRef.path`."""
        return self._target.path

    @property
    def state(self) -> ActorState:
        """``starting, running, backoff, stopping, stopped`` or ``failed``."""
        return self._target.state

    @property
    def supervisor(self) -> AsyncioSupervisorRef | None:
        """The reference to its supervisor, like `mcp_actors.kernel.ActorRef.supervisor`."""
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
        await self._tell_nowait(message)

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
        await _BEGIN(view)
        try:
            yield view
        finally:
            with suppress(RuntimeError):  # Trio's side has ended, and the monitor with it
                self._bridge.to_trio(monitor.cancel)

    _tell_nowait: Final = step_view(ActorRef[Any].tell_nowait)
    wait_state: Final = async_view(ActorRef.wait_state)
    statistics: Final = sync_view(ActorRef.statistics)


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
        """The actor that is watched."""
        return view_of(self._bridge, self._target.ref)

    wait: Final = async_view(Monitor.wait)
    cancel: Final = step_view(Monitor.cancel)


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

    tree: Final = step_view(SupervisorRef.tree)
    stop_child: Final = async_view(SupervisorRef.stop_child)
    delete_child: Final = async_view(SupervisorRef.delete_child)
    which_children: Final = async_view(SupervisorRef.which_children)
    count_children: Final = async_view(SupervisorRef.count_children)
    watch_events: Final = stream_view(SupervisorRef.watch_events)


@explained_methods
class ServerView(View[ServerRef]):
    """The members that all views of a `mcp_actors.ServerRef` have: those that only read."""

    __slots__ = ()

    @property
    def _who(self) -> str:
        return f"server {self.name!r}"

    def _ended_error(self, why: str | None) -> Exception:
        return ServerAsker(self.name)._ended_error(why)

    @property
    def name(self) -> str:
        """The configured name of the server."""
        return self._target.name

    @property
    def config(self) -> ServerConfig:
        """The configuration of the server."""
        return self._target.config

    @property
    def state(self) -> ServerState:
        """The state of the server, like `mcp_actors.ServerRef.state`."""
        return self._target.state

    @property
    def info(self) -> ServerInfo:
        """The server's description of itself at its last connect, like `mcp_actors.ServerRef.info`."""
        return self._target.info

    @property
    def tool_changes(self) -> ToolChanges:
        """The changes of its tools that wait for approval, like `mcp_actors.ServerRef.tool_changes`."""
        return self._target.tool_changes

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources that it listed last, if they are kept, like `mcp_actors.ServerRef.resources`."""
        return self._target.resources

    @property
    def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """The templates that it listed last, if they are kept, like `mcp_actors.ServerRef.resource_templates`."""
        return self._target.resource_templates

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts that it listed last, if they are kept, like `mcp_actors.ServerRef.prompts`."""
        return self._target.prompts

    @property
    def stderr_tail(self) -> str:
        """The last lines of its standard error, like `mcp_actors.ServerRef.stderr_tail`."""
        return self._target.stderr_tail

    statistics: Final = sync_view(ServerRef.statistics)


@explained_methods
class AsyncioServerRef(ServerView):
    """A `mcp_actors.ServerRef` for asyncio programs."""

    __slots__ = ()

    wait_state: Final = async_view(ServerRef.wait_state)
    wait_ready: Final = async_view(ServerRef.wait_ready)

    async def call(self, tool: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool, and return its result as plain values, like `mcp_actors.ServerRef.call`."""
        check_call(tool, positional, arguments, self._target._schema_of)
        return result_value(await self.call_tool(tool, arguments))

    call_tool: Final[ToolCall[Awaited[CallToolResult], Awaited[CallToolResult | InputRequiredResult]]] = cast(
        "Any", request_view(ServerRef.call_tool, ServerRef.send_tool_call, callbacks=("progress",))
    )
    list_tools: Final = async_view(ServerRef.list_tools)
    approve_tools: Final = async_view(ServerRef.approve_tools)
    list_resources: Final = async_view(ServerRef.list_resources)
    list_resource_templates: Final = async_view(ServerRef.list_resource_templates)
    read_resource: Final[
        ResourceRequest[Awaited[ReadResourceResult], Awaited[ReadResourceResult | InputRequiredResult]]
    ] = cast("Any", request_view(ServerRef.read_resource, ServerRef.send_read_resource, callbacks=("progress",)))
    subscribe: Final = stream_view(ServerRef.subscribe)
    list_prompts: Final = async_view(ServerRef.list_prompts)
    get_prompt: Final[PromptRequest[Awaited[GetPromptResult], Awaited[GetPromptResult | InputRequiredResult]]] = cast(
        "Any", request_view(ServerRef.get_prompt, ServerRef.send_get_prompt, callbacks=("progress",))
    )
    complete: Final = request_view(ServerRef.complete, ServerRef.send_complete, callbacks=("progress",))
    set_log_level: Final = async_view(ServerRef.set_log_level)
    check_health: Final = async_view(ServerRef.check_health)
    send_roots_list_changed: Final = async_view(ServerRef.send_roots_list_changed)

    restart: Final = async_view(ServerRef.restart)
    sign_in: Final = async_view(ServerRef.sign_in, callbacks=("show",))
    sign_out: Final = async_view(ServerRef.sign_out)
    signed_in: Final = async_view(ServerRef.signed_in)
    stop: Final = async_view(ServerRef.stop)
    start: Final = async_view(ServerRef.start)


@explained_methods
class GroupView(View[ServerGroup], Mapping[str, AnyServer]):
    """The members that all views of a `mcp_actors.ServerGroup` have: those that only read."""

    __slots__ = ()

    _kind: ClassVar[type[ServerView]]

    @property
    def _who(self) -> str:
        return "this group of servers"

    def _ended_error(self, why: str | None) -> Exception:
        message = f"{self._who} is stopped because {why or 'its open_servers() block has exited; open it again'}"
        return ServerUnavailable(message, server="*", state="stopped")

    def __getitem__(self, name: str) -> AnyServer:
        """Return the server of that name. A `KeyError` lists the names of the group."""
        return self._ref(self._target[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._target)

    def __len__(self) -> int:
        return len(self._target)

    def __eq__(self, other: object) -> bool:
        return View.__eq__(self, other)  # a mapping would compare the items

    def __hash__(self) -> int:
        return View.__hash__(self)

    def _schema_of(self, public_name: str) -> Mapping[str, Any] | None:
        return self.tools._schema_of(public_name)

    @property
    def configured(self) -> tuple[AnyServer, ...]:
        """All servers that are enabled."""
        return self._refs(self._target.configured)

    @property
    def connected(self) -> tuple[AnyServer, ...]:
        """The servers that are connected."""
        return self._refs(self._target.connected)

    @property
    def active(self) -> tuple[AnyServer, ...]:
        """The servers that can be called. A server that dies leaves this view at once."""
        return self._refs(self._target.active)

    @property
    def failed(self) -> tuple[AnyServer, ...]:
        """The servers that are down although they should run: about to be retried, or given up."""
        return self._refs(self._target.failed)

    def _ref(self, ref: ServerRef) -> AnyServer:
        return cast("AnyServer", self._kind(self._bridge, ref))

    def _refs(self, refs: tuple[ServerRef, ...]) -> tuple[AnyServer, ...]:
        return tuple(self._ref(ref) for ref in refs)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The error of each server that has one, by name. An entry is removed when its server is ready."""
        return self._target.errors

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        """A snapshot of each file, directory and table that the servers come from."""
        return self._target.sources

    @property
    def tools(self) -> CatalogSnapshot:
        """All tools, under their public names, like `mcp_actors.ServerGroup.tools`."""
        return self._target.tools

    status: Final = sync_view(ServerGroup.status)
    find_tool: Final = sync_view(ServerGroup.find_tool)


@explained_methods
class AsyncioServerGroup(GroupView[AsyncioServerRef]):
    """A `mcp_actors.ServerGroup` for asyncio programs: a mapping of names to `AsyncioServerRef`."""

    __slots__ = ()

    _kind = AsyncioServerRef

    async def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """Return the tools that a `ToolFilter` shows in this context, like `mcp_actors.ServerGroup.list_tools`.

        The predicates of the filters are functions of the program, so they are called here, on the event loop.
        """
        await self._bridge.call(self, trio.lowlevel.checkpoint)  # raises if the group has ended
        filters = {name: self[name].config.tool_filter for name in self}
        return await permitted(self.tools, filters, context)

    async def add(self, config: ServerConfig) -> AsyncioServerRef:
        """Add a server, connect to it, and return it, like `mcp_actors.ServerGroup.add`."""
        adapted = config_from_loop(self._bridge, config)
        return self._ref(await self._bridge.call(self, lambda: self._target.add(adapted)))

    async def replace(self, config: ServerConfig) -> AsyncioServerRef:
        """Change the configuration of a server, like `mcp_actors.ServerGroup.replace`."""
        adapted = config_from_loop(self._bridge, config)
        return self._ref(await self._bridge.call(self, lambda: self._target.replace(adapted)))

    async def remove(self, name: str) -> None:
        """Stop a server and forget it, like `mcp_actors.ServerGroup.remove`."""
        await self._bridge.call(self, lambda: self._target.remove(name))
        self._bridge.adapted.pop(name, None)

    async def reload(self, *configs: Configured) -> ReloadSummary:
        """Change what differs from a configuration, like `mcp_actors.ServerGroup.reload`."""
        adapted = [config_from_loop(self._bridge, anchored(config)) for config in configs]
        return await self._bridge.call(self, lambda: self._target.reload(*adapted))

    tree: Final = step_view(ServerGroup.tree)

    async def call(self, public_name: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool by its public name, and return plain values, like `mcp_actors.ServerGroup.call`."""
        check_call(public_name, positional, arguments, self._schema_of)
        return result_value(await self.call_tool(public_name, arguments))

    call_tool: Final = request_view(ServerGroup.call_tool, ServerGroup.send_tool_call, callbacks=("progress",))
    reconnect: Final = async_view(ServerGroup.reconnect)
    wait_ready: Final = async_view(ServerGroup.wait_ready)
    watch_events: Final = stream_view(ServerGroup.watch_events)


def _on_trio(kind: type[Receives[Any]]) -> type[Any]:
    if not issubclass(kind, AsyncioActorRef):
        return kind
    return SupervisorRef if issubclass(kind, AsyncioSupervisorRef) else ActorRef


@overload
def view_of(bridge: Bridge, thing: ServerGroup) -> AsyncioServerGroup: ...
@overload
def view_of(bridge: Bridge, thing: ServerRef) -> AsyncioServerRef: ...
@overload
def view_of(bridge: Bridge, thing: SupervisorRef) -> AsyncioSupervisorRef: ...
@overload
def view_of(bridge: Bridge, thing: ActorRef[M]) -> AsyncioActorRef[M]: ...
def view_of(bridge: Bridge, thing: Any) -> Any:
    """Return the view of a group, a server, a supervisor or another actor.

    Raises:
        TypeError: the object has no view.
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
                f"{thing!r} has no asyncio view; give a ServerGroup, a ServerRef, a SupervisorRef or an ActorRef"
            )


# --- List the tools of servers again ----------------------------------------------------------------------------------


async def list_tools_again(servers: Iterable[AsyncioServerRef]) -> None:
    """List the tools of servers, concurrently. If one does not answer, that is logged, and its last list stays."""
    import asyncio

    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(_list_tools(server), name=f"{server.name}:tools/list")


async def _list_tools(server: AsyncioServerRef) -> None:
    try:
        await server.list_tools()
    except (McpActorsError, MCPError) as exc:
        problem = problem_of(exc)
        logger.warning("server %r: tools/list failed: %s; the catalogue keeps its last list", server.name, problem)
