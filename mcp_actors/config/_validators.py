"""Checks that several configuration classes share, and the one way in which they refuse a value.

A refusal says who (the class, or the server by its name), which field, what was given and what to give instead.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final

import attrs

from .._checks import is_number, is_whole
from .._errors import ConfigError

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]

_SHOWN: Final = 60  # characters of a refused value in a message: enough to recognize it, short enough for one line

_LONGEST_INT: Final = 256  # bits; more digits than are shown anyway


def shown(value: object) -> str:
    """Return `value` for a message: scalars as written, shortened; of anything else only the type.

    An object's repr may be long, and may hold what must not be shown.
    """
    if isinstance(value, float) or value is None:
        return repr(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return f"<int of {value.bit_length()} bits>"  # Python refuses to write the longest ones
    if isinstance(value, (str, int)):
        text = repr(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"<{type(value).__name__}>"


def a_type(value: object) -> str:
    """Return what kind of thing `value` is, for a sentence: ``"an int"``, ``"a list"``, ``"None"``."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"


def refused(owner: str, field: str, problem: str) -> ConfigError:
    """Return the error for a field of a class that does not know which server it belongs to."""
    return ConfigError(f"{owner}: {problem}", source=owner, path=field)


def refused_value(instance: Any, field: str, value: object, remedy: str) -> ConfigError:
    """Return the error for ``field=value`` of `instance`, which is named by its server if it has a name."""
    return refused_text(instance, field, shown(value), remedy)


def refused_text(instance: Any, field: str, text: str, remedy: str) -> ConfigError:
    """Do as `refused_value` does, for a value that must be shown in a form of its own."""
    owner = type(instance).__name__
    problem = f"{field}={text} is not valid; {remedy}"
    server = getattr(instance, "name", None)
    if server is None:
        return refused(owner, field, problem)
    return ConfigError(f"server {server!r}: {problem}", source=owner, path=f"servers.{server}.{field}")


def is_positive(value: Any, *, unlimited: bool = False) -> bool:
    """Return whether `value` is a positive number; infinity counts only if `unlimited`, NaN never does."""
    highest = math.inf if unlimited else sys.float_info.max
    return is_number(value) and 0 < value <= highest


def seconds(*, unlimited: bool = False, optional: bool = False) -> Validator:
    """Make a validator for a positive number of seconds; infinity and None only if asked for."""
    remedy = (
        "give a positive number of seconds, or math.inf" if unlimited else "give a positive, finite number of seconds"
    )
    remedy += ", or None" if optional else ""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not (optional and value is None) and not is_positive(value, unlimited=unlimited):
            raise refused_value(instance, attribute.name, value, remedy)

    return check


def count(lowest: int, remedy: str, *, highest: float = math.inf) -> Validator:
    """Make a validator for an int (never a bool) from `lowest` to `highest`."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not is_whole(value, lowest) or value > highest:
            raise refused_value(instance, attribute.name, value, remedy)

    return check


def one_of(*choices: str) -> Validator:
    """Make a validator for one of a few words."""
    remedy = "choose " + " or ".join(repr(choice) for choice in choices)

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, str) or value not in choices:
            raise refused_value(instance, attribute.name, value, remedy)

    return check


def flag(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse everything but True and False: ``enabled="no"`` would count as true."""
    if not isinstance(value, bool):
        raise refused_value(instance, attribute.name, value, "give True or False")


def kind(*types: type, remedy: str) -> Validator:
    """Make a validator for an instance of one of `types`. What is refused is shown by its type only."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, types):
            # Also of a str only the type: it may be a URL with a password, given where a transport belongs.
            raise refused_text(instance, attribute.name, f"<{type(value).__name__}>", remedy)

    return check
