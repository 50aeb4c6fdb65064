"""pytest: a fixture of any scope opens servers, for tests without ``async`` and for those on asyncio.

Run it with ``pytest test_time.py``. The plugin for asyncio is that of ``anyio``, which is installed with this package. With
``pytest-asyncio``, give the fixture and its tests the same ``loop_scope``. The fixtures of ``pytest-trio`` have the scope
``function`` only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mcp_actors import ServerConfig, Stdio, bridge, sync

TIME = ServerConfig("time", Stdio("mcp-server-time"), required=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[sync.SyncServerGroup]:
    with sync.open_servers(TIME) as servers:
        yield servers


def test_the_time(servers: sync.SyncServerGroup) -> None:
    answer = servers["time"].call("get_current_time", timezone="Europe/Paris")
    assert answer["timezone"] == "Europe/Paris"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def on_asyncio(anyio_backend: str) -> AsyncIterator[bridge.AsyncioServerGroup]:
    async with bridge.open_servers(TIME) as servers:
        yield servers


@pytest.mark.anyio
async def test_the_time_on_asyncio(on_asyncio: bridge.AsyncioServerGroup) -> None:
    answer = await on_asyncio["time"].call("get_current_time", timezone="Asia/Tokyo")
    assert answer["timezone"] == "Asia/Tokyo"
