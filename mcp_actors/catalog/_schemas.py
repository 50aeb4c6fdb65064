"""A JSON schema that a server sent, ready to be checked against.

It comes from outside, so nothing about it is believed: it may be no schema, refer to what is not there, or hold a
pattern that Python cannot read. What cannot be checked is not checked, and no call fails for it. And nothing is ever
fetched: a ``$ref`` that leads out of the schema is one that leads nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from .._plain_text import plain_text
from ._violations import Violation, violation_of

__all__ = ["Schema"]

logger = logging.getLogger("mcp_actors.catalog")

_ENOUGH: Final = 50  # errors to look at: the best of them is told, and how many there are
_REASON: Final = 200  # characters of why a schema cannot be used


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
        self._complained = False

    @property
    def used(self) -> bool:
        """Whether anything was checked against it yet, so that keeping it saves work."""
        return self._compiled is not None

    def violation(self, value: Any) -> tuple[Violation, int] | None:
        """Return what is wrong with a JSON value, and how many things are, up to 50; None if nothing is known to be."""
        try:
            if self._compiled is None:
                self._compiled = _compiled(self._document)
            if self._compiled is False or (first := next(errors := self._compiled.iter_errors(value), None)) is None:
                return None
            return _best([first, *islice(errors, _ENOUGH - 1)])
        except Exception as exc:  # whatever a foreign schema can lead to, deep recursion included
            self._compiled = self._compiled or False
            self._complain(exc)
            return None

    def _complain(self, exc: Exception) -> None:
        if not self._complained:
            self._complained = True
            reason = plain_text(f"{type(exc).__name__}: {getattr(exc, 'message', exc)}", limit=_REASON)
            logger.warning("%s cannot be used, so nothing is checked against it (%s)", self._owner, reason)


def _compiled(document: Any) -> Any:
    """Return a validator of jsonschema.

    Raises:
        jsonschema.SchemaError: it is no schema.
    """
    # Imported when the first schema is checked: who never does that should not wait for it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    dialect: Any = validator_for(document, default=Draft202012Validator)
    # Without formats: a pattern of JavaScript that Python cannot read would spoil the whole schema.
    dialect.check_schema(document, format_checker=None)
    # Without a registry jsonschema would fetch what a `$ref` names.
    return dialect(document, registry=Registry())


def _best(errors: list[Any]) -> tuple[Violation, int]:
    from jsonschema.exceptions import best_match

    return violation_of(best_match(errors)), len(errors)


def required_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that an object must have, as far as that is said at the schema's top, and can be read."""
    required = schema.get("required")
    if not isinstance(required, (list, tuple)):
        return ()
    return tuple(name for name in required if isinstance(name, str))
