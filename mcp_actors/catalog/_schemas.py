"""Check values against JSON schemas within a time limit; describe violations.

A schema from a server may be invalid, refer to URLs, contain a hostile pattern, or take years to check. So each check
has a time limit, and nothing is fetched. If a schema cannot be used, its values pass unchecked.

Owns: compiled schemas; compiled patterns; cached meta-schemas.
Writes: the log.
Calls: _tools.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import attrs
from pydantic_core import SchemaError, SchemaValidator, core_schema, to_json

from .._foreign import Log
from .._json import walk
from .._text import plain_text, some_of
from ._tools import canonical_text

if TYPE_CHECKING:
    from jsonschema import ValidationError

# --- Patterns ---------------------------------------------------------------------------------------------------------

# The regular expressions of the standard library backtrack: a hostile pattern stops the whole program for hours, and
# nothing can interrupt a match. With `pydantic_core` a match takes time proportional to the length of the pattern times
# the length of the text, both limited here. No text is checked against a pattern with look-around or group references.


MAX_WEIGHT: Final = 5_000
"""Maximum product of a pattern's length and its counts ``{…}``."""

MAX_TEXT: Final = 10_000
"""Maximum characters of a text. The heaviest pattern takes a tenth of a second."""

_COUNT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


class Patterns:
    def __init__(self) -> None:
        self._known: dict[str, SchemaValidator | None] = {}

    def match(self, pattern: str, text: str) -> bool | None:
        """Return whether a pattern matches anywhere in a text; None if it cannot be applied."""
        if pattern not in self._known:
            self._known[pattern] = _compiled(pattern)
        compiled = self._known[pattern]
        if compiled is None or len(text) > MAX_TEXT:
            return None
        return compiled.isinstance_python(text)


def _compiled(pattern: str) -> SchemaValidator | None:
    counts = (max(1, *(int(number or 1) for number in found)) for found in _COUNT.findall(pattern[:MAX_WEIGHT]))
    if len(pattern) * math.prod(counts) > MAX_WEIGHT:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


# --- Describe a violation ---------------------------------------------------------------------------------------------

# The messages of `jsonschema` contain the whole schema and the whole value. Here a value is shown, shortened, only if
# one of several words was expected or a number is out of range; else its kind and size.


Path = tuple[str | int, ...]
"""Member names and array indices from the outside inwards; ``()`` is the whole value."""

_SHOWN: Final = 40  # characters of a name, value or rule
_LISTED: Final = 8  # names or values of a list


@attrs.frozen
class Violation:
    """A violation.

    Attributes:
        path: the place of the value.
        found: the problem: ``"is a string"``.
        expected: the expectation: ``"an integer"``, or None if `found` is clear alone.
    """

    path: Path
    found: str
    expected: str | None = None


def violation_of(error: ValidationError, mask: Callable[[str], str] = str) -> Violation:
    """Describe an error for a reader who does not know the schema.

    `mask` masks credentials in names and values, before shortening, but not in the path.
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
    if isinstance(value, str) and error.validator == "enum":  # of any other text, only size or kind is shown
        value = mask(value)
    rule = _masked(rule, mask)
    if error.validator in _WORDS:
        return Violation(path, *_WORDS[error.validator](value, rule))
    broken = f"is {kind_of(value)} that violates the rule {_shown(error.validator)}"
    return Violation(path, broken, _clipped(f"{error.validator}: {_shown(rule)}"))


def _masked(rule: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(rule, list):
        return [mask(each) if isinstance(each, str) else each for each in rule]
    return mask(rule) if isinstance(rule, str) else rule


def _odd(error: ValidationError) -> str:
    known, patterns = error.schema.get("properties", ()), error.schema.get("patternProperties", ())
    odd: Iterable[str] = (name for name in error.instance if name not in known)
    match = Patterns().match
    return next(name for name in odd if all(match(each, name) is False for each in patterns))


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
    # For a schema of `false`, jsonschema does not report which member it is for.
    None: lambda value, rule: ("contains what is not allowed", None),
}


# --- words ----------------------------------------------------------------------------------------------------------


def dotted(root: str, path: Path) -> str:
    """Return a path for people: ``arguments.filter.rows[0].id``."""
    return root + "".join(_step(each) for each in path)


def _step(each: str | int) -> str:
    if isinstance(each, str) and each.isidentifier() and len(each) <= _SHOWN:
        return f".{each}"
    return f"[{_clipped(repr(each))}]"


JSON_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
"""Type of a value → its name in a schema."""


def kind_of(value: object) -> str:
    """Return the kind of a JSON value (``"a string"``, ``"null"``), or a Python type."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    return _JSON_KINDS.get(type(value)) or f"a Python {type(value).__name__}"


def _size_of(value: Any) -> str:
    unit = "character" if isinstance(value, str) else "member" if isinstance(value, dict) else "item"
    return f"{len(value)} {unit}{'' if len(value) == 1 else 's'}"


def _shown(value: object) -> str:
    """Return a scalar as written, shortened, and the kind of anything else."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _clipped(repr(value)) if isinstance(value, (int, float, str)) else kind_of(value)


def listed(values: Sequence[Any], prefix: str = "") -> str:
    """Return the first values: ``"one of 'a', 'b' and 3 more"``."""
    return f"{prefix if len(values) > 1 else ''}{some_of(values, _LISTED, _shown)}"


def _clipped(text: str) -> str:
    return plain_text(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _kinds(rule: Any) -> list[str]:
    """Return the types allowed by a rule: ``["an integer", "null"]``."""
    kinds = [rule] if isinstance(rule, str) else rule
    return ["null" if kind == "null" else f"{'an' if kind[:1] in 'aeiou' else 'a'} {_clipped(kind)}" for kind in kinds]


_JSON_KINDS: Final = {kind: _kinds(name)[0] for kind, name in JSON_TYPES.items()} | {tuple: "an array"}


# --- Validate within a time limit -------------------------------------------------------------------------------------

# A small schema can take very long to check: by a pattern, nested ``anyOf``, or ``uniqueItems`` on a long array. A
# check is one step of the event loop, which cannot be cancelled. So every keyword first looks at the clock, also when
# the schema itself is checked, and the keywords that could be slow in one step are implemented here.


CHECK_SECONDS: Final = 0.1
"""Processor time for one check, of a value or of a schema. A schema with several hundred properties can exceed it."""

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""A function of `jsonschema`. Takes the validator, the keyword's value, the instance and the schema."""


class TakesTooLong(Exception):
    """A check exceeded its time limit."""


class BoundedDialect:
    """Makes validators with a time limit, for one schema in one dialect (a version of JSON schema).

    Attributes:
        unmatched: patterns that could not be applied: unsupported, too large, or met by too long a text. Rules with
            these are not checked. The caller reports and clears them.
    """

    def __init__(self, dialect: Any) -> None:
        from jsonschema.validators import extend

        self.unmatched: set[str] = set()
        self._meta_schema = dialect.META_SCHEMA
        self._patterns = Patterns()
        self._until = 0.0
        own = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": _unique_items,
        }
        keywords = {name: own.get(name, keyword) for name, keyword in dialect.VALIDATORS.items()}
        self._class: Any = extend(dialect, {name: self._timed(keyword) for name, keyword in keywords.items()})

    def compiled(self, document: Any) -> Any:
        """Return a validator for a schema.

        Raises:
            jsonschema.SchemaError: the schema is not valid.
            ValueError: parts are in another dialect, which would have no time limit.
            TakesTooLong: validating the schema itself exceeded the limit.
        """
        from jsonschema import SchemaError
        from referencing import Registry

        meta = self._class(_without_dialect(self._meta_schema), registry=_meta_schemas())
        self.begin()
        document = _in_one_dialect(document)
        for error in meta.iter_errors(document):
            raise SchemaError(error.message)
        # The registry is empty: without one, jsonschema would fetch the URL of a `$ref`, wherever a server points it.
        return self._class(document, registry=Registry())

    def begin(self) -> None:
        """Start the time limit of a check."""
        self._until = thread_time() + CHECK_SECONDS

    def _timed(self, keyword: Keyword) -> Keyword:
        def timed(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
            if thread_time() > self._until:
                raise TakesTooLong(f"a check takes more than {CHECK_SECONDS} s")
            yield from keyword(validator, rule, value, schema) or ()

        return timed

    # --- keywords ---------------------------------------------------------------------------------------------------

    def _pattern(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and self._match(rule, value) is False:
            yield _error("does not match")

    def _pattern_properties(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            for pattern, inner in rule.items():
                for name, member in value.items():
                    if self._match(pattern, name):
                        yield from validator.descend(member, inner, path=name, schema_path=pattern)

    def _additional_properties(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, Mapping):
            return
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name in value:
            if name not in known and all(self._match(pattern, name) is False for pattern in patterns):
                if rule is False:
                    yield _error("is not known")
                    return
                yield from validator.descend(value[name], rule, path=name)

    def _match(self, pattern: str, text: str) -> bool | None:
        """Return whether a pattern matches a text; None, and note the pattern, if it cannot be applied."""
        found = self._patterns.match(pattern, text)
        if found is None:
            self.unmatched.add(pattern)
        return found


def _unique_items(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
    if rule and isinstance(value, list) and len(set(map(canonical_text, value))) < len(value):
        yield _error("has items that are equal")


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


# --- schemas --------------------------------------------------------------------------------------------------------


def _without_dialect(schema: Any) -> Any:
    """Return a schema without ``$schema``: jsonschema would choose a class by it, without a time limit."""
    return {name: part for name, part in schema.items() if name != "$schema"} if isinstance(schema, Mapping) else schema


@cache
def _meta_schemas() -> Any:
    """Return the schemas of all dialects, without ``$schema``; slow, hence cached.

    Crawled, so that anchors resolve to these copies, not to the originals in jsonschema.
    """
    from jsonschema_specifications import REGISTRY
    from referencing import Registry

    known: Any = REGISTRY  # a mapping of URIs to resources
    bare = ((uri, attrs.evolve(each, contents=_without_dialect(each.contents))) for uri, each in known.items())
    return Registry().with_resources(bare).crawl()


def _in_one_dialect(document: Any) -> Any:
    """Return a schema without ``$schema``.

    Raise ValueError for a nested ``$schema``, or two keywords that no limit covers together.
    """
    bare = _without_dialect(document)
    keywords: set[str] = set()
    for part, _ in walk(bare):
        if isinstance(part, Mapping):
            if isinstance(part.get("$schema"), str):
                raise ValueError("it has a nested $schema")
            keywords.update(part.keys() & {"patternProperties", "unevaluatedProperties"})
    if len(keywords) > 1:
        raise ValueError("it has both patternProperties and unevaluatedProperties")
    return bare


# --- Check values -----------------------------------------------------------------------------------------------------


logger = Log("mcp_actors.catalog")

_LARGEST: Final = 1024 * 1024
"""Maximum bytes of JSON of a value to check. Making errors about larger values takes too long."""


class Schema:
    """A schema, compiled at the first use.

    The dialect is that of ``$schema``, by default 2020-12. ``format`` is not checked, as the specification says.

    Args:
        document: the schema.
        owner: the owner for the log: ``"server 'docs': tool 'find': its input schema"``.
        mask: masks credentials in the text of the server.
    """

    def __init__(self, document: Any, owner: str, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._document = document
        self._owner = owner
        self._compiled: Any = None  # a validator of jsonschema; False if unusable
        self._dialect: BoundedDialect | None = None
        self._complained = False

    @property
    def used(self) -> bool:
        return self._compiled is not None

    def violation(self, value: Any) -> tuple[Violation, int] | None:
        """Return the most relevant violation in a JSON value and the number of all, up to 50; None without any."""
        try:
            try:
                return self._look(value)
            except TakesTooLong:
                # Try once more: the garbage collector may have used up the time, and a false alarm would switch the
                # check off for good. A second failure marks the schema as unusable, so that it cannot delay every call.
                return self._look(value)
        except Exception as exc:  # of a foreign schema, also a RecursionError
            if isinstance(exc, TakesTooLong) or self._compiled is None:
                self._compiled = False
            reason = f"{type(exc).__name__}: {getattr(exc, 'message', exc)}"
            self._complain("cannot be used, so nothing is checked against it", reason)
            return None

    def _look(self, value: Any) -> tuple[Violation, int] | None:
        from jsonschema.exceptions import best_match

        if self._compiled is None:
            # These imports are slow; programs that never check a schema do not wait for them.
            from jsonschema import Draft202012Validator
            from jsonschema.validators import validator_for

            self._dialect = BoundedDialect(validator_for(self._document, default=Draft202012Validator))
            self._compiled = self._dialect.compiled(self._document)
        if self._compiled is False or self._dialect is None:
            return None
        if len(to_json(value)) > _LARGEST:
            raise ValueError(f"a value of more than {_LARGEST} bytes")
        self._dialect.begin()
        errors = list(islice(self._compiled.iter_errors(value), 50))
        if self._dialect.unmatched:
            self._complain("has patterns that are not checked", ", ".join(sorted(self._dialect.unmatched)))
            self._dialect.unmatched.clear()
        return (violation_of(best_match(errors), self._mask), len(errors)) if errors else None

    def _complain(self, problem: str, reason: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s %s (%s)", self._owner, problem, plain_text(self._mask(reason), limit=200))


def required_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the required members at the top level; an invalid list counts as empty."""
    required = schema.get("required")
    if not isinstance(required, (list, tuple)):
        return ()
    return tuple(name for name in required if isinstance(name, str))


_OPEN: Final = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")
"""Keywords at the top level that define members elsewhere in the schema."""


def members_named_by(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the members named at the top level of a schema; None if more are possible."""
    properties, more = schema.get("properties"), schema.get("additionalProperties", False)
    if not isinstance(properties, Mapping) or more is not False or any(each in schema for each in _OPEN):
        return None
    return frozenset(properties)


def may_name(schema: Mapping[str, Any], member: str) -> bool:
    if not any(each in schema for each in _OPEN):
        return member in (schema.get("properties") or ())
    parts = (part for part, _ in walk(schema) if isinstance(part, Mapping))
    return any(member in (part.get("properties") or ()) or "patternProperties" in part for part in parts)
