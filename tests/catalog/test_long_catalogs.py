"""Snapshots of very many tools: each is made in one step of the event loop, in which nothing is called for a tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import mcp.types
import pytest

from mcp_actors import CatalogSnapshot
from mcp_actors.catalog import CatalogEntry, Listing

from ..calls import calls_in

NAMING: Final = "mcp__{server}__{tool}"


def entries(number: int, first: int = 0, *, server: str = "a") -> tuple[CatalogEntry, ...]:
    """Return prepared tools with different names."""
    tools = (mcp.types.Tool(name=f"tool_{first + each}", input_schema={}) for each in range(number))
    return tuple(CatalogEntry.of(server, tool, NAMING) for tool in tools)


def snapshot(*listings: Listing) -> CatalogSnapshot:
    return CatalogSnapshot.from_listings(listings, naming=NAMING)


def changes(number: int) -> Iterator[Callable[[], CatalogSnapshot]]:
    """Yield the changes of a catalogue that concern all of so many tools."""
    tools, other = entries(number), Listing("b", entries(10, server="b"))
    yield partial(snapshot(other).updated, [Listing("a", tools), other])
    before = snapshot(Listing("a", tools), other)
    yield partial(before.updated, [Listing("a", tools, available=False), other])
    yield partial(before.updated, [Listing("a", tools, available=False, deferred=True), other])
    yield partial(before.updated, [Listing("a", entries(number)), other])
    yield partial(before.updated, [Listing("a", entries(number, number)), other])
    yield partial(before.updated, [other])


@pytest.mark.parametrize("change", range(6))
def test_the_functions_called_to_make_a_snapshot_do_not_depend_on_the_number_of_tools(change: int) -> None:
    """A listing appears, is away, is only remembered, is listed again, has other tools, and is gone."""
    few, _ = calls_in(list(changes(20))[change])
    many, tools = calls_in(list(changes(500))[change])
    assert many == few < 100
    assert len(tools) in (10, 510)


def test_a_tool_with_a_similar_name_costs_the_others_no_call() -> None:
    pair = tuple(CatalogEntry.of("a", mcp.types.Tool(name=name, input_schema={}), NAMING) for name in ("x.y", "x_y"))
    snapshot(Listing("a", pair))  # what is done once only
    few, _ = calls_in(partial(snapshot, Listing("a", (*entries(20), *pair))))
    many, tools = calls_in(partial(snapshot, Listing("a", (*entries(500), *pair))))
    assert many == few
    assert len(tools.collisions) == 1


def test_a_tool_is_the_same_object_whenever_its_server_is_in_the_same_state() -> None:
    tools = entries(2)
    there = snapshot(Listing("a", tools))
    away = there.updated([Listing("a", tools, available=False)])
    assert [tool.available for tool in (*there, *away)] == [True, True, False, False]
    assert all(one is other for one, other in zip(there, away.updated([Listing("a", tools)]), strict=True))


def remembered(number: int) -> tuple[CatalogEntry, ...]:
    """Return as many tools that are prepared only as remembered ones."""
    tools = (mcp.types.Tool(name=f"tool_{each}", input_schema={}) for each in range(number))
    return tuple(CatalogEntry.of("a", tool, NAMING, remembered=True) for tool in tools)


def test_remembered_tools_are_shown_as_such_without_a_call_for_each() -> None:
    few, many = (
        calls_in(partial(snapshot, Listing("a", remembered(number), available=False, deferred=True)))
        for number in (20, 500)
    )
    assert many[0] == few[0]
    assert {(tool.available, tool.deferred) for tool in many[1]} == {(False, True)}


def test_a_remembered_tool_is_shown_in_another_state_also_if_it_is_not_prepared_for_that() -> None:
    tools = remembered(2)
    before = snapshot(Listing("a", tools, available=False, deferred=True))
    listed = before.updated([Listing("a", tools)])
    assert [(tool.name, tool.available, tool.deferred) for tool in listed] == [
        ("tool_0", True, False),
        ("tool_1", True, False),
    ]
    assert tuple(listed.updated([Listing("a", tools, available=False, deferred=True)])) == tuple(before)


def test_a_remembered_tool_that_is_prepared_anew_costs_no_call_in_any_usual_state() -> None:
    counts = []
    for number in (20, 500):
        tools = remembered(number)
        for tool in tools:
            tool.prepare()
        calls = 0
        before = snapshot(Listing("a", tools, available=False, deferred=True))
        for available, late in ((True, False), (False, False)):
            more, before = calls_in(partial(before.updated, [Listing("a", tools, available, late)]))
            calls += more
        counts.append(calls)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["{}_{}", "{0}.{1}", "x" * 130 + "{}{}"])
def test_similar_names_get_hashes_with_a_few_calls_for_each(name: str) -> None:
    """Also if all are in one group."""
    counts = []
    for number in (50, 500):
        tools = [mcp.types.Tool(name=name.format(*divmod(each, 2)), input_schema={}) for each in range(number)]
        tools += [mcp.types.Tool(name=tool.name.replace("_", "."), input_schema={}) for tool in tools]
        prepared = tuple({tool.name: CatalogEntry.of("a", tool, NAMING) for tool in tools}.values())
        calls, shown = calls_in(partial(snapshot, Listing("a", prepared)))
        assert len({tool.public_name for tool in shown}) == len(prepared)
        counts.append(calls / len(prepared))
    assert counts[1] < 2 * counts[0]
