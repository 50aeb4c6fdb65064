"""The directories of this user, and the private files in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_actors._user_files import Kind, make_directory, replace_file, user_directory


@pytest.mark.parametrize(
    ("kind", "platform", "configured", "expected"),
    [
        ("data", "linux", "/elsewhere", "/elsewhere/mcp-actors"),
        ("cache", "linux", "", "/home/ada/.cache/mcp-actors"),
        ("state", "linux", "relative", "/home/ada/.local/state/mcp-actors"),
        ("data", "darwin", "/elsewhere", "/home/ada/Library/Application Support/mcp-actors"),
        ("cache", "darwin", "", "/home/ada/Library/Caches/mcp-actors"),
        ("state", "darwin", "/elsewhere", "/elsewhere/mcp-actors"),
    ],
)
def test_a_directory_is_that_of_the_platform_and_of_its_variable(
    kind: Kind, platform: str, configured: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", configured)
    assert user_directory(kind) == Path(expected)


def test_a_file_and_its_new_directories_are_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "file"
    before = os.umask(0)
    try:
        replace_file(path, b"old")
        replace_file(path, b"new", durable=True)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    modes = [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "file", b"old")

    def fsync(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match="disk full"):
        replace_file(tmp_path / "file", b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_directory(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o750
