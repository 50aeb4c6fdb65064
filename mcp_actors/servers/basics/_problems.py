"""Describe an error within another message."""

from __future__ import annotations

from typing import Final

from ..._errors import ServerError
from ..._plain_text import plain_text

__all__ = ["problem_of"]

PROBLEM: Final = 2000
"""Characters of an error within another message: more than any of ours has, and an end for those of servers."""


def problem_of(error: BaseException) -> str:
    """The words of an error in one line, without the name of the server, for a message that has named it already."""
    words = str(error) or type(error).__name__
    if isinstance(error, ServerError):
        words = words.removeprefix(f"server {error.server!r}: ")
    return plain_text(words, limit=PROBLEM)
