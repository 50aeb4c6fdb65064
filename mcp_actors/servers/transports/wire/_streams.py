"""Base classes for the message streams of the SDK's servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable
from contextvars import Context
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage

Messages: TypeAlias = AsyncIterable[SessionMessage | Exception]
"""Incoming messages. What is not a message is an exception."""


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


class MessageWriter(Stream):
    """Sends outgoing messages."""

    @abstractmethod
    async def send(self, item: SessionMessage, /) -> None:
        """Send a message.

        Raises:
            anyio.BrokenResourceError: the other side reads no more.
            anyio.ClosedResourceError: this stream was closed.
        """


class ContextReader(MessageReader):
    """Messages that carry the context variables of their senders.

    Attributes:
        last_context: the context variables of the sender of the last message, in which the SDK handles it.
    """

    def __init__(self, inner: MemoryObjectReceiveStream[tuple[Context, SessionMessage | Exception]]) -> None:
        self._inner = inner
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        """See `MessageReader.receive`."""
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        """Stop reading."""
        self._inner.close()
