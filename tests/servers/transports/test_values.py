"""Counting the JSON values of a message before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from mcp_actors.transports._messages import ValueCounter

texts = st.text(alphabet='a,"\\[\u00e9\n', max_size=8)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def punctuation(value: Any) -> int:
    """Return the number of commas, colons and opening brackets and braces in the JSON of a value."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    keys = len(inner) if isinstance(value, dict) else 0
    return 1 + keys + max(len(inner) - 1, 0) + sum(map(punctuation, inner))


@given(values, st.lists(st.integers(0, 200)), st.booleans())
def test_values_in_strings_do_not_count_however_the_text_is_cut(value: Any, cuts: list[int], escaped: bool) -> None:
    """B-12, C-09: arrays, objects and keys count, however few commas there are."""
    text = json.dumps(value, ensure_ascii=escaped).encode()
    counter, begin = ValueCounter(), 0
    for cut in sorted(cuts):
        counter.feed(text[begin:cut])
        begin = max(begin, cut)
    counter.feed(text[begin:])
    assert counter.values == punctuation(value)
    assert counter.depth == 0
