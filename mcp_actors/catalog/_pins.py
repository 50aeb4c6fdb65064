"""Detect changed tools by hashes of accepted definitions; keep listings between runs.

A server may list harmless tools during a review, and later put instructions to the model into a description. A stored
listing that another user could change is ignored.

Owns: the directory of stored listings.
Writes: files in that directory; the log.
Calls: _schemas, _tools.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from .._errors import ConfigError
from .._foreign import Log
from .._text import escaped
from .._user_files import UNFINISHED, replace_file, user_directory
from ._schemas import listed
from ._tools import FrozenDict, ListedTool, digest, wire_annotations

OnToolChange = Literal["allow", "warn", "block"]
"""The policy for a tool that was added or changed: show it, show it and log a warning, or hide it until approved."""

_IDENTITY_KEY: Final = "identity"
_TOOL_PREFIX: Final = "tools/"


def pin(tool: ListedTool) -> str:
    """Return the SHA-256 of a tool's definition: name, title, description, schemas, annotations and meta.

    The hash is the same in every run and release, however the server formats its JSON.
    """
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": wire_annotations(tool.annotations),
        "_meta": tool.meta,
    }
    return digest({key: value for key, value in definition.items() if value is not None})


def definition_lines(tool: Mapping[str, Any]) -> list[str]:
    """Return a tool's definition without the name, for a review, with hidden characters escaped."""
    lines = []
    for part in ("title", "description", "inputSchema", "outputSchema", "annotations", "_meta"):
        if (value := tool.get(part)) is not None:
            text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
            lines += f"{part}: {text}".replace("\r", "\\r").split("\n")
    return [*map(escaped, lines)]


def identity_pin(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a server's identity: its command or URL.

    Args:
        identity: JSON-like data without credentials: a short credential could be guessed from the hash.
    """
    return digest(identity)


def _frozen(value: Mapping[str, str]) -> Mapping[str, str]:
    return FrozenDict(value)


@attrs.frozen(kw_only=True)
class Pins:
    """The pins of one server, immutable.

    Attributes:
        tools: the pin of each tool, by the server's own name of the tool.
        identity: the pin of the server's identity, or None if unknown.
    """

    tools: Mapping[str, str] = attrs.field(default=FrozenDict(), converter=_frozen, hash=False)
    identity: str | None = None

    def approve(self, seen: Pins, names: Iterable[str] | None = None) -> Pins:
        """Return these pins with tools of another listing accepted.

        Args:
            seen: the pins of the listing that a person has reviewed, not of a newer listing.
            names: the tools to approve; a tool not in `seen` is approved as removed. Default: the whole listing.

        Returns:
            The accepted pins. If the identity has changed, nothing accepted under the old identity remains.
        """
        identity = seen.identity or self.identity
        if names is None:
            return Pins(tools=seen.tools, identity=identity)
        kept = {} if _is_other(self.identity, seen.identity) else dict(self.tools)
        for name in names:
            kept.pop(name, None)
            if name in seen.tools:
                kept[name] = seen.tools[name]
        return Pins(tools=kept, identity=identity)

    def to_json(self) -> dict[str, str]:
        """Return the pins as a JSON object of strings."""
        identity = {} if self.identity is None else {_IDENTITY_KEY: self.identity}
        return identity | {f"{_TOOL_PREFIX}{name}": each for name, each in self.tools.items()}

    @classmethod
    def from_json(cls, data: object) -> Pins:
        """Return the pins from the output of `to_json`.

        Raises:
            ValueError: the data is damaged, or has another form.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"pins must be an object of hashes by name, not a {type(data).__name__}")
        tools: dict[str, str] = {}
        identity = None
        for key, value in data.items():
            if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
                raise ValueError(f"the pin {key!r:.80} is not a SHA-256 in hexadecimal")
            if key == _IDENTITY_KEY:
                identity = value
            elif isinstance(key, str) and key.startswith(_TOOL_PREFIX):
                tools[key.removeprefix(_TOOL_PREFIX)] = value
            else:
                raise ValueError(f"unknown pin {key!r:.80}")
        return cls(tools=tools, identity=identity)


def pins_of(tools: Iterable[ListedTool], *, identity: Mapping[str, Any] | None = None) -> Pins:
    """Return the pins of a listing. If several tools have the same name, the first one counts.

    Args:
        tools: the listed tools.
        identity: the server's identity (see `identity_pin`), or None if unknown.
    """
    pins: dict[str, str] = {}
    for tool in tools:
        if tool.name not in pins:
            pins[tool.name] = pin(tool)
    return Pins(tools=pins, identity=None if identity is None else identity_pin(identity))


@attrs.frozen(kw_only=True)
class PinVerdict:
    """The difference between a listing and the accepted listing. Equal verdicts need to be logged only once.

    Attributes:
        added: tools that were never accepted, in listed order.
        changed: tools accepted with another definition, in listed order; all if the identity changed.
        removed: accepted tools that are no longer listed.
        identity_changed: whether the server's identity has changed.
        hidden: tools to hide until they are approved.
        accepted: the pins to compare the next listing with, and to remember.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    identity_changed: bool = False
    hidden: frozenset[str] = frozenset()
    accepted: Pins

    def __bool__(self) -> bool:
        """Return whether the listing differs from the accepted listing."""
        return bool(self.added or self.changed or self.removed or self.identity_changed)

    def summary(self) -> str:
        """Return the difference in words: ``"added: 'x', 'y'; changed: 'z'"``. Names are shortened."""
        parts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        said = [f"{what}: {listed(names)}" for what, names in parts.items() if names]
        return "; ".join(["its command or URL has changed"] * self.identity_changed + said) or "nothing"


def judge(accepted: Pins | None, seen: Pins, policy: OnToolChange) -> PinVerdict:
    """Compare a listing with the accepted listing.

    - ``"allow"`` and ``"warn"`` accept the listing: a difference is reported once;
    - ``"block"`` accepts nothing by itself: an added or changed tool is hidden in every listing until approved
      (`Pins.approve`) or changed back to the accepted definition. A tool that disappears must return unchanged.

    Args:
        accepted: the accepted pins; None for the very first listing, which is trusted.
        seen: the pins of the listing.
        policy: ``ServerConfig.on_tool_change``.
    """
    if accepted is None:
        return PinVerdict(accepted=seen)
    other = _is_other(accepted.identity, seen.identity)
    known = accepted.tools
    added = tuple(name for name in seen.tools if name not in known)
    changed = tuple(name for name, each in seen.tools.items() if name in known and (other or known[name] != each))
    return PinVerdict(
        added=added,
        changed=changed,
        removed=tuple(name for name in known if name not in seen.tools),
        identity_changed=other,
        hidden=frozenset((*added, *changed)) if policy == "block" else frozenset(),
        accepted=accepted if policy == "block" else accepted.approve(seen),
    )


def _is_other(accepted: str | None, seen: str | None) -> bool:
    """Return whether two identities are known to differ."""
    return accepted is not None and seen is not None and accepted != seen


# --- Keep listings between runs ---------------------------------------------------------------------------------------

# A file is a cache, ignored if broken. It is replaced as a whole: several programs may write the same file, and the
# last one wins. A file removed just after it was read is written again at the next listing. All functions block.


logger = Log("mcp_actors.catalog")

FORMAT: Final = "mcp-actors catalog"
VERSION: Final = 1

UNUSED: Final = 180 * 86_400.0
"""Seconds after which an unused file is removed, with the accepted pins."""

MOST_FILES: Final = 1000
"""Maximum of files to keep. Beyond it the oldest are removed, unless used within `RECENT_SECONDS`."""

RECENT_SECONDS: Final = 86_400.0
"""Seconds after a use in which a file is neither marked as used again, nor removed for the number of files."""

MAX_PIN_BYTES: Final = 16 * 1024 * 1024
"""The largest file to read or write. A thousand tools with long schemas take about 2 MiB."""


def default_directory() -> Path:
    try:
        return user_directory("cache") / "catalogs"
    except RuntimeError:
        message = "catalog_store=True: the home directory of this user is not known; give a directory instead"
        raise ConfigError(message, source="open_servers", path="catalog_store") from None


@attrs.frozen(kw_only=True)
class RememberedCatalog:
    """The remembered data of one server.

    Attributes:
        server: the configured name, for people who read the file.
        tools: the tools in the form of the protocol; None if too large.
        pins: the pins to compare the next listing with, or None if changes are not checked.
        identity: the pin of the identity at the time of the listing, or None if unknown.
        legacy: the name and version of a server that fails when asked for the protocol era, or None.
        former: accepted definitions no longer listed, to show people what has changed.
    """

    server: str
    tools: tuple[Mapping[str, Any], ...] | None
    pins: Pins | None = None
    identity: str | None = None
    legacy: str | None = None
    former: tuple[Mapping[str, Any], ...] = ()


class _UnusablePins(Exception):
    """A file to ignore; the text says why."""


class _TooLarge(_UnusablePins):
    """A catalogue that exceeds the size limit."""


class CatalogStore:
    """A directory of remembered catalogues, created at the first save."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        # Absolute, because the program may change its directory.
        self.directory: Path = Path(os.path.abspath(directory))

    def __repr__(self) -> str:
        return f"CatalogStore({str(self.directory)!r})"

    def path(self, fingerprint: str) -> Path:
        return self.directory / f"{fingerprint}.json"

    def size(self, fingerprint: str) -> int:
        """Return the size of a server's file in bytes; 0 if unknown."""
        try:
            return os.lstat(self.path(fingerprint)).st_size
        except OSError:
            return 0

    def load(self, fingerprint: str) -> RememberedCatalog | None:
        """Return the remembered catalogue of a server; None if missing, or unusable, which is logged.

        Raises:
            OSError: the file may exist, but cannot be read now.
        """
        path = self.path(fingerprint)
        try:
            return _decoded(_read(path), fingerprint)
        except FileNotFoundError:
            return None
        except OSError as exc:
            # Not None: a file that is unreadable only now would count as missing. The server would be trusted anew with
            # any listing, and the file with the accepted pins would be replaced.
            if exc.errno != errno.ELOOP:  # a link, which `_read` does not follow
                raise
            problem = f"it cannot be read ({exc.strerror})"
        except _UnusablePins as exc:
            problem = str(exc)
        text = "the remembered catalogue %s is ignored: %s; it is replaced when its server lists its tools"
        logger.warning(text, path, problem)
        return None

    def save(self, fingerprint: str, catalog: RememberedCatalog) -> bool:
        """Save the catalogue of a server; leave an identical file alone.

        Return True if all was saved; otherwise the reason is logged, and another attempt would fail too.

        Raises:
            OSError: the file cannot be written now.
        """
        path = self.path(fingerprint)
        try:
            data = _encoded(fingerprint, catalog)
            if not _says(path, data):
                replace_file(path, data)
        except (_UnusablePins, ValueError, TypeError, RecursionError) as exc:
            # Too large: keep the pins at least, or a server with a huge list would be trusted anew in each run.
            if isinstance(exc, _TooLarge) and catalog.tools is not None and catalog.pins is not None:
                self.save(fingerprint, attrs.evolve(catalog, tools=None, former=()))
            logger.warning("server %r: its tools are not saved for the next run: %s", catalog.server, exc)
            return False
        return True

    def tidy(self) -> None:
        """Remove long unused files, and temporary files of killed writers. Never raise."""
        now = time.time()
        try:
            ages = sorted((now - status.st_mtime, name) for name, status in _files(self.directory))
        except OSError:
            return
        for place, (age, name) in enumerate(ages):
            if age > UNUSED or (age > RECENT_SECONDS and (place >= MOST_FILES or name.endswith(UNFINISHED))):
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
        "former": list(catalog.former),
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > MAX_PIN_BYTES:
        raise _TooLarge(f"it takes {len(data)} bytes, and the limit is {MAX_PIN_BYTES}")
    return data


def _decoded(data: bytes, fingerprint: str) -> RememberedCatalog:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise _UnusablePins("it is damaged") from None
    match content:
        case {"format": str(form), "version": int(version)} if form == FORMAT and version > VERSION:
            raise _UnusablePins(f"it was written by a newer version of this program (format {version}, not {VERSION})")
        case {"format": str(form), "version": 1, "fingerprint": str(written), "server": str(server), "tools": tools}:
            if form != FORMAT or not _are_tools(tools, content.get("pins")):
                raise _UnusablePins("it is not a catalogue")
            if written != fingerprint:
                raise _UnusablePins(f"it is about another server ({server!r})")
            identity, legacy = content.get("identity"), content.get("legacy")  # older files have none
            if not isinstance(identity, str | None) or not isinstance(legacy, str | None):
                raise _UnusablePins("its identity is damaged")
            former = content.get("former")
            return RememberedCatalog(
                server=server,
                tools=None if tools is None else tuple(tools),
                pins=_pins(content.get("pins")),
                identity=identity,
                legacy=legacy,
                former=tuple(former) if _are_tools(former, None) else (),
            )
    raise _UnusablePins("it is not a catalogue")


def _are_tools(tools: object, pins: object) -> bool:
    """Return whether this is a valid list of tools, which may be None with pins."""
    if tools is None:
        return pins is not None
    return isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)


def _pins(value: object) -> Pins | None:
    try:
        return None if value is None else Pins.from_json(value)
    except ValueError as exc:
        raise _UnusablePins(f"its pins are damaged ({exc})") from None


# --- the files ------------------------------------------------------------------------------------------------------


_PIN_FILE: Final = re.compile(rf"[0-9a-f]+\.json(\.[^.]+{re.escape(UNFINISHED)})?")


def _files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if _PIN_FILE.fullmatch(entry.name):
                with suppress(OSError):  # another program may remove it at the same time
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                        yield entry.name, status


def _read(path: Path) -> bytes:
    # O_NOFOLLOW, because a link could lead to any file; O_NONBLOCK, because opening a named pipe would block the thread
    # forever. Owner and mode are checked on the open descriptor: after a check of the path, another user could replace
    # the file, whose descriptions go to a model.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _UnusablePins("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _UnusablePins("it belongs to another user, or others may write to it")
        if status.st_size > MAX_PIN_BYTES:
            raise _UnusablePins(f"it has more than {MAX_PIN_BYTES} bytes")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            data = file.readall()
        if time.time() - status.st_mtime > RECENT_SECONDS:
            with suppress(OSError):
                os.utime(descriptor)
    finally:
        os.close(descriptor)
    return data


def _says(path: Path, data: bytes) -> bool:
    try:
        return _read(path) == data
    except (OSError, _UnusablePins):
        return False
