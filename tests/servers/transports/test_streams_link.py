"""The link to a server on another event loop of this process, when its streams break."""

from __future__ import annotations

import anyio
import pytest
import trio
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED

from mcp_actors.transports import MessageWriter
from mcp_actors.transports._exchange import MessageReader
from mcp_actors.transports._in_process import GONE, StreamsLink
from mcp_actors.transports._link import Lifeline
from mcp_actors.transports._request_table import RequestUnderWay

from ..links import never_received, notification


class Broken(MessageReader, MessageWriter):
    """Both streams, whose other sides have ended."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    async def receive(self) -> SessionMessage:
        await trio.lowlevel.checkpoint()
        raise self.error

    async def send(self, item: SessionMessage, /) -> None:
        await trio.lowlevel.checkpoint()
        raise self.error

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("error", [*GONE, anyio.EndOfStream])
async def test_the_end_of_the_other_side_ends_the_reading(error: type[Exception]) -> None:
    streams = Broken(error)
    await StreamsLink("here", streams, streams, Lifeline(lambda: None)).read(never_received)


@pytest.mark.parametrize("error", GONE)
async def test_a_message_to_a_server_that_is_gone_fails_as_the_connection_has(error: type[Exception]) -> None:
    streams = Broken(error)
    link = StreamsLink("here", streams, streams, Lifeline(lambda: None))
    with pytest.raises(MCPError) as sent:
        await link.send(notification("x"))
    request = RequestUnderWay("ping", {})
    request.id = link.table.add(request)
    with pytest.raises(MCPError) as asked:
        await link.exchange(request, never_received)
    assert (sent.value.code, asked.value.code) == (CONNECTION_CLOSED, CONNECTION_CLOSED)
