"""Counting the values of a message before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from mcp_actors.servers.transports._values import ValueCounter

texts = st.text(alphabet='a,"\\[\u00e9\n', max_size=8)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def commas(value: Any) -> int:
    """How many separate the members and items of a value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(len(inner) - 1, 0) + sum(map(commas, inner))


@given(values, st.lists(st.integers(0, 200)), st.booleans())
def test_however_the_text_comes_what_is_in_strings_does_not_count(value: Any, cuts: list[int], escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    counter, begin = ValueCounter(), 0
    for cut in sorted(cuts):
        counter.feed(text[begin:cut])
        begin = max(begin, cut)
    counter.feed(text[begin:])
    assert counter.values == commas(value)
