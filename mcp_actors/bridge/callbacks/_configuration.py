"""Adapt observers, callbacks and configurations of an asyncio program to Trio's side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ..._foreign import Log
from ...config import Callbacks, Http, InProcess, OAuth, ServerConfig, Sse, Stdio
from ._extensions import extension_from_loop
from ._functions import ServerAsker, on_loop
from ._in_process import LoopServer

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ...config import CallNext, ConfigValue, Middleware, ToolRequest
    from ...kernel import Event, Observer
    from .._bridge import Bridge

logger = Log("mcp_actors.bridge")


def observers_from_loop(bridge: Bridge, observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return observers for Trio's side that pass every event on to these, in order, on the event loop."""
    return tuple(_Observer(bridge, observer) for observer in observers)


@frozen
class _Observer:
    bridge: Bridge
    observer: Observer

    @property
    def wants_requests(self) -> bool:
        """Whether the observer wants the events of single requests."""
        return bool(getattr(self.observer, "wants_requests", True))

    def __call__(self, event: Event, /) -> None:
        # `call_soon`, because a guest run shares the thread: there `to_loop` calls at once, and the observer would run
        # in the midst of a step of the kernel, whose state it may ask for.
        with suppress(RuntimeError):  # the event loop is closed
            self.bridge.to_loop(partial(self.bridge.loop.call_soon, self._notify, event))

    def _notify(self, event: Event) -> None:
        try:
            self.observer(event)
        except Exception:
            logger.exception("observer %r raised on %r; nothing else is affected", self.observer, event)


def config_from_loop(bridge: Bridge, config: Any) -> Any:
    """Return a configuration for Trio's side. Anything but a `ServerConfig` is returned as it is, and refused later.

    Equal configurations of a server have the same result: its wrappers would differ, and a reload would find a change.
    """
    if not isinstance(config, ServerConfig):
        return config
    before, adapted = bridge.adapted.get(config.name, (None, None))
    if before != config:
        adapted = _adapted(bridge, config)
        bridge.adapted[config.name] = config, adapted
    return adapted


def _adapted(bridge: Bridge, config: ServerConfig) -> ServerConfig:
    return attrs.evolve(
        config,
        transport=_transport(bridge, config.transport),
        middleware=tuple(_middleware(bridge, each) for each in config.middleware),
        callbacks=callbacks_from_loop(bridge, config.callbacks),
        extensions=tuple(extension_from_loop(bridge, config.name, each) for each in config.extensions),
    )


def callbacks_from_loop(bridge: Bridge, callbacks: Any) -> Any:
    """Return callbacks for Trio's side. Anything but `Callbacks` is returned as it is, and refused later."""
    if not isinstance(callbacks, Callbacks):
        return callbacks
    fields = {each.name: getattr(callbacks, each.name) for each in attrs.fields(Callbacks)}
    adapted: dict[str, Any] = {name: on_loop(bridge, fn) for name, fn in fields.items() if callable(fn)}
    return attrs.evolve(callbacks, **adapted)


def _transport(bridge: Bridge, transport: Any) -> Any:
    match transport:
        case Stdio():
            return attrs.evolve(transport, env=_values(bridge, transport.env))
        case Http() | Sse():
            return attrs.evolve(
                transport, headers=_values(bridge, transport.headers), auth=_auth(bridge, transport.auth)
            )
        case InProcess(server=Server() | MCPServer() as server):
            return InProcess(LoopServer(bridge, server))
        case _:
            return transport


def _values(bridge: Bridge, values: Mapping[str, ConfigValue]) -> dict[str, Any]:
    return {name: _value(bridge, value) for name, value in values.items()}


def _value(bridge: Bridge, value: Any) -> Any:
    return on_loop(bridge, value) if callable(value) else value


def _auth(bridge: Bridge, auth: Any) -> Any:
    if not isinstance(auth, OAuth):
        return _value(bridge, auth)
    functions = {name: _value(bridge, getattr(auth, name)) for name in ("client_secret", "assertion", "on_sign_in")}
    return attrs.evolve(auth, **functions)


def _middleware(bridge: Bridge, middleware: Middleware) -> Middleware:
    middleware_on_loop: Callable[..., Awaitable[CallToolResult]] = on_loop(bridge, middleware)

    async def call(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        asker = ServerAsker(request.server)

        async def call_next_from_loop(request: ToolRequest) -> CallToolResult:
            return await bridge.call(asker, partial(call_next, request))

        return await middleware_on_loop(request, call_next_from_loop)

    return call
