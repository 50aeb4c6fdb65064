"""Lists of thousands of tools: no step of the event loop does for each tool what takes long for one."""

from __future__ import annotations

import hashlib
from types import ModuleType
from typing import Literal

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from mcp.types import Tool

from mcp_actors import InProcess, ServerConfig, Stdio, ToolFilter, open_servers
from mcp_actors.catalog import Pins, PinVerdict, judge
from mcp_actors.catalog._names import DEFAULT_NAMING, NameBook, ToolName
from mcp_actors.servers import _admission
from mcp_actors.servers._admission import KnownTool
from mcp_actors.servers._catalog import Reporter, ServerCatalog, _difference
from mcp_actors.servers.requests._lists import ListMeter

from .hostile import MostInAStep


def many(number: int, description: str = "") -> tuple[KnownTool, ...]:
    """Return tools with names of their own."""
    return tuple(
        KnownTool.of("a", Tool(name=f"tool_{each}", description=description, input_schema={})) for each in range(number)
    )


def count_calls(monkeypatch: pytest.MonkeyPatch, where: type | ModuleType, name: str) -> list[object]:
    """Return a list that grows by one for each call of a method."""
    calls, method = list[object](), getattr(where, name)

    def counted(self: object, *args: object) -> object:
        calls.append(self)
        return method(self, *args)

    monkeypatch.setattr(where, name, counted)
    return calls


async def test_a_prepared_listing_is_filtered_without_a_call_for_each_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step in which it counts must be short for thousands of tools."""
    config = ServerConfig("a", Stdio("a"), tool_filter=ToolFilter(patterns=["tool_*", "!*9"]), on_tool_change="block")
    catalog, listed = ServerCatalog(config, Reporter(), DEFAULT_NAMING), many(100)
    asked = count_calls(monkeypatch, ToolFilter, "shows")
    await catalog.admission.prepare(listed)
    assert len(asked) == 100
    catalog.replace(catalog.freshness.begin(), listed)
    assert len([*catalog.admission.admissible(listed)]) == len(catalog.tools) == 90
    assert len(asked) == 100


async def test_a_listing_that_is_shown_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list[Pins]()

    def note(accepted: Pins | None, seen: Pins, policy: Literal["block"]) -> PinVerdict:
        judged.append(seen)
        return judge(accepted, seen, policy)

    monkeypatch.setattr(_admission, "judge", note)
    config = ServerConfig("a", Stdio("a"), on_tool_change="block")
    catalog, first, listed = ServerCatalog(config, Reporter(), DEFAULT_NAMING), many(3), many(4)
    catalog.replace(catalog.freshness.begin(), first)
    catalog.replace(catalog.freshness.begin(), listed)
    assert len(judged) == 2
    assert [tool.name for tool in catalog.admission.admissible(listed)] == ["tool_0", "tool_1", "tool_2"]
    assert len(judged) == 2
    assert [tool.name for tool in catalog.admission.admissible(many(4))] == ["tool_0", "tool_1", "tool_2"]
    assert len(judged) == 3


async def test_a_listing_is_measured_hashed_filtered_and_copied_tool_by_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    server = MCPServer("a")
    for number in range(50):
        server.add_tool(lambda: "said", name=f"tool_{number}")
    work = [(ListMeter, "admits"), (KnownTool, "of"), (ToolFilter, "shows"), (Tool, "model_copy")]
    config = ServerConfig("a", InProcess(server), tool_filter=ToolFilter(patterns=["*"]), on_tool_change="block")
    with MostInAStep(monkeypatch, *work) as steps:
        async with open_servers(config) as servers:
            assert len(await servers["a"].list_tools()) == len(servers.tools) == 50
    assert steps.most == {name: 1 for _, name in work}


async def test_a_filter_that_changes_meanwhile_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_actors._tasks.STEP_SECONDS", -1.0)
    before, after = (
        ServerConfig("a", Stdio("a"), tool_filter=ToolFilter(allow=[name])) for name in ("tool_0", "tool_1")
    )
    catalog, listed = ServerCatalog(before, Reporter(), DEFAULT_NAMING), many(3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catalog.admission.prepare, listed)
        await trio.lowlevel.checkpoint()
        catalog.configure(after)
    catalog.replace(catalog.freshness.begin(), listed)
    assert [tool.name for tool in catalog.tools] == ["tool_1"]


def test_tools_that_have_all_changed_are_compared_by_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = many(100), many(100, "changed")
    compared = count_calls(monkeypatch, KnownTool, "__eq__")
    assert len(_difference(before, after).changed) == 100
    assert compared == []


@pytest.mark.parametrize("naming", [DEFAULT_NAMING, "{tool}"])
def test_similar_names_are_given_without_computing_a_hash_for_each(
    naming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes are computed tool by tool before: the names of a group are given in one step."""
    names = [ToolName.of(key, naming) for tool in range(50) for key in (("a", f"tool_{tool}"), ("b", f"tool_{tool}"))]
    hashed = count_calls(monkeypatch, hashlib, "sha256")
    book, _ = NameBook(naming=naming).changed((), names)
    assert len(book.keys) == 100
    assert len(book.changed(names[:50], ())[0].keys) == 50
    assert hashed == []
