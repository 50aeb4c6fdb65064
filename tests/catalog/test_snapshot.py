"""All tools at one moment: their order, how they are found, and whose they are."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import mcp.types
import pytest
from hypothesis import given, strategies as st

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


def test_a_tool_that_is_given_twice_is_refused() -> None:
    one = CatalogTool(server="a", name="x", public_name="first", input_schema={})
    with pytest.raises(ValueError, match="server 'a' has two tools 'x'; leave one of them out"):
        CatalogSnapshot([one, CatalogTool(server="a", name="x", public_name="second", input_schema={})])


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


class TestUpdated:
    """A change of listings changes only the affected parts of a snapshot."""

    before = (Listing("a", (tool("x"), tool("y"))), Listing("b", (tool("x"),)), Listing("a_b", (tool("x"),)))

    def snapshot(self, naming: str = "mcp__{server}__{tool}") -> CatalogSnapshot:
        return CatalogSnapshot.from_listings(self.before, generation=3, naming=naming)

    def with_b(self, *tools: mcp.types.Tool, **marks: bool) -> tuple[Listing, ...]:
        return (self.before[0], Listing("b", tools or self.before[1].tools, **marks), self.before[2])

    def test_a_change_of_one_server_leaves_the_tools_of_the_others_as_they_are(self) -> None:
        old = self.snapshot()
        new = old.updated(self.with_b(tool("z"), tool("x", "changed")))
        assert [each.public_name for each in new] == [
            "mcp__a__x",
            "mcp__a__y",
            "mcp__b__z",
            "mcp__b__x",
            "mcp__a_b__x",
        ]
        assert new[0] is old[0]
        assert new[4] is old[3]
        assert new.find("mcp__b__x").description == "changed"
        assert old.find("mcp__b__x").description is None
        assert (old.generation, new.generation) == (3, 4)

    def test_each_server_has_the_generation_of_its_last_change_as_its_version(self) -> None:
        old = self.snapshot()
        new = old.updated(self.with_b(tool("z")))
        assert dict(new.versions) == {"a": 3, "b": 4, "a_b": 3}
        away = new.updated(self.with_b(tool("z"))[::2])
        assert dict(away.versions) == {"a": 3, "a_b": 3}
        back = away.updated(self.with_b(tool("z")))
        assert dict(back.versions) == {"a": 3, "b": 6, "a_b": 3}
        with pytest.raises(TypeError):
            back.versions["a"] = 0  # type: ignore[index]  # that it refuses is what is tested

    def test_where_nothing_is_different_it_stays(self) -> None:
        old = self.snapshot()
        assert old.updated(self.before) is old
        assert old.updated(self.with_b(tool("x"))) is old

    def test_one_is_not_true(self) -> None:
        """They are equal to Python, and not to a server or a model."""

        def typed(default: Any) -> mcp.types.Tool:
            return mcp.types.Tool(name="x", input_schema={"type": "object", "default": default})

        old = self.snapshot().updated(self.with_b(typed(1)))
        new = old.updated(self.with_b(typed(True)))
        assert new.find("mcp__b__x").input_schema["default"] is True

    def test_what_a_program_does_to_the_tools_it_was_given_changes_nothing(self) -> None:
        """S1-22: the catalogue holds copies."""
        listed = tool("x", "theirs")
        now = self.with_b(listed)
        old = self.snapshot().updated(now)
        listed.description = "mine"
        listed.input_schema["mine"] = True
        new = old.updated(now[1:])
        assert new.find("mcp__b__x") is old.find("mcp__b__x")
        assert (old[2].description, "mine" in old[2].input_schema) == ("theirs", False)

    def test_tools_are_marked_without_being_made_anew(self) -> None:
        old = self.snapshot()
        away = old.updated(self.with_b(available=False))
        assert [each.available for each in away] == [True, True, False, True]
        assert away[2].input_schema is old[2].input_schema
        assert away.versions["b"] == 4
        assert away.updated(self.before).of("b") == old.of("b")

    def test_another_order_is_another_snapshot_of_the_same_tools(self) -> None:
        old = self.snapshot()
        new = old.updated(self.before[::-1])
        assert [each.server for each in new] == ["a_b", "b", "a", "a"]
        assert new.of("b")[0] is old.of("b")[0]
        assert new.versions == old.versions

    def test_to_remove_a_server_takes_nothing_of_one_whose_name_begins_alike(self) -> None:
        """S3-23: `a` goes, `a_b` stays as it was."""
        old = self.snapshot()
        new = old.updated(self.before[1:])
        assert new.of("a") == ()
        assert new.of("a_b") == old.of("a_b")
        assert new.of("a_b")[0] is old.of("a_b")[0]
        with pytest.raises(KeyError):
            new.find("mcp__a__x")

    def test_a_tool_that_comes_to_have_a_namesake_is_renamed_on_its_server_too(self) -> None:
        old = self.snapshot(naming="{tool}")
        assert old.find("y") is old[1]
        new = old.updated(self.with_b(tool("y")))
        assert new.find(new[1].public_name) == attrs.evolve(old[1], public_name=new[1].public_name)
        assert new[1].public_name.startswith("y_")
        assert dict(new.versions) == {"a": 4, "b": 4, "a_b": 3}
        with pytest.raises(KeyError):
            new.find("y")

    def test_collisions_are_known_by_both_servers(self) -> None:
        """A-25: colliding tool names across servers."""
        assert self.snapshot().collisions == ()
        new = self.snapshot().updated([*self.before, Listing("A", (tool("X"),))])
        [collision] = new.collisions
        assert collision.tools == (("A", "X"), ("a", "x"))
        assert collision.public_names == ("mcp__A__X", "mcp__a__x")

    def test_two_listings_of_one_server_are_refused(self) -> None:
        with pytest.raises(ValueError, match="there are two listings of server 'b'; give one"):
            self.snapshot().updated([*self.before, self.before[1]])

    def test_a_snapshot_that_was_constructed_directly_can_be_updated_too(self) -> None:
        by_hand = CatalogSnapshot(self.snapshot(), generation=8)
        assert by_hand == attrs.evolve(self.snapshot(), generation=8)
        assert by_hand.of("b") == self.snapshot().of("b")
        assert dict(by_hand.versions) == {"a": 8, "b": 8, "a_b": 8}
        assert by_hand.updated(self.before) == attrs.evolve(self.snapshot(), generation=9)
        assert len(by_hand.updated(())) == 0
        assert CatalogSnapshot().updated(()) == CatalogSnapshot((), generation=1)

    def test_an_evolved_one_knows_its_own_tools_only(self) -> None:
        evolved = attrs.evolve(self.snapshot(), tools=self.snapshot()[:1])
        assert evolved.find("mcp__a__x") is evolved[0]
        assert evolved.of("b") == ()

    def test_it_can_be_pickled_and_copied(self) -> None:
        old = self.snapshot()
        assert pickle.loads(pickle.dumps(old)) == old
        assert copy.deepcopy(old).find("mcp__a__x") == old[0]


listed_tools = st.lists(st.sampled_from(["x", "X", "y", "x_", "a.b"]).map(tool), max_size=3).map(tuple)
marked = st.builds(Listing, st.sampled_from(["a", "A", "a.b", "a_b"]), listed_tools, st.booleans(), st.booleans())
groups = st.lists(marked, max_size=4, unique_by=lambda listing: listing.server)


@given(st.lists(groups, max_size=6), st.sampled_from(["mcp__{server}__{tool}", "{tool}"]))
def test_a_snapshot_does_not_depend_on_those_before_it(history: list[list[Listing]], naming: str) -> None:
    """S1-23: whatever changed before, the tools are those of the listings there are now."""
    current = CatalogSnapshot.from_listings((), naming=naming)
    for listings in history:
        before, current = current, current.updated(listings)
        fresh = CatalogSnapshot.from_listings(listings, generation=current.generation, naming=naming)
        assert current == fresh
        assert current.collisions == fresh.collisions
        assert all(current.find(each.public_name) is each for each in current)
        for server, version in before.versions.items():
            if current.versions.get(server) == version:
                assert all(one is other for one, other in zip(before.of(server), current.of(server), strict=True))
