"""Describe errors, recognize temporary shortages, and name the loggers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ..._errors import ConfigError, ServerError
from ..._plain_text import plain_text

_COMPARED: Final = 500  # names
_COMPARED_LENGTH: Final = 64  # characters of a name; those of tools have at most as many in most programs

LOGGERS: Final = tuple(
    f"mcp_actors.{name}" for name in ("catalog", "config", "kernel", "servers", "servers.http", "servers.stderr")
)
"""The loggers of this package."""

PROBLEM: Final = 2000
"""Characters of an error within another message: more than our own errors have; it cuts those of servers."""


def problem_of(error: BaseException) -> str:
    """Return an error's text in one line, without its server's name, which the message around it has already."""
    words = str(error) or type(error).__name__
    if isinstance(error, ServerError):
        words = words.removeprefix(f"server {error.server!r}: ")
    return plain_text(words, limit=PROBLEM)


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the names that are nearly this one, the nearest first.

    Servers choose the number and the length of their names. Comparing is slow, so it is limited to some milliseconds.
    """
    import difflib  # here, because only errors need it

    names = islice((name for name in known if len(name) <= _COMPARED_LENGTH), _COMPARED)
    return difflib.get_close_matches(word[:_COMPARED_LENGTH], [*names], n=count)


def bad_option(name: str, value: object, problem: str) -> ConfigError:
    """Return the error for an argument of `open_servers`."""
    return ConfigError(f"{name}={value!r} {problem}", source="open_servers", path=name)


_SHORTAGES: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR, errno.EIO}


def shortage_of(error: BaseException) -> str | None:
    """Return the system's description of a shortage that a retry may not meet; None for any other error."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno in _SHORTAGES else None
