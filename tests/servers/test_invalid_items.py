"""Invalid items of lists are left out, and the rest is used."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConnectFailed, Http, ServerConfig, Stdio, open_servers
from tests.messages import Said

from .groups import NEVER

Json = dict[str, Any]

MODERN: Final = "2026-07-28"

OBJECT: Final[Json] = {"type": "object"}

INVALID: Final[dict[str, object]] = {
    "text": {"name": "text", "inputSchema": "text"},
    "list": {"name": "list", "inputSchema": [5]},
    "other": {"name": "other", "inputSchema": {"type": "string"}},
    "title": {"name": "title", "inputSchema": OBJECT, "title": [5]},
}

SERVER: Final = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        results = json.load(open(sys.argv[1]))
        result = results.get(message["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def results(**lists: object) -> Json:
    """Return what the server answers, by method."""
    page = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    can: Json = {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}}
    return {
        "server/discover": {"supportedVersions": [MODERN], **can, **page},
        "initialize": {"protocolVersion": "2025-11-25", **can, "serverInfo": {"name": "x", "version": "1"}},
        "tools/call": {"content": [], "resultType": "complete"},
        **{f"{kind}/list": {kind: items, **page} for kind, items in lists.items()},
    }


def fifty(*invalid: object) -> list[object]:
    """Return a page of fifty tools, with these at the end of its first part."""
    valid = [{"name": f"tool_{number}", "inputSchema": OBJECT} for number in range(50 - len(invalid))]
    return [*valid[:15], *invalid, *valid[15:]]


class Handler(BaseHTTPRequestHandler):
    """Answers with the results of its server."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = self.server.results  # type: ignore[attr-defined]  # set below
        body = b""
        if "id" in message:
            result = found.get(message["method"], {})
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def listing(over: str, found: Json, folder: Path) -> Iterator[ServerConfig]:
    """Run a server that answers so, and say how to connect to it."""
    era = over.partition(" ")[2]
    options: Json = {"protocol": "legacy" if era == "legacy" else MODERN, "restarts": NEVER}
    if over.startswith("stdio"):
        (folder / "results").write_text(json.dumps(found))
        program = ("-S", "-E", "-c", SERVER, str(folder / "results"))
        yield ServerConfig("docs", Stdio(sys.executable, program), **options)
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        server.results = found  # type: ignore[attr-defined]  # for the handler
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield ServerConfig("docs", Http(f"http://127.0.0.1:{server.server_port}/mcp"), **options)
        finally:
            server.shutdown()
            thread.join()


EACH_WAY: Final = pytest.mark.parametrize("over", ["stdio legacy", "stdio modern", "http legacy", "http modern"])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about the server."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@EACH_WAY
async def test_an_invalid_tool_costs_that_tool_and_one_warning(
    over: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """C-09."""
    with listing(over, results(tools=fifty(*INVALID.values(), 5)), tmp_path) as config:
        async with open_servers(config) as servers:
            assert servers.status()["docs"].state == "ready"
            assert [entry.name for entry in servers.tools] == [f"tool_{number}" for number in range(45)]
            assert len(await servers["docs"].list_tools()) == 45
            await servers["docs"].call_tool("tool_44")
            found = warnings(caplog)
    assert len(found) == len(INVALID) + 1
    said("a tool is not valid", next(each for each in found if "'other'" in each))
    for name in INVALID:
        assert sum(f"server 'docs': tool {name!r} is left out: at " in each for each in found) == 1
    assert sum("server 'docs': tool without a name is left out" in each for each in found) == 1


async def test_invalid_items_of_other_lists_are_left_out_too(tmp_path: Path) -> None:
    """C-09."""
    found = results(
        tools=[], resources=[{"name": "a", "uri": "x:a"}, {"name": "b"}], prompts=[{"name": "p"}, {"name": 5}]
    )
    with listing("stdio legacy", found, tmp_path) as config:
        async with open_servers(config) as servers:
            assert [each.name for each in await servers["docs"].list_resources()] == ["a"]
            assert [each.name for each in await servers["docs"].list_prompts()] == ["p"]


async def test_many_invalid_tools_are_few_lines_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C-09: what a name holds forges no line."""
    invalid = [{"name": f"\x1b[31m{number}\nERROR: forged{'x' * 100_000}", "inputSchema": 5} for number in range(30)]
    with listing("stdio legacy", results(tools=fifty(*invalid)), tmp_path) as config:
        async with open_servers(config) as servers:
            assert len(servers.tools) == 20
    found = warnings(caplog)
    assert len(found) == 9
    assert all(len(each) < 300 and each.isprintable() for each in found)
    assert "22 more of its tools are not valid and are left out" in found[-1]


async def test_a_page_that_is_not_valid_by_itself_fails_the_list(tmp_path: Path) -> None:
    found = results(tools=fifty(*INVALID.values()))
    found["tools/list"]["nextCursor"] = 5
    with listing("stdio legacy", found, tmp_path) as config:
        async with open_servers(config) as servers:
            error = servers.errors["docs"]
    assert isinstance(error, ConnectFailed)
    assert "at nextCursor" in str(error)
