"""Token stores: the user's files, or the system's keyring.

Several processes share a store, so a lock on a file admits one process at a time (`file_lock`). A disk or a keyring may
hang, so a cancelled caller does not wait for the thread of a store (`StoreThread`). A file is refused if other users
could have read or renamed it.

Owns: threads of token stores; locks on files.
Writes: token files of the user; lock files; the keyring of the system.
Calls: nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from weakref import WeakValueDictionary

import outcome
import trio
from attrs import Attribute, define, evolve, field, frozen
from attrs.validators import instance_of, optional
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import resource_url_from_server_url

from .._errors import ConfigError
from .._user_files import UNFINISHED, make_directory, replace_file, user_directory

if TYPE_CHECKING:
    from ..config import OAuth


# --- Calls and locks --------------------------------------------------------------------------------------------------

# The call of a cancelled caller goes on, perhaps for hours. Three rules keep that harmless:
#
# - A store has one thread, which runs calls in order. A hanging store costs one thread.
# - The same thread releases a lock, after the calls that began under the lock.
# - A call that has not begun when its caller leaves is dropped, except for writes and releases.
#
# The locked file is never replaced or removed: another process would lock the new file. The kernel releases the lock of
# a killed process.


T = TypeVar("T")

STORE_TIMEOUT: Final = 30.0
"""Seconds for a call of a store, which takes milliseconds unless a disk hangs or a keyring asks a person."""

LOCK_POLL: Final = 0.02
"""Seconds between attempts to lock. A blocking attempt could not be cancelled."""

LONGEST_WAIT: Final = 60.0
"""Seconds to wait for a lock. A refresh, under the lock, gives up after 30."""

_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_PASSING_REMEDIES: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this system (sysctl fs.file-max)",
    errno.EIO: "check the disk",
    errno.ESTALE: "check the disk or the file server",
}


class StoreBusy(ConfigError):
    """Another process keeps the lock, or the store cannot be used now. A retry may help."""


@contextmanager
def patiently(seconds: float = STORE_TIMEOUT) -> Iterator[None]:
    """Raise `StoreBusy` once a block has waited too long for any store."""
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise busy(seconds) from None


def busy(seconds: float) -> ConfigError:
    return of_store(f"no answer within {seconds:g} s; unlock the keyring, or check the disk", StoreBusy)


def of_store(problem: str, kind: type[ConfigError] = ConfigError) -> ConfigError:
    return kind(f"token store: {problem}", source="TokenStore")


# --- The thread of a store ------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class _Job(Generic[T]):
    fn: Callable[[], T]
    lasting: bool
    undo: Callable[[T], object]
    token: trio.lowlevel.TrioToken | None
    done: trio.Event = field(factory=trio.Event, init=False)
    _found: outcome.Outcome[T] | None = field(default=None, init=False)
    _left: bool = field(default=False, init=False)
    _mutex: threading.Lock = field(factory=threading.Lock, init=False)

    def run(self) -> None:
        if self._left and not self.lasting:
            return
        found = outcome.capture(self.fn)
        # The caller may leave at this moment, in another thread. Under the mutex exactly one side undoes the
        # result; else an opened file could stay open, or be closed twice.
        with self._mutex:
            self._found = found
            if self._left:
                self._undo()
        if self.token is not None:
            with suppress(trio.RunFinishedError):  # the caller has ended, too
                self.token.run_sync_soon(self.done.set)

    def leave(self) -> None:
        with self._mutex:
            self._left = True
            self._undo()

    def _undo(self) -> None:
        if isinstance(self._found, outcome.Value):
            self.undo(self._found.value)

    def result(self) -> T:
        found, self._found = self._found, None
        assert found is not None, "the call has ended"
        return found.unwrap()


class StoreThread:
    """Runs calls in one thread, in order. May outlive a run of Trio."""

    def __init__(self) -> None:
        self._jobs: deque[_Job[Any]] = deque()
        self._busy = False
        self._mutex = threading.Lock()

    async def run(
        self,
        fn: Callable[..., T],
        *args: object,
        lasting: bool = False,
        undo: Callable[[T], object] = lambda value: None,
    ) -> T:
        """Call a function in the thread, and return its result.

        **Cancellation**: leaves at once. A call that has begun goes on, and `undo` gets its result; a `lasting` call is
        made in any case.

        Raises:
            StoreBusy: no thread can be started.
        """
        job = _Job(partial(fn, *args), lasting, undo, trio.lowlevel.current_trio_token())
        try:
            self._post(job)
        except RuntimeError as error:
            problem = f"no thread can be started for it ({error}); raise the limit of processes (ulimit -u)"
            raise of_store(problem, StoreBusy) from None
        try:
            await job.done.wait()
        except BaseException:
            job.leave()
            raise
        return job.result()

    def post(self, fn: Callable[..., object], *args: object) -> None:
        job = _Job(partial(fn, *args), lasting=True, undo=lambda value: None, token=None)
        try:
            self._post(job)
        except RuntimeError:
            job.run()

    def _post(self, job: _Job[Any]) -> None:
        with self._mutex:
            self._jobs.append(job)
            if self._busy:
                return
            try:
                trio.lowlevel.start_thread_soon(self._work, lambda outcome: None, "token store")
            except RuntimeError:
                self._jobs.pop()
                raise
            self._busy = True

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
            job.run()


_threads: Final[WeakValueDictionary[str, StoreThread]] = WeakValueDictionary()


def thread_of(store: str) -> StoreThread:
    """Return the thread of a store, shared by all objects with the name."""
    return _threads.setdefault(store, StoreThread())


# --- The lock -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def file_lock(path: Path, thread: StoreThread) -> AsyncIterator[None]:
    """Hold the lock for the block, and until the calls of the thread that began in the block have ended.

    **Cancellation**: leaves the wait at once, without the lock.

    Raises:
        StoreBusy: another process keeps the lock.
    """
    try:
        descriptor = await thread.run(_open, path, undo=os.close)
    except OSError as error:
        raise unusable(path, "created", error) from None
    try:
        until = trio.current_time() + LONGEST_WAIT
        while not await thread.run(_locked, descriptor, path):
            if trio.current_time() >= until:
                raise of_store(f"another process has held {path} for {LONGEST_WAIT:g} s; end that process", StoreBusy)
            await trio.sleep(LOCK_POLL)
        yield
    finally:
        # By the thread, after a write that still hangs: otherwise another process could refresh with the token that the
        # write replaces. Unlocking may hang too, on a network file system.
        thread.post(_release, descriptor)


def _open(path: Path) -> int:
    make_directory(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if (passing := busy_file(path, "locked", error)) is not None:
            raise passing from None
        problem = f"the file system of {path.parent} has no locks ({error.strerror})"
        remedy = "keep tokens on a local file system: set XDG_DATA_HOME, or OAuth(store=FileTokenStore(directory))"
        raise of_store(f"{problem}; {remedy}") from None
    return True


def _release(descriptor: int) -> None:
    # Explicitly: a child forked meanwhile has the file open too, and would keep the lock.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def unusable(path: Path, done: str, error: OSError) -> ConfigError:
    remedy = "free some space there" if error.errno in _FULL else "make its directory writable"
    elsewhere = "set XDG_DATA_HOME, or give OAuth(store=FileTokenStore(directory))"
    problem = f"{path} cannot be {done} ({error.strerror})"
    return busy_file(path, done, error) or of_store(f"{problem}; {remedy}, {elsewhere}")


def busy_file(path: Path, done: str, error: OSError) -> ConfigError | None:
    remedy = _PASSING_REMEDIES.get(error.errno or 0)
    return None if remedy is None else of_store(f"{path} cannot be {done} ({error.strerror}); {remedy}", StoreBusy)


# --- The stores -------------------------------------------------------------------------------------------------------


def _default_directory() -> Path:
    try:
        return user_directory("data") / "tokens"
    except RuntimeError:
        problem = "the home directory of this user is not known; give OAuth(store=FileTokenStore(directory))"
        raise of_store(problem) from None


class FileTokenStore:
    """Tokens in files that only their owner can read and write, one file for each key.

    A file is replaced as a whole. The lock is another file, which stays.

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
        """Return the path of a key's file."""
        return self.directory / f"{key}.json"

    async def load(self, key: str) -> str | None:
        """Return the value of a key, or None.

        Raises:
            ConfigError: the file cannot be read, or others can read, write or rename it.
        """
        return await self._thread.run(_read, self.path(key))

    async def save(self, key: str, value: str) -> None:
        """Replace the file of a key, and remove the unfinished files of killed processes.

        Raises:
            ConfigError: the file cannot be written.
        """
        await self._change("written", _replace, self.path(key), value)

    async def delete(self, key: str) -> None:
        """Remove the file of a key, if present.

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
        raise failure  # outside of the except block: the value is in the frames of the error


def _read(path: Path) -> str | None:
    problem = "it is not a file of this user that only this user can read"
    try:
        # Owner and mode are checked on the open descriptor, so the file cannot be replaced after the check.
        _check_folder(path.parent)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not mode & 0o077:
                return file.read(1024 * 1024).decode(errors="replace")  # a sign-in takes 2 to 8 KiB
    except FileNotFoundError:
        return None
    except OSError as error:
        if (passing := busy_file(path, "read", error)) is not None:
            raise passing from None
        problem = f"it cannot be read ({error.strerror})"
    raise of_store(f"{path}: {problem}; correct that with 'chmod 600 {path}', or remove it and sign in again")


def _check_folder(path: Path) -> None:
    """Refuse a folder where another user can rename files, and so give one server the token of another."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise of_store(f"{path} belongs to another user, who can rename files in it; choose a folder of this user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise of_store(f"other users can rename files in {path}; run 'chmod 700 {path}'")


def _replace(path: Path, value: str) -> None:
    replace_file(path, value.encode(), durable=True)  # the former refresh token is worth nothing
    _remove_unfinished(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_unfinished(path)


def _remove_unfinished(path: Path) -> None:
    """Remove the files of killed writers, which have tokens. The lock is held: no other process is writing."""
    for each in path.parent.glob(f"{escape(path.name)}.*{UNFINISHED}"):
        each.unlink(missing_ok=True)


class KeyringTokenStore:
    """Tokens in the keyring of the system (the extra ``keyring``), with locks in files.

    Args:
        service: the name under which the keyring shows the tokens. Default ``"mcp-actors"``.
        locks: the directory of the locks. Default None: ``mcp-actors/tokens`` in the user's data directory.

    Raises:
        ConfigError: the package ``keyring`` is not installed, or the system has no keyring that it can use.
    """

    def __init__(self, service: str = "mcp-actors", *, locks: str | os.PathLike[str] | None = None) -> None:
        self.service = service
        self._locks = FileTokenStore(locks)
        # The thread releases a lock after the keyring's calls under the lock.
        self._thread: StoreThread = thread_of(f"keyring {service} {self._locks.directory}")
        self._locks._thread = self._thread
        self._keyring = _usable_keyring()

    def __repr__(self) -> str:
        return f"KeyringTokenStore({self.service!r})"

    async def load(self, key: str) -> str | None:
        """Return the value of a key, or None."""
        value: str | None = await self._ask(self._keyring.get_password, key)
        return value

    async def save(self, key: str, value: str) -> None:
        """Replace the value of a key."""
        await self._ask(self._keyring.set_password, key, value, lasting=True)

    async def delete(self, key: str) -> None:
        """Remove a key, if present."""
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
            # Hide the text of the error, and the error as context: both may show the value.
            problem = f"the keyring failed ({type(error).__name__}); unlock it, or use a FileTokenStore"
        # Any failure may pass: a keyring is unlocked when its user logs in, perhaps later.
        raise of_store(problem, StoreBusy)


def _usable_keyring() -> Any:
    try:
        import keyring
        from keyring.backends.fail import Keyring as NoKeyring
    except ImportError:
        problem = "the package keyring is not installed; run: pip install 'mcp-actors[keyring]'"
        raise of_store(problem) from None
    if isinstance(keyring.get_keyring(), NoKeyring):
        problem = "this system has no keyring that the package keyring can use"
        raise of_store(f"{problem}; install one (Secret Service or KWallet), or use a FileTokenStore")
    return keyring


# --- One sign-in ------------------------------------------------------------------------------------------------------


VERSION: Final = 1

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")  # RFC 6749, A.12

_KEPT_METADATA: Final = {
    *("issuer", "authorization_endpoint", "revocation_endpoint", "scopes_supported"),
    *("token_endpoint", "token_endpoint_auth_methods_supported"),
}
"""Metadata that a refresh or a revocation needs. Keyrings limit the size of a value."""


def key_of(url: str, oauth: OAuth) -> str:
    """Return the key of a sign-in, valid for a resource, client, issuer, grant and account."""
    client = oauth.client_id or oauth.client_metadata_url
    named = [resource_url_from_server_url(url), oauth.issuer, client, oauth.grant]
    if oauth.account is not None:
        named.append(oauth.account)
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]


def _check_tokens(instance: SignedIn, attribute: Attribute[OAuthToken], value: OAuthToken) -> None:
    instance_of(OAuthToken)(instance, attribute, value)
    if not _TOKEN.fullmatch(value.access_token):
        raise ValueError("the access token has characters that a header cannot have")  # a library would quote it


@frozen(kw_only=True)
class SignedIn:
    """A sign-in.

    Attributes:
        resource: the URL of the server, for people who read the file.
        expires_at: when the access token expires, in seconds since 1970; None if unknown.
        since: when the tokens were issued, in seconds since 1970.
        protected: the metadata of the resource.
        challenge: the URL of `protected`, from the server.
        asked: the requested scopes; the granted scopes may differ.
        refused: True if a refresh was refused: a person has to sign in.
    """

    resource: str = field(validator=instance_of(str))
    client: OAuthClientInformationFull = field(repr=False, validator=instance_of(OAuthClientInformationFull))
    tokens: OAuthToken = field(repr=False, validator=_check_tokens)
    expires_at: float | None = field(validator=optional(instance_of((int, float))))
    since: float = field(validator=instance_of((int, float)))
    metadata: OAuthMetadata | None = field(default=None, repr=False)
    protected: ProtectedResourceMetadata | None = field(default=None, repr=False)
    challenge: str | None = field(default=None, validator=optional(instance_of(str)))
    asked: str | None = field(default=None, validator=optional(instance_of(str)))
    refused: bool = field(default=False, validator=instance_of(bool))

    @property
    def issuer(self) -> str | None:
        """The issuer of the tokens; None without metadata."""
        return None if self.metadata is None else str(self.metadata.issuer)

    @property
    def renewable(self) -> bool:
        return bool(self.tokens.refresh_token) and not self.refused  # some authorization servers send an empty token

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def due(self, now: float) -> bool:
        if self.expires_at is None:
            return False
        # A minute before the expiry, or a tenth of the token's life if less.
        return now >= self.expires_at - min(60.0, max(self.expires_at - self.since, 0.0) / 10)

    def has_asked_for(self, scope: str) -> bool:
        """Return True if these scopes were granted, or asked for in vain."""
        return set(scope.split()) <= {*(self.asked or "").split(), *(self.tokens.scope or "").split()}

    def when_refused(self, *, dead: bool) -> SignedIn:
        """Return a copy whose refresh token was refused, without the token if `dead`.

        A refused token is not sent again: some authorization servers would assume a theft, and block the client.
        """
        tokens = self.tokens.model_copy(update={"refresh_token": None}) if dead else self.tokens
        return evolve(self, tokens=tokens, refused=True)

    def to_text(self, key: str | None = None) -> str:
        models: dict[str, Any] = {"client": self.client, "tokens": self.tokens, "protected": self.protected}
        content: dict[str, Any] = {
            "version": VERSION,
            "key": key,
            "resource": self.resource,
            "expires_at": self.expires_at,
            "since": self.since,
            "challenge": self.challenge,
            "asked": self.asked,
            "refused": self.refused,
            **{name: model and model.model_dump(mode="json", exclude_none=True) for name, model in models.items()},
            "metadata": self.metadata
            and self.metadata.model_dump(mode="json", exclude_none=True, include=_KEPT_METADATA),
        }
        return json.dumps(content)

    @classmethod
    def from_text(cls, text: str | None, url: str, key: str | None = None) -> Self | None:
        """Return the sign-in in a text; None if damaged, from a later version, or of another server or key.

        A text without a key, of an earlier version, fits any key.
        """
        try:
            content = json.loads(text or "null")
            if not isinstance(content, dict) or content.pop("version", None) != VERSION:
                return None
            stored = content.pop("key", None)
            for name, model in _STORED_MODELS.items():
                content[name] = content[name] and model.model_validate(content[name])
            found = cls(**content)
            # A copied or renamed file must not give the token of one server or account to another.
            theirs, ours = map(resource_url_from_server_url, (found.resource, url))
            return found if stored in (None, key) and theirs == ours else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


_STORED_MODELS: Final[dict[str, Any]] = {
    "client": OAuthClientInformationFull,
    "tokens": OAuthToken,
    "protected": ProtectedResourceMetadata,
    "metadata": OAuthMetadata,
}
