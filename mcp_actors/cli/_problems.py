"""The errors of commands, besides those of the package."""

from __future__ import annotations

__all__ = ["Failure", "Misuse"]


class Failure(Exception):
    """The command has failed; the message says why."""


class Misuse(Failure):
    """The command line is invalid; the message suggests a valid one."""
