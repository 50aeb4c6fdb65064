"""Run the servers that each client has for itself.

Each client's session opens a group of servers that are not shared. The servers may send a legacy client questions that
the client can answer (elicitation, sampling, roots). Their log messages reach no other client.

Owns: the group of one client; tasks that start servers.
Writes: the first era to try and the client's capabilities, in records of servers; messages to the client; messages to
servers.
Calls: config, servers, _calls, _front.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, CreateMessageResultWithTools, ElicitResult, ErrorData, ListRootsResult
from pydantic_core import ValidationError

from .._errors import McpActorsError, ServerUnavailable
from ..config import Callbacks, InProcess, LoadedConfig, ServerConfig, Stdio
from ..servers import open_servers
from ._calls import CLIENT_QUESTIONS, INVALID_ANSWER, QUESTION_CAPABILITIES
from ._front import Front, json_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ..config import CallbackContext
    from ..kernel import Observer
    from ..servers import ServerGroup, ServerRef
    from ._calls import Client

ANSWER_MODELS: dict[str, Any] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResultWithTools,
    "roots/list": ListRootsResult,
}
"""Question of a server → class of the answer."""


Servers = TypeVar("Servers", ServerConfig, LoadedConfig)


def in_background(servers: Servers) -> Servers:
    """Return the configuration, changed so that servers connect in the background and may fail (`Front.required`)."""
    if isinstance(servers, LoadedConfig):
        return attrs.evolve(servers, servers=tuple(map(in_background, servers.servers)), required=frozenset())
    return attrs.evolve(servers, connect="lazy", required=False, on_failure="park")


def open_in_background(
    configs: Iterable[Servers], naming: str, callbacks: Callbacks, observers: Sequence[Observer] = ()
) -> AbstractAsyncContextManager[ServerGroup]:
    return open_servers(
        *map(in_background, configs), naming=naming, callbacks=callbacks, observers=observers, max_servers=sys.maxsize
    )


def in_directory(server: ServerConfig, directory: str | None) -> ServerConfig:
    """Return a server with a working directory, unless configured with one or not a process."""
    transport = server.transport
    if directory is None or not isinstance(transport, Stdio) or transport.cwd is not None:
        return server
    return attrs.evolve(server, transport=attrs.evolve(transport, cwd=directory))


def start_eager(nursery: trio.Nursery, front: Front, configs: Sequence[ServerConfig]) -> None:
    """Start eager servers, each in a task; note required ones."""
    eager = [config for config in configs if config.enabled and config.connect == "eager"]
    front.starting = frozenset(config.name for config in eager)
    front.required = frozenset(config.name for config in eager if config.required)
    for ref in front.own_servers():
        if ref.name in front.starting:
            nursery.start_soon(start, ref)


async def start(ref: ServerRef) -> None:
    with suppress(McpActorsError):  # stopped or removed meanwhile
        await ref.start()


async def serve_own(
    owner: Client,
    shared: Front,
    configs: Sequence[ServerConfig],
    capabilities: dict[str, Any],
    use: Callable[[Front], None],
) -> None:
    """Open servers for one client, and keep their lists up to date. Does not return.

    `shared` has the lists of the shared servers, and `use` gets all lists once the group is open. `capabilities` are
    the client's.
    """
    callbacks = _callbacks_for(owner, capabilities)
    asks = any((callbacks.elicitation, callbacks.sampling, callbacks.roots))
    if asks:  # modern servers ask only in place of an answer
        configs = [*map(_legacy_in_process, configs)]
    async with open_in_background(configs, shared.naming, callbacks) as group, trio.open_nursery() as nursery:
        front = Front(group, shared.naming, shared)
        declared = {name: capabilities[name] for name in QUESTION_CAPABILITIES if type(capabilities.get(name)) is dict}
        for ref in front.own_servers():
            ref._record.next_connect.legacy_first = asks
            ref._record.next_connect.declared = declared
        start_eager(nursery, front, configs)
        use(front)
        await front.follow(owner.note_changed)


def _legacy_in_process(server: ServerConfig) -> ServerConfig:
    """Give a server in this process the legacy era, unless an era is configured: ``auto`` opens a modern link."""
    both = isinstance(server.transport, InProcess) and server.protocol == "auto"
    return attrs.evolve(server, protocol="legacy") if both else server


def _callbacks_for(owner: Client, capabilities: dict[str, Any]) -> Callbacks:
    def answering(method: str) -> Callable[..., Awaitable[Any]]:
        async def answer(context: CallbackContext, params: Any = None) -> Any:
            await owner.initialized.wait()  # before, a client takes no questions
            try:
                asked = {} if params is None else json_of(params)
                answer = await owner.ask(method, asked, server=context.server)
                return ANSWER_MODELS[method].model_validate(answer, by_name=False)
            except MCPError as exc:
                return ErrorData(code=exc.code, message=exc.message)
            except ValidationError:
                return ErrorData(code=INTERNAL_ERROR, message=INVALID_ANSWER)

        return answer

    answered = {} if owner.modern else {name: answering(method) for method, name in CLIENT_QUESTIONS.items()}
    given: dict[str, Any] = {name: each for name, each in answered.items() if name in capabilities}
    return Callbacks(logging=owner.pass_log, **given)


async def tell_roots_changed(front: Front) -> None:
    with suppress(ServerUnavailable):  # the server named by the client was removed
        for ref in front.own_servers():
            with suppress(McpActorsError, MCPError):
                await ref.send_roots_list_changed()
