"""A connection to a scripted server that can be frozen or cut."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import trio
from mcp.shared.message import SessionMessage
from mcp.types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from ...transports import MessageWriter
from ._behavior import CONNECTION, Behavior, Connected, Duplicate, Garble, Noise, Received, Script, Signal, post


class Connection(Connected, ABC):
    """A connection; see `Connected`.

    Attributes:
        number: counted from 1 for each server.
        behavior: the SDK's server behind it.
    """

    behavior: Behavior

    def __init__(self, script: Script) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._marks: dict[object, Garble | Duplicate | Noise] = {}
        self._thawed = Signal()
        self._thawed.set()
        self.number: int = script.connect(self)

    def mark(self, request_id: object, fault: Garble | Duplicate | Noise) -> None:
        self._marks[request_id] = fault

    def freeze(self) -> None:
        if self._thawed.is_set:  # or else the tasks that wait for it already would wait for ever
            self._thawed = Signal()

    def thaw(self) -> None:
        self._thawed.set()

    def crash(self) -> None:
        post(self._token, self.cut)

    def notify(self) -> None:
        post(self._token, lambda: self.start_soon(self.behavior.notify))

    @abstractmethod
    def cut(self) -> None:
        """End at once, in the run of this connection."""

    @abstractmethod
    def start_soon(self, fn: Any) -> None:
        """Start a task that ends with the connection."""


class StreamConnection(Connection):
    """A connection whose messages go through two streams, with an SDK server of its own."""

    def __init__(self, script: Script, reader: Any) -> None:
        super().__init__(script)
        self.behavior: Behavior = Behavior(script)
        self._script = script
        self._reader = reader
        self._tasks: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    async def serve(self) -> None:
        """Serve until the client has closed its side, or until `cut`."""
        CONNECTION.set(self)
        try:
            with self._scope:
                async with trio.open_nursery() as self._tasks:
                    options = self.behavior.server.create_initialization_options()
                    await self.behavior.server.run(self._reader, _Answers(self), options)
                    self._tasks.cancel_scope.cancel("the client has left")
        finally:
            self._tasks = None
            self._script.disconnect(self)

    def cut(self) -> None:
        self._scope.cancel("the scripted server crashes")
        self._thawed.set()

    def start_soon(self, fn: Any) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(fn)

    async def answers(self, item: SessionMessage) -> bool:
        """Return True if this has answered a message of the client, which is not for the SDK then.

        A legacy server does not know ``server/discover``. The SDK's would refuse ``initialize`` after it, whatever the
        answer was.
        """
        message = item.message
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.behavior.note_cancelled(message.params or {})
        if not isinstance(message, JSONRPCRequest) or message.method != "server/discover":
            return False
        if self._script.era != "legacy":
            return False
        self._script.receive(Received(message.method, connection=self.number))
        error = ErrorData(code=METHOD_NOT_FOUND, message="Method not found", data=message.method)
        await self.pass_on(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
        return True

    async def pass_on(self, item: SessionMessage) -> None:
        """Send a message, unless the connection is frozen or the message is to be garbled."""
        await self._thawed.wait()
        message = item.message
        answered = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        match self._marks.pop(answered, None) if answered is not None else None:
            case Garble(line):
                await self.deliver_raw(line)
            case Noise(line):
                await self.deliver_raw(line)
                await self.deliver(item)
            case Duplicate():
                await self.deliver(item)
                await self.deliver(item)
            case None:
                await self.deliver(item)

    @abstractmethod
    async def deliver(self, item: SessionMessage) -> None:
        """Send a message to the client."""

    @abstractmethod
    async def deliver_raw(self, line: bytes) -> None:
        """Send a line to the client that may not be a message."""


class _Answers(MessageWriter):
    """The messages of the SDK's server to the client."""

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    async def send(self, item: SessionMessage, /) -> None:
        await anyio.lowlevel.checkpoint()
        await self._connection.pass_on(item)

    async def aclose(self) -> None:
        """Do nothing: the connection ends when `StreamConnection.serve` does."""


# --- Serve a script over bytes, one message per line ------------------------------------------------------------------


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
