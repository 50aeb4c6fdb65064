"""The server over HTTP, killed and started again on its port between two calls."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack

import pytest
import trio

from mcp_actors import Http, ServerConfig, open_servers

from ..servers.fleet import calls
from ..servers.groups import AT_ONCE, BOUND
from ..servers.links import text_of
from .server import over_http


@pytest.mark.usefixtures("npm_packages")
async def test_calls_go_on_after_a_restart_while_idle() -> None:
    """B-03, A-06: the new process does not know the session, and says so with 400 and an error without an id."""
    with tempfile.TemporaryFile() as log, ExitStack() as running:
        port = running.enter_context(over_http("streamableHttp", log))
        config = ServerConfig("everything", Http(f"http://127.0.0.1:{port}/mcp"), restarts=AT_ONCE, stop_timeout=0.5)
        async with open_servers(config, strict=True) as servers:
            ref = servers["everything"]
            await ref.call_tool("echo", {"message": "before"})
            running.close()
            running.enter_context(over_http("streamableHttp", log, port))
            with trio.fail_after(BOUND):
                async with calls(15, ref.call_tool, "echo", {"message": "after"}) as asking:
                    pass
            assert [text_of(await call.result()) for call in asking] == ["Echo: after"] * 15
            assert ref.statistics().incarnation == 2
