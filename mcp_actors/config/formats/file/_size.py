"""How much a configuration may hold, so that no file takes minutes to be read, and how large its numbers may be.

A file may be long, because people have configurations with megabytes of other things in them. What is about servers is
short: what is far longer than anybody writes is refused before anything is made of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from ...._json_walk import walk
from .._places import bad

MAX_SERVERS: Final = 1000
"""Servers in one section. The largest lists that people share have some hundred."""

MAX_SIZE: Final = 1024 * 1024
"""What a section may weigh: the characters of its texts, and some for everything that is in it."""

_WEIGHT: Final = 16
"""Of a value or a key, whatever it is: to look at it takes the time of as many characters."""


def check_size(source: str, path: str, section: object) -> None:
    """Refuse what is too large to be meant.

    Raises:
        ConfigError: it holds too many servers, or too much; or itself, which would have no end.
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
    """Refuse numbers with which Python cannot reckon, or which it does not write.

    Raises:
        ConfigError: there is one.
    """
    for each in _everything_in(entry):
        if isinstance(each, int) and each.bit_length() > sys.float_info.max_exp:
            raise bad(source, path, "a number has too many digits; write a smaller one")


def _everything_in(value: object) -> Iterator[object]:
    """Yield a value and everything inside it, keys too; without an end if it contains itself."""
    for each, _ in walk(value):
        yield each
        if isinstance(each, Mapping):
            yield from each
