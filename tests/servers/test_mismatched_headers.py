"""Since 2026-07-28 a request over HTTP names its method, its target and some arguments in headers too.

A server that has changed a tool refuses a call whose headers are those of before (``HEADER_MISMATCH``). Then its tools
are listed again, and the call is sent once more.
"""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2
import pytest
from attrs import define, field
from mcp import MCPError
from mcp.types import HEADER_MISMATCH

from mcp_actors import open_servers

from .links import text_of
from .test_dispatch import ANSWER, ERAS, WebServer, answer_with

pytestmark = pytest.mark.own_way

Json = dict[str, Any]

ARGUMENTS: Final = {"region": "ö", "n": 7}


@define(slots=False)
class ChangingServer(WebServer):
    """Its tool has its argument in another header after the first list.

    Attributes:
        wants: the header that a call must have; None refuses all.
        status: the HTTP status of a refusal.
        listed: the number of ``tools/list`` before each call.
    """

    wants: str | None = "mcp-param-zone"
    status: int = 400
    lists: int = 0
    listed: list[int] = field(factory=list)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content or b"{}")
        if message.get("method") != "tools/call":
            return super().handle(request)
        self.calls.append((request.headers, message))
        self.listed.append(self.lists)
        fine = self.wants is not None and self.wants in request.headers
        body = ANSWER if fine else answer_with("error", {"code": HEADER_MISMATCH, "message": "other headers"})
        headers = {"content-type": "application/json"}
        content = body.replace("$id", json.dumps(message["id"])).encode()
        return httpx2.Response(200 if fine else self.status, headers=headers, content=content)

    def answer(self, message: Json) -> Json:
        if message["method"] != "tools/list":
            return super().answer(message)
        self.lists += 1
        header = "Region" if self.lists == 1 else "Zone"
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": header}}}
        return {"result": {"tools": [{"name": "say", "inputSchema": schema}], "ttlMs": 0, "cacheScope": "private"}}


@pytest.mark.parametrize("meta", [None, {"k": 1}])
@pytest.mark.parametrize("status", [200, 400])
async def test_a_call_with_the_headers_of_before_is_sent_once_more(status: int, meta: Json | None) -> None:
    server = ChangingServer("modern", status=status)
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say", ARGUMENTS, meta=meta)) == "answered"
        assert text_of(await servers["a"].call_tool("say", ARGUMENTS, meta=meta)) == "answered"
    assert server.listed == [1, 2, 2]
    names = [sorted(name for name in headers if name.startswith("mcp-")) for headers, _ in server.calls]
    common = ["mcp-method", "mcp-name", "mcp-protocol-version"]
    assert names == [sorted([*common, each]) for each in ("mcp-param-region", "mcp-param-zone", "mcp-param-zone")]
    values = [(headers["mcp-method"], headers["mcp-name"]) for headers, _ in server.calls]
    assert values == [("tools/call", "say")] * 3
    assert len({headers[each] for (headers, _), each in zip(server.calls, [row[2] for row in names], strict=True)}) == 1
    assert len({message["id"] for _, message in server.calls}) == 3
    first, second = (message["params"] for _, message in server.calls[:2])
    assert first == second


@pytest.mark.parametrize("status", [200, 400])
async def test_a_server_that_refuses_the_new_headers_too_is_not_sent_the_call_again(status: int) -> None:
    server = ChangingServer("modern", wants=None, status=status)
    async with open_servers(server.config) as servers:
        with pytest.raises(MCPError, match="other headers") as caught:
            await servers["a"].call_tool("say", ARGUMENTS)
    assert caught.value.code == HEADER_MISMATCH
    assert server.listed == [1, 2]


async def test_a_legacy_server_that_uses_this_error_is_not_asked_again() -> None:
    """There are no such headers, so a second call would be a repetition."""
    server = ChangingServer("legacy", wants=None, status=200)
    async with open_servers(server.config) as servers:
        with pytest.raises(MCPError, match="other headers"):
            await servers["a"].call_tool("say", ARGUMENTS)
    assert server.listed == [1]


@pytest.mark.parametrize("era", ERAS)
async def test_only_the_modern_era_has_such_headers(era: str) -> None:
    server = ChangingServer(era, wants="content-type")
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say", ARGUMENTS)) == "answered"
    [(headers, _)] = server.calls
    found = {name: value for name, value in headers.items() if name.startswith("mcp-") and "version" not in name}
    encoded = "=?base64?w7Y=?="
    modern = {"mcp-method": "tools/call", "mcp-name": "say", "mcp-param-region": encoded}
    assert found == (modern if era == "modern" else {})
