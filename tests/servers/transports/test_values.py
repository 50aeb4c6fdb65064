"""Counting the JSON values of a message before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from mcp_actors.servers.transports.wire._values import ValueCounter

texts = st.text(alphabet='a,"\\[\u00e9\n', max_size=8)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def commas_and_brackets(value: Any) -> int:
    """Return the number of commas and opening brackets and braces in the JSON of a value."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(len(inner) - 1, 0) + sum(map(commas_and_brackets, inner))


@given(values, st.lists(st.integers(0, 200)), st.booleans())
def test_values_in_strings_do_not_count_however_the_text_is_cut(value: Any, cuts: list[int], escaped: bool) -> None:
    """B-12: arrays and objects count, however few commas they have."""
    text = json.dumps(value, ensure_ascii=escaped).encode()
    counter, begin = ValueCounter(), 0
    for cut in sorted(cuts):
        counter.feed(text[begin:cut])
        begin = max(begin, cut)
    counter.feed(text[begin:])
    assert counter.values == commas_and_brackets(value)
