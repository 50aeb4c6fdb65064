"""Base classes for the message streams of the SDK's session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import anyio
from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage


class Stream(ABC):
    """A stream that is closed on leaving its ``async with`` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the stream. Closing twice does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class MessageReader(Stream):
    """An asynchronous iterator of incoming messages."""

    @abstractmethod
    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the other side sends no more messages.
            anyio.ClosedResourceError: this stream was closed.
        """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class OpenStreams(Transport):
    """An SDK transport of streams that are open already. Leaving it does not close them; their creator does."""

    def __init__(self, reader: ReadStream[SessionMessage | Exception], writer: WriteStream[SessionMessage]) -> None:
        self._streams: TransportStreams = (reader, writer)

    async def __aenter__(self) -> TransportStreams:
        return self._streams

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None
