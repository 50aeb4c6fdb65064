"""The names of all tools, kept up to date; and which of them can be taken for each other."""

from __future__ import annotations

from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from mcp_actors.catalog import NameCollision, _names, assign_names
from mcp_actors.catalog._names import NameBook, ToolName

TEMPLATES = ["mcp__{server}__{tool}", "{server}_{tool}", "{tool}", "{tool}-{server}", "x" * 80 + "{tool}"]

# Few names, which differ in borders, case and composition: collisions are what is looked for.
servers = st.sampled_from(["a", "A", "a.b", "a_b", "a_"])
tools = st.sampled_from(["x", "X", "_x", "x.y", "x_y", "b_x", "é", "e\u0301", ""])
steps = st.lists(st.sets(st.tuples(servers, tools), max_size=8), max_size=8)


def names_of(keys: Iterable[tuple[str, str]], naming: str = "mcp__{server}__{tool}") -> list[ToolName]:
    return [ToolName.of(key, naming) for key in keys]


def names_in(book: NameBook) -> dict[tuple[str, str], str]:
    """Return the public name of each tool."""
    assert book.unlike_base.items() <= {key: name for name, key in book.keys.items()}.items()
    return {key: name for name, key in book.keys.items()}


def book_of(*keys: tuple[str, str], naming: str = "mcp__{server}__{tool}") -> NameBook:
    return NameBook(naming=naming).changed((), names_of(keys, naming))[0]


def alike(*keys: tuple[str, str], naming: str = "mcp__{server}__{tool}") -> list[tuple[tuple[str, str], ...]]:
    return [each.tools for each in book_of(*keys, naming=naming).collisions]


def check_history(steps: list[set[tuple[str, str]]], naming: str) -> None:
    book, before = NameBook(naming=naming), set[tuple[str, str]]()
    for now in steps:
        names_before = names_in(book)
        book, renamed = book.changed(names_of(before - now, naming), names_of(now - before, naming))
        names = assign_names(now, naming)
        assert names_in(book) == names == {tool.key: book.public_name(tool) for tool in names_of(now, naming)}
        assert renamed == {key for key in before & now if names_before[key] != names[key]}
        assert book.collisions == book_of(*now, naming=naming).collisions
        before = now


@given(steps, st.sampled_from(TEMPLATES))
@example([{("a", "x")}, {("a", "x"), ("b", "x")}, {("b", "x")}], "{tool}")
def test_names_do_not_depend_on_earlier_tools(steps: list[set[tuple[str, str]]], naming: str) -> None:
    """S1-26: whatever came and went, each tool has the name that it would have if all came at once."""
    check_history(steps, naming)


@given(steps, st.sampled_from(TEMPLATES))
def test_nor_do_they_if_hashes_are_equal_all_the_time(steps: list[set[tuple[str, str]]], naming: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_names, "_HASH_LENGTH", 1)
        check_history(steps, naming)


def test_a_tool_that_comes_to_have_a_namesake_is_renamed_and_named_back_when_that_goes() -> None:
    one, renamed = book_of(("a", "x"), naming="{tool}").changed((), names_of([("b", "x")], "{tool}"))
    assert renamed == {("a", "x")}
    assert names_in(one)[("a", "x")] != "x" != names_in(one)[("b", "x")]
    back, renamed = one.changed(names_of([("b", "x")], "{tool}"), ())
    assert renamed == {("a", "x")}
    assert names_in(back) == {("a", "x"): "x"}


@pytest.mark.parametrize(
    "keys",
    [
        (("a.b", "search"), ("a_b", "search")),
        (("A", "search"), ("a", "search")),
        (("a", "Search"), ("b", "x"), ("a", "search")),
        (("a", "straße"), ("a", "STRASSE")),
        (("a", "é"), ("a", "e\u0301")),
        (("a", "\uff41"), ("a", "a")),
        (("a", "_b"), ("a_", "b")),
        (("a", "b__c"), ("a__b", "c")),
        (("a", "read file"), ("a", "read_file")),
        (("a", "İ"), ("a", "i\u0307")),
    ],
)
def test_names_that_differ_only_in_case_composition_or_impossible_characters_are_a_collision(
    keys: tuple[tuple[str, str], ...],
) -> None:
    """A-25: both servers are named, and each tool has a public name of its own."""
    pair = tuple(sorted((keys[0], keys[-1])))
    assert alike(*keys) == [pair]
    book = book_of(*keys)
    assert len(names_in(book)) == len(keys)
    [collision] = book.collisions
    assert collision.public_names == tuple(names_in(book)[key] for key in pair)
    assert all(f"{tool!r} of server {server!r}" in str(collision) for server, tool in pair)


def test_the_same_tool_of_two_servers_is_one_only_under_a_template_that_does_not_tell_them_apart() -> None:
    keys = ("a", "search"), ("b", "search")
    assert alike(*keys) == []
    assert alike(*keys, naming="{tool}") == [keys]


def test_a_server_and_one_whose_name_begins_alike_do_not_collide() -> None:
    assert alike(("a", "x"), ("a_b", "x"), ("a", "y"), ("a", "xx")) == []


def test_a_collision_is_over_when_it_is() -> None:
    book = book_of(("a", "x"), ("A", "x"), ("b", "y"))
    assert len(book.collisions) == 1
    assert book.changed(names_of([("A", "x")]), ())[0].collisions == ()
    assert book.changed(names_of([("b", "y")]), ())[0].collisions == book.collisions


def test_a_collision_of_many_names_some() -> None:
    collision = NameCollision(tuple(("a", "x" * 200) for _ in range(10)), tuple("y" * 64 for _ in range(10)))
    assert str(collision).startswith("tools with similar names: 'xxx")
    assert str(collision).endswith(" and 2 more")
    assert len(str(collision)) < 2000


@given(st.lists(st.tuples(servers, tools), max_size=8), st.sampled_from(TEMPLATES), st.randoms())
def test_collisions_do_not_depend_on_the_order(keys: list[tuple[str, str]], naming: str, rng: Any) -> None:
    """S1-26: collisions are deterministic."""
    shuffled = list(dict.fromkeys(keys))
    rng.shuffle(shuffled)
    assert book_of(*shuffled, naming=naming).collisions == book_of(*dict.fromkeys(keys), naming=naming).collisions


def test_names_that_take_long_to_normalize_do_not() -> None:
    """One character of these becomes eighteen, and a name may be long. It took ten seconds."""
    keys = [("a", "\ufdfa" * 8_000 + str(number) + "\ufdfa" * 8_000) for number in range(200)]
    before = process_time()
    assert len(book_of(*keys).keys) == 200
    assert alike(("a", "x" * 200), ("a", "x" * 200 + "y")) == [(("a", "x" * 200), ("a", "x" * 200 + "y"))]
    assert process_time() - before < 2.5
