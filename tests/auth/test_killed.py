"""A process is killed while it replaces a token, or cannot write the new one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mcp_actors import ConnectFailed, open_servers
from mcp_actors.auth import FileTokenStore, SignInRequired, _stores

from ..forkserver import serve_python
from .authority import Authority, Browser
from .test_sign_in import change, signed_in, stored, whoami

PROGRAM = """
import sys, time
from pathlib import Path
import trio
from mcp_actors import _user_files, open_servers
from mcp_actors.auth import _stores
from tests.auth.authority import Authority

url, folder, where = sys.argv[1:]
module, name = {
    "before the write": (_stores, "replace_file"),
    "in the write": (_user_files.os, "replace"),
    "after the write": (_user_files, "_sync_directory"),
}[where]
function, calls = getattr(module, name), 0

def stop(*args, **options):
    global calls
    calls += 1
    if calls == 2:  # the first write is that of the old token, before the refresh
        print(0, flush=True)
        time.sleep(600)
    return function(*args, **options)

setattr(module, name, stop)

async def main():
    async with open_servers(Authority(url).config(Path(folder))):
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize(
    ("where", "rotate"),
    [("before the write", True), ("before the write", False), ("in the write", True), ("after the write", True)],
)
async def test_a_process_that_is_killed_leaves_a_good_store_or_one_that_asks_for_a_sign_in(
    authority: Authority, tmp_path: Path, where: str, rotate: bool
) -> None:
    authority.set(rotate=rotate)
    await signed_in(authority, tmp_path)
    old = stored(tmp_path)
    change(tmp_path, expires_at=time.time() - 1)
    with serve_python("-c", PROGRAM, authority.url, tmp_path, where) as (process, _):
        process.kill()
        process.wait()
    assert authority.grants("refresh_token") == 1
    kept = stored(tmp_path)["tokens"]  # a whole file in any case
    assert (kept["access_token"] == old["tokens"]["access_token"]) == (where != "after the write")
    async with open_servers(authority.config(tmp_path)) as servers:
        if rotate and where != "after the write":
            # The refresh token that is stored was used, and the only one that is valid died with the process.
            error = servers.errors["guarded"]
            assert isinstance(error, SignInRequired)
            assert "has refused the refresh token: 400 invalid_grant" in str(error)
            assert "mcp-actors login guarded" in str(error)
            await servers["guarded"].sign_in(show=Browser().show)
        assert await whoami(servers) == "ada"
    assert unfinished(tmp_path) == []


async def test_a_store_that_cannot_be_written_uses_no_refresh_token_up(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_in(authority, tmp_path)
    change(tmp_path, expires_at=time.time() - 1)

    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(_stores, "replace_file", fail)
        async with open_servers(authority.config(tmp_path)) as servers:
            error = servers.errors["guarded"]
    assert isinstance(error, ConnectFailed)
    assert "cannot be written (No space left on device); free some space there, set" in str(error)
    assert authority.grants("refresh_token") == 0
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert authority.counts["pages"] == 1


async def test_what_a_killed_writer_has_left_is_removed_with_the_key(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    for remove in (store.save("key", "one"), store.delete("key")):
        for name in ("key.json.x_1.new", "other.json.x_1.new"):
            leave(tmp_path / name)
        await remove
        assert unfinished(tmp_path) == ["other.json.x_1.new"]


def unfinished(folder: Path) -> list[str]:
    """Return the names of the files whose writers were killed."""
    return [each.name for each in folder.glob("*.new")]


def leave(path: Path) -> None:
    """Leave an unfinished file."""
    path.write_text("a token")
