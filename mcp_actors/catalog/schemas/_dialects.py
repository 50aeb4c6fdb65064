"""The dialects of JSON schema, run in a time that no schema can choose.

A schema is a program, and a foreign one here. A kilobyte of it can take years: a pattern that goes back and tries
again, alternatives within alternatives, a comparison of each item with each. So the keywords that compare and match are
our own, and every keyword, of whomever, looks at the clock first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import thread_time
from typing import Any, Final

import attrs

from ..._json_walk import walk
from ..values import canonical_text
from ._patterns import Patterns

__all__ = ["BoundedDialect", "TakesTooLong"]

SECONDS: Final = 0.1
"""Processor time for one check. A thousand arguments take a fraction of it."""

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""What `jsonschema` calls for a keyword: with the validator, the keyword's value, the value, the schema around."""


class TakesTooLong(Exception):
    """A check was given up."""


class BoundedDialect:
    """One dialect, for one schema.

    Args:
        dialect: a validator class of `jsonschema`.

    Attributes:
        unmatched: the patterns of which it was not known whether they match. To be emptied by whoever tells of them.
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
        """Return a validator of a schema.

        Raises:
            jsonschema.SchemaError: it is no schema.
            ValueError: it has parts in another dialect, which would not be bounded.
            TakesTooLong: to find out takes too long.
        """
        from jsonschema import SchemaError
        from jsonschema_specifications import REGISTRY
        from referencing import Registry

        self.begin()
        document = _in_one_dialect(document)
        known: Any = REGISTRY  # a mapping of URIs to resources
        bare = ((uri, attrs.evolve(each, contents=_without_dialect(each.contents))) for uri, each in known.items())
        # Crawled, so that none of its anchors leads to what jsonschema knows itself.
        meta_schemas: Any = Registry().with_resources(bare).crawl()
        meta = self._class(_without_dialect(self._meta_schema), registry=meta_schemas)
        for error in meta.iter_errors(document):
            raise SchemaError(error.message)
        # Without a registry jsonschema would fetch what a `$ref` names.
        return self._class(document, registry=Registry())

    def begin(self) -> None:
        """A check begins."""
        self._until = thread_time() + SECONDS

    def _timed(self, keyword: Keyword) -> Keyword:
        def timed(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
            if thread_time() > self._until:
                raise TakesTooLong(f"a check takes more than {SECONDS} s")
            yield from keyword(validator, rule, value, schema) or ()

        return timed

    # --- keywords ---------------------------------------------------------------------------------------------------

    def _pattern(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not self._matches(rule, value):
            yield _error("does not match")

    def _pattern_properties(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            for pattern, inner in rule.items():
                for name, member in value.items():
                    if self._patterns.match(pattern, name):
                        yield from validator.descend(member, inner, path=name, schema_path=pattern)

    def _additional_properties(self, validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, Mapping):
            return
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name in value:
            if name not in known and not any(self._matches(pattern, name) for pattern in patterns):
                if rule is False:
                    yield _error("is not known")
                    return
                yield from validator.descend(value[name], rule, path=name)

    def _matches(self, pattern: str, text: str) -> bool:
        """Whether a pattern matches a text, or may do so."""
        found = self._patterns.match(pattern, text)
        if found is None:
            self.unmatched.add(pattern)
        return found is not False


def _unique_items(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
    if rule and isinstance(value, list) and len(set(map(canonical_text, value))) < len(value):
        yield _error("has items that are equal")


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


# --- schemas --------------------------------------------------------------------------------------------------------


def _without_dialect(schema: Any) -> Any:
    """Return a schema that does not say which dialect it is in: what says so is taken out of our hands."""
    return {name: part for name, part in schema.items() if name != "$schema"} if isinstance(schema, Mapping) else schema


def _in_one_dialect(document: Any) -> Any:
    """Return a schema that says nothing of dialects, at its top or below.

    Raises:
        ValueError: it does so below, or has parts that cannot be bounded.
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
