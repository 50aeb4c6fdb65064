"""A list is used although the JSON of one of its items cannot be parsed. The bytes come from a real process."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mcp_actors import Http, ServerConfig, Sse, Stdio, open_servers
from mcp_actors._json import ItemReader
from tests.forkserver import interpreter, serve_python
from tests.messages import Said

from .groups import NEVER
from .hostile import MostInAStep
from .processes import BOUND

MODERN: Final = "2026-07-28"
SERVER: Final = "tests.servers.list_server"
CAN: Final = '"capabilities":{"tools":{},"resources":{},"prompts":{}}'
PAGE: Final = '"ttlMs":0,"cacheScope":"private","resultType":"complete"'

EACH_WAY: Final = pytest.mark.parametrize(
    "over",
    ["stdio legacy", "stdio modern", "body legacy", "body modern", "events legacy", "events modern", "sse legacy"],
)


def tool(name: str, schema: str = '{"type":"object"}', more: str = "") -> str:
    """Return the JSON text of a tool."""
    return f'{{"name":"{name}","inputSchema":{schema}{more}}}'


def deep(levels: int) -> str:
    """Return the text of a schema that is nested so deeply."""
    return '{"type":"object","properties":' * levels + "{}" + "}" * levels


NOT_UNICODE: Final = "a name, URI or schema in its JSON has half of a surrogate pair or a byte that is not UTF-8"

UNREADABLE: Final = {
    "deep": (tool("deep", deep(201)), "its JSON is nested more than 200 levels deep"),
    "deeper": (tool("deeper", deep(20_000)), "its JSON is nested more than 200 levels deep"),
    "key": (tool("key", r'{"type":"object","x\udfff":1}'), NOT_UNICODE),
    "value": (tool("value", r'{"type":"object","x":"\udfff"}'), NOT_UNICODE),
    r"name?": (tool(r"name\ud83d"), NOT_UNICODE),
    "long": (tool("long", f'{{"type":"object","x":{"1" * 5000}}}'), "its JSON cannot be parsed (number out of range"),
    "comma": (tool("comma", '{"type":"object",}'), "its JSON cannot be parsed (trailing comma"),
}


def tools(*items: str) -> str:
    """Return the text of a page of tools."""
    return f'{{{PAGE},"tools":[{",".join(items)}]}}'


def among(*items: str, of: int = 40) -> str:
    """Return a page of tools with these in the middle."""
    valid = [tool(f"tool_{number}") for number in range(of)]
    return tools(*valid[:15], *items, *valid[15:])


@contextmanager
def listing(over: str, folder: Path, **options: Any) -> Iterator[ServerConfig]:
    """Run a server that answers so; `lists` has the text of each list by its kind."""
    way, era = over.split()
    results = {
        "server/discover": f'{{"supportedVersions":["{MODERN}"],{CAN},{PAGE}}}',
        "initialize": f'{{"protocolVersion":"2025-11-25",{CAN},"serverInfo":{{"name":"x","version":"1"}}}}',
        "tools/call": '{"content":[],"resultType":"complete"}',
        **{f"{kind}/list": text for kind, text in options.pop("lists").items()},
    }
    file = folder / "results"
    file.write_text(json.dumps(results))
    options = {"protocol": "legacy" if era == "legacy" else MODERN, "restarts": NEVER, **options}
    if way == "stdio":
        yield ServerConfig("docs", Stdio(interpreter(), ("-m", SERVER, way, str(file))), **options)
        return
    with serve_python("-m", SERVER, way, str(file)) as (_, port):
        url = f"http://127.0.0.1:{port}/mcp"
        yield ServerConfig("docs", Sse(url) if way == "sse" else Http(url), **options)


@EACH_WAY
async def test_a_tool_whose_json_cannot_be_parsed_costs_that_tool_and_one_warning(
    over: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-09: other tasks may run after each tool that is read."""
    half = tool("half", more=r',"description":"\ud800"'), tool("bytes", more=',"description":"\xff"')
    page = among(*(text for text, _ in UNREADABLE.values()), *half)
    steps = MostInAStep(monkeypatch, (ItemReader, "_item"))
    with trio.fail_after(BOUND), steps, listing(over, tmp_path, lists={"tools": page}) as config:
        async with open_servers(config) as servers:
            assert servers.status()["docs"].state == "ready"
            named = ["half", "bytes"]  # a description is shown with U+FFFD
            valid = [f"tool_{number}" for number in range(40)]
            assert [entry.name for entry in servers.tools] == [*valid[:15], *named, *valid[15:]]
            assert [each.description for each in await servers["docs"].list_tools()][15:17] == ["\ufffd", "\ufffd"]
            await servers["docs"].call_tool("tool_39")
            assert servers.status()["docs"].restarts == 0
    found = [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= logging.WARNING and "is left out" in each.getMessage()
    ]
    said("a tool cannot be parsed", next(each for each in found if "'key'" in each))
    assert len(found) == len(UNREADABLE)
    assert steps.most == {"_item": 1}
    for name, (_, problem) in UNREADABLE.items():
        assert sum(f"server 'docs': tool {name!r} is left out: {problem}" in each for each in found) == 1


@EACH_WAY
@pytest.mark.parametrize("kind", ["resources", "prompts"])
async def test_other_lists_lose_an_unreadable_item_too(over: str, kind: str, tmp_path: Path) -> None:
    """C-09."""
    valid = (("a\\ud800", ""), ("b", "\\ud800"))
    items = [rf'{{"name":"{name}","uri":"x:{name}","title":"{title}"}}' for name, title in valid]
    lists = {"tools": tools(), kind: f'{{{PAGE},"{kind}":[{",".join(items)}]}}'}
    with trio.fail_after(BOUND), listing(over, tmp_path, lists=lists) as config:
        async with open_servers(config) as servers:
            ref = servers["docs"]
            found = await (ref.list_resources() if kind == "resources" else ref.list_prompts())
            assert [each.name for each in found] == ["b"]
