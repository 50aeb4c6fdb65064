"""A request leaves no reference cycle behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import NoReturn

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, ServerUnavailable, ToolFilter, ToolNotFound
from mcp_actors.bridge import (
    AsyncioActorRef,
    AsyncioServerGroup,
    AsyncioSupervisorRef,
    Host,
    open_servers,
    open_supervisor,
)
from mcp_actors.kernel import ChildError, ChildSpec

from ..processor_time import freeze
from .actors import Boom, Echo, Fail, Nap, Worker

HOSTS: list[Host] = ["thread", "guest"]


class Weak(Worker):
    """Fails with an exception that its message does not hold."""

    async def handle(self, message: object) -> object:
        if isinstance(message, Fail):
            raise Boom
        return await super().handle(message)


async def answered(_: AsyncioSupervisorRef, ref: AsyncioActorRef) -> None:
    await ref.call(Echo(1))


async def failed(_: AsyncioSupervisorRef, ref: AsyncioActorRef) -> None:
    with suppress(Boom):
        await ref.call(Fail(Boom()))


async def cancelled(_: AsyncioSupervisorRef, ref: AsyncioActorRef) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await ref.call(Nap())


async def looked_up(supervisor: AsyncioSupervisorRef, _: AsyncioActorRef) -> None:
    await supervisor.count_children()


async def refused(supervisor: AsyncioSupervisorRef, _: AsyncioActorRef) -> None:
    with suppress(ChildError):
        await supervisor.restart_child("worker")


@contextmanager
def without_collection() -> Iterator[None]:
    freeze()  # so that the collections to come look at nothing else
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def found_by_collection() -> list[object]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("host", HOSTS)
def test_a_plain_request_takes_no_task_on_trios_side_unless_it_fails(host: Host) -> None:
    async def main() -> None:
        here = MCPServer("here")
        seen: list[list[str]] = []

        def look() -> str:
            seen.append([task.name for task in servers._bridge.nursery.child_tasks])
            return "looked"

        here.add_tool(look, name="look")
        here.resource("test://look")(look)
        here.prompt("look")(look)
        async with open_servers(ServerConfig("here", InProcess(here)), host=host) as servers:
            await servers["here"].call_tool("look")
            await servers.call_tool("mcp__here__look")
            await servers["here"].read_resource("test://look")
            await servers["here"].get_prompt("look")
        assert len(seen) == 4
        assert "a request from asyncio" not in chain(*seen)

    asyncio.run(main())


async def nap() -> None:
    await trio.sleep(60)


async def tool_called(servers: AsyncioServerGroup) -> None:
    await servers["here"].call_tool("look")


async def tool_cancelled(servers: AsyncioServerGroup) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await servers["here"].call_tool("nap")


async def tool_hidden(servers: AsyncioServerGroup) -> None:
    with suppress(ToolNotFound):
        await servers["here"].call_tool("hidden")


async def tool_refused(servers: AsyncioServerGroup) -> None:
    with suppress(Boom):
        await servers["refusing"].call_tool("look")


async def refuse(request: object, call_next: object) -> NoReturn:
    raise Boom


async def tool_of_a_stopped_server(servers: AsyncioServerGroup) -> None:
    with suppress(ServerUnavailable):
        await servers["stopped"].call_tool("look")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("request_", [tool_called, tool_cancelled, tool_hidden, tool_refused, tool_of_a_stopped_server])
def test_a_call_of_a_tool_leaves_no_cycle_of_ours(
    host: Host, request_: Callable[[AsyncioServerGroup], Awaitable[None]]
) -> None:
    here = MCPServer("here")
    here.add_tool(lambda: "looked", name="look")
    here.add_tool(nap)

    async def main() -> list[object]:
        async with open_servers(
            ServerConfig("here", InProcess(here), tool_filter=ToolFilter(deny=["hidden"])),
            ServerConfig("refusing", InProcess(here), middleware=(refuse,)),
            ServerConfig("stopped", InProcess(here)),
            host=host,
        ) as servers:
            await servers["stopped"].stop()
            await request_(servers)
            with without_collection():
                for _ in range(5):
                    await request_(servers)
                await tool_called(servers)  # so that the last but one is over on the other side too
                return found_by_collection()

    # The SDK leaves some of its own; and what is under way on the other side may be found half made.
    ours = Counter(
        type(each).__name__ for each in asyncio.run(main()) if type(each).__module__.startswith("mcp_actors")
    )
    assert [kind for kind, number in ours.items() if number > 2] == []


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("request_", [answered, failed, cancelled, looked_up, refused])
def test_a_request_leaves_no_cycle(
    host: Host, request_: Callable[[AsyncioSupervisorRef, AsyncioActorRef], Awaitable[None]]
) -> None:
    async def main() -> int:
        async with open_supervisor(ChildSpec("worker", Weak), host=host) as supervisor:
            ref = supervisor.child("worker")
            await request_(supervisor, ref)
            with without_collection():
                for _ in range(20):
                    await request_(supervisor, ref)
                await answered(supervisor, ref)  # so that the last but one is over on the other side too
                return gc.collect()

    assert asyncio.run(main()) < 20


class Held:
    """Something large that the frame of a program holds."""


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("error", [Boom, asyncio.CancelledError, None])
def test_an_exception_that_leaves_a_block_keeps_no_frames_of_the_program_alive(
    host: Host, error: type[BaseException] | None
) -> None:
    """Neither the bridge nor Trio keeps it, so the objects in its frames are freed with it."""

    async def use() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        async with open_supervisor(ChildSpec("worker", Weak), host=host) as supervisor:
            await answered(supervisor, supervisor.child("worker"))
            if error is not None:
                raise error

    async def main() -> bool:
        with without_collection():
            with suppress(Boom, asyncio.CancelledError):
                await use()
            return kept[-1]() is None

    kept: list[weakref.ref[Held]] = []
    assert asyncio.run(main())
