"""A program without an event loop that is asked to stop while it starts."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig
from mcp_actors.sync import open_servers


def test_a_program_whose_handler_only_notes_a_signal_does_not_wait_for_a_silent_server() -> None:
    """D-86: as a worker of gunicorn does, which ends when its application has started."""
    noted: list[int] = []

    @asynccontextmanager
    async def asked_to_stop(_: object) -> AsyncIterator[None]:
        signal.raise_signal(signal.SIGTERM)  # Python runs the handler in the main thread
        await trio.Event().wait()
        yield

    def note(number: int, _: object) -> None:
        noted.append(number)

    before = signal.signal(signal.SIGTERM, note)
    try:
        silent = ServerConfig("silent", InProcess(MCPServer("silent", lifespan=asked_to_stop)), connect_timeout=20)
        with open_servers(silent) as servers:
            assert servers["silent"].state == "connecting"
        assert (noted, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], note)
    finally:
        signal.signal(signal.SIGTERM, before)
