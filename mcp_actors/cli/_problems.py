"""The errors of commands, besides those of the package."""

from __future__ import annotations

from collections.abc import Collection

from .._misuse import nearest


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
    near = nearest(name, known)
    hint = f"did you mean {near[0]!r}?" if near else f"its {kind} are: {', '.join(known) or 'none'}"
    return Misuse(f"{problem}; {hint}")
