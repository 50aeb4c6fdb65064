"""The errors of commands, besides those of the package."""

from __future__ import annotations

import difflib
from collections.abc import Collection


class Failure(Exception):
    """The command has failed; the message says why."""


class Misuse(Failure):
    """The command line is invalid; the message suggests a valid one."""


def unknown(problem: str, name: str, known: Collection[str], kind: str) -> Misuse:
    """Return the error for a name that does not exist, with the name that is nearly it, or all that exist.

    Args:
        problem: what is wrong, without a remedy.
        name: the name.
        known: the names that exist.
        kind: the kind of these, in the plural.
    """
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its {kind} are: {', '.join(known) or 'none'}"
    return Misuse(f"{problem}; {hint}")
