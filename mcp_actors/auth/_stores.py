"""Stores of tokens: the user's files, or the system's keyring."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from glob import escape
from pathlib import Path
from typing import Any, Final

from .._errors import ConfigError
from .._user_files import UNFINISHED, replace_file, user_directory
from ._lock import StoreBusy, StoreThread, busy_file, file_lock, thread_of, unusable

MAX_BYTES: Final = 1024 * 1024
"""The largest file to read. One sign-in takes 2 to 8 KiB."""


def _default_directory() -> Path:
    try:
        return user_directory("data") / "tokens"
    except RuntimeError:
        problem = "the home directory of this user is not known; give OAuth(store=FileTokenStore(directory))"
        raise ConfigError(f"token store: {problem}", source="TokenStore") from None


class FileTokenStore:
    """Tokens in files that only their owner can read and write, one file for each key.

    A file is replaced as a whole. Its lock is another file, which stays.

    Args:
        directory: the directory of the files. Default None: ``mcp-actors/tokens`` in the user's data directory.

    Raises:
        ConfigError: the user's home directory is not known.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory: Path = Path(os.path.abspath(directory)) if directory is not None else _default_directory()
        self._thread: StoreThread = thread_of(str(self.directory))

    def __repr__(self) -> str:
        return f"FileTokenStore({str(self.directory)!r})"

    def __eq__(self, other: object) -> bool:
        return self.directory == other.directory if isinstance(other, FileTokenStore) else NotImplemented

    def __hash__(self) -> int:
        return hash((FileTokenStore, self.directory))

    def path(self, key: str) -> Path:
        """Return the path of the file of a key."""
        return self.directory / f"{key}.json"

    async def load(self, key: str) -> str | None:
        """Return the value of a key; None without one.

        Raises:
            ConfigError: the file cannot be read, or others can read, write or rename it.
        """
        return await self._thread.run(_read, self.path(key))

    async def save(self, key: str, value: str) -> None:
        """Replace the file of a key, and remove what a killed process has left of it.

        Raises:
            ConfigError: the file cannot be written.
        """
        await self._change("written", _replace, self.path(key), value)

    async def delete(self, key: str) -> None:
        """Remove the file of a key, if it exists.

        Raises:
            ConfigError: the file cannot be removed.
        """
        await self._change("removed", _remove, self.path(key))

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a key."""
        return file_lock(self.directory / f"{key}.lock", self._thread)

    async def _change(self, done: str, fn: Callable[..., None], path: Path, *args: str) -> None:
        try:
            await self._thread.run(fn, path, *args, lasting=True)
            return
        except OSError as error:
            failure = unusable(path, done, error)
        raise failure  # outside of the except block, because the value is in the frames of the error


def _read(path: Path) -> str | None:
    """Return the content of a file that no other user can read or write."""
    problem = "it is not a file of this user that only this user can read"
    try:
        # Owner and mode are checked on the open descriptor, so the file cannot be replaced after the check.
        _check_folder(path.parent)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not mode & 0o077:
                return file.read(MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        if (passing := busy_file(path, "read", error)) is not None:
            raise passing from None
        problem = f"it cannot be read ({error.strerror})"
    remedy = f"correct that with 'chmod 600 {path}', or remove it and sign in again"
    raise ConfigError(f"token store: {path}: {problem}; {remedy}", source="TokenStore")


def _check_folder(path: Path) -> None:
    """Refuse a folder in which other users can rename files, and so give the token of one server to another one."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        problem = f"{path} belongs to another user, who can rename files in it; choose a folder of this user"
        raise ConfigError(f"token store: {problem}", source="TokenStore")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        problem = f"other users can rename files in {path}; run 'chmod 700 {path}'"
        raise ConfigError(f"token store: {problem}", source="TokenStore")


def _replace(path: Path, value: str) -> None:
    replace_file(path, value.encode(), durable=True)  # a refresh token that was replaced is worth nothing
    _remove_unfinished(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_unfinished(path)


def _remove_unfinished(path: Path) -> None:
    """Remove the files of killed writers: tokens are in them. The lock is held, so no other process writes one."""
    for each in path.parent.glob(f"{escape(path.name)}.*{UNFINISHED}"):
        each.unlink(missing_ok=True)


class KeyringTokenStore:
    """Tokens in the keyring of the system (the extra ``keyring``), with locks in files.

    Args:
        service: the name under which the keyring shows them. Default ``"mcp-actors"``.
        locks: the directory of the locks. Default None: ``mcp-actors/tokens`` in the user's data directory.

    Raises:
        ConfigError: the package ``keyring`` is not installed, or the system has no keyring that it can use.
    """

    def __init__(self, service: str = "mcp-actors", *, locks: str | os.PathLike[str] | None = None) -> None:
        self.service = service
        self._locks = FileTokenStore(locks)
        # A lock is released after the calls of the keyring that were begun under it.
        self._thread: StoreThread = thread_of(f"keyring {service} {self._locks.directory}")
        self._locks._thread = self._thread
        self._keyring = _usable_keyring()

    def __repr__(self) -> str:
        return f"KeyringTokenStore({self.service!r})"

    async def load(self, key: str) -> str | None:
        """Return the value of a key; None without one."""
        value: str | None = await self._ask(self._keyring.get_password, key)
        return value

    async def save(self, key: str, value: str) -> None:
        """Replace the value of a key."""
        await self._ask(self._keyring.set_password, key, value, lasting=True)

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""
        if await self.load(key) is not None:
            await self._ask(self._keyring.delete_password, key, lasting=True)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a key."""
        return self._locks.lock(key)

    async def _ask(self, fn: Callable[..., Any], *args: str, lasting: bool = False) -> Any:
        try:
            return await self._thread.run(fn, self.service, *args, lasting=lasting)
        except StoreBusy:
            raise
        except Exception as error:
            # Not its text, nor the error as the context: they may show the value.
            problem = f"the keyring failed ({type(error).__name__}); unlock it, or use a FileTokenStore"
        # Whatever failed, it may pass: a keyring is unlocked when its user logs in, perhaps after this program starts.
        raise StoreBusy(f"token store: {problem}", source="TokenStore")


def _usable_keyring() -> Any:
    try:
        import keyring
        from keyring.backends.fail import Keyring as NoKeyring
    except ImportError:
        problem = "the package keyring is not installed; python -m pip install 'mcp-actors[keyring]'"
        raise ConfigError(f"token store: {problem}", source="TokenStore") from None
    if isinstance(keyring.get_keyring(), NoKeyring):
        problem = "this system has no keyring that the package keyring can use"
        remedy = "install one (Secret Service or KWallet), or use a FileTokenStore"
        raise ConfigError(f"token store: {problem}; {remedy}", source="TokenStore")
    return keyring
