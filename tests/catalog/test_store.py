"""Remembered catalogues: what is written comes back, and what cannot be used is ignored and named."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConfigError
from mcp_actors.catalog import Pins, _pins
from mcp_actors.catalog._pins import CatalogStore, RememberedCatalog, default_directory

from ..messages import Said

KEY: Final = "0123abcd"
TOOLS: Final = ({"name": "search", "inputSchema": {"type": "object"}}, {"name": "grüße", "inputSchema": {}})
CATALOG: Final = RememberedCatalog(
    server="docs", tools=TOOLS, pins=Pins(tools={"search": "0" * 64}, identity="1" * 64), identity="1" * 64
)


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    return CatalogStore(tmp_path / "cache" / "catalogs")


def written(store: CatalogStore, **changes: Any) -> Path:
    """Save a catalogue, and change some fields of the file afterwards."""
    assert store.save(KEY, CATALOG)
    path = store.path(KEY)
    if changes:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_a_saved_catalogue_is_loaded(store: CatalogStore) -> None:
    """S3-06: tools are remembered."""
    assert store.load(KEY) is None
    assert store.save(KEY, CATALOG)
    assert store.load(KEY) == CATALOG
    assert store.load("another") is None
    assert CatalogStore(str(store.directory)).load(KEY) == CATALOG


def test_the_size_of_a_file_is_known_and_0_without_one(store: CatalogStore) -> None:
    assert store.size(KEY) == 0
    path = written(store)
    assert store.size(KEY) == path.stat().st_size > 100


def test_files_and_their_directory_are_the_owner_s_alone(store: CatalogStore) -> None:
    path = written(store)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_later_catalogue_replaces_the_file_as_a_whole(store: CatalogStore) -> None:
    """A reader that has the file open reads the old one to its end."""
    path = written(store)
    with path.open("rb") as reader:
        assert store.save(KEY, RememberedCatalog(server="docs", tools=()))
        assert len(json.loads(reader.read())["tools"]) == len(TOOLS)
    assert store.load(KEY) == RememberedCatalog(server="docs", tools=())
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_says_the_same_already_is_left_alone(store: CatalogStore) -> None:
    before = written(store).stat().st_ino
    assert store.save(KEY, CATALOG)
    assert store.path(KEY).stat().st_ino == before


def test_programs_that_save_at_the_same_time_leave_one_of_their_catalogues_whole(store: CatalogStore) -> None:
    catalogs = [RememberedCatalog(server=f"s{number}", tools=TOOLS * 100) for number in range(8)]

    def save_and_load(number: int) -> bool:
        saved = store.save(KEY, catalogs[number % len(catalogs)])
        return saved and store.load(KEY) in catalogs

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(save_and_load, range(40)))
    assert [path.name for path in store.directory.iterdir()] == [f"{KEY}.json"]


def damage(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def as_link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (damage(""), "it is damaged"),
        (damage('{"format": "mcp-actors catalog", "tools": ['), "it is damaged"),
        (damage("[" * 100_000), "it is damaged"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "it is damaged"),
        (damage("[]"), "it is not a catalogue"),
        (damage('{"format": "mcp-actors catalog", "version": 1}'), "it is not a catalogue"),
        (lambda path: path.chmod(0o622), "it belongs to another user, or others may write to it"),
        (as_link, "it cannot be read (Too many levels of symbolic links)"),
        (as_pipe, "it is not a regular file"),
        (as_directory, "it is not a regular file"),
    ],
    ids=["empty", "cut off", "deep", "binary", "a list", "without tools", "shared", "link", "pipe", "folder"],
)
def test_a_file_that_cannot_be_used_is_ignored_and_named(
    harm: Callable[[Path], object], why: str, store: CatalogStore, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    path = written(store)
    harm(path)
    assert store.load(KEY) is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    said("a remembered catalogue is ignored", record.getMessage(), path=path, why=why)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": 2, "tools": "in another form"}, "written by a newer version of this program (format 2, not 1)"),
        ({"format": "something else", "version": 2}, "not a catalogue"),
        ({"format": "something else"}, "not a catalogue"),
        ({"version": "1"}, "not a catalogue"),
        ({"fingerprint": "beef"}, "about another server ('docs')"),
        ({"tools": [1]}, "not a catalogue"),
        ({"tools": {}}, "not a catalogue"),
        ({"pins": [1]}, "its pins are damaged (pins must be an object"),
        ({"pins": {"tools/search": 1}}, "its pins are damaged (the pin 'tools/search' is not a SHA-256"),
    ],
)
def test_a_file_of_another_kind_is_ignored_and_named(
    changes: dict[str, Any], why: str, store: CatalogStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(store, **changes)
    assert store.load(KEY) is None
    assert str(path) in caplog.text
    assert why in caplog.text


def test_a_file_that_cannot_be_used_is_replaced_by_the_next_catalogue(store: CatalogStore) -> None:
    written(store).write_text("rubbish")
    assert store.save(KEY, CATALOG)
    assert store.load(KEY) == CATALOG


def test_a_file_of_another_user_is_ignored(
    store: CatalogStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(store)
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    assert store.load(KEY) is None
    assert "it belongs to another user" in caplog.text


def test_a_catalogue_that_is_too_large_is_neither_written_nor_read(
    store: CatalogStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(store)
    monkeypatch.setattr(_pins, "MAX_PIN_BYTES", 100)
    assert store.load(KEY) is None
    assert f"{path} is ignored: it has more than 100 bytes" in caplog.text
    assert not store.save(KEY, CATALOG)
    assert "server 'docs': its tools are not saved for the next run: it takes " in caplog.text


@pytest.mark.parametrize("value", [object(), {1: {2, 3}}], ids=["object", "set"])
def test_a_catalogue_that_is_not_json_is_not_saved_and_logged(
    value: object, store: CatalogStore, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-22: a failure to remember is logged, and nothing else."""
    assert not store.save(KEY, RememberedCatalog(server="docs", tools=({"name": value},)))
    assert "server 'docs': its tools are not saved" in caplog.text
    assert not store.directory.exists()


def test_a_directory_that_takes_nothing_is_named(tmp_path: Path) -> None:
    """A write fails, so that it is repeated; a file that cannot be read does not count as missing."""
    (tmp_path / "file").write_text("")
    store = CatalogStore(tmp_path / "file" / "catalogs")
    with pytest.raises(NotADirectoryError, match=str(store.directory)):
        store.save(KEY, CATALOG)
    with pytest.raises(NotADirectoryError, match=str(store.directory)):
        store.load(KEY)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(store)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        store.save(KEY, RememberedCatalog(server="docs", tools=()))
    assert store.load(KEY) == CATALOG
    assert list(store.directory.iterdir()) == [path]


@pytest.mark.parametrize(
    ("platform", "xdg", "expected"),
    [
        ("linux", None, "{home}/.cache"),
        ("linux", "", "{home}/.cache"),
        ("linux", "relative", "{home}/.cache"),
        ("linux", "/var/caches", "/var/caches"),
        ("darwin", "/var/caches", "{home}/Library/Caches"),
    ],
)
def test_the_default_directory_is_where_the_platform_keeps_its_caches(
    platform: str, xdg: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert default_directory() == Path(expected.format(home=tmp_path)) / "mcp-actors" / "catalogs"


def test_a_user_without_a_home_must_give_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    with pytest.raises(ConfigError, match="catalog_store=True: the home directory of this user is not known; give a"):
        default_directory()


def test_repr_names_the_directory() -> None:
    assert repr(CatalogStore("/var/caches")) == "CatalogStore('/var/caches')"


# --- old files ------------------------------------------------------------------------------------------------------

DAY: Final = 86_400


def aged(store: CatalogStore, name: str, days: float) -> Path:
    """A file that was read last so many days ago."""
    store.directory.mkdir(parents=True, exist_ok=True)
    path = store.directory / name
    path.write_text("{}")
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def test_a_file_that_was_not_read_for_half_a_year_is_removed(store: CatalogStore) -> None:
    old, recent = aged(store, "aa.json", 181), aged(store, "bb.json", 179)
    foreign = [aged(store, name, 999) for name in ("notes.json", "aa.txt", "aa.json.bak")]
    (store.directory / "cc.json").mkdir()
    (store.directory / "dd.json").symlink_to(foreign[0])
    store.tidy()
    assert not old.exists()
    assert all(path.exists() for path in (recent, *foreign, store.directory / "cc.json", store.directory / "dd.json"))


def test_of_very_many_those_are_removed_that_were_not_read_for_longest(
    store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except those of the last day, because a person may have very many servers."""
    monkeypatch.setattr(_pins, "MOST_FILES", 2)
    paths = [aged(store, f"{number}.json", days) for number, days in enumerate((0.1, 0.2, 0.3, 2, 3))]
    store.tidy()
    assert [path.exists() for path in paths] == [True, True, True, False, False]


def test_a_thousand_files_are_kept(store: CatalogStore) -> None:
    paths = [aged(store, f"{number}.json", 2 + number / 1000) for number in range(1001)]
    store.tidy()
    assert [path.exists() for path in paths] == [*[True] * 1000, False]


def test_what_writers_that_were_killed_have_left_is_removed(store: CatalogStore) -> None:
    left, writing = aged(store, "aa.json.x8_1k.new", 2), aged(store, "aa.json.z9.new", 0.5)
    store.tidy()
    assert (left.exists(), writing.exists()) == (False, True)


def test_to_read_a_file_says_that_it_is_wanted(store: CatalogStore) -> None:
    path = written(store)
    os.utime(path, (0, 0))
    assert store.load(KEY) == CATALOG
    store.tidy()
    assert time.time() - path.stat().st_mtime < DAY / 2
    assert store.load(KEY) == CATALOG


def test_a_directory_that_is_not_there_is_tidy(store: CatalogStore) -> None:
    store.tidy()
    assert not store.directory.exists()


def test_many_programs_may_tidy_and_write_at_the_same_time(store: CatalogStore) -> None:
    for number in range(50):
        aged(store, f"{number}.json", 200)

    def work(_: int) -> bool:
        store.tidy()
        return store.save(KEY, CATALOG) and store.load(KEY) == CATALOG

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))
    assert [path.name for path in store.directory.iterdir()] == [f"{KEY}.json"]
