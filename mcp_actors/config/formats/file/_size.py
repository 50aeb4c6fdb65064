"""Limit the size of a section and of its numbers.

A file may be large, because some programs keep megabytes of other data in their configuration. The part about servers
is short, so a section far beyond anything that people write is refused before it is processed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from ...._text import walk
from .._places import bad

MAX_SERVERS: Final = 1000
"""Servers in one section. The largest lists that people share have a few hundred."""

MAX_SIZE: Final = 1024 * 1024
"""Size of a section: the characters of its strings, plus a constant for every value and key."""

_WEIGHT: Final = 16
"""The size of any value or key, in characters: processing one takes about as long."""


def check_size(source: str, path: str, section: object) -> None:
    """Refuse a section that is too large.

    Raises:
        ConfigError: it has too many servers, is too large, or contains itself.
    """
    if isinstance(section, Mapping) and len(section) > MAX_SERVERS:
        raise bad(source, path, f"there are more than {MAX_SERVERS} entries here; check that this is the right file")
    left = MAX_SIZE
    for each in _everything_in(section):
        left -= _WEIGHT + (len(each) if isinstance(each, str) else 0)
        if left < 0:
            raise bad(
                source, path, f"there is more than {MAX_SIZE // 1024**2} MiB here; check that this is the right file"
            )


def check_numbers(source: str, path: str, entry: object) -> None:
    """Refuse integers that do not fit into a float or that Python refuses to print.

    Raises:
        ConfigError: there is one.
    """
    for each in _everything_in(entry):
        if isinstance(each, int) and each.bit_length() > sys.float_info.max_exp:
            raise bad(source, path, "a number has too many digits; write a smaller one")


def _everything_in(value: object) -> Iterator[object]:
    """Yield a value and everything inside it, including keys; the iterator is endless if it contains itself."""
    for each, _ in walk(value):
        yield each
        if isinstance(each, Mapping):
            yield from each
