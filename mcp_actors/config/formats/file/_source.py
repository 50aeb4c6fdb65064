"""Read a file that may be a pipe, a device, or huge."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from typing import Final, TypeAlias

from ...._errors import ConfigError
from ..._validators import a_type
from .._places import bad

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest file to read. Some programs keep megabytes of history in their configuration; more is a mistake."""

Content: TypeAlias = tuple[bytes, os.stat_result]
"""The content of a file, and its status when it was read."""

_PIECE: Final = 1024 * 1024

_ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order mark → encoding; UTF-32 comes first because its mark begins with that of UTF-16. The default is UTF-8."""


def file_name(path: object, argument: str, remedy: str = "give a path") -> str:
    """Return a path as a str, with ``~`` expanded.

    Args:
        path: the path.
        argument: the class or function that was given it, and the name of the argument, for errors.
        remedy: what to give instead of another object.

    Raises:
        ConfigError: it is not a path.
    """
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str):
        problem = f"is {a_type(given)}; {remedy}"
    elif "://" in given:
        problem = 'is a URL, not the path of a file; for one server write ServerConfig("name", Http("https://…"))'
    elif not given or "\0" in given:
        problem = f"{'contains a NUL character' if given else 'is empty'}; give a path"
    else:
        return os.path.expanduser(given)
    raise ConfigError(f"{argument} {problem}", source=argument.partition(":")[0])


def read_bytes(name: str) -> Content:
    """Read a regular file up to the size limit, without ever waiting for a writer.

    Raises:
        ConfigError: the file does not exist, or cannot be read.
    """
    try:
        # O_NONBLOCK, because opening a named pipe would otherwise block until a process opens it for writing. The type
        # is checked on the open descriptor: a check before the open could be overtaken by a replaced file.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise bad(name, "", _unreadable(error)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
            remedy = "give the path of a file" + (", or a DirectorySource" if stat.S_ISDIR(status.st_mode) else "")
            raise bad(name, "", f"this is {kind}, not a file; {remedy}")
        data = b"".join(_pieces(descriptor))
    except OSError as error:
        raise bad(name, "", _unreadable(error)) from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise bad(name, "", f"the file is larger than {MAX_BYTES // 1024**2} MiB; check that it is the right one")
    return data, status


def _pieces(descriptor: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces, up to one byte beyond the limit."""
    left = MAX_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, min(left, _PIECE))):
        left -= len(piece)
        yield piece


def _unreadable(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "file not found; correct the path, or create the file"
    why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return f"the file cannot be read ({why}); check the path and its permissions"


def decode(name: str, data: bytes) -> str | ConfigError:
    """Return the text of a file, or the error if it is not text."""
    encoding = next((encoding for mark, encoding in _ENCODINGS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        # Do not chain the original error: it holds the whole content of the file.
        return bad(name, "", f"the file is not valid UTF-8 (at byte {error.start}); save it as UTF-8")


def permission_warnings(name: str, status: os.stat_result) -> list[str]:
    """Warn of a file that other users can write, because they could make this program run any command."""
    if status.st_mode & stat.S_IWOTH:
        return [f"{name}: other users can write to this file and so choose what is run; run: chmod o-w {name}"]
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (os.getegid(), 0):
        return [f"{name}: its group can write to this file and so choose what is run; run: chmod g-w {name}"]
    return []
