"""One text per JSON value, so that hashes tell what is the same and what is not."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_actors.catalog._tools import _walked, canonical_text, digest, freeze

scalars = st.none() | st.booleans() | st.integers() | st.integers(10**15, 10**20) | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or ((type(one) in (int, float)) == (type(other) in (int, float)) and bool(one == other))


def reordered(value: Any) -> Any:
    """The same with the members of all objects the other way round, and whole numbers as floats where they fit."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [reordered(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "é\n"]}, '{"a":[true,null,"é\\n"],"b":1}'),
        ({"b": [], "a": {}}, '{"a":{},"b":[]}'),
        ([1.0, -0.0, 2.5, 1e-7, 1e300], f"[1,0,2.5,1e-07,{hex(int(1e300))}]"),
        (10**16 - 1, "9999999999999999"),
        (10**16, "0x2386f26fc10000"),
        ([math.inf, -math.inf, math.nan], "[Infinity,-Infinity,NaN]"),
        ("1.5 and NaN and 12345678901234567890", '"1.5 and NaN and 12345678901234567890"'),
    ],
)
def test_the_text_is_json_with_sorted_members_and_one_way_to_write_a_number(value: Any, text: str) -> None:
    assert canonical_text(value) == text


@given(values)
def test_neither_the_order_of_members_nor_how_a_number_is_written_matters(value: Any) -> None:
    assert canonical_text(reordered(value)) == canonical_text(value)
    assert canonical_text(freeze(value)) == canonical_text(value)


@given(values, values)
def test_different_values_have_different_texts(one: Any, other: Any) -> None:
    assert (canonical_text(one) == canonical_text(other)) is same(one, other)


@given(values)
def test_the_fast_way_and_the_other_agree(value: Any) -> None:
    assert canonical_text(value) == _walked(value)


@given(st.recursive(st.text(max_size=3) | st.integers(0, 9) | st.booleans(), st.lists, max_leaves=10))
def test_it_is_json(value: Any) -> None:
    assert json.loads(canonical_text(value)) == value


def test_the_same_letter_written_in_two_ways_is_two_texts() -> None:
    assert digest("é") != digest("e\u0301")


def test_half_a_character_and_a_number_of_many_digits_have_a_hash_too() -> None:
    assert len({digest("\ud83d"), digest("\ude00"), digest("?"), digest(10**5000), digest(10**5000 + 1)}) == 5


def test_a_value_may_be_nested_as_deeply_as_it_likes() -> None:
    deep: list[Any] = []
    other: list[Any] = [1]
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert digest(deep) != digest(other)


def test_a_value_that_json_does_not_have_is_named_by_its_repr() -> None:
    assert canonical_text({"a": {1}, 2: "b"}) == '{2:"b","a":{1}}'


def test_a_value_is_not_changed() -> None:
    value = {"b": [1.0], "a": {}}
    before = copy.deepcopy(value)
    canonical_text(value)
    assert value == before
    assert list(value) == ["b", "a"]
