"""Validate with any dialect of JSON schema within a time limit.

A schema comes from a server and is not trusted. A small one can take very long to check: by a pattern that backtracks,
by nested ``anyOf``, by ``uniqueItems`` on a long array. So ``pattern``, ``patternProperties``, ``additionalProperties``
and ``uniqueItems`` are implemented here, and every keyword first checks whether time is left. The limit also holds for
the check of the schema itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import thread_time
from typing import Any, Final

import attrs

from ..._text import walk
from ..values import canonical_text
from ._patterns import Patterns

SECONDS: Final = 0.1
"""Processor time for one check, of a value or of the schema itself. A value with a thousand members takes a fraction of
it; a schema with several hundred properties can exceed it."""

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""A function of `jsonschema` for a keyword, of the validator, the keyword's value, the instance and the schema."""


class TakesTooLong(Exception):
    """A check exceeded its time limit."""


class BoundedDialect:
    """Makes validators with a time limit, for one schema in one dialect (a version of JSON schema, such as 2020-12).

    Args:
        dialect: a validator class of `jsonschema`.

    Attributes:
        unmatched: the patterns that could not be applied: unsupported or too large, or met by a text that is too long.
            The rules that depend on them are not checked. The caller reports and clears them.
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
            jsonschema.SchemaError: it is not a valid schema.
            ValueError: parts of it are in another dialect, which would have no time limit.
            TakesTooLong: validating the schema itself exceeded the time limit.
        """
        from jsonschema import SchemaError
        from jsonschema_specifications import REGISTRY
        from referencing import Registry

        self.begin()
        document = _in_one_dialect(document)
        known: Any = REGISTRY  # a mapping of URIs to resources
        bare = ((uri, attrs.evolve(each, contents=_without_dialect(each.contents))) for uri, each in known.items())
        # jsonschema runs a schema that has a `$schema` with its own classes, which have no time limit. So it is removed
        # here and from the meta-schemas. The registry is crawled, so that their anchors resolve to these copies and not
        # to the originals in jsonschema.
        meta_schemas: Any = Registry().with_resources(bare).crawl()
        meta = self._class(_without_dialect(self._meta_schema), registry=meta_schemas)
        for error in meta.iter_errors(document):
            raise SchemaError(error.message)
        # Pass an empty registry: without one jsonschema fetches the URL of a `$ref`, from wherever a server points it.
        return self._class(document, registry=Registry())

    def begin(self) -> None:
        """Start the time limit of a check."""
        self._until = thread_time() + SECONDS

    def _timed(self, keyword: Keyword) -> Keyword:
        def timed(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
            if thread_time() > self._until:
                raise TakesTooLong(f"a check takes more than {SECONDS} s")
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
    """Return a schema without its ``$schema``, with which jsonschema would choose a class of its own."""
    return {name: part for name, part in schema.items() if name != "$schema"} if isinstance(schema, Mapping) else schema


def _in_one_dialect(document: Any) -> Any:
    """Return a schema without ``$schema``.

    Raises:
        ValueError: there is a nested ``$schema``, or a combination of keywords that the time limit cannot cover.
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
