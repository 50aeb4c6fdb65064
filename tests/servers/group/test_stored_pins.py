"""The accepted tools of a server follow its configuration; no credential that a server lists is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from mcp_actors import ServerConfig, ServerGroup, open_servers
from mcp_actors.catalog import _pins
from mcp_actors.servers.group import _tree

from ..changing import shown
from ..groups import pids_in
from ..remembering import Server
from ..scripted_server import TOOLS


@pytest.mark.parametrize("how", ["replace", "reload"])
@pytest.mark.parametrize("connect", ["eager", "lazy"])
async def test_accepted_tools_move_with_the_source_of_a_server(how: str, connect: str, tmp_path: Path) -> None:
    """Otherwise the next run trusts whatever the server lists. That holds for an unused server too."""
    a = Server(tmp_path)
    before, after = (
        a.config(on_tool_change="block", connect=connect, source=f"/etc/{name}.json") for name in ("before", "after")
    )
    async with open_servers(attrs.evolve(before, connect="eager"), catalog_store=a.store):
        pass
    started = len(pids_in(a.pids))
    async with open_servers(before, catalog_store=a.store) as group:
        await (group.replace(after) if how == "replace" else group.reload(after))
        assert group["a"].statistics().source == after.source
        assert shown(group) == list(TOOLS)
    assert len(pids_in(a.pids)) == started + (connect == "eager")  # it was not connected again
    a.behave("--tools", "1")
    async with open_servers(attrs.evolve(after, connect="eager"), catalog_store=a.store) as group:
        assert group["a"].tool_changes.added == ("tool_0",)
        assert shown(group) == list(TOOLS)


async def test_accepted_tools_without_a_listing_move_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a listing that is too large for its file."""
    a = Server(tmp_path)
    before, after = (a.config(on_tool_change="block", source=f"/etc/{name}.json") for name in ("before", "after"))
    with monkeypatch.context() as patched:
        patched.setattr(_pins, "MAX_PIN_BYTES", 3000)
        async with open_servers(before, catalog_store=a.store):
            pass
    async with open_servers(attrs.evolve(before, connect="lazy"), catalog_store=a.store) as group:
        await group.replace(attrs.evolve(after, connect="lazy"))
    a.behave("--tools", "1")
    async with open_servers(after, catalog_store=a.store, start_gate=0) as group:
        assert _added(group) == ("tool_0",)


# --- without a store ------------------------------------------------------------------------------------------------


async def _remove_and_add(group: ServerGroup, config: ServerConfig) -> None:
    await group.remove("a")
    await group.add(config)


async def _reload_twice(group: ServerGroup, config: ServerConfig) -> None:
    await group.reload({"mcpServers": {}})
    await group.reload(config)


async def _disable_and_enable(group: ServerGroup, config: ServerConfig) -> None:
    await group.reload(attrs.evolve(config, enabled=False))
    assert "a" not in group
    await group.reload(config)


@pytest.mark.parametrize("leave_and_return", [_remove_and_add, _reload_twice, _disable_and_enable])
async def test_a_server_that_returns_is_judged_by_what_was_accepted_before(
    leave_and_return: Callable[[ServerGroup, ServerConfig], Awaitable[None]], tmp_path: Path
) -> None:
    """Otherwise a list that was blocked is trusted as soon as an entry is switched off and on."""
    a = Server(tmp_path)
    config = a.config(on_tool_change="block")
    async with open_servers(config) as group:
        a.behave("--tools", "1")
        for _ in range(2):
            await leave_and_return(group, config)
            await group["a"].wait_ready()
            assert _added(group) == ("tool_0",)
            assert shown(group) == list(TOOLS)
        await group["a"].approve_tools(group["a"].tool_changes)
        await leave_and_return(group, config)
        await group["a"].wait_ready()
        assert shown(group) == [*TOOLS, "tool_0"]


async def test_another_command_under_the_name_of_a_server_in_a_file_is_a_change(tmp_path: Path) -> None:
    """In Python it is another server, as in a store."""
    a, b = Server(tmp_path / "1"), Server(tmp_path / "2")
    for source, blocked in (("/etc/mcp.json", len(TOOLS)), (None, 0)):
        async with open_servers(a.config(on_tool_change="block", source=source)) as group:
            await group.remove("a")
            await group.add(b.config(on_tool_change="block", source=source))
            assert len(group["a"].tool_changes.changed) == blocked


async def test_a_group_keeps_what_a_bounded_number_of_servers_had_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tree, "MAX_REMOVED", 1)
    a, b = Server(tmp_path), Server(tmp_path, "b")
    configs = [each.config(on_tool_change="block") for each in (a, b)]
    async with open_servers(*configs) as group:
        for each in (a, b):
            await group.remove(each.name)
            each.behave("--tools", "1")
        for config in configs:
            await group.add(config)
        assert [len(group[name].tool_changes.added) for name in "ab"] == [0, 1]


def _added(group: ServerGroup) -> tuple[str, ...]:
    return group["a"].tool_changes.added
