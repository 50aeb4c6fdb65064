"""The walk through JSON-like data neither recurses nor looks further than its caller wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import mcp.types

from mcp_actors._json import measured, walk


def test_a_value_comes_before_what_is_inside_it_with_its_depth() -> None:
    assert list(walk({"a": [1], "b": "c"})) == [({"a": [1], "b": "c"}, 1), ("c", 2), ([1], 2), (1, 3)]


def test_a_tuple_and_a_model_of_the_sdk_are_walked_through() -> None:
    model = mcp.types.TextContent(type="text", text="hello")
    found = [each for each, _ in walk((model,))]
    assert "hello" in found


def test_a_value_may_be_nested_a_hundred_thousand_levels_deep() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert max(depth for _, depth in walk(value)) == 100_001
    assert measured(value, 10**7)[1:] == (100_000, True)


def test_the_walk_of_a_value_that_contains_itself_is_ended_by_its_caller() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert len(list(islice(walk(value), 1000))) == 1000
    assert measured(value, 500)[2] is False


class Untouchable(Mapping[str, Any]):
    """An object of many members that fails the test when they are read."""

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("its keys are not to be read")

    def __getitem__(self, key: str) -> Any:
        raise AssertionError("its values are not to be read")


def test_nothing_inside_a_value_that_is_too_large_is_touched() -> None:
    assert measured(Untouchable(), 1000) == (2_000_002, 1, False)


def test_small_values_count_for_eight_bytes_and_strings_for_their_bytes_in_utf8() -> None:
    assert measured(1, 100) == (8, 0, True)
    assert measured("a", 100) == (8, 0, True)
    assert measured("ä" * 10, 100) == (22, 0, True)
    assert measured({"key": "a" * 10}, 100) == (2 + 2 + 5 + 12, 1, True)
