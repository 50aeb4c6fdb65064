"""What servers listed, kept in files from one run to the next: one file per server.

A file is a cache: it may be gone, old or broken at any time, and whoever reads it does without then. It is replaced as
a whole, so several programs may write the same one, and the last of them counts. Only its owner may read it, and what
another user has put there is not believed: the descriptions of tools are read by models.

A file that nobody has read for half a year is removed, by whichever program looks; of very many, those are that were
not read for longest. Reading one says that it is still wanted. A program that has read a file that another one removes
in this moment writes it anew when its server lists.

Everything here blocks; it is to be called from a worker thread.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from .._pins import Pins

logger = logging.getLogger("mcp_actors.catalog")

FORMAT: Final = "mcp-actors catalog"
VERSION: Final = 1

UNUSED: Final = 180 * 86_400.0
"""Seconds after which a file that was not read is removed. What was accepted of a server is forgotten with it."""

MOST_FILES: Final = 1000
"""Of more than so many the oldest are removed, but for what is `RECENT`. People have some dozens of servers."""

RECENT: Final = 86_400.0
"""Seconds: a file is not marked as read more often, and is not removed within that time, however many there are."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest file that is read or written. A thousand tools with long schemas take about two."""


def default_directory() -> Path:
    """Where this platform keeps what programs can do without.

    Raises:
        ConfigError: there is no such place, as nobody knows the user's home directory.
    """
    if sys.platform == "darwin":
        caches = "~/Library/Caches"
    else:
        configured = os.environ.get("XDG_CACHE_HOME", "")
        caches = configured if os.path.isabs(configured) else "~/.cache"  # relative ones are invalid, says the standard
    try:
        return Path(caches).expanduser() / "mcp-actors" / "catalogs"
    except RuntimeError:
        message = "catalog_store=True: the home directory of this user is not known; give a directory instead"
        raise ConfigError(message, source="open_servers", path="catalog_store") from None


@attrs.frozen(kw_only=True)
class RememberedCatalog:
    """What is kept of one server.

    Attributes:
        server: its configured name, for people who look into the file.
        tools: its tools as it listed them, in the form that they have on the wire; None if they were too large.
        pins: what its next listing is to be judged against; None if nobody wants to know.
        identity: the pin of what it was started from when it listed them; None if that is not known.
        legacy: the name and version of a server that does not survive the question for its era; None if it does, or if
            nobody knows.
    """

    server: str
    tools: tuple[Mapping[str, Any], ...] | None
    pins: Pins | None = None
    identity: str | None = None
    legacy: str | None = None


class _Unusable(Exception):
    """A file that is to be ignored; the text says why."""


class _TooLarge(_Unusable):
    """More than is kept of one server."""


class CatalogStore:
    """A directory of remembered catalogues. Nothing is made before the first one is saved.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(os.path.abspath(directory))  # as it is now, wherever the program goes

    def __repr__(self) -> str:
        return f"CatalogStore({str(self.directory)!r})"

    def path(self, fingerprint: str) -> Path:
        """The file of the server with this fingerprint."""
        return self.directory / f"{fingerprint}.json"

    def size(self, fingerprint: str) -> int:
        """How many bytes are remembered of a server; 0 if that cannot be said."""
        try:
            return os.lstat(self.path(fingerprint)).st_size
        except OSError:
            return 0

    def load(self, fingerprint: str) -> RememberedCatalog | None:
        """Return what is remembered of a server; None if nothing is, or if it cannot be used, which is logged."""
        path = self.path(fingerprint)
        try:
            return _decoded(_read(path), fingerprint)
        except FileNotFoundError:
            return None
        except OSError as exc:
            problem = f"it cannot be read ({exc.strerror})"
        except _Unusable as exc:
            problem = str(exc)
        logger.warning(
            "the remembered catalogue %s is ignored: %s; it is replaced when its server lists its tools", path, problem
        )
        return None

    def save(self, fingerprint: str, catalog: RememberedCatalog) -> bool:
        """Remember what a server listed. A file that says this already is left alone.

        Of what is too large the pins are remembered alone: it must not be a way to be trusted anew in each run.

        Returns:
            Whether all of it is remembered; if not, that was logged.
        """
        path = self.path(fingerprint)
        try:
            try:
                data = _encoded(fingerprint, catalog)
            except _TooLarge:
                if catalog.tools is None or catalog.pins is None:
                    raise
                self.save(fingerprint, attrs.evolve(catalog, tools=None))
                raise
            if not _says(path, data):
                _replace(path, data)
        except OSError as exc:
            problem = f"{path} cannot be written ({exc.strerror})"
        except (_Unusable, ValueError, TypeError, RecursionError) as exc:
            problem = str(exc)
        else:
            return True
        logger.warning("server %r: its tools are not saved for the next run: %s", catalog.server, problem)
        return False

    def tidy(self) -> None:
        """Remove what nobody has read for long, and what writers that were killed have left. Nothing of that fails."""
        now = time.time()
        try:
            ages = sorted((now - status.st_mtime, name) for name, status in _files(self.directory))
        except OSError:
            return
        for place, (age, name) in enumerate(ages):
            if age > UNUSED or (age > RECENT and (place >= MOST_FILES or name.endswith(_NEW))):
                with suppress(OSError):
                    os.unlink(self.directory / name)


# --- the format -----------------------------------------------------------------------------------------------------


def _encoded(fingerprint: str, catalog: RememberedCatalog) -> bytes:
    content = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": fingerprint,
        "server": catalog.server,
        "tools": None if catalog.tools is None else list(catalog.tools),
        "pins": None if catalog.pins is None else catalog.pins.to_json(),
        "identity": catalog.identity,
        "legacy": catalog.legacy,
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise _TooLarge(f"it takes {len(data)} bytes, and the limit is {MAX_BYTES}")
    return data


def _decoded(data: bytes, fingerprint: str) -> RememberedCatalog:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise _Unusable("it is damaged") from None
    match content:
        case {"format": str(form), "version": int(version)} if form == FORMAT and version > VERSION:
            raise _Unusable(f"it was written by a newer version of this program (format {version}, not {VERSION})")
        case {"format": str(form), "version": 1, "fingerprint": str(written), "server": str(server), "tools": tools}:
            if form != FORMAT or not _are_tools(tools, content.get("pins")):
                raise _Unusable("it is not a catalogue")
            if written != fingerprint:
                raise _Unusable(f"it is about another server ({server!r})")
            identity, legacy = content.get("identity"), content.get("legacy")  # older files have none
            if not isinstance(identity, str | None) or not isinstance(legacy, str | None):
                raise _Unusable("its identity is damaged")
            remembered = None if tools is None else tuple(tools)
            pins = _pins(content.get("pins"))
            return RememberedCatalog(server=server, tools=remembered, pins=pins, identity=identity, legacy=legacy)
    raise _Unusable("it is not a catalogue")


def _are_tools(tools: object, pins: object) -> bool:
    """Whether this is what stands for tools in a file. There may be none where there are pins."""
    if tools is None:
        return pins is not None
    return isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)


def _pins(value: object) -> Pins | None:
    try:
        return None if value is None else Pins.from_json(value)
    except ValueError as exc:
        raise _Unusable(f"its pins are damaged ({exc})") from None


# --- the files ------------------------------------------------------------------------------------------------------


_NEW: Final = ".new"
_OURS: Final = re.compile(rf"[0-9a-f]+\.json(\.[^.]+{re.escape(_NEW)})?")


def _files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files in a directory that programs like this one have made for this user."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if _OURS.fullmatch(entry.name):
                with suppress(OSError):  # another program has removed it
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                        yield entry.name, status


def _read(path: Path) -> bytes:
    """Return the content of a file, if it is one of ours."""
    # Without these two, a link could lead elsewhere, and a named pipe would keep the thread for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _Unusable("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _Unusable("it belongs to another user, or others may write to it")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
        if time.time() - status.st_mtime > RECENT:
            with suppress(OSError):
                os.utime(descriptor)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise _Unusable(f"it has more than {MAX_BYTES} bytes")
    return data


def _says(path: Path, data: bytes) -> bool:
    """Whether this is the content of a file."""
    try:
        return _read(path) == data
    except (OSError, _Unusable):
        return False


def _replace(path: Path, data: bytes) -> None:
    """Give a file this content, all of it or nothing, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=_NEW)  # with mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)  # else the new name may come to lead to an empty file, should the power fail
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
