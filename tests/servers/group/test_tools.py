"""The tools of a group: what is listed when, under which names, and how they are found and called."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import attrs
import pytest
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, ServerGroup, ToolNotFound, ToolsChanged, open_servers
from mcp_actors.catalog import Listing, NameCollision
from mcp_actors.kernel import Event
from mcp_actors.servers.group import _facts

from ...calls import calls_in
from ...messages import Said
from ..changing import Changing
from ..groups import LATER, NEVER, Events, after, command_with, crash, server, shell, unless
from ..links import text_of
from ..scripted_server import TOOLS


def listed(group: ServerGroup) -> dict[str, bool]:
    """Return the servers whose tools are listed, and whether they are marked as available."""
    return {tool.server: tool.available for tool in group.tools}


async def test_tools_are_called_by_their_public_names() -> None:
    """S4-05, S4-06: the names have a prefix here, and the server is asked by its own."""
    async with open_servers(server("a", "--name", "x"), server("b")) as group:
        tool = group.find_tool("mcp__b__add")
        assert (tool.server, tool.name, tool.description, tool.available) == ("b", "add", "Add two integers.", True)
        assert group.tools.of("b")[0].public_name == "mcp__b__echo"
        assert text_of(await group.call_tool("mcp__b__add", {"a": 40, "b": 2})) == "42"
        assert await group.call_tool("mcp__b__pid") == await group["b"].call_tool("pid")
        assert await group.call_tool("mcp__a__pid") != await group["b"].call_tool("pid")


async def test_the_naming_template_decides_the_public_names() -> None:
    async with open_servers(server("a"), naming="{server}-{tool}") as group:
        assert text_of(await group.call_tool("a-echo", {"text": "hello"})) == "hello"


async def test_a_tool_whose_name_cannot_be_public_is_called_by_its_own() -> None:
    """S4-06: nothing of the public name goes over the wire."""
    mine = MCPServer("mine")
    mine.add_tool(lambda: "read", name="files.read", description="Read.")
    async with open_servers(ServerConfig("my.own", InProcess(mine))) as group:
        [tool] = group.tools
        assert tool.public_name.startswith("mcp__my_own__files_read_")
        assert text_of(await group.call_tool(tool.public_name)) == "read"


async def test_an_unknown_tool_name_gets_a_hint(said: Said) -> None:
    async with open_servers(server("a"), server("b", "--exit-at-start", "3", restarts=NEVER)) as group:
        with pytest.raises(ToolNotFound) as caught:
            group.find_tool("mcp__a__ehco")
        said("a tool was not found", str(caught.value))
        with pytest.raises(ToolNotFound, match="'echo' not found; did you mean 'mcp__a__echo'\\?;"):
            await group.call_tool("echo", {"text": "x"})
        assert caught.value.server == "*"
        with pytest.raises(ToolNotFound, match=r"tool 'a' not found; did you mean 'mcp__a__\w+' or 'mcp__a__\w+' or "):
            await group.call_tool("a", {"text": "x"})  # its server
        with pytest.raises(ToolNotFound, match=f"'x' not found; {len(TOOLS)} tools are known; servers not serving"):
            await group.call_tool("x")


async def test_the_failure_of_a_server_removes_only_its_own_tools() -> None:
    """S3-20: the tools of other servers stay."""
    async with open_servers(server("a"), server("b", restarts=NEVER), server("c")) as group:
        before = group.tools
        await crash(group, "b")
        assert listed(group) == {"a": True, "c": True}
        assert group.tools.of("a") == before.of("a")
        assert group.tools.of("c") == before.of("c")


async def test_tools_stay_listed_and_marked_while_their_server_is_about_to_come_back() -> None:
    """S3-21: in back-off they are there and not available; after that they are."""
    async with open_servers(server("a"), server("b", restarts=LATER)) as group:
        assert listed(group) == {"a": True, "b": True}
        await crash(group, "b")
        assert listed(group) == {"a": True, "b": False}
        assert group.find_tool("mcp__b__echo").available is False
        await group.reconnect()
        assert listed(group) == {"a": True, "b": True}


async def test_tools_stay_listed_and_marked_throughout_a_reconnect() -> None:
    """S3-21: they are present at every event of an explicit reconnect."""
    seen: list[dict[str, bool]] = []
    async with open_servers(server("a"), server("b")) as group:

        def look(event: Event) -> None:
            seen.append(listed(group))

        group._hub.add(look)
        await group.reconnect("b")
        group._hub.remove(look)
    assert seen[-1] == {"a": True, "b": True}
    assert {"a": True, "b": False} in seen
    assert all(now in ({"a": True, "b": True}, {"a": True, "b": False}) for now in seen)


async def test_a_stopped_server_s_tools_are_gone_until_it_is_started_again() -> None:
    async with open_servers(server("a"), server("b")) as group:
        await group["b"].stop()
        assert listed(group) == {"a": True}
        with pytest.raises(ToolNotFound) as caught:
            group.find_tool("mcp__b__echo")
        # The similar tool of the other server is not suggested.
        assert str(caught.value) == "tool 'mcp__b__echo' not found; servers not serving now: b (stopped)"
        await group["b"].start()
        assert listed(group) == {"a": True, "b": True}


async def test_a_lazy_server_without_remembered_tools_is_called_by_its_own_name(said: Said) -> None:
    async with open_servers(server("a", connect="lazy")) as group:
        with pytest.raises(ToolNotFound) as caught:
            group.find_tool("mcp__a__echo")
        said("a tool of an unused server was not found", str(caught.value))
        await group["a"].call("echo", text="x")
        assert group.find_tool("mcp__a__echo").server == "a"


async def test_a_server_that_lists_other_tools_after_a_reconnect_has_those(tmp_path: Path) -> None:
    """A-20: after a reconnect the old list is gone, and an event has the new one."""
    more, events = tmp_path / "more", Events()
    changing = shell("a", f"{unless(more, f'exec {command_with()}')}; exec {command_with('--tools', '2')}")
    async with open_servers(changing, observers=[events]) as group:
        before = group.tools
        assert len(before) == len(TOOLS)
        await group.reconnect("a")
        assert [event.incarnation for event in events.of(ToolsChanged)] == [1]
        assert group.tools.of("a") == before.of("a")
        more.write_text("x")
        await group.reconnect("a")
        first, second = events.of(ToolsChanged)
        assert (second.server, second.incarnation) == ("a", 3)
        assert second.tools == (*first.tools, "tool_0", "tool_1")
        assert text_of(await group.call_tool("mcp__a__tool_1")) == "tool_1"
        assert len(before) == len(TOOLS)
        assert group.tools.generation > before.generation


async def test_a_new_listing_emits_an_event_only_if_it_differs() -> None:
    mine = MCPServer("mine")
    mine.add_tool(lambda: "1", name="one", description="One.")
    events = Events()
    async with open_servers(ServerConfig("a", InProcess(mine)), observers=[events]) as group:
        first = group.tools
        await group["a"].list_tools()
        assert group.tools is first
        mine.add_tool(lambda: "2", name="two", description="Two.")
        assert [tool.name for tool in await group["a"].list_tools()] == ["one", "two"]
        assert [tool.name for tool in group.tools] == ["one", "two"]
        assert [event.tools for event in events.of(ToolsChanged)] == [("one",), ("one", "two")]
        assert [tool.name for tool in first] == ["one"]


async def test_a_snapshot_never_changes() -> None:
    async with open_servers(server("a")) as group:
        tools = group.tools
        assert group.tools is tools
        snapshot: Any = tools
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            snapshot.tools = ()
        with pytest.raises(TypeError):
            snapshot[0] = snapshot[1]
        with pytest.raises(TypeError):
            snapshot.find("mcp__a__echo").input_schema["type"] = "array"
        await group["a"].stop()
        assert len(snapshot) == len(TOOLS)
        assert snapshot.find("mcp__a__echo").available


async def test_the_tools_of_a_server_that_connects_for_the_first_time_late_appear(tmp_path: Path) -> None:
    """S3-16: late servers appear."""
    gate = tmp_path / "gate"
    script = unless(gate, f"echo x > '{gate}'; exit 3")
    seen: list[int] = []
    async with open_servers(after("a", script, restarts=LATER)) as group:
        assert listed(group) == {}
        async with group.watch_events():
            await group.reconnect()
            seen.append(len(group.tools))
    assert seen == [len(TOOLS)]


async def test_modifying_listed_tools_does_not_affect_others() -> None:
    """S1-22: neither what is shown, nor what calls are checked against."""
    async with open_servers(server("a"), server("b")) as group:
        before = group.tools
        for tool in await group["a"].list_tools():
            tool.description = "mine"
            tool.input_schema["required"] = ["mine"]
        assert group.tools is before
        await group["b"].stop()
        assert [(tool.name, tool.description) for tool in group.tools] == [
            (tool.name, tool.description) for tool in before.of("a")
        ]
        assert text_of(await group.call_tool("mcp__a__echo", {"text": "hello"})) == "hello"


async def test_a_change_while_another_thread_makes_the_snapshot_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower of the two may be the older, and is kept last; that must not last."""
    async with open_servers(server("a")) as group:
        catalog = group._roster.records["a"].catalog
        everything = catalog.shown
        catalog.shown = everything[:2]
        assert len(group.tools) == 2
        inner: list[int] = []

        def slow(*args: Any) -> Listing:
            if not inner:
                inner.append(0)
                catalog.shown = everything[:3]  # more tools exist by now, and another task has listed them
                inner[0] = len(group.tools)
            return Listing(*args)

        catalog.shown = everything[:1]
        monkeypatch.setattr(_facts, "Listing", slow)
        assert len(group.tools) == 1
        assert inner == [3]
        assert len(group.tools) == 3


async def test_a_change_of_one_server_leaves_the_tools_of_the_others_alone() -> None:
    async with open_servers(server("a"), server("b")) as group:
        before = group.tools
        await group["b"].stop()
        after = group.tools
        assert all(one is other for one, other in zip(after.of("a"), before.of("a"), strict=True))
        assert after.versions["a"] == before.versions["a"]


async def test_tools_with_similar_names_are_logged_once_with_both_servers(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """A-25: colliding tool names across servers, after case folding."""
    caplog.set_level(logging.WARNING, "mcp_actors.servers")
    async with open_servers(server("a"), server("A"), server("b")) as group:
        assert len(group.tools.collisions) == len(TOOLS)
        told = [each.getMessage() for each in caplog.records if "similar names" in each.getMessage()]
        assert len(told) == len(TOOLS)
        said("public names are alike", next(each for each in told if "'echo'" in each))
        await group["b"].stop()
        assert len(group.tools.collisions) == len(TOOLS)
        assert len([each for each in caplog.records if "similar names" in each.getMessage()]) == len(TOOLS)
        await group["A"].stop()
        assert group.tools.collisions == ()


async def test_the_first_look_at_many_tools_calls_nothing_for_each() -> None:
    """All that takes time for a tool is done before, with checkpoints in between."""
    changing = Changing(descriptions={str(number): "" for number in range(400)})
    async with open_servers(changing.config(), naming="{server}__{tool}") as group:
        calls, tools = calls_in(lambda: group.tools)
        assert len(tools) == 402
        assert calls < 100
        assert tools[-1].public_name == "here__399"


async def test_a_tool_that_is_listed_again_unchanged_is_the_same_object() -> None:
    """So a long list in which little has changed is compared and released quickly."""
    changing = Changing(descriptions={str(number): "" for number in range(400)})
    async with open_servers(changing.config()) as group:
        before = group.tools
        changing.version += 1
        await group["here"].list_tools()
        assert [(old.name, new.name) for old, new in zip(before, group.tools, strict=True) if old is not new] == [
            ("v1", "v2")
        ]
        await group["here"].restart()
        calls, tools = calls_in(lambda: group.tools)
        assert tools[-1] is before[-1]
        assert calls < 100


async def test_similar_names_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred pairs, which a server may list on purpose, cost nothing when other things change."""
    pairs = [f"{name}{number}" for number in range(200) for name in "xX"]
    changing = Changing(descriptions=dict.fromkeys(pairs, ""))
    async with open_servers(changing.config(), server("b")) as group:
        assert len(group.tools.collisions) == 200
        compared, equal = list[object](), NameCollision.__eq__

        def compare(one: NameCollision, other: object) -> bool:
            compared.append(one)
            return equal(one, other)

        monkeypatch.setattr(NameCollision, "__eq__", compare)
        await group["b"].stop()
        assert len(group.tools) == 402
        assert len(compared) <= 200
