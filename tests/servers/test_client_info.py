"""The name and version by which the client introduces itself."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import Any

import pytest
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import INTERNAL_ERROR, Implementation

from mcp_actors import Backoff, ConfigError, InProcess, RetryPolicy, ServerConfig, Stdio, bridge, open_servers

from .asking import asking, call

OURS = {"name": "mcp_actors", "version": version("mcp-actors")}

KITCHEN = Implementation(name="kitchen", version="2", title="The kitchen")

HALL = Implementation(name="hall", version="7")


async def client_of(*configs: ServerConfig, **options: Any) -> list[dict[str, str]]:
    """Return the clients that servers have seen."""
    async with open_servers(*configs, **options) as servers:
        return [(await call(ref, "seen"))["client"] for ref in servers.configured]


async def test_the_client_is_this_library_in_its_version() -> None:
    assert await client_of(asking("legacy")) == [OURS]


@pytest.mark.parametrize(("era", "protocol"), [("legacy", "legacy"), ("legacy", "auto"), ("modern", "auto")])
async def test_a_server_sees_its_own_client_info_or_that_of_the_group(era: Any, protocol: Any) -> None:
    """Whichever request introduces the client: ``initialize`` of the SDK or of the negotiation, or each request."""
    program = asking(era).transport
    own, other = (
        ServerConfig(name, program, protocol=protocol, required=True, client_info=info)
        for name, info in (("own", KITCHEN), ("other", None))
    )
    expected = [{"name": "kitchen", "version": "2", "title": "The kitchen"}, {"name": "hall", "version": "7"}]
    assert await client_of(own, other, client_info=HALL) == expected


async def test_a_reload_introduces_the_client_by_its_new_name() -> None:
    async with open_servers(asking(client_info=KITCHEN), client_info=HALL) as servers:
        assert (await servers.reload(asking())).changed == ("a",)
        assert (await call(servers["a"], "seen"))["client"]["name"] == "hall"


async def test_a_client_info_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"server 'a': client_info=<str> is not valid; give an mcp.types.Impl"):
        ServerConfig("a", Stdio("a"), client_info="kitchen")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ConfigError, match=r"open_servers takes client_info=Implementation\(\.\.\.\), not str"):
        async with open_servers(client_info="kitchen"):  # type: ignore[arg-type]  # what is tested
            raise AssertionError


def test_so_it_is_from_asyncio() -> None:
    async def main() -> None:
        async with bridge.open_servers(asking(), client_info=HALL) as servers:
            result = await servers["a"].call_tool("seen")
            assert result.content[0].type == "text"
            assert json.loads(result.content[0].text)["client"]["name"] == "hall"

    asyncio.run(main())


async def test_an_isolated_retry_introduces_the_client_by_the_same_name() -> None:
    """A retry may have a connection of its own."""
    seen: list[str] = []

    async def who(context: Context[Any]) -> None:
        params = context.session.client_params
        assert params is not None
        seen.append(params.client_info.name)
        if len(seen) == 1:
            raise MCPError(INTERNAL_ERROR, "busy")

    server = MCPServer("a")
    server.add_tool(who, description="See who asks.")
    retry = RetryPolicy(backoff=Backoff(), isolated=True)
    config = ServerConfig("a", InProcess(server), protocol="legacy", retry=retry)
    async with open_servers(config, client_info=HALL) as servers:
        await servers["a"].call_tool("who", idempotent=True)
    assert seen == ["hall", "hall"]
