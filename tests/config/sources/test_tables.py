"""Tables of servers in SQLite, and in a real PostgreSQL."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from attrs import define

from mcp_actors import ConfigError, Http, Stdio
from mcp_actors.config import PostgresSource, SqliteSource, TableSource, _tables

from ...messages import Said

BINARIES: Final = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "/usr/bin")


class Tables:
    """The tables, and a client that writes them."""

    def __init__(self, source: TableSource, execute: Callable[[str], list[Any]]) -> None:
        self.source = source
        self.execute = execute

    def write(self, name: str, spec: object, *, enabled: bool = True) -> None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        self.execute(f"INSERT INTO mcp_servers (name, spec, enabled) VALUES ('{name}', '{text}', {enabled})")


@pytest.fixture
def sqlite(tmp_path: Path) -> Tables:
    file = tmp_path / "servers.db"

    def execute(statement: str) -> list[Any]:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(statement).fetchall()

    source = SqliteSource(file, instance="here")
    source.create_tables()
    return Tables(source, execute)


@define
class Missing:
    """Why there is no PostgreSQL server."""

    reason: str


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | Missing]:
    """Run a server of the system's packages, as another user if this is root, which PostgreSQL refuses."""
    folders = [str(found) for pattern in BINARIES for found in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    initdb, server = (shutil.which(name, path=os.pathsep.join(folders)) for name in ("initdb", "postgres"))
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            yield Missing("this is root, and there is no user 'postgres' to run a server as")
            return
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    if initdb is None or server is None or find_spec("psycopg") is None:
        missing = "PostgreSQL server (apt install postgresql)" if find_spec("psycopg") else "psycopg (extra 'postgres')"
        yield Missing(f"there is no {missing}")
        return
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        if as_user:
            os.chown(folder, as_user["user"], as_user["group"])
        port, data = free.getsockname()[1], f"{folder}/data"
        free.close()
        common: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}, **as_user}
        made = subprocess.run(
            [initdb, "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], capture_output=True, text=True, **common
        )
        assert made.returncode == 0, made.stderr
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with subprocess.Popen([server, "-D", data, *words], stderr=subprocess.PIPE, text=True, **common) as running:
            assert running.stderr is not None
            try:
                assert any("ready to accept connections" in line for line in running.stderr)
                yield f"postgresql://tester:hunter2@127.0.0.1:{port}/postgres"
            finally:
                running.send_signal(signal.SIGQUIT)


@pytest.fixture
def postgres(postgres_server: str | Missing) -> Tables:
    if isinstance(postgres_server, Missing):
        pytest.skip(postgres_server.reason)
    conninfo = postgres_server

    def execute(statement: str) -> list[Any]:
        import psycopg

        # The database has no encoding, as the server was made with LC_ALL=C.
        with psycopg.connect(conninfo, client_encoding="UTF8") as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload,unused-ignore]  # a test's own text
            return cursor.fetchall() if cursor.description else []

    source = PostgresSource(conninfo, instance="here")
    execute("DROP TABLE IF EXISTS mcp_servers, mcp_server_status")
    source.create_tables()
    return Tables(source, execute)


# The server is an argument so that it is started before the check of what a test leaves behind begins.
@pytest.fixture(params=["sqlite", "postgres"])
def tables(request: pytest.FixtureRequest, postgres_server: str | Missing) -> Tables:
    found: Tables = request.getfixturevalue(request.param)
    return found


def test_each_row_is_a_server(tables: Tables) -> None:
    """S2-19, S3-01."""
    tables.write("local", {"command": "server", "env": {"TOKEN": "${TOKEN}"}, "mcp_actors": {"request_timeout": 5}})
    tables.write("docs", {"url": "https://x.example"})
    tables.write("off", {"command": "x", "disabled": False}, enabled=False)
    [loaded] = tables.source.read()
    assert not loaded.errors
    docs, local, off = loaded.servers
    assert docs.transport == Http("https://x.example")
    assert local.transport == Stdio("server", env={"TOKEN": "${TOKEN}"})
    assert local.request_timeout == 5
    assert (docs.enabled, off.enabled) == (True, False)
    assert docs.source == loaded.source == tables.source.name


def test_a_changed_row_changes_the_look_although_no_column_says_when(tables: Tables) -> None:
    tables.write("a", {"command": "x"})
    before = tables.source.look()
    assert tables.source.look() == before
    tables.execute("""UPDATE mcp_servers SET spec = '{"command": "y"}'""")
    after = tables.source.look()
    assert after != before
    tables.execute("UPDATE mcp_servers SET enabled = (1 = 0)")
    assert tables.source.look() not in (before, after)


def test_the_watched_table_is_only_read_and_states_go_into_their_own(tables: Tables) -> None:
    tables.write("a", {"command": "x"})
    before = tables.source.look(), tables.execute("SELECT * FROM mcp_servers")
    tables.source.write_status({"a": "connecting", "b": "ready"})
    tables.source.write_status({"a": "ready", "b": None})
    status = tables.execute("SELECT name, instance, status FROM mcp_server_status")
    assert status == [("a", "here", "ready")]
    assert (tables.source.look(), tables.execute("SELECT * FROM mcp_servers")) == before


def test_a_row_that_is_not_valid_is_an_error_of_this_row(sqlite: Tables, said: Said) -> None:
    """S3-07. PostgreSQL refuses most of these by the types of its columns."""
    specs = {
        "no JSON": '{"command": ',
        "a list": "[]",
        "deep": "[" * 10_000,
        "long": json.dumps({"command": "x" * 70_000}),
        "twice": '{"command": "x", "command": "y"}',
        "unknown": '{"command": "x", "mcp_actors": {"retries": 1}}',
    }
    for name, spec in specs.items():
        sqlite.write(name.replace(" ", "_"), spec)
    sqlite.write("good", {"command": "x"})
    sqlite.execute("INSERT INTO mcp_servers (name, spec, enabled) VALUES ('enabled', '{}', 'yes')")
    sqlite.execute("INSERT INTO mcp_servers (name, spec) VALUES ('blob', x'00')")
    rows = {
        "no_JSON": "row: no_JSON",
        "a_list": "row: a_list",
        "deep": "row: deep",
        "long": "row: long",
        "twice": "row: twice",
        "unknown": "row: unknown",
        "enabled": "row: enabled",
        "blob": "row: blob",
    }
    [loaded] = sqlite.source.read()
    assert [config.name for config in loaded.servers] == ["good"]
    for name, error in loaded.failed.items():
        said(rows[name], str(error), file=sqlite.source.name.rpartition(":")[0])
    assert loaded.failed.keys() == rows.keys()


def test_a_table_without_a_key_may_have_a_name_twice_which_is_an_error(tmp_path: Path) -> None:
    """S2-19."""
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE mcp_servers (name, spec, enabled)")
        row = ("a", '{"command": "x"}', 1)
        connection.executemany("INSERT INTO mcp_servers VALUES (?, ?, ?)", [row, row])
    [loaded] = SqliteSource(file).read()
    assert "is called 'a' too; rename one of them" in str(loaded.failed["a"])


@pytest.mark.parametrize("limit", ["a table with too many rows", "a table with too many bytes"])
def test_a_table_that_is_too_large_is_refused(tables: Tables, said: Said, limit: str) -> None:
    number, command = (1001, "x") if "rows" in limit else (20, "x" * 60_000)
    text = json.dumps({"command": command})
    kind = "JSONB" if isinstance(tables.source, PostgresSource) else "TEXT"
    series = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})"
    rows = f"SELECT 'a' || i, CAST('{text}' AS {kind}) FROM n"
    tables.execute(f"INSERT INTO mcp_servers (name, spec) {series} {rows}")
    errors = []
    for method in (tables.source.look, tables.source.read):
        with pytest.raises(ConfigError) as caught:
            method()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    said(limit, errors[0], table=tables.source.name)


def test_a_database_that_is_not_there_is_an_error_without_credentials(tmp_path: Path, said: Said) -> None:
    source = SqliteSource(tmp_path / "absent.db")
    with pytest.raises(ConfigError) as caught:
        source.look()
    said("no SQLite file", str(caught.value), file=tmp_path / "absent.db")
    assert not (tmp_path / "absent.db").exists()
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra 'postgres')")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConfigError, match="refused") as refused:
        PostgresSource(f"postgresql://user:hunter2@127.0.0.1:{port}/db").look()
    assert "hunter2" not in f"{refused.value!r} {refused.value.__context__!r}"
    assert str(refused.value).startswith(f"postgresql://127.0.0.1:{port}/db:mcp_servers: PostgreSQL failed: ")


def test_text_that_is_not_utf_8_is_an_error_of_its_row_and_not_shown(sqlite: Tables) -> None:
    sqlite.write("good", {"command": "x"})
    sqlite.execute("INSERT INTO mcp_servers (name, spec) VALUES ('bad', CAST(x'7b22683a226c65616b6564ff227d' AS TEXT))")
    (loaded,) = sqlite.source.read()
    assert [server.name for server in loaded.servers] == ["good"]
    assert "row.bad.spec: found a bytes" in str(loaded.errors[0])
    assert "leaked" not in str(loaded.errors[0])


def test_a_file_that_is_not_a_database_is_an_error_with_a_remedy(tmp_path: Path, said: Said) -> None:
    pipe, garbage = tmp_path / "pipe", tmp_path / "garbage"
    os.mkfifo(pipe)
    garbage.write_bytes(b"garbage" * 1000)
    for row, file in (("a pipe as SQLite file", pipe), ("garbage as SQLite file", garbage)):
        with pytest.raises(ConfigError) as caught:
            SqliteSource(file).read()
        said(row, str(caught.value), file=file)


def test_a_table_that_is_missing_is_an_error(postgres: Tables, said: Said) -> None:
    postgres.execute("DROP TABLE mcp_servers")
    with pytest.raises(ConfigError) as caught:
        postgres.source.read()
    said("no table", str(caught.value), table=postgres.source.name)


def test_a_lock_is_not_waited_for_longer_than_the_timeout(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(_tables, "TABLE_TIMEOUT", 0.05)
    if isinstance(tables.source, PostgresSource):
        import psycopg

        locker: Any = psycopg.connect(tables.source._conninfo)
        locker.execute("LOCK TABLE mcp_servers")
    else:
        assert isinstance(tables.source, SqliteSource)
        locker = sqlite3.connect(tables.source._path, isolation_level=None)
        locker.execute("BEGIN EXCLUSIVE")
    with closing(locker), pytest.raises(ConfigError) as caught:
        tables.source.look()
    rows = {"SqliteSource": "a lock in SqliteSource", "PostgresSource": "a lock in PostgresSource"}
    said(rows[type(tables.source).__name__], str(caught.value), table=tables.source.name)


def test_a_statement_does_not_run_longer_than_the_timeout(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(_tables, "TABLE_TIMEOUT", 0.05)
    tables.execute("DROP TABLE mcp_servers")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    tables.execute(f"CREATE VIEW mcp_servers AS SELECT 'a' AS name, '{{}}' AS spec, ({endless}) AS enabled")
    try:
        with pytest.raises(ConfigError) as caught:
            tables.source.look()
    finally:
        tables.execute("DROP VIEW mcp_servers")
    rows = {"SqliteSource": "a slow statement in SqliteSource", "PostgresSource": "a slow statement in PostgresSource"}
    said(rows[type(tables.source).__name__], str(caught.value), table=tables.source.name)


@pytest.mark.parametrize(
    ("interval", "seconds"), [(5, 5.0), ("5", 5.0), ("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0), ("1d", 86400.0)]
)
def test_an_interval_is_a_number_of_seconds_or_has_a_unit(interval: Any, seconds: float) -> None:
    """S2-22."""
    assert SqliteSource("x.db", refresh_interval=interval).interval == seconds


@pytest.mark.parametrize("interval", ["soon", "", "5 m", "-5s", 0, -1, True, None, float("nan"), "٣s", "1" * 400])
def test_an_interval_that_is_not_valid_is_refused(interval: Any) -> None:
    """S2-22."""
    with pytest.raises(ConfigError, match="is not an interval; write a number"):
        SqliteSource("x.db", refresh_interval=interval)


def test_a_conninfo_that_is_not_valid_is_refused_without_being_shown(said: Said) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra 'postgres')")
    with pytest.raises(ConfigError) as caught:
        PostgresSource("hunter2 = = x")
    said("a conninfo", str(caught.value))


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError) as caught:
        PostgresSource("")
    said("no psycopg", str(caught.value))
