"""Describe errors, recognize temporary shortages, and name the loggers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from ..._errors import ConfigError, ServerError
from ..._text import plain_text

LOGGERS: Final = tuple(
    f"mcp_actors.{name}"
    for name in ("auth", "bridge", "catalog", "config", "kernel", "servers", "servers.http", "servers.stderr")
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


def bad_option(name: str, value: object, problem: str) -> ConfigError:
    """Return the error for an argument of `open_servers`."""
    return ConfigError(f"{name}={value!r} {problem}", source="open_servers", path=name)


_TASKS: Final = "raise the limit of processes and threads (ulimit -u, in a container its limit of pids)"

_REMEDIES: Final = {
    errno.EAGAIN: _TASKS,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this system (sysctl fs.file-max)",
    errno.ENOBUFS: "raise the limit of memory for sockets (sysctl net.core.wmem_max and net.ipv4.tcp_mem)",
    errno.ENOMEM: "free memory, or raise the limit of memory (ulimit -v, in a container its limit of memory)",
}
"""What to do about a shortage of this program or machine."""

_NO_THREAD: Final = "can't start new thread"
"""The words of Python's `RuntimeError`."""

_PASSING: Final = {errno.ETXTBSY, errno.EINTR, errno.EIO}
"""Further errors that the next attempt may not meet."""


@frozen
class Shortage:
    """A shortage of this program or machine. It says nothing about a server.

    Attributes:
        what: its description.
        remedy: the limit to raise.
    """

    what: str
    remedy: str


def own_shortage(error: BaseException | None) -> Shortage | None:
    """Return the shortage that has caused an exception; None if it has another cause."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _REMEDIES:
            return Shortage(os.strerror(cause.errno), _REMEDIES[cause.errno])
        if isinstance(cause, RuntimeError) and str(cause).startswith(_NO_THREAD):
            return Shortage(_NO_THREAD, _TASKS)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, also in groups: a host may have several addresses."""
    seen, open_ends = set[int](), [error]
    while open_ends:
        cause = open_ends.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            open_ends.append(cause.__cause__)
            # The HTTP library hides the cause of its errors by ``from None``. But an error may also be raised where a
            # full pipe or socket was handled, which is not a shortage.
            if cause.__cause__ is None and not isinstance(cause.__context__, BlockingIOError):
                open_ends.append(cause.__context__)
            open_ends += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()


def shortage_of(error: BaseException) -> str | None:
    """Return the system's description of a shortage that a retry may not meet; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _REMEDIES.keys() | _PASSING:
        return None
    return os.strerror(error.errno)
