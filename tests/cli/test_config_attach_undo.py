"""``config attach`` and its undo among changes of the host, and with a file of ours that several hosts share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..messages import Said
from .conftest import Run
from .test_config_attach import everything, home as home, ours, parsed, put

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

A = {"command": "a"}
B = {"command": "b", "args": ["x"]}
C = {"command": "c"}


def written(home: Path, host: str, **servers: Any) -> Path:
    """Write the servers of a host, as editors do."""
    return put(home, host, json.dumps({"mcpServers": servers}, indent=2) + "\n")


def servers_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = parsed(file)["mcpServers"]
    return found


def attach(run: Run, host: str, *words: str) -> None:
    done = run("config", "attach", host, *words)
    assert done.returncode == 0, done


def undo(run: Run, host: str, *words: str) -> None:
    attach(run, host, "--undo", *words)


class TestSeveralCopies:
    def test_servers_of_two_runs_are_back_after_two_undos(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        written(home, "cursor", **servers_of(file), c=C)
        attach(run, "cursor")
        undo(run, "cursor")
        assert servers_of(file).keys() == {"mcp-actors", "c"}
        undo(run, "cursor")
        assert servers_of(file) == {"a": A, "c": C}
        assert not ours(home, "cursor").exists()

    def test_the_newest_copy_is_restored(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        undo(run, "cursor")
        written(home, "cursor", a=B, c=C)
        attach(run, "cursor")
        undo(run, "cursor")
        assert servers_of(file) == {"a": B, "c": C}
        assert not ours(home, "cursor").exists()

    def test_a_server_that_was_removed_after_an_undo_stays_removed(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        attached = file.read_text()
        written(home, "cursor", **servers_of(file), c=C)
        attach(run, "cursor")
        undo(run, "cursor")
        file.write_text(attached)
        undo(run, "cursor")
        assert servers_of(file) == {"a": A}

    def test_a_copy_that_cannot_be_read_is_skipped(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        Path(f"{file}.before-mcp-actors1").write_text("{")
        undo(run, "cursor")
        assert servers_of(file) == {"a": A}


class TestSharedFile:
    def shared(self, home: Path, run: Run, **servers: dict[str, Any]) -> list[Path]:
        """Attach hosts to one file of ours."""
        files = [written(home, host.replace("_", "-"), **each) for host, each in servers.items()]
        for host in servers:
            attach(run, host.replace("_", "-"), "--to", "mine.json")
        return files

    def test_an_undo_without_a_copy_that_fits_leaves_the_servers_of_other_hosts(self, home: Path, run: Run) -> None:
        cursor, desktop = self.shared(home, run, cursor={"a": A}, claude_desktop={"b": B})
        cursor.write_text(json.dumps({**parsed(cursor), "theme": "dark"}))
        undo(run, "cursor")
        assert parsed(cursor) == {"theme": "dark", "mcpServers": {"a": A}}
        assert servers_of(home / "mine.json") == {"b": B}
        undo(run, "claude-desktop")
        assert servers_of(desktop) == {"b": B}
        assert not (home / "mine.json").exists()

    @pytest.mark.parametrize("changed", [False, True])
    def test_a_server_of_two_hosts_stays_until_both_are_undone(self, home: Path, run: Run, changed: bool) -> None:
        cursor, desktop = self.shared(home, run, cursor={"a": A}, claude_desktop={"a": A})
        if changed:
            cursor.write_text(json.dumps({**parsed(cursor), "theme": "dark"}))
        undo(run, "cursor")
        assert servers_of(cursor) == {"a": A}
        assert servers_of(home / "mine.json") == {"a": A}
        undo(run, "claude-desktop")
        assert servers_of(desktop) == {"a": A}
        assert not (home / "mine.json").exists()

    @pytest.mark.parametrize("copied", [False, True])
    @pytest.mark.parametrize("missing", [False, True])
    def test_an_undo_that_brings_nothing_back_is_refused(
        self, home: Path, run: Run, said: Said, missing: bool, copied: bool
    ) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        file.write_text(json.dumps({**parsed(file), "theme": "dark"}))
        if missing:
            ours(home, "cursor").unlink()
        else:
            ours(home, "cursor").write_text(json.dumps({"mcpServers": {"mine": B} if copied else {}}))
        if not copied:
            Path(f"{file}.before-mcp-actors").unlink()
        before = everything(home)
        done = run("config", "attach", "cursor", "--undo")
        assert done.returncode == 1
        said("our file is missing" if missing else "our file has no server of the host", done.stderr, home=home)
        assert everything(home) == before

    def test_a_copy_that_fits_is_restored_although_our_file_is_missing(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        ours(home, "cursor").unlink()
        undo(run, "cursor")
        assert servers_of(file) == {"a": A}


class TestOurEntry:
    @pytest.mark.parametrize("changed", [False, True])
    @pytest.mark.parametrize("servers", [{"mcp-actors": A}, {"mcp-actors": A, "b": B}])
    def test_a_server_that_had_the_name_of_our_entry_comes_back(
        self, home: Path, run: Run, servers: dict[str, Any], changed: bool
    ) -> None:
        file = written(home, "cursor", **servers)
        before = file.read_bytes()
        attach(run, "cursor")
        if changed:
            file.write_text(json.dumps({**parsed(file), "theme": "dark"}))
        undo(run, "cursor")
        assert servers_of(file) == servers
        assert changed or file.read_bytes() == before
        assert not ours(home, "cursor").exists()

    @pytest.mark.parametrize("host", ["codex", "cursor"])
    def test_an_entry_in_two_places_is_refused(self, home: Path, run: Run, said: Said, host: str) -> None:
        file = put(home, host)
        attach(run, host)
        if host == "codex":
            file.write_text(file.read_text() + '\n[mcp_servers.mcp-actors.tools.x]\napproval_mode = "auto"\n')
        else:
            entry = json.dumps(servers_of(file)["mcp-actors"])
            file.write_text(f'{{"mcpServers": {{"mcp-actors": {entry}, "mcp-actors": {entry}}}}}')
        before = everything(home)
        done = run("config", "attach", host, "--undo")
        assert done.returncode == 1
        said("our entry in two places", done.stderr, file=file)
        assert everything(home) == before

    def test_keys_that_the_host_has_added_survive_the_next_run(self, home: Path, run: Run) -> None:
        file = written(home, "cursor", a=A)
        attach(run, "cursor")
        added = {"env": {"KEY": "value"}, "alwaysAllow": ["a__x"]}
        entry = {**servers_of(file)["mcp-actors"], **added}
        written(home, "cursor", **{"mcp-actors": entry, "c": C})
        attach(run, "cursor")
        assert servers_of(file) == {"mcp-actors": entry}

    def test_tables_that_the_host_has_added_survive_the_next_run(self, home: Path, run: Run) -> None:
        file = put(home, "codex")
        attach(run, "codex")
        more = '\n[mcp_servers.mcp-actors.tools.x]\napproval_mode = "auto"\n\n[mcp_servers.c]\ncommand = "c"\n'
        file.write_text(file.read_text() + more)
        attach(run, "codex")
        entries = parsed(file)["mcp_servers"]
        assert entries.keys() == {"mcp-actors"}
        assert entries["mcp-actors"]["tools"] == {"x": {"approval_mode": "auto"}}


@pytest.mark.parametrize("words", [(), ("--undo",)])
def test_what_a_host_has_written_meanwhile_is_not_overwritten(
    home: Path, run: Run, said: Said, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    from mcp_actors.cli import _attach_hosts

    file = written(home, "cursor", a=A)
    if words:
        attach(run, "cursor")
    changed = json.dumps({**parsed(file), "theme": "dark"})
    before, write_all = everything(home), _attach_hosts._write_all

    def late(*changes: Any) -> None:
        file.write_text(changed)
        write_all(*changes)

    monkeypatch.setattr(_attach_hosts, "_write_all", late)
    done = run("config", "attach", "cursor", *words)
    assert done.returncode == 1
    said("a file that was changed meanwhile", done.stderr, file=file)
    assert everything(home) == {**before, str(file.relative_to(home)): changed.encode()}
