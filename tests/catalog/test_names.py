"""The public names of tools: legal, distinct, and independent of the order in which tools became known."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from mcp_actors import ConfigError
from mcp_actors.catalog import _names, assign_names, public_name

from ..messages import Said

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
TEMPLATES = ["mcp__{server}__{tool}", "{server}_{tool}", "{tool}", "{tool}-{server}", "x" * 80 + "{tool}"]

# Few characters, and those that blur borders: collisions are what is looked for.
servers = st.text(alphabet="ab_.-", min_size=1, max_size=5)
tools = st.text(alphabet="ab_./é-\0", max_size=5) | st.text(max_size=100)
keys = st.lists(st.tuples(servers, tools), max_size=30)


def hashed(name: str) -> bool:
    return re.fullmatch(r".*_[0-9a-f]{8}", name) is not None


def test_a_legal_name_is_put_into_the_template_as_it_is() -> None:
    assert public_name("docs", "search-all_2") == "mcp__docs__search-all_2"
    assert public_name("docs", "search", "{tool}-{server}") == "search-docs"


@pytest.mark.parametrize(
    ("server", "tool", "start"),
    [
        ("docs", "files.read", "mcp__docs__files_read_"),
        ("docs", "a b/c", "mcp__docs__a_b_c_"),
        ("docs", "über", "mcp__docs___ber_"),
        ("my.docs", "search", "mcp__my_docs__search_"),
        ("docs", "x\n", "mcp__docs__x__"),
    ],
)
def test_a_name_that_was_changed_ends_in_a_hash(server: str, tool: str, start: str) -> None:
    """S3-11: sanitized public names."""
    name = public_name(server, tool)
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{8}", name)


def test_a_long_name_is_shortened_to_64_characters_and_ends_in_a_hash() -> None:
    fits, too_long = "x" * 53, "x" * 54
    assert public_name("docs", fits) == f"mcp__docs__{fits}"
    assert len(public_name("docs", too_long)) == 64
    assert hashed(public_name("docs", too_long))
    assert public_name("docs", too_long) != public_name("docs", too_long + "y")


def test_hashes_are_the_same_in_every_run_and_release() -> None:
    assert public_name("a.b", "search") == "mcp__a_b__search_e995f47a"
    assert public_name("docs", "x" * 100) == "mcp__docs__" + "x" * 44 + "_7416caed"


def test_servers_whose_names_are_alike_after_the_change_do_not_share_a_name() -> None:
    """A-25: colliding tool names across servers."""
    names = assign_names([("a.b", "search"), ("a_b", "search")])
    assert names[("a_b", "search")] == "mcp__a_b__search"
    assert names[("a.b", "search")] == public_name("a.b", "search") != "mcp__a_b__search"


def test_no_server_can_take_the_name_of_anothers_tool_by_blurring_the_border() -> None:
    assert public_name("a", "b__c") == "mcp__a__b__c"
    assert hashed(public_name("a__b", "c"))
    assert public_name("a", "_c") == "mcp__a___c"
    assert hashed(public_name("a_", "c"))


def test_no_server_can_take_a_hashed_name_by_calling_its_tool_that() -> None:
    victim = public_name("a.b", "search")
    copied = victim.removeprefix("mcp__a_b__")
    assert public_name("a_b", copied) != victim
    assert hashed(public_name("a_b", copied))


def test_tools_that_collide_under_a_template_are_all_hashed() -> None:
    keys = [("a", "search"), ("b", "search"), ("b", "read")]
    names = assign_names(keys, "{tool}")
    assert names[("b", "read")] == "read"
    assert hashed(names[("a", "search")])
    assert hashed(names[("b", "search")])
    assert names[("a", "search")] != names[("b", "search")]


def test_equal_hashes_are_drawn_again_until_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chance is one in four thousand millions, so here a hash is a single digit."""
    monkeypatch.setattr(_names, "_HASH_LENGTH", 1)
    keys = [("a", f"same{mark}") for mark in ".,:;!?()"]
    names = assign_names(keys)
    assert len(set(names.values())) == len(keys)
    assert names == {key: assign_names(reversed(keys))[key] for key in keys}


def test_a_tool_that_is_given_twice_counts_once() -> None:
    assert assign_names([("a", "x"), ("a", "x")]) == {("a", "x"): "mcp__a__x"}


class Reversing(Random):
    """Shuffles by turning round."""

    def shuffle(self, x: Any) -> None:
        x.reverse()


@given(keys, st.sampled_from(TEMPLATES), st.randoms())
@example([("a", "x"), ("b", "x"), ("c", "y")], "{tool}", Reversing())
def test_names_are_legal_distinct_and_independent_of_order(keys: list[tuple[str, str]], naming: str, rng: Any) -> None:
    """S1-26: collisions and prefixed names are deterministic."""
    names = assign_names(keys, naming)
    assert list(names) == list(dict.fromkeys(keys))
    assert all(LEGAL.fullmatch(name) for name in names.values())
    assert len(set(names.values())) == len(names)
    shuffled = list(keys)
    rng.shuffle(shuffled)
    assert assign_names(shuffled, naming) == names


@given(keys)
def test_a_default_name_does_not_depend_on_other_tools(
    keys: list[tuple[str, str]],
) -> None:
    assert assign_names(keys) == {key: public_name(*key) for key in keys}


@pytest.mark.parametrize(
    ("naming", "problem"),
    [
        ("mcp_{server}", "naming='mcp_{server}' has no {tool}, so all tools of a server would have one name"),
        ("{tool}{version}", "naming='{tool}{version}' has the unknown field {version}"),
        ("{tool}{}", "naming='{tool}{}' has the unknown field {}"),
        ("{tool.__class__}", "naming='{tool.__class__}' has the unknown field {tool.__class__}"),
        ("{server}.{tool}", "naming='{server}.{tool}' contains characters that a tool's name cannot have"),
        ("{tool:>10}", "naming='{tool:>10}' contains characters that a tool's name cannot have"),
        ("{tool!r}", "naming='{tool!r}' contains characters that a tool's name cannot have"),
        ("{{{tool}}}", "naming='{{{tool}}}' contains characters that a tool's name cannot have"),
        ("{tool", "naming='{tool' cannot be parsed (expected '}' before end of string)"),
    ],
)
def test_a_template_that_cannot_work_is_refused(naming: str, problem: str) -> None:
    remedy = "use {tool}, {server} and the characters A-Z a-z 0-9 _ -, for example 'mcp__{server}__{tool}'"
    for name_tools in (lambda: public_name("a", "b", naming), lambda: assign_names([], naming)):
        with pytest.raises(ConfigError) as caught:
            name_tools()
        assert str(caught.value) == f"{problem}; {remedy}"
        assert caught.value.path == "naming"


def test_a_template_is_a_text(said: Said) -> None:
    naming: Any = None
    with pytest.raises(ConfigError) as caught:
        assign_names([], naming)
    said("naming is not a str", str(caught.value))
