"""Check values against a JSON schema that a server sent.

The schema is untrusted: it may be invalid, have broken references, contain a pattern that is not supported, or run for
years. A part that cannot be checked is skipped, and no call fails because of it. Nothing is ever fetched: a ``$ref`` to
another document is a broken reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from pydantic_core import to_json

from ..._foreign import Log
from ..._text import plain_text
from ._dialects import BoundedDialect, TakesTooLong
from ._violations import Violation, violation_of

logger = Log("mcp_actors.catalog")

_ENOUGH: Final = 50  # errors to collect; the most relevant one is reported, with their number
_REASON: Final = 200  # characters of the reason why a schema cannot be used

_LARGEST: Final = 1024 * 1024
"""Bytes of JSON of a value that is checked. Making errors about larger ones takes too long."""


class Schema:
    """One schema, compiled when it is first used, because compiling costs a thousand times as much as a check.

    The dialect is that of ``$schema``, by default 2020-12. ``format`` is not checked, as the specification says.

    Args:
        document: the schema.
        owner: the owner of the schema for the log: ``"server 'docs': tool 'find': its input schema"``.
        mask: masks credentials in the text of the server. Default: none are known.
    """

    def __init__(self, document: Any, owner: str, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._document = document
        self._owner = owner
        self._compiled: Any = None  # a validator of jsonschema; False: there can be none
        self._dialect: BoundedDialect | None = None
        self._complained = False

    @property
    def used(self) -> bool:
        """True once the schema has been compiled, so that keeping it saves work."""
        return self._compiled is not None

    def violation(self, value: Any) -> tuple[Violation, int] | None:
        """Return the most relevant violation in a JSON value and their number, up to 50; None without any."""
        try:
            try:
                return self._look(value)
            except TakesTooLong:
                # Try once more: the garbage collector may have used up the time. After a second failure the schema is
                # marked as unusable below, so that a slow one cannot delay every call.
                return self._look(value)
        except Exception as exc:  # a foreign schema may cause anything, also a RecursionError
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
        from jsonschema.exceptions import best_match

        if len(to_json(value)) > _LARGEST:
            raise ValueError(f"a value of more than {_LARGEST} bytes")
        dialect.begin()
        errors = list(islice(self._compiled.iter_errors(value), _ENOUGH))
        if dialect.unmatched:
            self._complain("has patterns that are not checked", ", ".join(sorted(dialect.unmatched)))
            dialect.unmatched.clear()
        return (violation_of(best_match(errors), self._mask), len(errors)) if errors else None

    def _complain(self, problem: str, reason: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s %s (%s)", self._owner, problem, plain_text(self._mask(reason), limit=_REASON))


def _dialect_of(document: Any) -> Any:
    """Return the validator class of jsonschema for the dialect that a schema names."""
    # Imported here, because the import is slow and programs that never check a schema should not wait for it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(document, default=Draft202012Validator)


def required_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the required members at the top level of a schema; an invalid list counts as empty."""
    required = schema.get("required")
    if not isinstance(required, (list, tuple)):
        return ()
    return tuple(name for name in required if isinstance(name, str))
