"""A JSON schema that a server sent, ready to be checked against.

It comes from outside, so nothing about it is believed: it may be no schema, refer to what is not there, hold a pattern
that cannot be read here, or take years. What cannot be checked is not checked, and no call fails for it. And nothing is
ever fetched: a ``$ref`` that leads out of the schema is one that leads nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from pydantic_core import to_json

from ..._plain_text import plain_text
from ._dialects import BoundedDialect, TakesTooLong
from ._violations import Violation, violation_of

__all__ = ["Schema"]

logger = logging.getLogger("mcp_actors.catalog")

_ENOUGH: Final = 50  # errors to look at: the best of them is told, and how many there are
_REASON: Final = 200  # characters of why a schema cannot be used

_LARGEST: Final = 1024 * 1024
"""Bytes of JSON of a value that is checked. Errors about larger ones take too long to make."""


class Schema:
    """One schema, compiled when it is first needed: that costs a thousand times what a check does.

    The dialect is the one that ``$schema`` names, 2020-12 if it names none. ``format`` is not checked, as the
    specification has it.

    Args:
        document: the schema.
        owner: whose schema it is, for the log: ``"server 'docs': tool 'find': its input schema"``.
    """

    def __init__(self, document: Any, owner: str) -> None:
        self._document = document
        self._owner = owner
        self._compiled: Any = None  # a validator of jsonschema; False: there can be none
        self._dialect: BoundedDialect | None = None
        self._complained = False

    @property
    def used(self) -> bool:
        """Whether anything was checked against it yet, so that keeping it saves work."""
        return self._compiled is not None

    def violation(self, value: Any) -> tuple[Violation, int] | None:
        """Return what is wrong with a JSON value, and how many things are, up to 50; None if nothing is known to be."""
        try:
            try:
                return self._look(value)
            except TakesTooLong:
                # Once, the garbage collector may have taken the time; and what took too long is never tried again.
                return self._look(value)
        except Exception as exc:  # whatever a foreign schema can lead to, deep recursion included
            if isinstance(exc, TakesTooLong) or self._compiled is None:
                self._compiled = False
            reason = f"{type(exc).__name__}: {getattr(exc, 'message', exc)}"
            self._complain("cannot be used, so nothing is checked against it", reason)
            return None

    def _look(self, value: Any) -> tuple[Violation, int] | None:
        if self._compiled is None:
            self._dialect = BoundedDialect(_dialect_of(self._document))
            self._compiled = self._dialect.compiled(self._document)
        if self._compiled is False or self._dialect is None:
            return None
        return self._found(value, self._dialect)

    def _found(self, value: Any, dialect: BoundedDialect) -> tuple[Violation, int] | None:
        if len(to_json(value)) > _LARGEST:
            raise ValueError(f"a value of more than {_LARGEST} bytes")
        dialect.begin()
        errors = list(islice(self._compiled.iter_errors(value), _ENOUGH))
        if dialect.unmatched:
            self._complain("has patterns that are not checked", ", ".join(sorted(dialect.unmatched)))
            dialect.unmatched.clear()
        return _best(errors) if errors else None

    def _complain(self, problem: str, reason: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s %s (%s)", self._owner, problem, plain_text(reason, limit=_REASON))


def _dialect_of(document: Any) -> Any:
    """Return the validator class of jsonschema for the dialect that a schema names."""
    # Imported when the first schema is checked: who never does that should not wait for it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(document, default=Draft202012Validator)


def _best(errors: list[Any]) -> tuple[Violation, int]:
    from jsonschema.exceptions import best_match

    return violation_of(best_match(errors)), len(errors)


def required_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that an object must have, as far as that is said at the schema's top, and can be read."""
    required = schema.get("required")
    if not isinstance(required, (list, tuple)):
        return ()
    return tuple(name for name in required if isinstance(name, str))
