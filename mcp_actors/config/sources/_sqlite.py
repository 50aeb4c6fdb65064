"""A table of servers in a SQLite file (`SqliteSource`)."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import quote

from ..._errors import ConfigError
from ..._misuse import explained
from ..formats import file_name
from ._table import SELECT, SERVERS, STATUS, TIMEOUT, Row, TableSource, names_of

_STATUS_TABLE: Final = f"""
    CREATE TABLE IF NOT EXISTS {STATUS} (
        name TEXT NOT NULL,
        instance TEXT NOT NULL,
        status TEXT NOT NULL,
        updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY (name, instance)
    )"""
_SQLITE_TABLES: Final = f"""
    CREATE TABLE IF NOT EXISTS {SERVERS} (
        name TEXT PRIMARY KEY,
        spec TEXT NOT NULL,
        enabled INTEGER NOT NULL DEFAULT 1,
        updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    )"""
_SQLITE_WRITE: Final = f"""
    INSERT INTO {STATUS} (name, instance, status) VALUES (?, ?, ?)
    ON CONFLICT (name, instance) DO UPDATE SET status = excluded.status, updated_at = CURRENT_TIMESTAMP"""
_REMEDY: Final = "check the path and its permissions, or create the tables with create_tables()"
_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "end the transaction of the program that has locked it",
    sqlite3.SQLITE_INTERRUPT: f"reading it took longer than {TIMEOUT:g} s; check what is behind this table",
    sqlite3.SQLITE_NOTADB: "give the path of a SQLite file",
    sqlite3.SQLITE_CORRUPT: "restore the file from a backup",
}
_STEPS: Final = 10_000  # of SQLite's virtual machine between two looks at the clock, far below a millisecond


@explained
class SqliteSource(TableSource):
    """The table ``mcp_servers`` in a SQLite file: ``name``, ``spec`` (JSON), ``enabled``, ``updated_at``.

    The file is opened for reading, for each look, with timeouts of 5 seconds. It is not created.

    Args:
        path: the file, in which ``~`` is expanded.
        refresh_interval: how often a group with ``watch=True`` looks at it: seconds, or a str like ``"30s"``, ``"5m"``
            or ``"1h"``. Default 30 seconds.
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
            ConfigError: SQLite cannot do that.
        """
        with self._connect("rwc") as connection:
            connection.execute(_SQLITE_TABLES)
            connection.execute(_STATUS_TABLE)

    def write_status(self, statuses: Mapping[str, str | None]) -> None:  # as in the base class
        with self._connect("rw") as connection:
            connection.execute(_STATUS_TABLE)
            written = names_of(statuses, removed=False)
            connection.executemany(_SQLITE_WRITE, [(name, self.instance, statuses[name]) for name in written])
            gone = [(name, self.instance) for name in names_of(statuses, removed=True)]
            connection.executemany(f"DELETE FROM {STATUS} WHERE name = ? AND instance = ?", gone)

    def _rows(self) -> Iterator[Row]:
        with self._connect("ro") as connection:
            yield from connection.execute(SELECT.format(spec="spec"))

    @contextmanager
    def _connect(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction.

        Raises:
            ConfigError: SQLite has failed, or it took longer than `TIMEOUT`.
        """
        until = time.monotonic() + TIMEOUT
        try:
            uri = f"file:{quote(self._path)}?mode={mode}"
            if os.path.exists(self._path) and not os.path.isfile(self._path):
                raise sqlite3.OperationalError("this is not a file")  # opening a named pipe would wait for a writer
            with closing(sqlite3.connect(uri, uri=True, timeout=TIMEOUT)) as connection:
                connection.text_factory = _text
                connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            missing = "" if os.path.exists(self._path) else " (the file does not exist)"
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            remedy = _REMEDIES.get(code, _REMEDY)
            raise ConfigError(f"{self.name}: SQLite failed: {error}{missing}; {remedy}", source=self.name) from None


def _text(data: bytes) -> str | bytes:
    """Return text; bytes if it is not UTF-8, which fails its row alone. The error of `sqlite3` would quote it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
