"""Let Trio's side use an asyncio program's functions, servers and signals.

A task on Trio's side waits while a task on the event loop runs a function of the program. Either task may be cancelled,
and either side may end first.

Owns: message streams of in-process servers; tasks of functions on the event loop; tasks of servers on Trio's side.
Writes: the bridge's lists of tasks and configurations; signals to the process; its signal handlers; the log.
Calls: config, kernel, servers, transports, _bridge.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial, wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

import anyio
import attrs
import outcome
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from attrs import frozen
from mcp.client import ClaimContext, ClientExtension
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage

from .._errors import ServerUnavailable
from .._foreign import Log, answer_of
from .._misuse import is_function, is_plain, note_loop
from .._tasks import Signals
from ..config import AdaptedExtension, Callbacks, Http, InProcess, OAuth, ServerConfig, Socket, Sse, Stdio
from ..kernel import Reply
from ..servers import CallObserver
from ..transports import SHUTDOWN_GRACE, ContextReader, ElsewhereServer, Messages, MessageWriter, lowlevel
from ._bridge import Bridge

if TYPE_CHECKING:
    import asyncio

    from mcp import ClientSession
    from mcp.types import CallToolResult, Result

    from ..config import CallNext, ConfigValue, Middleware, ToolRequest
    from ..kernel import Event, Observer
    from ._bridge import Step


# --- Functions --------------------------------------------------------------------------------------------------------

# A cancelled task on Trio's side leaves at once, and cancels the task on the event loop, which the block awaits at its
# end.


P = ParamSpec("P")
R = TypeVar("R")


def on_loop(bridge: Bridge, fn: Callable[P, Awaitable[R] | R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async function for Trio's side that calls `fn` on the event loop, in the context of the caller."""

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        callback = _LoopCallback[R](bridge, partial(fn, *args, **kwargs))
        try:
            bridge.to_loop(partial(bridge.loop.call_soon, callback.start, contextvars.copy_context()))
        except RuntimeError as exc:
            raise RuntimeError(f"{_name(fn)}: cannot be called, because its event loop is closed") from exc
        return await callback.wait()

    return call if callable(fn) else fn  # type: ignore[redundant-expr]  # another object is refused later, as on Trio


class _LoopCallback(Reply[R], Generic[R]):
    """One call: waited for on Trio's side, carried out on the event loop."""

    __slots__ = ("_bridge", "_fn", "_task")

    def __init__(self, bridge: Bridge, fn: Callable[[], Awaitable[R] | R]) -> None:
        super().__init__()
        self._bridge = bridge
        self._fn = fn
        self._task: asyncio.Task[R] | None = None

    def abandoned(self) -> None:
        """Cancel the task on the event loop; the waiting task was cancelled. Called on Trio's side."""
        with suppress(RuntimeError):  # a closed event loop has nothing to cancel
            self._bridge.to_loop(partial(self._bridge.loop.call_soon, self._cancel))

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def start(self, context: contextvars.Context) -> None:
        self._task = self._bridge.loop.create_task(self._run(), name=_name(self._fn), context=context)
        self._bridge.callbacks.add(self._task)
        self._task.add_done_callback(self._done)

    async def _run(self) -> R:
        return await answer_of(self._fn())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel("the caller on Trio's side has left")

    def _done(self, task: asyncio.Task[R]) -> None:
        self._bridge.callbacks.discard(task)
        self._task = None  # its exception may refer to frames that refer to this
        answer: outcome.Value[R] | outcome.Error
        if task.cancelled():
            answer = outcome.Error(RuntimeError(f"{_name(self._fn)}: was cancelled on its event loop"))
        elif (error := task.exception()) is not None:
            note_loop(error)
            answer = outcome.Error(error)
        else:
            answer = outcome.Value(task.result())
        with suppress(RuntimeError):  # Trio's side has ended, and the waiting task with it
            self._bridge.to_trio(partial(self.settle, answer))


@frozen
class ServerAsker:
    server: str

    @property
    def _who(self) -> str:
        return f"server {self.server!r}"

    def _ended_error(self, why: str | None) -> Exception:
        message = f"{self._who} is stopped because {why or 'its open_servers() block has exited; open it again'}"
        return ServerUnavailable(message, server=self.server, state="stopped", outcome="not_sent")


def _name(fn: object) -> str:
    inner = fn.func if isinstance(fn, partial) else fn
    return getattr(inner, "__qualname__", None) or repr(inner)


# --- Extensions -------------------------------------------------------------------------------------------------------


def extension_from_loop(bridge: Bridge, server: str, extension: ClientExtension) -> ClientExtension:
    """Return an extension for Trio's side whose functions run on the event loop.

    A claimed result's handler may send requests through the SDK's session, on Trio: hence the `SessionView`.
    """

    def adapt_claim(resolve: Callable[[Result, ClaimContext], Any]) -> Callable[..., Any]:
        resolve_on_loop = on_loop(bridge, resolve)

        async def resolve_claim(result: Result, context: ClaimContext) -> CallToolResult:
            session = cast("ClientSession", SessionView(bridge, server, context.session))
            answer: CallToolResult = await resolve_on_loop(result, replace(context, session=session))
            return answer

        return resolve_claim

    return AdaptedExtension(extension, adapt_claim, partial(on_loop, bridge))


class SessionView:
    """A view of an SDK session: methods are awaited, and callbacks run, on the event loop."""

    def __init__(self, bridge: Bridge, server: str, session: ClientSession) -> None:
        self._bridge = bridge
        self._asker = ServerAsker(server)
        self._session = session

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._session, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        signature = inspect.signature(attribute)

        @wraps(attribute)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            for parameter, value in bound.arguments.items():
                if is_function(value):
                    bound.arguments[parameter] = on_loop(self._bridge, value)
            return await self._bridge.call(self._asker, partial(attribute, *bound.args, **bound.kwargs))

        return call


# --- In-process servers -----------------------------------------------------------------------------------------------

# Each direction is a memory stream of messages with the context variables of the sender. The writing side posts to the
# reading side: a stream that both sides touched would wake tasks in the wrong thread.


Sent: TypeAlias = "tuple[Context, SessionMessage | Exception]"


class LoopServer(ElsewhereServer):
    """A server object of an asyncio program, for connections on Trio's side."""

    def __init__(self, bridge: Bridge, server: Server[Any] | MCPServer) -> None:
        self.name = server.name
        self._bridge = bridge
        self._server: Server[Any] = lowlevel(server)

    @asynccontextmanager
    async def connect(self, on_lost: Callable[[], None]) -> AsyncIterator[tuple[Messages, MessageWriter]]:
        """Serve one connection around a block. Requests, and not `on_lost`, notice the end of the server."""
        to_server, server_reads = anyio.create_memory_object_stream[Sent](math.inf)
        to_client, client_reads = anyio.create_memory_object_stream[Sent](math.inf)
        served = trio.Event()
        async with trio.open_nursery() as nursery, ContextReader(client_reads) as reader:
            client_writes = PostedWriter(self._bridge.to_loop, to_server)
            nursery.start_soon(self._serve, server_reads, to_client, served, name=f"{self.name}:in process")
            try:
                yield reader, client_writes
            finally:
                await client_writes.aclose()
                with trio.move_on_after(SHUTDOWN_GRACE):
                    await served.wait()
                nursery.cancel_scope.cancel("the connection was left")

    async def _serve(
        self, server_reads: MemoryObjectReceiveStream[Sent], to_client: MemoryObjectSendStream[Sent], served: trio.Event
    ) -> None:
        async def run() -> None:
            async with ContextReader(server_reads) as reader:
                writer = PostedWriter(self._bridge.to_trio, to_client)
                await self._server.run(reader, writer, self._server.create_initialization_options())

        try:
            run_on_loop: Callable[[], Awaitable[None]] = on_loop(self._bridge, run)
            await run_on_loop()
        finally:
            to_client.close()
            served.set()


class PostedWriter(MessageWriter):
    """The writing end of a stream that is read on the other side."""

    def __init__(self, post: Callable[[Step], object], stream: MemoryObjectSendStream[Sent]) -> None:
        self._post = post
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message with the sender's context variables; drop the message if the reader has gone."""
        await anyio.lowlevel.checkpoint()
        self._post_step(partial(self._put, (copy_context(), item)))

    async def aclose(self) -> None:
        self._post_step(self._stream.close)

    def _put(self, sent: Sent) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._stream.send_nowait(sent)

    def _post_step(self, step: Step) -> None:
        with suppress(RuntimeError):  # the other side has ended, and the reader with it
            self._post(step)


# --- Observers and configurations -------------------------------------------------------------------------------------


logger = Log("mcp_actors.bridge")

Wrap: TypeAlias = Callable[[Any], Any]
"""Makes a function of the program an async function for Trio's side."""


def observers_from_loop(bridge: Bridge, observers: Any) -> Any:
    """Return observers for Trio's side that call the program's, in order, on the event loop.

    A `CallObserver` is called on Trio's side: a step on the event loop for each request would cost too much. Anything
    but functions is returned unchanged, and refused later.
    """
    if not isinstance(observers, Iterable):
        return observers
    return tuple(
        _LoopObserver(bridge, each) if is_plain(each) and not isinstance(each, CallObserver) else each
        for each in observers
    )


@frozen
class _LoopObserver:
    bridge: Bridge
    observer: Observer

    @property
    def wants_requests(self) -> bool:
        return bool(getattr(self.observer, "wants_requests", True))

    def __call__(self, event: Event, /) -> None:
        # `call_soon`, because a guest shares the thread: there `to_loop` calls at once. The observer would run in the
        # midst of a step of the kernel, and might ask for a state that is only half changed.
        with suppress(RuntimeError):  # the event loop is closed
            self.bridge.to_loop(partial(self.bridge.loop.call_soon, self._notify, event))

    def _notify(self, event: Event) -> None:
        try:
            self.observer(event)
        except Exception:
            logger.exception("observer %r raised on %r; nothing else is affected", self.observer, event)


def config_from_loop(
    bridge: Bridge, config: Any, adapt: Callable[[Bridge, ServerConfig], ServerConfig] | None = None
) -> Any:
    """Return a configuration for Trio's side. Anything but a `ServerConfig` is returned unchanged, and refused later.

    Predicates of filters, ``http_client``, auth flows of httpx2 and token stores run on Trio's side. Equal
    configurations give one result: new wrappers would differ, and a reload would find a change.
    """
    if not isinstance(config, ServerConfig):
        return config
    before, adapted = bridge.adapted.get(config.name, (None, None))
    if before != config:
        adapted = (adapt or _adapted)(bridge, config)
        bridge.adapted[config.name] = config, adapted
    return adapted


def _adapted(bridge: Bridge, config: ServerConfig) -> ServerConfig:
    return attrs.evolve(
        config,
        transport=_transport(bridge, config.transport),
        middleware=tuple(_middleware(bridge, each) for each in config.middleware),
        callbacks=adapted_callbacks(partial(on_loop, bridge), config.callbacks),
        extensions=tuple(extension_from_loop(bridge, config.name, each) for each in config.extensions),
    )


def adapted_callbacks(wrap: Wrap, callbacks: Any) -> Any:
    """Return callbacks for Trio's side. Other objects are returned unchanged, and refused later."""
    if not isinstance(callbacks, Callbacks):
        return callbacks
    fields = {each.name: getattr(callbacks, each.name) for each in attrs.fields(Callbacks)}
    adapted: dict[str, Any] = {name: wrap(fn) for name, fn in fields.items() if callable(fn)}
    return attrs.evolve(callbacks, **adapted)


def _transport(bridge: Bridge, transport: Any) -> Any:
    match transport:
        case InProcess(server=Server() | MCPServer() as server):
            elsewhere: Any = LoopServer(bridge, server)
            return InProcess(elsewhere)
    return adapted_transport(partial(on_loop, bridge), transport)


def adapted_transport(wrap: Wrap, transport: Any) -> Any:
    """Wrap the functions given to a transport instead of values."""
    match transport:
        case Stdio():
            return attrs.evolve(transport, env=_values(wrap, transport.env))
        case Socket():
            address, secret = _value(wrap, transport.address), _value(wrap, transport.secret)
            return attrs.evolve(transport, address=address, secret=secret)
        case Http() | Sse():
            return attrs.evolve(transport, headers=_values(wrap, transport.headers), auth=_auth(wrap, transport.auth))
    return transport


def _values(wrap: Wrap, values: Mapping[str, ConfigValue]) -> dict[str, Any]:
    return {name: _value(wrap, value) for name, value in values.items()}


def _value(wrap: Wrap, value: Any) -> Any:
    return wrap(value) if callable(value) else value


def _auth(wrap: Wrap, auth: Any) -> Any:
    if not isinstance(auth, OAuth):
        return _value(wrap, auth)
    functions = {name: _value(wrap, getattr(auth, name)) for name in ("client_secret", "assertion", "on_sign_in")}
    return attrs.evolve(auth, **functions)


def _middleware(bridge: Bridge, middleware: Middleware) -> Middleware:
    middleware_on_loop: Callable[..., Awaitable[CallToolResult]] = on_loop(bridge, middleware)

    @wraps(middleware)
    async def call(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        asker = ServerAsker(request.server)

        async def call_next_from_loop(request: ToolRequest) -> CallToolResult:
            return await bridge.call(asker, partial(call_next, request))

        return await middleware_on_loop(request, call_next_from_loop)

    return call


# --- Signals ----------------------------------------------------------------------------------------------------------


Handler: TypeAlias = Callable[[int, FrameType | None], object]


class LoopSignals(Signals):
    """Signals of an asyncio program. Python runs handlers in the main thread, and Trio may be in another."""

    def __init__(self, bridge: Bridge, option: str, numbers: object) -> None:
        super().__init__(option, numbers)
        self.check_thread()
        self._bridge = bridge
        if option == "stop_on":
            bridge.end_start = lambda: self.end_start()
        self._found: dict[int, Any] = {}

    @contextmanager
    def receive(self) -> Iterator[AsyncIterator[int]]:
        send, receive = trio.open_memory_channel[int](math.inf)
        handler = partial(self._on_signal, send)
        self._bridge.to_loop(partial(self._install, handler))
        try:
            yield receive
        finally:
            with suppress(RuntimeError):  # the event loop is closed
                self._bridge.to_loop(self._restore)

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def _install(self, handler: Handler) -> None:
        # Not `loop.add_signal_handler`, which can be undone to the default action only, not to the previous handler.
        self._found = {number: signal.signal(number, handler) for number in self.numbers}

    def _restore(self) -> None:
        for number, found in self._found.items():
            signal.signal(number, signal.SIG_DFL if found is None else found)

    def _on_signal(self, send: trio.MemorySendChannel[int], number: int, _: FrameType | None) -> None:
        # By way of the loop: a handler may interrupt any line of Python, also one of Trio's scheduler, or of code that
        # holds a channel half changed. The loop calls `to_trio` between its callbacks.
        try:
            self._bridge.loop.call_soon_threadsafe(self._bridge.to_trio, partial(send.send_nowait, number))
        except RuntimeError:  # the event loop is closed, and no block is left to be ended
            self._restore()
            os.kill(os.getpid(), number)
