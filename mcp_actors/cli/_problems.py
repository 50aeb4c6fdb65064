"""What a command ends with instead of a result, besides the errors that the whole package has."""

from __future__ import annotations

__all__ = ["Failure", "Misuse"]


class Failure(Exception):
    """The command cannot do what it was asked for; the message says why."""


class Misuse(Failure):
    """What was typed cannot be meant; the message says what could be."""
