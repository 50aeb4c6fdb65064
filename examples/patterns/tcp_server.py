"""A TCP server with an actor for each connection.

A connection that fails ends alone. When the program ends, the listener stops before the connections.

Prints::

    HELLO
    HELLO
    ben has sent nonsense and is disconnected
    STILL HERE
    connections: connection-1
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Never

import trio

from mcp_actors.kernel import (
    Actor,
    ChildSpec,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)


class Connection(Actor[Never]):
    """Answers each line of one client in capitals."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._serve)
            yield
            nursery.cancel_scope.cancel()

    async def _serve(self) -> None:
        async for chunk in self._stream:
            await self._stream.send_all(chunk.decode("ascii").upper().encode())
        self.stop()


class Listener(Actor[Never]):
    """Starts an actor for each client."""

    def __init__(self, address: list[int]) -> None:
        self._address = address

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        assert self.supervisor is not None
        self._connections = self.supervisor.child("connections", SupervisorRef)
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._address.append(listener.socket.getsockname()[1])
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(self._accept, listener)
            yield
            nursery.cancel_scope.cancel()

    async def _accept(self, listener: trio.SocketListener) -> None:
        for number in range(1, 10**9):
            args = (await listener.accept(),)
            name = f"connection-{number}"
            spec = ChildSpec(name, Connection, args=args, restart="temporary")
            await self._connections.start_child(spec)


async def main() -> None:
    port: list[int] = []
    async with open_supervisor(
        ChildSpec("connections", Supervisor),
        ChildSpec("listener", Listener, args=(port,)),
    ) as top:
        anna = await trio.open_tcp_stream("127.0.0.1", *port)
        ben = await trio.open_tcp_stream("127.0.0.1", *port)
        async with anna, ben:
            for client in (anna, ben):
                await client.send_all(b"hello")
                print((await client.receive_some()).decode())
            broken = top.find("connections/connection-2")
            await ben.send_all(b"\xff")
            await broken.wait_stopped()
            print("ben has sent nonsense and is disconnected")
            await anna.send_all(b"still here")
            print((await anna.receive_some()).decode())
            children = await top.child("connections", SupervisorRef).which_children()
            print("connections:", *(child.id for child in children))


trio.run(main)
