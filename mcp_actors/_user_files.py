"""Find the user's directories, write private files and read secrets.

A file is replaced as a whole: a reader never sees half a file. A killed writer leaves the old or the new content, and
perhaps a file with the suffix `UNFINISHED`. All functions are synchronous: the caller's thread waits for the disk.

Owns: nothing.
Writes: given files and their directories; the umask, for a moment.
Calls: nothing.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["cache", "data", "state"]

UNFINISHED: Final = ".new"
"""The suffix of a file that is being written."""

_ON_LINUX: Final = {"cache": "~/.cache", "data": "~/.local/share", "state": "~/.local/state"}
_ON_MACOS: Final = {"cache": "~/Library/Caches", "data": "~/Library/Application Support"}


def user_directory(kind: Kind) -> Path:
    """Return the user's directory for caches, data or state of this program. Create nothing.

    Raises:
        RuntimeError: the user's home directory is not known.
    """
    if sys.platform == "darwin" and kind in _ON_MACOS:
        above = _ON_MACOS[kind]
    else:
        configured = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        above = configured if os.path.isabs(configured) else _ON_LINUX[kind]  # the standard ignores relative paths
    return Path(above).expanduser() / "mcp-actors"


def make_directory(path: Path) -> None:
    """Create a directory and missing parents for this user alone; `Path.mkdir` ignores the mode for parents.

    Existing directories keep their mode.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, data: bytes, *, durable: bool = False, private: bool = True) -> None:
    """Replace or create a file, for this user alone. Create a missing directory.

    Args:
        path: the path of the file.
        data: the new content.
        durable: True keeps the new content through a power failure after the return.
        private: False keeps the mode of the old file, or gives a new file the usual mode.

    Raises:
        OSError: the file cannot be written. The old file is unchanged, unless only `durable` failed.
    """
    make_directory(path.parent)
    # With mode 0600, so that no other user can open the file before its mode is set. In the same directory, because a
    # rename is one step within a file system only: a reader, or a crash, meets the old content or the new.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=UNFINISHED)
    try:
        with open(descriptor, "wb") as file:
            if not private:
                os.fchmod(descriptor, _mode_for(path))
            file.write(data)
            file.flush()
            # Before the rename: after a power failure, the new name might otherwise lead to an empty file.
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    if durable:
        _sync_directory(path.parent)


def _mode_for(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0o077)  # can be read only by setting
    os.umask(umask)
    return 0o666 & ~umask


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


SHORTEST_SECRET: Final = 16
"""Minimum of characters of a secret that two processes share."""


def secret_problem(text: str) -> str | None:
    """Return why `text` cannot be a secret of two processes, without showing it; None if it can."""
    if len(text) >= SHORTEST_SECRET:
        return None
    # An eavesdropper of one handshake can try secrets as fast as a computer can.
    return f"the secret has fewer than {SHORTEST_SECRET} characters; make one with: openssl rand -hex 32"


def read_secret(path: str) -> str:
    """Return the secret in a file, without surrounding whitespace. Blocks.

    Raises:
        OSError: the file is unreadable, readable by others, or has no valid secret. The message is for the user.
    """
    secret = read_private(path, 4096)
    if problem := secret_problem(secret):
        raise OSError(f"{path}: {problem}")
    return secret


def read_private(path: str, most: int) -> str:
    """Return the text in a private file, without surrounding whitespace. Blocks.

    No other user may read a file of this user. The file of another user, such as root, may be readable by its group.

    Raises:
        OSError: the file is unreadable, readable by others, or longer than `most` bytes. The message is for the user.
    """
    at, user = os.path.expanduser(path), os.geteuid()
    try:
        # Without O_NONBLOCK, a named pipe would block until another process opens it for writing. The open file is
        # checked, not the path, because the path may lead to another file by then.
        with open(os.open(at, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            found = os.fstat(opened.fileno())
            data = opened.read(most + 1) if stat.S_ISREG(found.st_mode) else b""
    except (OSError, ValueError) as exc:
        remedy = f"let user {user} read it" if isinstance(exc, PermissionError) else "check the path"
        raise OSError(f"{path} cannot be read ({getattr(exc, 'strerror', None) or exc}); {remedy}") from None
    own = found.st_uid == user
    if found.st_mode & (0o077 if own else 0o007):
        # A secret of Docker or Kubernetes that is mounted into a container cannot be changed from inside.
        remedy = f"run: chmod 600 {path}" if own else f"give it a group of user {user}, and the mode 0440"
        raise OSError(f"{path} can be read by other users ({stat.filemode(found.st_mode)}); {remedy}")
    if len(data) > most:
        raise OSError(f"{path} has more than {most} bytes; write only the secret there")
    return data.decode(errors="surrogateescape").strip()
