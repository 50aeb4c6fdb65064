"""The probes of an orchestrator, over ASGI and as plain functions."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import trio
import uvicorn

from mcp_actors import Backoff, RestartPolicy, ServerConfig, bridge, open_servers
from mcp_actors.config import DirectorySource
from mcp_actors.observe import Metrics, answer, health_app, missing, status
from mcp_actors.testing import ScriptedServer

ENTRY = """
kind: MCPServer
metadata: {{name: {name}}}
spec: {{configuration: {value}}}
"""
LATER = RestartPolicy(max_restarts=10, backoff=Backoff(first=60, initial=60))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


async def ask(app: Any, path: str, method: str = "GET", root: str = "") -> tuple[int, bytes]:
    """Send a request to an ASGI application, and return the status and the body of its answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "path": path, "method": method, "root_path": root}, None, send)
    return sent[0]["status"], sent[1]["body"]


async def test_readiness_is_lost_with_a_required_server_and_status_says_why_and_since_when(
    server: ScriptedServer,
) -> None:
    config = ServerConfig("docs", server.stdio(), required=True, restarts=LATER)
    optional = ServerConfig("optional", server.in_process(), restarts=LATER)
    async with open_servers(config, optional) as servers:
        app = health_app(servers)
        assert await ask(app, "/readyz") == (200, b"ok\n")
        server.crash()
        with trio.fail_after(20):
            await servers["docs"].wait_state("backoff")
        assert await ask(app, "/readyz") == (503, b"not ready\n")
        assert await ask(app, "/healthz") == (200, b"ok\n")
        _, body = await ask(app, "/probes/status", root="/probes")
        changed = servers["docs"].statistics().changed_at.isoformat()
    found = json.loads(body)
    assert found["ready"] is False
    assert list(found["missing"]) == ["docs"]
    assert found["missing"]["docs"]["since"] == changed
    assert found["servers"]["optional"]["required"] is False


async def test_a_required_entry_that_cannot_be_loaded_is_missing_though_no_view_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", value="{command: /nowhere, mcp_actors: {connect: lazy}}"))
    async with open_servers(DirectorySource(tmp_path), watch=True) as servers:
        assert missing(servers) == {}
        broken = ENTRY.format(name="b", value="{args: [a], mcp_actors: {required: true}}")
        async with servers.watch_events() as events:
            (tmp_path / "b.yaml").write_text(broken)
            with trio.fail_after(20):
                while not missing(servers):
                    await anext(events)
        assert [*servers] == ["a"]
        assert missing(servers)[str(tmp_path)]["state"] == "refused"
        assert "b.yaml" in missing(servers)[str(tmp_path)]["reason"]
        assert answer(servers, "/readyz").status == 503


async def test_other_paths_and_methods_are_refused(server: ScriptedServer) -> None:
    async with open_servers(ServerConfig("x", server.in_process())) as servers:
        app = health_app(servers)
        assert (await ask(app, "/else"))[0] == 404
        assert (await ask(app, "/metrics"))[0] == 404
        assert (await ask(app, "/status", "POST"))[0] == 405
        assert await ask(app, "/healthz", "HEAD") == (200, b"")
        assert answer(servers, "/metrics", Metrics()).content_type.startswith("text/plain; version=0.0.4")


async def test_the_application_can_be_served_alone() -> None:
    async with open_servers() as servers:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        sent: list[str] = []

        async def receive() -> dict[str, str]:
            return next(messages)

        async def send(message: dict[str, str]) -> None:
            sent.append(message["type"])

        await health_app(servers)({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_web_server_gets_a_refusal_for_a_websocket() -> None:
    """Not a defect: a crawler may ask for one, and so may an application that mounts this one at ``/``."""
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with open_servers() as servers, trio.open_nursery() as nursery:
        options: dict[str, Any] = {"lifespan": "on", "loop": "asyncio", "ws": "websockets-sansio", "log_config": None}
        server = uvicorn.Server(uvicorn.Config(health_app(servers), **options))
        listener = socket.create_server(("127.0.0.1", 0))
        nursery.start_soon(trio.to_thread.run_sync, lambda: server.run(sockets=[listener]))
        with (
            closing(HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=20)) as client,
            ExitStack() as stack,
        ):
            stack.callback(setattr, server, "should_exit", True)
            key = {"Sec-WebSocket-Key": b64encode(bytes(16)).decode()}
            await trio.to_thread.run_sync(lambda: client.request("GET", "/healthz", headers=asked | key))
            found = await trio.to_thread.run_sync(client.getresponse)
    assert found.status == 403


def test_a_program_on_asyncio_mounts_the_same_application(server: ScriptedServer) -> None:
    import asyncio

    async def main() -> None:
        metrics = Metrics()
        async with bridge.open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
            await servers["x"].call_tool("echo", {"text": "a"})
            code, body = await ask(health_app(servers, metrics), "/metrics")
            assert code == 200
            assert b'mcp_client_attempts_total{server="x",kind="tools/call",tool="echo",result="ok"' in body
            assert status(servers)["ready"] is True

    asyncio.run(main())
