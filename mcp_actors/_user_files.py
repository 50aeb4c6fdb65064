"""Find the directories of this user, and write private files.

`user_directory` reads the environment, the platform and the user's home, and creates nothing. `make_directory` and
`replace_file` write new directories and files that other users cannot read, and block meanwhile; directories that exist
keep their mode. A file is replaced as a whole, so a reader does not see half of it, and a writer that is killed leaves
the old content or the new, and perhaps a file that ends in `UNFINISHED`. With ``durable`` the new content survives a
power failure after the return.

The store of tokens in files (``auth``), that of listings (``catalog``) and the command line use this file. It imports
nothing of the package, and takes the content as bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["cache", "data", "state"]

UNFINISHED: Final = ".new"
"""The end of the name of a file that is being written. A killed writer leaves it behind."""

_ELSEWHERE: Final = {"cache": "~/.cache", "data": "~/.local/share", "state": "~/.local/state"}
_ON_MACOS: Final = {"cache": "~/Library/Caches", "data": "~/Library/Application Support"}


def user_directory(kind: Kind) -> Path:
    """Return this program's directory for caches, data or state of this user.

    Raises:
        RuntimeError: the user's home directory is not known.
    """
    if sys.platform == "darwin" and kind in _ON_MACOS:
        above = _ON_MACOS[kind]
    else:
        configured = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        above = configured if os.path.isabs(configured) else _ELSEWHERE[kind]  # the standard ignores relative paths
    return Path(above).expanduser() / "mcp-actors"


def make_directory(path: Path) -> None:
    """Create a directory and those above it for this user alone, whatever the umask. `Path.mkdir` ignores them."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, data: bytes, *, durable: bool = False, private: bool = True) -> None:
    """Replace a file by one that only this user can read. Create its directory if it is missing.

    Args:
        path: the path of the file.
        data: its new content.
        durable: True keeps the new content through a power failure after the return.
        private: False gives it the mode of the old file, or that of any new file.

    Raises:
        OSError: the file cannot be written. The old one is unchanged.
    """
    make_directory(path.parent)
    # With mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=UNFINISHED)
    try:
        with open(descriptor, "wb") as file:
            if not private:
                os.fchmod(descriptor, _mode_for(path))
            file.write(data)
            file.flush()
            # Before the rename: otherwise, after a power failure, the new name may lead to an empty file.
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
    umask = os.umask(0o077)  # it cannot be read without being set
    os.umask(umask)
    return 0o666 & ~umask


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
