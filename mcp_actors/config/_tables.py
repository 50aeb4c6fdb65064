"""Read servers from a table in PostgreSQL or SQLite; write their states.

A `TableSource` blocks a thread that nothing can stop, so each connect, lock and statement has a timeout.

Owns: connections to databases.
Writes: states of servers; new tables; new SQLite files.
Calls: config.formats, _server, _sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from .._errors import ConfigError
from .._misuse import explained
from ._server import LoadedConfig, Rank
from ._sources import seconds_of
from .formats import Entry, JsonObject, bad, child, file_name, found, json_problem, load_entries

SERVERS: Final = "mcp_servers"
STATUS_TABLE: Final = "mcp_server_status"

MAX_ROWS: Final = 1000
"""Rows in a table."""

MAX_SPEC: Final = 64 * 1024
"""Characters of one entry. Long entries have a few thousand."""

MAX_ENTRY_CHARACTERS: Final = 1024 * 1024
"""Characters of all entries."""

TABLE_TIMEOUT: Final = 5.0
"""Seconds for a connect, a lock or a statement."""

_ROW: Final = "row"  # the first part of a place in an error: "row.docs.spec"

Row: TypeAlias = tuple[object, object, object]
"""The name, the entry and whether it is enabled, as the database returns them."""

SELECT: Final = (
    f"SELECT name, substr({{spec}}, 1, {MAX_SPEC + 1}), enabled FROM {SERVERS} ORDER BY name LIMIT {MAX_ROWS + 1}"
)


def tables_of(spec: str, enabled: str, time: str) -> tuple[str, str]:
    """Return the statements that create the two tables."""
    updated_at = f"updated_at {time} NOT NULL DEFAULT CURRENT_TIMESTAMP"
    servers = f"name text PRIMARY KEY, spec {spec} NOT NULL, enabled {enabled}, {updated_at}"
    columns = "name text NOT NULL, instance text NOT NULL, status text NOT NULL"
    states = f"{columns}, {updated_at}, PRIMARY KEY (name, instance)"
    return f"CREATE TABLE IF NOT EXISTS {SERVERS} ({servers})", f"CREATE TABLE IF NOT EXISTS {STATUS_TABLE} ({states})"


_WRITE: Final = f"""
    INSERT INTO {STATUS_TABLE} (name, instance, status) VALUES ({{0}}, {{0}}, {{0}})
    ON CONFLICT (name, instance) DO UPDATE SET status = excluded.status, updated_at = CURRENT_TIMESTAMP"""


class TableSource(ABC):
    """A table of servers.

    Each call opens and closes a connection: calls are rare, and a kept connection would have to be checked.
    """

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
            ConfigError: the database cannot be reached, or does not allow the change.
        """

    @abstractmethod
    def _rows(self) -> Iterator[Row]:
        """Yield the rows, ordered by name."""

    def look(self) -> Hashable:
        """Return a hash of the rows.

        Raises:
            ConfigError: the database cannot be read, or there are too many rows.
        """
        return hashlib.sha256(repr(self._bounded()).encode(errors="replace")).hexdigest()

    def read(self) -> tuple[LoadedConfig, ...]:
        """Return the servers in the table. An invalid row is an error in the result.

        Raises:
            ConfigError: as for `look`.
        """
        return (load_entries(self.name, map(self._entry, self._bounded())),)

    def _write(self, cursor: Any, statuses: Mapping[str, str | None], mark: str) -> None:
        """`mark` is the database's placeholder for a value."""
        written = [(name, self.instance, status) for name, status in statuses.items() if status is not None]
        cursor.executemany(_WRITE.format(mark), written)
        gone = [(name, self.instance) for name, status in statuses.items() if status is None]
        cursor.executemany(f"DELETE FROM {STATUS_TABLE} WHERE name = {mark} AND instance = {mark}", gone)

    def _bounded(self) -> list[Row]:
        """Return the rows; refuse too many."""
        rows, characters = [], 0
        for row in self._rows():
            rows.append(row)
            characters += len(str(row[1]))
            if len(rows) > MAX_ROWS or characters > MAX_ENTRY_CHARACTERS:
                limit = f"{MAX_ROWS} rows" if len(rows) > MAX_ROWS else f"{MAX_ENTRY_CHARACTERS // 1024**2} MiB"
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
        raise bad(source, place, f"this is not valid JSON: {json_problem(error)}") from None
    except (ValueError, RecursionError):
        raise bad(source, place, "this is not valid JSON: it is nested too deeply, or a number is too long") from None


def _is_enabled(source: str, place: str, enabled: object) -> bool:
    if enabled in (0, 1):  # SQLite has no booleans
        return bool(enabled)
    raise bad(source, place, f"found {found(enabled)}; write true or false (1 or 0)")


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@explained
class PostgresSource(TableSource):
    """The table ``mcp_servers`` in PostgreSQL: ``name``, ``spec`` (JSON), ``enabled``, ``updated_at``.

    A connection is opened for each look, with timeouts of 5 seconds for the connect and for each statement. Requires
    psycopg 3: ``pip install 'mcp-actors[postgres]'``.

    Args:
        conninfo: the database, as for ``psycopg.connect``: ``"postgresql://user@host/database"`` or
            ``"host=… dbname=…"``. Leave the password to ``PGPASSWORD`` or ``~/.pgpass``; no password is shown.
        refresh_interval: as for `SqliteSource`.
        instance: as for `SqliteSource`. The table ``mcp_server_status`` must exist.

    Raises:
        ConfigError: psycopg is not installed, or an argument is not valid.
    """

    def __init__(self, conninfo: str, *, refresh_interval: float | str = 30.0, instance: str | None = None) -> None:
        super().__init__(refresh_interval, instance)
        self._conninfo = conninfo
        parts = self._parts()
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = f":{parts['port']}" if parts.get("port") else ""
        self._name = f"postgresql://{host}{port}/{parts.get('dbname') or ''}:{SERVERS}"

    @property
    def name(self) -> str:
        """The host, the database and the table."""
        return self._name

    def create_tables(self) -> None:
        """Create the two tables if they do not exist. Blocks.

        Raises:
            ConfigError: the database cannot be reached, or does not allow the change.
        """
        with self._connect() as connection:
            for statement in tables_of("jsonb", "boolean NOT NULL DEFAULT true", "timestamptz"):
                connection.execute(statement)

    def write_status(self, statuses: Mapping[str, str | None]) -> None:  # as in the base class
        with self._connect() as connection, connection.cursor() as cursor:
            self._write(cursor, statuses, "%s")

    def _rows(self) -> Iterator[Row]:
        with self._connect(read_only=True) as connection, connection.cursor(name="mcp_actors") as cursor:
            cursor.itersize = 50  # at most a few MiB are in memory before they are counted
            cursor.execute(SELECT.format(spec="spec::text"))
            yield from cursor

    @contextmanager
    def _connect(self, *, read_only: bool = False) -> Iterator[Any]:
        """Connect for one transaction. Errors of PostgreSQL become a ConfigError."""
        import psycopg

        milliseconds = f"{TABLE_TIMEOUT * 1000:.0f}"
        try:
            with psycopg.connect(
                self._conninfo,
                connect_timeout=int(TABLE_TIMEOUT),
                # If the other side vanishes, TCP would wait for minutes, and a group cannot stop this thread.
                tcp_user_timeout=int(TABLE_TIMEOUT * 1000),
                application_name="mcp_actors",
                client_encoding="UTF8",  # psycopg would return bytes from a database without an encoding
            ) as connection:
                connection.read_only = read_only
                # The timeouts are set within the transaction, and only for it: poolers such as PgBouncer refuse them as
                # options of the connect, and would hand a setting of the session to the next client.
                connection.execute("SELECT set_config('statement_timeout', %s, true)", (milliseconds,))
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds,))
                yield connection
        except psycopg.Error as error:
            raise ConfigError(f"{self.name}: {_reason(error)}", source=self.name) from None

    def _parts(self) -> dict[str, Any]:
        try:
            from psycopg import ProgrammingError
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            message = "PostgresSource: psycopg is not installed; run: pip install 'mcp-actors[postgres]'"
            raise ConfigError(message, source="PostgresSource") from None
        try:
            return dict(conninfo_to_dict(self._conninfo))
        except ProgrammingError:
            # The text of the error would repeat parts of the conninfo, perhaps the password.
            problem = "conninfo is not valid; write postgresql://user@host/database"
            raise ConfigError(f"PostgresSource: {problem}", source="PostgresSource") from None


def _reason(error: Exception) -> str:
    """Return PostgreSQL's message in one line; an error of the connect has a line for each address."""
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return f"PostgreSQL failed: {lines[0] if lines else type(error).__name__}; check the database and its permissions"


# --- SQLite -----------------------------------------------------------------------------------------------------------


_SQLITE_TABLES: Final = tables_of("text", "integer NOT NULL DEFAULT 1", "text")
_TABLE_REMEDY: Final = "check the path and its permissions, or create the tables with create_tables()"
_SQLITE_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "end the transaction of the program that has locked it",
    sqlite3.SQLITE_INTERRUPT: f"reading it took longer than {TABLE_TIMEOUT:g} s; check what is behind this table",
    sqlite3.SQLITE_NOTADB: "give the path of a SQLite file",
    sqlite3.SQLITE_CORRUPT: "restore the file from a backup",
}


@explained
class SqliteSource(TableSource):
    """The table ``mcp_servers`` in a SQLite file: ``name``, ``spec`` (JSON), ``enabled``, ``updated_at``.

    Each look opens the file for reading, with timeouts of 5 seconds. A missing file is not created.

    Args:
        path: the file, in which ``~`` is expanded.
        refresh_interval: how often a group with ``watch=True`` looks at the table: seconds, or a str like ``"30s"``,
            ``"5m"`` or ``"1h"``. Default 30 seconds.
        instance: the name of this program, under which the states of the servers are written to the table
            ``mcp_server_status``: ``name``, ``instance``, ``status``, ``updated_at``. None (default) writes nothing.

    Raises:
        ConfigError: the path or the interval is not valid.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, refresh_interval: float | str = 30.0, instance: str | None = None
    ) -> None:
        super().__init__(refresh_interval, instance)
        self._path = os.path.abspath(file_name(path, "SqliteSource: path"))

    @property
    def name(self) -> str:
        """The absolute path and the table."""
        return f"{self._path}:{SERVERS}"

    def create_tables(self) -> None:
        """Create the file and the two tables, if they do not exist. Blocks.

        Raises:
            ConfigError: SQLite failed.
        """
        with self._connect("rwc") as connection:
            for statement in _SQLITE_TABLES:
                connection.execute(statement)

    def write_status(self, statuses: Mapping[str, str | None]) -> None:  # as in the base class
        with self._connect("rw") as connection:
            connection.execute(_SQLITE_TABLES[1])
            self._write(connection, statuses, "?")

    def _rows(self) -> Iterator[Row]:
        with self._connect("ro") as connection:
            yield from connection.execute(SELECT.format(spec="spec"))

    @contextmanager
    def _connect(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. Errors of SQLite become a ConfigError."""
        until = time.monotonic() + TABLE_TIMEOUT
        try:
            uri = f"file:{quote(self._path)}?mode={mode}"
            if os.path.exists(self._path) and not os.path.isfile(self._path):
                raise sqlite3.OperationalError("this is not a file")  # opening a named pipe would wait for a writer
            with closing(sqlite3.connect(uri, uri=True, timeout=TABLE_TIMEOUT)) as connection:
                connection.text_factory = _text
                # SQLite's own timeout covers locks only. A view or a huge table could keep the thread busy for hours,
                # and a group can only abandon the thread. So check the clock after each 10 000 steps of SQLite's
                # virtual machine, far below a millisecond.
                connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            missing = "" if os.path.exists(self._path) else " (the file does not exist)"
            remedy = _SQLITE_REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _TABLE_REMEDY)
            raise ConfigError(f"{self.name}: SQLite failed: {error}{missing}; {remedy}", source=self.name) from None


def _text(data: bytes) -> str | bytes:
    """Return text; bytes that are not UTF-8 fail only their row. An error of `sqlite3` would quote the bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
