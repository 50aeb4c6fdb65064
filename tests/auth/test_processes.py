"""Many processes share the tokens of one person."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path

import trio

from mcp_actors import open_servers
from mcp_actors.auth import FileTokenStore

from ..forkserver import run_python, serve_python
from ..source import ROOT
from .authority import Authority, Browser
from .test_sign_in import change, signed_in, stored, whoami

LIFE = 1
"""Seconds that a token is valid."""


async def test_ten_processes_refresh_an_expiring_token_one_at_a_time(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    authority.set(ttl=LIFE)
    change(tmp_path, expires_at=time.time() - 1)
    run = partial(run_python, "-m", "tests.auth.sharing", authority.url, tmp_path, "1.5", cwd=ROOT, timeout=60)
    done: list[subprocess.CompletedProcess[str]] = []

    async def play() -> None:
        done.append(await trio.to_thread.run_sync(run))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(play)
    assert [each.stderr for each in done if each.returncode != 0] == []
    assert all(int(each.stdout) > 0 for each in done)
    counts = authority.counts
    # The authorization server takes the second use of a refresh token for a theft, and revokes all tokens.
    assert (counts["refused"], counts["pages"]) == (0, 1)
    assert 2 <= counts["grants"]["refresh_token"] <= 20


async def test_two_terminals_sign_in_at_the_same_time(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path)) as one, open_servers(authority.config(tmp_path)) as other:
        async with trio.open_nursery() as nursery:
            for servers in (one, other):
                nursery.start_soon(partial(servers["guarded"].sign_in, show=Browser().show))
        assert (await whoami(one), await whoami(other)) == ("ada", "ada")
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        assert (await whoami(one), await whoami(other)) == ("ada", "ada")
    counts = authority.counts
    assert (counts["refused"], counts["grants"]["refresh_token"]) == (0, 1)


async def test_another_program_signs_in_and_a_reconnect_finds_the_tokens(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path)) as servers:
        assert servers["guarded"].state == "needs_auth"
        await signed_in(authority, tmp_path)
        await servers.reconnect()
        assert await whoami(servers) == "ada"


WRITER = """
import sys, trio
from mcp_actors.auth import FileTokenStore

async def main():
    store, number = FileTokenStore(sys.argv[1]), 0
    while True:
        await store.save("key", f"{number} " + "x" * 20000)
        number += 1
        if number == 3:
            print(0, flush=True)

trio.run(main)
"""


async def test_a_writer_that_is_killed_leaves_a_whole_value(tmp_path: Path) -> None:
    for _ in range(3):
        with serve_python("-c", WRITER, tmp_path) as (process, _):
            process.kill()
            process.wait()
        value = await FileTokenStore(tmp_path).load("key")
        assert value is not None
        assert len(value.split()[1]) == 20000


HOLDER = """
import sys, trio
from mcp_actors.auth import FileTokenStore

async def main():
    async with FileTokenStore(sys.argv[1]).lock("key"):
        print(0, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_a_lock_is_held_against_other_processes_and_ends_with_its_own(tmp_path: Path) -> None:
    with serve_python("-c", HOLDER, tmp_path) as (process, _):
        store, order = FileTokenStore(tmp_path), []

        async def wait() -> None:
            async with store.lock("key"):
                order.append("locked here")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.1)
            order.append("killed")
            process.kill()
        assert order == ["killed", "locked here"]
