"""A result without a type is complete, as the specification says for all servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp_actors import Http, ServerConfig, open_servers
from mcp_actors.servers._eras import FEW_VALUES

from .faults.http_faults import MODERN, Raw, faulty_server, response
from .links import text_of
from .test_dispatch import WebServer
from .test_eras import auto


async def test_a_result_without_a_type_is_complete_over_pipes(tmp_path: Path) -> None:
    async with open_servers(auto(tmp_path / "log", "--era", "modern", "--untyped"), strict=True) as servers:
        assert servers["a"].info.protocol_version == MODERN
        assert text_of(await servers["a"].call_tool("echo", {"text": "hi"})) == "hi"


async def test_a_result_without_a_type_is_complete_over_http() -> None:
    result = {"content": [{"type": "text", "text": "hi"}]}
    answer = json.dumps({"jsonrpc": "2.0", "id": "{id______}", "result": result}).replace('"{id______}"', "{id______}")
    with faulty_server("modern") as web:
        async with open_servers(ServerConfig("web", Http(web.url())), strict=True) as servers:
            assert servers["web"].info.protocol_version == MODERN
            assert text_of(await servers["web"].call_tool("raw", Raw(response(200, answer), "keep")._asdict())) == "hi"


class OddType(WebServer):
    """Ends its stream of notifications at once, with a large result whose type is a list."""

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(message)
        if message["method"] == "server/discover":
            answer["result"]["capabilities"] = {"tools": {"listChanged": True}}
        if message["method"] == "subscriptions/listen":
            return {"result": {"resultType": ["complete"], "much": [0] * (FEW_VALUES + 1)}}
        return answer


async def test_a_large_result_with_a_type_that_is_not_a_string_does_not_end_the_connection() -> None:
    async with open_servers(OddType("modern").config, strict=True) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
        assert servers["a"].state == "ready"
