"""Serve a script over bytes, one message per line."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
import trio
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from ._connection import StreamConnection

if TYPE_CHECKING:
    from ._script import Script

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]


class LineConnection(StreamConnection):
    """A connection over bytes, as stdio has it.

    Args:
        script: what it does.
        read: returns the next bytes; empty at the end, and if the client has reset the connection.
        write: sends bytes, all of them.
    """

    def __init__(self, script: Script, read: Read, write: Write) -> None:
        self._incoming, reader = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        super().__init__(script, reader)
        self._read = read
        self._write = write
        self._writing = trio.Lock()

    async def serve(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            try:
                await super().serve()
            finally:
                nursery.cancel_scope.cancel("the connection is over")

    async def _receive(self) -> None:
        rest = b""
        with self._incoming:
            while data := await self._read():
                await self._thawed.wait()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    item = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    if not await self.answers(item):
                        self._incoming.send_nowait(item)

    async def deliver(self, item: SessionMessage) -> None:
        await self.deliver_raw(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def deliver_raw(self, line: bytes) -> None:
        async with self._writing:
            await self._write(line + b"\n")
