"""Describe a violation of a schema in words.

The messages of `jsonschema` contain the whole value and the whole schema. A value may be megabytes long, or a password,
so here only its kind and size are named. The value itself is shown, shortened, if one of several words was expected or
if a number is out of range. Texts of the schema are shortened too, because a foreign server has written them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import attrs

from ..._text import plain_text
from ._patterns import Patterns

Path = tuple[str | int, ...]
"""Member names and array indices from the outside inwards; ``()`` is the whole value."""

_SHOWN: Final = 40  # characters of a name, value or rule: enough to recognize it
_LISTED: Final = 8  # names or values of a list


@attrs.frozen
class Violation:
    """One violation in a JSON value.

    Attributes:
        path: the place of the value.
        found: the problem: ``"is a string"``.
        expected: the expectation: ``"an integer"``, or None if `found` is clear on its own.
    """

    path: Path
    found: str
    expected: str | None = None


class BrokenRule(Protocol):
    """The attributes of ``jsonschema.ValidationError`` that are used here."""

    @property
    def absolute_path(self) -> Iterable[str | int]:
        """The path of the value."""

    @property
    def absolute_schema_path(self) -> Iterable[str | int]:
        """The path of the rule in the schema."""

    @property
    def instance(self) -> Any:
        """The value."""

    @property
    def validator(self) -> Any:
        """The keyword of the rule; None if the schema is ``false``."""

    @property
    def validator_value(self) -> Any:
        """The value of the keyword."""

    @property
    def schema(self) -> Any:
        """The schema that contains the rule."""


def violation_of(error: BrokenRule, mask: Callable[[str], str] = str) -> Violation:
    """Return the meaning of an error, for a reader who does not know the schema.

    Args:
        error: a ``jsonschema.ValidationError``.
        mask: masks credentials in names and values, before they are shortened. The path stays as it is.
    """
    path, value, rule = tuple(error.absolute_path), error.instance, error.validator_value
    match error.validator:
        case "required" if isinstance(rule, list):
            return Violation((*path, next(name for name in rule if name not in value)), "is missing")
        case "additionalProperties" if rule is False:
            known = [mask(name) for name in error.schema.get("properties", ())]
            return Violation((*path, _odd(error)), "is not known", listed(known, "one of ") if known else "nothing")
    where = tuple(error.absolute_schema_path)
    if where[-2:-1] == ("propertyNames",) and where[-3:-2] != ("properties",) and isinstance(value, str):
        path = (*path, value)  # the name of a member is invalid
    if isinstance(value, str) and error.validator == "enum":  # of other texts only the size or kind is shown
        value = mask(value)
    return Violation(path, *_phrases(error.validator, value, _masked(rule, mask)))


def _masked(rule: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(rule, list):
        return [mask(each) if isinstance(each, str) else each for each in rule]
    return mask(rule) if isinstance(rule, str) else rule


def _odd(error: BrokenRule) -> str:
    """Return the name of a member that is not allowed."""
    known, patterns = error.schema.get("properties", ()), error.schema.get("patternProperties", ())
    odd: Iterable[str] = (name for name in error.instance if name not in known)
    match = Patterns().match
    return next(name for name in odd if all(match(each, name) is False for each in patterns))


def _phrases(keyword: Any, value: Any, rule: Any) -> tuple[str, str | None]:
    """Return the problem and the expectation for a rule about the value itself."""
    if keyword in _WORDS:
        return _WORDS[keyword](value, rule)
    return f"is {kind_of(value)} that violates the rule {_shown(keyword)}", _clipped(f"{keyword}: {_shown(rule)}")


def _alternatives(value: Any, alternatives: list[Any]) -> tuple[str, str]:
    kinds = [_kinds(each["type"]) if isinstance(each, dict) and "type" in each else None for each in alternatives]
    known = list(dict.fromkeys(kind for some in kinds if some is not None for kind in some))
    if None in kinds or kind_of(value) in known:
        return f"is {kind_of(value)} that does not fit", f"one of {len(alternatives)} alternatives of the schema"
    return f"is {kind_of(value)}", " or ".join(known)


def _bounded(words: str) -> Callable[[Any, Any], tuple[str, str]]:
    return lambda value, rule: (f"is {_shown(value)}", f"{words} {_shown(rule)}")


def _sized(words: str) -> Callable[[Any, Any], tuple[str, str]]:
    return lambda value, rule: (f"has {_size_of(value)}", f"{words} {_shown(rule)}")


_WORDS: Final[dict[Any, Callable[[Any, Any], tuple[str, str | None]]]] = {
    "type": lambda value, rule: (f"is {kind_of(value)}", " or ".join(_kinds(rule))),
    "enum": lambda value, rule: (f"is {_shown(value)}", listed(rule, "one of ")),
    "const": lambda value, rule: (f"is {kind_of(value)}", f"exactly {_shown(rule)}"),
    "pattern": lambda value, rule: ("does not match", f"a string that matches {_clipped(rule)}"),
    "minimum": _bounded("at least"),
    "maximum": _bounded("at most"),
    "exclusiveMinimum": _bounded("more than"),
    "exclusiveMaximum": _bounded("less than"),
    "multipleOf": _bounded("a multiple of"),
    "minLength": _sized("at least"),
    "maxLength": _sized("at most"),
    "minItems": _sized("at least"),
    "maxItems": _sized("at most"),
    "minProperties": _sized("at least"),
    "maxProperties": _sized("at most"),
    "anyOf": _alternatives,
    "oneOf": _alternatives,
    "not": lambda value, rule: ("is not allowed", None),
    # The schema is `false`, and jsonschema does not report for which member.
    None: lambda value, rule: ("contains what is not allowed", None),
}


# --- words ----------------------------------------------------------------------------------------------------------


def dotted(root: str, path: Path) -> str:
    """Return a path as people write it: ``arguments.filter.rows[0].id``."""
    return root + "".join(_step(each) for each in path)


def _step(each: str | int) -> str:
    if isinstance(each, str) and each.isidentifier() and len(each) <= _SHOWN:
        return f".{each}"
    return f"[{_clipped(repr(each))}]"


def kind_of(value: object) -> str:
    """Return the kind of a JSON value: ``"a string"``, ``"null"``; for other values, the Python type."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    return _KINDS.get(type(value)) or f"a Python {type(value).__name__}"


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "an array",
    tuple: "an array",
}


def _size_of(value: Any) -> str:
    """Return the size of a JSON string, array or object: ``"3 characters"``."""
    unit = "character" if isinstance(value, str) else "member" if isinstance(value, dict) else "item"
    return f"{len(value)} {unit}{'' if len(value) == 1 else 's'}"


def _shown(value: object) -> str:
    """Return a scalar as written, shortened, and the kind of anything else."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _clipped(repr(value)) if isinstance(value, (int, float, str)) else kind_of(value)


def listed(values: Sequence[Any], prefix: str = "") -> str:
    """Return the first values for a sentence: ``"one of 'a', 'b' and 3 more"``."""
    some = ", ".join(_shown(value) for value in values[:_LISTED])
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return f"{prefix if len(values) > 1 else ''}{some}{more}"


def _clipped(text: str) -> str:
    return plain_text(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _kinds(rule: Any) -> list[str]:
    """Return the types that a rule allows, for a sentence: ``["an integer", "null"]``."""
    kinds = [rule] if isinstance(rule, str) else rule
    return ["null" if kind == "null" else f"{'an' if kind[:1] in 'aeiou' else 'a'} {_clipped(kind)}" for kind in kinds]
