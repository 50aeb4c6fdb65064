"""A table of servers in PostgreSQL (`PostgresSource`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ..._errors import ConfigError
from ..._misuse import explained
from ._table import SELECT, SERVERS, STATUS, TIMEOUT, Row, TableSource, names_of

_POSTGRES_TABLES: Final = (
    f"""
    CREATE TABLE IF NOT EXISTS {SERVERS} (
        name text PRIMARY KEY,
        spec jsonb NOT NULL,
        enabled boolean NOT NULL DEFAULT true,
        updated_at timestamptz NOT NULL DEFAULT now()
    )""",
    f"""
    CREATE TABLE IF NOT EXISTS {STATUS} (
        name text NOT NULL,
        instance text NOT NULL,
        status text NOT NULL,
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (name, instance)
    )""",
)
_POSTGRES_WRITE: Final = f"""
    INSERT INTO {STATUS} (name, instance, status) VALUES (%s, %s, %s)
    ON CONFLICT (name, instance) DO UPDATE SET status = excluded.status, updated_at = now()"""
_FETCHED: Final = 50  # rows at a time, so that no more than a few MiB are in memory before they are counted


@explained
class PostgresSource(TableSource):
    """The table ``mcp_servers`` in PostgreSQL: ``name``, ``spec`` (JSON), ``enabled``, ``updated_at``.

    A connection is opened for each look, with timeouts of 5 seconds for the connect and for each statement. Requires
    psycopg 3: ``pip install 'mcp-actors[postgres]'``.

    Args:
        conninfo: the database, as for ``psycopg.connect``: ``"postgresql://user@host/database"`` or
            ``"host=… dbname=…"``. Leave the password to ``PGPASSWORD`` or ``~/.pgpass``; neither is ever shown.
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
        """Create the two tables, if they do not exist. Blocks.

        Raises:
            ConfigError: the database cannot be reached, or does not allow it.
        """
        with self._connect() as connection:
            for statement in _POSTGRES_TABLES:
                connection.execute(statement)

    def write_status(self, statuses: Mapping[str, str | None]) -> None:  # as in the base class
        with self._connect() as connection, connection.cursor() as cursor:
            written = names_of(statuses, removed=False)
            cursor.executemany(_POSTGRES_WRITE, [(name, self.instance, statuses[name]) for name in written])
            gone = [(name, self.instance) for name in names_of(statuses, removed=True)]
            cursor.executemany(f"DELETE FROM {STATUS} WHERE name = %s AND instance = %s", gone)

    def _rows(self) -> Iterator[Row]:
        with self._connect(read_only=True) as connection, connection.cursor(name="mcp_actors") as cursor:
            cursor.itersize = _FETCHED
            cursor.execute(SELECT.format(spec="spec::text"))
            yield from cursor

    @contextmanager
    def _connect(self, *, read_only: bool = False) -> Iterator[Any]:
        """Connect for one transaction.

        Raises:
            ConfigError: PostgreSQL or the connection to it has failed, or a timeout has expired.
        """
        import psycopg

        milliseconds = f"{TIMEOUT * 1000:.0f}"
        try:
            with psycopg.connect(
                self._conninfo,
                connect_timeout=int(TIMEOUT),
                # A connection whose other side has vanished would otherwise be waited for until TCP gives up.
                tcp_user_timeout=int(TIMEOUT * 1000),
                application_name="mcp_actors",
                client_encoding="UTF8",  # psycopg would return bytes from a database without an encoding
            ) as connection:
                connection.read_only = read_only
                # Within the transaction, because poolers such as PgBouncer refuse them as options of the connect.
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
            # The text of the error repeats parts of the conninfo.
            problem = "conninfo is not valid; write postgresql://user@host/database"
            raise ConfigError(f"PostgresSource: {problem}", source="PostgresSource") from None


def _reason(error: Exception) -> str:
    """Return what PostgreSQL says in one line. An error of the connect has a line for each address that was tried."""
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return f"PostgreSQL failed: {lines[0] if lines else type(error).__name__}; check the database and its permissions"
