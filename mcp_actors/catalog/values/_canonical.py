"""The canonical text of a JSON value, and its hash.

Values that mean the same have the same text. Pins and the identity of a server are hashes of it, and ``uniqueItems``
compares it.

The members of objects are sorted by name. Strings are not normalized (as by NFC), because a model may read two
encodings of the same letter differently. Numbers of the same value have the same text: ``1``, ``1.0`` and ``1e0`` (as
in RFC 8785, but integers of any size stay exact). A boolean is never equal to a number.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_write: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode

_DIGITS: Final = 16
"""Integers with more digits are written in base 16, because Python is slow to write large ones in base 10."""

_PERHAPS_A_NUMBER_TO_REWRITE: Final = re.compile(rf"[0-9][.eE]|[0-9]{{{_DIGITS + 1}}}|NaN|Infinity")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_text(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical_text(value: Any) -> str:
    """Return the canonical text of a JSON value, which is JSON itself except for very large integers.

    Parts that are not JSON are written as their `repr`. The nesting depth is not limited, but a value must not contain
    itself: its text would never end.
    """
    # The encoder of the standard library is fast, but it recurses and does not normalize numbers. Use it where neither
    # matters.
    try:
        text = _write(value)
    except (RecursionError, TypeError, ValueError):
        return _walked(value)
    return _walked(value) if _PERHAPS_A_NUMBER_TO_REWRITE.search(text) else text


_Piece = tuple[bool, Any]
"""True and a finished text, or False and a value that must still be written."""


def _walked(value: Any) -> str:
    """Write a value without recursion."""
    written: list[str] = []
    pending: list[_Piece] = [(False, value)]
    while pending:
        is_text, each = pending.pop()
        if is_text:
            written.append(each)
        elif isinstance(each, Mapping):
            # Sort by the text of the key, because keys of different types cannot be compared.
            members = sorted(each.items(), key=lambda member: str(member[0]))
            pieces = [[(True, _scalar(key)), (True, ":"), (False, member)] for key, member in members]
            pending += _reversed("{", pieces, "}")
        elif isinstance(each, (list, tuple)):
            pending += _reversed("[", [[(False, item)] for item in each], "]")
        else:
            written.append(_scalar(each))
    return "".join(written)


def _reversed(opening: str, parts: Iterable[list[_Piece]], closing: str) -> list[_Piece]:
    """Return the pieces of an object or array in reverse order, for a stack."""
    pieces: list[_Piece] = [(True, opening)]
    for place, part in enumerate(parts):
        pieces += [(True, ","), *part] if place else part
    pieces.append((True, closing))
    return pieces[::-1]


def _scalar(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**_DIGITS else hex(value)
    if value is None or isinstance(value, (str, bool, float)):
        return _write(value)
    return repr(value)
