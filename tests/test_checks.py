"""A bool is not a number, and NaN is not a whole one."""

from __future__ import annotations

import math

import pytest

from mcp_actors._misuse import is_number, is_whole


@pytest.mark.parametrize("value", [0, -1, 0.5, math.inf, math.nan, 10**400])
def test_ints_and_floats_are_numbers(value: object) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, False, None, "1", 1j])
def test_bools_and_texts_are_not_numbers(value: object) -> None:
    assert not is_number(value)
    assert not is_whole(value, -10)


@pytest.mark.parametrize(("value", "fits"), [(1, True), (10**400, True), (0, False), (1.0, False), (math.nan, False)])
def test_a_whole_number_is_an_int_from_the_lowest_on(value: object, fits: bool) -> None:
    assert is_whole(value, 1) is fits
