"""Tables of servers, whatever the database (`TableSource`).

A table ``mcp_servers`` has a row for each server: its name, its entry in the form of ``mcpServers`` as JSON, and
whether it is enabled. A second table ``mcp_server_status`` has the states of these servers. The first one is only read:
it belongs to those who configure, and a program that wrote there would notice its own changes.

A connection is opened for each look, and closed: a look is rare, and no connection has to be kept alive, checked or
opened again.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from ..._errors import ConfigError
from .._loaded import LoadedConfig
from .._source import Rank
from ..formats import Entry, JsonObject, bad, child, found, load_entries
from ._intervals import seconds_of

SERVERS: Final = "mcp_servers"
STATUS: Final = "mcp_server_status"

MAX_ROWS: Final = 1000
"""Rows of a table, as servers in a file."""

MAX_SPEC: Final = 64 * 1024
"""Characters of one entry. The longest that people write have a few thousand."""

MAX_CHARACTERS: Final = 1024 * 1024
"""Characters of all entries."""

TIMEOUT: Final = 5.0
"""Seconds for a connect, and for a statement."""

_ROW: Final = "row"  # in the places of errors: "row.docs.spec"

Row: TypeAlias = tuple[object, object, object]
"""The name, the entry and whether it is enabled, as the database returns them."""

SELECT: Final = (
    f"SELECT name, substr({{spec}}, 1, {MAX_SPEC + 1}), enabled FROM {SERVERS} ORDER BY name LIMIT {MAX_ROWS + 1}"
)


class TableSource(ABC):
    """A table of servers."""

    rank = Rank.TABLE
    settles = False

    def __init__(self, refresh_interval: float | str, instance: str | None) -> None:
        self.interval: float = seconds_of(refresh_interval, f"{type(self).__name__}: refresh_interval")
        self.instance = instance

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    @abstractmethod
    def name(self) -> str:
        """The database and the table, without credentials."""

    @abstractmethod
    def create_tables(self) -> None:
        """Create the two tables if they do not exist. Blocks."""

    @abstractmethod
    def write_status(self, statuses: Mapping[str, str | None]) -> None:
        """Write the states of servers under the name of this instance; None removes a server. Blocks.

        Raises:
            ConfigError: the database cannot be reached, or does not allow it.
        """

    @abstractmethod
    def _rows(self) -> Iterator[Row]:
        """Yield the rows, in the order of the names.

        Raises:
            ConfigError: the database cannot be reached.
        """

    def look(self) -> Hashable:
        """Return a hash of the rows.

        Raises:
            ConfigError: the database cannot be reached.
        """
        return hashlib.sha256(repr(self._bounded()).encode(errors="replace")).hexdigest()

    def read(self) -> tuple[LoadedConfig, ...]:
        """Return the servers in the table. An invalid row is an error in the result.

        Raises:
            ConfigError: the database cannot be reached.
        """
        return (load_entries(self.name, map(self._entry, self._bounded())),)

    def _bounded(self) -> list[Row]:
        """Return the rows.

        Raises:
            ConfigError: there are too many.
        """
        rows, characters = [], 0
        for row in self._rows():
            rows.append(row)
            characters += len(str(row[1]))
            if len(rows) > MAX_ROWS or characters > MAX_CHARACTERS:
                limit = f"{MAX_ROWS} rows" if len(rows) > MAX_ROWS else f"{MAX_CHARACTERS // 1024**2} MiB"
                raise bad(self.name, "", f"there are more than {limit} in this table; check that it is the right one")
        return rows

    def _entry(self, row: Row) -> Entry:
        name, spec, enabled = row
        place = child(_ROW, name)
        try:
            entry: object = _parsed(self.name, child(place, "spec"), spec)
            if not _is_enabled(self.name, child(place, "enabled"), enabled) and isinstance(entry, Mapping):
                entry = {key: value for key, value in entry.items() if key != "disabled"} | {"enabled": False}
        except ConfigError as error:
            entry = error
        return Entry(name, entry, self.name, _ROW, place)


def _parsed(source: str, place: str, spec: object) -> object:
    if not isinstance(spec, str):
        raise bad(source, place, f"found {found(spec)}; write a JSON object as text")
    if len(spec) > MAX_SPEC:
        raise bad(source, place, f"this is longer than {MAX_SPEC // 1024} KiB; shorten it")
    try:
        return json.loads(spec, object_pairs_hook=JsonObject.of)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise bad(source, place, f"this is not valid JSON: {error.msg.partition(':')[0]} ({where})") from None
    except (ValueError, RecursionError):
        raise bad(source, place, "this is not valid JSON: it is nested too deeply, or a number is too long") from None


def _is_enabled(source: str, place: str, enabled: object) -> bool:
    if enabled in (0, 1):  # SQLite has no other truth values
        return bool(enabled)
    raise bad(source, place, f"found {found(enabled)}; write true or false (1 or 0)")


def names_of(statuses: Mapping[str, str | None], *, removed: bool) -> Iterable[str]:
    """Return the servers that were removed, or those that were not."""
    return [name for name, status in statuses.items() if (status is None) is removed]
