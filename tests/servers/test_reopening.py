"""How streams of events over HTTP are opened again, whatever the server says about that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_actors import Http, ServerConfig, ServerRef, open_servers

from .faults.http_faults import FaultyServer, Raw, answer, faulty_server, stream
from .fleet import calls
from .groups import NEVER
from .links import text_of

pytestmark = pytest.mark.own_way

NOTHING = "id: 1\nretry: {}\ndata:\n\n"
"""An event without a message."""


@asynccontextmanager
async def faulty(**options: Any) -> AsyncIterator[tuple[FaultyServer, ServerRef]]:
    """Connect to a faulty server, which must stay connected."""
    with faulty_server("legacy") as server:
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restart=NEVER, **options)
        async with open_servers(config) as servers:
            yield server, servers["web"]
            assert (servers["web"].state, servers["web"].statistics().incarnation) == ("ready", 1)


async def raw(ref: ServerRef, text: str) -> str:
    """Call a tool that answers with these bytes."""
    return text_of(await ref.call_tool("raw", Raw(text)._asdict()))


@pytest.mark.parametrize("retry", ["-5", "nan", "1e9", ""])
async def test_a_retry_field_that_is_not_a_number_harms_nobody(retry: str) -> None:
    """The stream cannot be resumed, which concerns its caller alone."""
    async with faulty() as (server, ref):
        server.scripts["GET"] = Raw(stream(f"data: {answer()}\n\n"))
        async with calls(1, ref.call_tool, "hold") as [held]:
            await server.held()
            assert await raw(ref, stream("id: 1\nretry: 1\n" + NOTHING.format(retry))) == "fine"
            server.release()
        assert text_of(await held.result()) == "released"
