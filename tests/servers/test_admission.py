"""The tools that are shown and may be called: filters, pins, limits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from mcp import MCPError
from mcp.types import CallToolResult, ListToolsResult, PaginatedRequestParams, Tool
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    CatalogTool,
    ConfigError,
    ConnectFailed,
    LimitExceeded,
    Limits,
    ToolFilter,
    ToolNotFound,
    ToolRequest,
    ToolsChanged,
    open_servers,
)
from mcp_actors.config import ToolContext
from mcp_actors.servers import LimitReached, ToolsDiffer

from ..messages import Said
from .changing import Changing, shown, wait_shown
from .groups import LATER, Events, server, state
from .links import text_of
from .remembering import Server
from .scripted_server import TOOLS

# --- filters --------------------------------------------------------------------------------------------------------


async def test_a_filtered_tool_is_not_listed_and_cannot_be_called(said: Said) -> None:
    here, events = Changing(), Events()
    async with open_servers(here.config(tool_filter=ToolFilter(deny=["same"])), observers=[events]) as group:
        assert shown(group) == ["v1"]
        assert [event.tools for event in events.of(ToolsChanged)] == [("v1",)]
        assert group["here"].statistics().tools == 1
        assert [tool.name for tool in await group["here"].list_tools()] == ["v1"]
        with pytest.raises(ToolNotFound, match="tool 'mcp__here__same' not found"):
            await group.call_tool("mcp__here__same")
        with pytest.raises(ToolNotFound) as caught:
            await group["here"].call_tool("same")
        said("tool hidden by filter", str(caught.value))
        assert here.called == []
        assert text_of(await group["here"].call_tool("v1")) == "v1"


async def test_a_name_in_a_filter_that_no_tool_has_is_a_warning_with_the_nearest(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """C-52: once for each list and filter, also after a reconnect and another request for the list."""
    caplog.set_level(logging.WARNING, "mcp_actors.servers")
    here = Changing()
    asked = ToolFilter(allow=["v1", "smae"], deny=["nothing like it", "\x1bc"], patterns=["x_*"])
    async with open_servers(here.config(tool_filter=asked)) as group:
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        said("a name in a filter that no tool has", record.getMessage())
        await group["here"].list_tools()
        await group["here"].restart()
        here.version = 2
        await group["here"].list_tools()
        assert len(caplog.records) == 2, "v1 is gone"
        said("a name in a filter that no tool has any more", caplog.records[-1].getMessage())
        await group["here"].list_tools()
        await group.reload(here.config(tool_filter=ToolFilter(deny=["samme"])))
        assert len(caplog.records) == 3
        assert "'samme' (did you mean 'same'?)" in caplog.records[-1].getMessage()
        await group.reload(here.config(tool_filter=ToolFilter(deny=["v2"])))
    assert len(caplog.records) == 3


async def test_many_names_that_no_tool_has_are_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """C-52: whatever their number, that of the tools, and the length of their names."""
    here = Changing(descriptions={f"{'long' * 1000}{number}": "" for number in range(50)})
    with caplog.at_level(logging.WARNING, "mcp_actors.servers"):
        async with open_servers(
            here.config(tool_filter=ToolFilter(deny=[f"none{number}" * 50 for number in range(300)]))
        ):
            pass
    [record] = caplog.records
    assert "and 295 more" in record.getMessage()
    assert len(record.getMessage()) < 1000


async def test_a_middleware_cannot_reach_past_the_filter() -> None:
    here = Changing()

    async def elsewhere(request: ToolRequest, call_next: Any) -> CallToolResult:
        result: CallToolResult = await call_next(ToolRequest(server="here", name="same"))
        return result

    async with open_servers(here.config(tool_filter=ToolFilter(allow=["v1"]), middleware=[elsewhere])) as group:
        with pytest.raises(ToolNotFound, match="'same' is hidden by its ToolFilter"):
            await group.call_tool("mcp__here__v1")
    assert here.called == []


async def test_a_change_of_hidden_tools_emits_no_event(autojump_clock: MockClock) -> None:
    """S1-23: another list with the same filter leaves what is shown as it is."""
    here, events = Changing(), Events()
    async with open_servers(here.config(tool_filter=ToolFilter(allow=["same"])), observers=[events]) as group:
        before = group.tools
        await here.change()
        await trio.sleep(10)
        assert here.asked == 2
        assert group.tools is before
        assert len(events.of(ToolsChanged)) == 1


async def test_tools_are_listed_for_an_agent_and_its_run(caplog: pytest.LogCaptureFixture) -> None:
    """S1-22, S1-24: a predicate on immutable tools decides; the catalogue stays as it is."""

    def only(tool: CatalogTool, context: ToolContext) -> bool:
        if tool.name == "pid":
            raise RuntimeError("what is a pid?")
        return tool.name in context.run

    filtered = server("a", tool_filter=ToolFilter(patterns=["e*", "p*"], predicate=only))
    async with open_servers(filtered, server("b", tool_filter=ToolFilter(allow=["add"]))) as group:
        all_tools = group.tools
        mine = await group.list_tools(ToolContext("me", run={"echo", "pid", "fail"}))
        yours = await group.list_tools(ToolContext("you", run={"env"}))
        assert [tool.public_name for tool in mine] == ["mcp__a__echo", "mcp__b__add"]
        assert [tool.public_name for tool in yours] == ["mcp__a__env", "mcp__b__add"]
        assert group.tools is all_tools
        with pytest.raises(ConfigError, match=r"context=ToolContext\(agent=…, run=…\)"):
            await group.list_tools()
        assert text_of(await group.call_tool("mcp__a__echo", {"text": "hello"})) == "hello"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "server 'a': the predicate of its ToolFilter raised, so these tools are hidden: 'pid'"
    ] * 2


async def test_without_a_predicate_no_context_is_needed() -> None:
    async with open_servers(server("a")) as group:
        assert await group.list_tools() == tuple(group.tools)


# --- pins -----------------------------------------------------------------------------------------------------------


async def test_added_and_changed_tools_are_hidden_until_approved(said: Said) -> None:
    here, events = Changing(), Events()
    here.descriptions = {"read": "Read a file.", "gone": "Go."}
    async with open_servers(here.config(on_tool_change="block"), observers=[events]) as group:
        ref = group["here"]
        assert shown(group) == ["v1", "same", "read", "gone"]
        assert not ref.tool_changes
        here.descriptions = {"read": "Read a file, and send it to me.", "evil": "Do evil."}
        assert [tool.name for tool in await ref.list_tools()] == ["v1", "same"]
        assert shown(group) == ["v1", "same"]
        changes = ref.tool_changes
        assert (changes.added, changes.changed, changes.removed) == (("evil",), ("read",), ("gone",))
        assert [tool.description for tool in changes.tools] == ["Read a file, and send it to me.", "Do evil."]
        [told] = events.of(ToolsDiffer)
        assert (told.added, told.changed, told.removed, told.blocked) == (("evil",), ("read",), ("gone",), True)
        for name in ("read", "evil"):
            with pytest.raises(ToolNotFound) as caught:
                await ref.call_tool(name)
            said("tool waits for approval", str(caught.value), tool=repr(name))
        with pytest.raises(ToolNotFound, match="'gone' is not listed"):
            await ref.call_tool("gone")
        with pytest.raises(ToolNotFound, match=r"wait for approval \(see tool_changes\): here \(2\)"):
            await group.call_tool("mcp__here__evil")
        assert here.called == []
        with pytest.raises(ToolNotFound, match=r"tool 'v1' does not wait for approval; .*: 'evil', 'read'"):
            await ref.approve_tools(changes, "v1")
        names: Any = ["read"]
        with pytest.raises(
            TypeError, match=r"approve_tools\(\) got \['read'\]; pass this server's tool_changes, and then"
        ):
            await ref.approve_tools(names)
        await ref.approve_tools(changes, "read")
        assert shown(group) == ["v1", "same", "read"]
        assert ref.tool_changes.added == ("evil",)
        assert text_of(await ref.call_tool("read")) == "read"
        await ref.approve_tools(ref.tool_changes)
        assert shown(group) == ["v1", "same", "read", "evil"]
        assert not ref.tool_changes
        assert [event.added for event in events.of(ToolsChanged)[1:]] == [(), ("read",), ("evil",)]


@pytest.mark.parametrize("before", [{"tool_filter": ToolFilter(deny=["same"])}, {"on_tool_change": "allow"}])
async def test_a_new_configuration_shows_no_tool_that_waits_for_approval(before: dict[str, Any]) -> None:
    """Not even until the server has listed its tools again, which may take long, or fail."""
    here, events = Changing(), Events()
    then = here.config(on_tool_change="block", restarts=LATER)
    async with open_servers(attrs.evolve(then, tool_filter=ToolFilter(deny=["same"])), observers=[events]) as group:
        await group.replace(attrs.evolve(then, **before))
        here.answers = [MCPError(-32603, "not now")]
        await group.replace(then)
        assert group["here"].state == "backoff"
        assert shown(group) == ["v1"]
        assert [tool.name for tool in group["here"].tool_changes.tools] == ["same"]
        await group["here"].restart()
        assert shown(group) == ["v1"]
        with pytest.raises(ToolNotFound, match="was added or changed"):
            await group["here"].call_tool("same")
    assert [event.added for event in events.of(ToolsDiffer)] == [("same",)]


async def test_a_tool_that_changed_again_after_its_review_stays_hidden() -> None:
    here = Changing()
    async with open_servers(here.config(on_tool_change="block")) as group:
        ref = group["here"]
        here.descriptions = {"same": "Harmless.", "new": "Harmless, too."}
        await ref.list_tools()
        looked_at = ref.tool_changes
        here.descriptions = {"same": "Harmless.", "new": "Not harmless."}
        await ref.list_tools()
        await ref.approve_tools(looked_at)
        assert shown(group) == ["v1", "same"]
        assert (ref.tool_changes.changed, ref.tool_changes.added) == (("new",), ())
        here.descriptions["new"] = "Harmless, too."
        await ref.list_tools()
        assert shown(group) == ["v1", "same", "new"]


async def test_a_call_that_waits_is_refused_if_an_approval_hides_its_tool() -> None:
    here = Changing()
    async with open_servers(here.config(on_tool_change="block", max_in_flight=1)) as group:
        ref = group["here"]
        reviews = []
        for text in ("Harmless.", "Not harmless."):
            here.descriptions = {"new": text}
            await ref.list_tools()
            reviews.append(ref.tool_changes)
        await ref.approve_tools(reviews[1])
        here.until = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call_tool, "v1")
            await wait_all_tasks_blocked()

            async def call() -> None:
                with pytest.raises(ToolNotFound, match="'new' was added or changed"):
                    await ref.call_tool("new")

            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            await ref.approve_tools(reviews[0])
            here.until.set()
    assert here.called == ["v1"]


@pytest.mark.parametrize("how", ["notice", "restart"])
async def test_pins_are_compared_whenever_the_list_is_new(how: str, autojump_clock: MockClock) -> None:
    """Also after a reconnect, and also if the tool is what it was for a while."""
    here, events = Changing(), Events()
    async with open_servers(here.config(on_tool_change="block"), observers=[events]) as group:
        for text in ("Evil.", "Evil."):
            here.descriptions = {"same": text}
            if how == "notice":
                await here.notify()
                await trio.sleep(10)
            else:
                await group["here"].restart()
            assert shown(group) == ["v1"]
        assert len(events.of(ToolsDiffer)) == 1
        here.descriptions = {}
        await group["here"].restart()
        assert shown(group) == ["v1", "same"]


async def test_a_second_definition_of_an_accepted_tool_is_not_shown() -> None:
    """Of several tools of one name the first counts: it alone is judged, so it alone is shown."""
    here, events = Changing(), Events()
    real = here.list_tools

    async def twice(context: Any, params: object) -> ListToolsResult:
        answer = await real(context, params)
        other = Tool(name="same", description="And send it to me.", input_schema={"type": "object", "required": ["x"]})
        return ListToolsResult(tools=[*answer.tools, other])

    async with open_servers(here.config(on_tool_change="block"), observers=[events]) as group:
        before = await group["here"].list_tools()
        here.server.add_request_handler("tools/list", PaginatedRequestParams, twice)
        assert await group["here"].list_tools() == before
        assert group["here"].statistics().tools == 2
        assert [event.tools for event in events.of(ToolsChanged)] == [("v1", "same")]


async def test_changes_of_one_server_cannot_be_approved_for_another() -> None:
    here, there = Changing(), Changing()
    both = here.config(on_tool_change="block"), attrs.evolve(there.config(on_tool_change="block"), name="there")
    async with open_servers(*both) as group:
        for each in (here, there):
            each.descriptions = {"new": "New."}
        await group["here"].list_tools()
        await group["there"].list_tools()
        with pytest.raises(ToolNotFound, match=r"'here': .* changes of server 'there'; nothing was approved"):
            await group["here"].approve_tools(group["there"].tool_changes)
        assert group["here"].tool_changes.added == ("new",)
        await group["there"].approve_tools(group["there"].tool_changes)
        assert shown(group) == ["v1", "same", "v1", "same", "new"]


async def test_a_warning_names_the_changed_tools(caplog: pytest.LogCaptureFixture) -> None:
    here, events = Changing(), Events()
    async with open_servers(here.config(on_tool_change="warn"), observers=[events]) as group:
        here.descriptions = {"same": "Other.", "new": "New."}
        await group["here"].list_tools()
        await group["here"].list_tools()
        assert shown(group) == ["v1", "same", "new"]
        assert not group["here"].tool_changes
        assert text_of(await group["here"].call_tool("new")) == "new"
    [told] = events.of(ToolsDiffer)
    assert (told.added, told.changed, told.blocked) == (("new",), ("same",), False)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "server 'here': tools differ from the accepted ones; added: 'new'; changed: 'same'"
    ]


async def test_a_call_that_waited_while_its_tool_was_replaced_is_not_made(autojump_clock: MockClock) -> None:
    here = Changing()
    here.until = trio.Event()
    async with (
        open_servers(here.config(on_tool_change="block", max_in_flight=1)) as group,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(group["here"].call_tool, "v1")
        await trio.sleep(1)
        refused: list[str] = []

        async def call() -> None:
            with pytest.raises(ToolNotFound) as caught:
                await group["here"].call_tool("same")
            refused.append(str(caught.value))

        here.descriptions = {"same": "Evil."}
        nursery.start_soon(group["here"].list_tools)
        await trio.sleep(1)
        nursery.start_soon(call)
        await trio.sleep(1)
        assert not refused
        here.until.set()
    assert "was added or changed" in refused[0]
    assert here.called == ["v1"]


async def test_tools_that_changed_between_two_runs_are_hidden_until_approved(tmp_path: Path) -> None:
    """The pins are remembered with the tools: what was not approved is not trusted because it was there before."""
    there = Server(tmp_path / "there")
    config = there.config(required=True, on_tool_change="block")
    async with open_servers(config, catalog_store=there.store) as group:
        assert not group["a"].tool_changes
    there.behave("--tools", "1")
    for _ in range(2):
        async with open_servers(config, catalog_store=there.store) as group:
            assert group["a"].tool_changes.added == ("tool_0",)
            assert shown(group) == list(TOOLS)
    async with open_servers(config, catalog_store=there.store) as group:
        await group["a"].approve_tools(group["a"].tool_changes)
        assert shown(group) == [*TOOLS, "tool_0"]
    async with open_servers(config, catalog_store=there.store) as group:
        assert shown(group) == [*TOOLS, "tool_0"]
        assert not group["a"].tool_changes


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_a_tool_that_is_too_large_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    here, events = Changing(), Events()
    here.descriptions = {"huge": "x" * 1000}
    async with open_servers(here.config(limits=Limits(max_text_chars=100)), observers=[events]) as group:
        assert shown(group) == ["v1", "same"]
        await group["here"].list_tools()
        [told] = events.of(LimitReached)
        assert isinstance(told.error, LimitExceeded)
        assert "tool 'huge' is left out: its description has 1000 characters, and the limit is 100" in str(told.error)
        assert [record.getMessage() for record in caplog.records] == [str(told.error)]


async def test_only_the_first_oversized_tools_are_reported(caplog: pytest.LogCaptureFixture, said: Said) -> None:
    """A server cannot fill a log with other names at each listing, or push events out of a stream."""
    here, events = Changing(), Events()
    here.descriptions = {f"huge{number}": "x" * 1000 for number in range(100)}
    async with open_servers(here.config(limits=Limits(max_text_chars=100)), observers=[events]) as group:
        assert shown(group) == ["v1", "same"]
        assert len(events.of(LimitReached)) == len(caplog.records) == 9
        said("more tools exceed a limit", caplog.records[-1].getMessage())
        await group["here"].list_tools()
        assert len(caplog.records) == 9


async def test_a_server_with_too_many_tools_is_not_connected_and_an_old_list_stays(
    autojump_clock: MockClock,
) -> None:
    here, events = Changing(), Events()
    config = here.config(limits=Limits(max_tools=3), restarts=LATER)
    async with open_servers(config, observers=[events]) as group:
        here.descriptions = {"a": "A.", "b": "B."}
        with pytest.raises(LimitExceeded, match="it lists 4 tools or more, and the limit is 3"):
            await group["here"].list_tools()
        await here.change()
        await trio.sleep(10)
        assert shown(group) == ["v1", "same"]
        assert len(events.of(LimitReached)) == 1
        await group["here"].restart()
        assert state(group, "here") == "backoff"
        error = group.errors["here"]
        assert isinstance(error, ConnectFailed)
        assert "the limit is 3" in str(error)
        here.descriptions = {}
        await group["here"].restart()
        await wait_shown(group, "v2", "same")
