"""All tools at one moment: their order, how they are found, and whose they are."""

from __future__ import annotations

import attrs
import mcp.types
import pytest

from mcp_actors import CatalogSnapshot, CatalogTool, ConfigError
from mcp_actors.catalog import Listing


def tool(name: str, description: str | None = None) -> mcp.types.Tool:
    return mcp.types.Tool(name=name, description=description, input_schema={"type": "object"})


def snapshot(**listed: str) -> CatalogSnapshot:
    """Return a snapshot of servers given as ``server="tool tool"``."""
    listings = [Listing(server, [tool(name) for name in names.split()]) for server, names in listed.items()]
    return CatalogSnapshot.from_listings(listings)


def test_tools_are_in_configured_then_listed_order() -> None:
    names = [each.public_name for each in snapshot(b="z y", a="x")]
    assert names == ["mcp__b__z", "mcp__b__y", "mcp__a__x"]


def test_it_is_a_sequence() -> None:
    tools = snapshot(a="x y z")
    assert len(tools) == 3
    assert tools[0].name == "x"
    assert [each.name for each in tools[1:]] == ["y", "z"]
    assert tools[2] in tools
    assert list(reversed(tools)) == [tools[2], tools[1], tools[0]]


def test_a_tool_is_found_by_its_public_name_only() -> None:
    tools = snapshot(a="x", b="x")
    assert tools.find("mcp__b__x") is tools[1]
    with pytest.raises(KeyError, match="x"):
        tools.find("x")


def test_the_tools_of_a_server_are_its_own_and_not_those_of_one_whose_name_begins_alike() -> None:
    tools = snapshot(a="x", a_b="x y")
    assert [(each.server, each.name) for each in tools.of("a")] == [("a", "x")]
    assert [(each.server, each.name) for each in tools.of("a_b")] == [("a_b", "x"), ("a_b", "y")]
    assert tools.of("unknown") == ()


def test_tools_of_a_server_that_is_away_stay_listed_and_are_marked() -> None:
    listings = [Listing("a", [tool("x")], available=False), Listing("b", [tool("y")])]
    tools = CatalogSnapshot.from_listings(listings)
    assert [(each.name, each.available) for each in tools] == [("x", False), ("y", True)]


def test_tools_that_are_only_remembered_are_marked() -> None:
    listings = [Listing("a", [tool("x")], available=False, deferred=True), Listing("b", [tool("y")])]
    tools = CatalogSnapshot.from_listings(listings)
    assert [(each.name, each.deferred) for each in tools] == [("x", True), ("y", False)]


def test_being_away_does_not_change_a_public_name() -> None:
    before = CatalogSnapshot.from_listings([Listing("a.b", [tool("x")]), Listing("a_b", [tool("x")])])
    after = CatalogSnapshot.from_listings([Listing("a.b", [tool("x")], available=False), Listing("a_b", [])])
    assert after[0].public_name == before[0].public_name


def test_of_a_tool_listed_twice_the_first_counts() -> None:
    tools = CatalogSnapshot.from_listings([Listing("a", [tool("x", "first"), tool("x", "second"), tool("y")])])
    assert [(each.name, each.description) for each in tools] == [("x", "first"), ("y", None)]


def test_the_template_of_the_names_can_be_chosen() -> None:
    tools = CatalogSnapshot.from_listings([Listing("a", [tool("x")])], naming="{tool}")
    assert tools[0].public_name == "x"
    with pytest.raises(ConfigError, match=r"naming='\{server\}' has no \{tool\}"):
        CatalogSnapshot.from_listings([], naming="{server}")


def test_two_tools_of_one_public_name_are_refused() -> None:
    one = CatalogTool(server="a", name="x", public_name="same", input_schema={})
    other = CatalogTool(server="b", name="x", public_name="same", input_schema={})
    message = r"two tools have the public name 'same'; give names with assign_names\(\.\.\.\)"
    with pytest.raises(ValueError, match=message):
        CatalogSnapshot([one, other])


def test_it_is_immutable_hashable_and_equal_by_tools_and_generation() -> None:
    tools = snapshot(a="x")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tools.generation = 2  # type: ignore[misc]  # that it refuses is what is tested
    assert {tools: 1}[snapshot(a="x")] == 1
    assert tools != attrs.evolve(tools, generation=1)


def test_an_empty_snapshot_has_nothing_and_generation_zero() -> None:
    nothing = CatalogSnapshot()
    assert (len(nothing), list(nothing), nothing.generation) == (0, [], 0)


def test_repr_is_short_however_many_tools_there_are() -> None:
    tools = attrs.evolve(snapshot(a="x y", b="z"), generation=7)
    assert repr(tools) == "<CatalogSnapshot 7: 3 tools of 2 servers>"
