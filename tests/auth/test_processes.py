"""Many processes share the tokens of one person."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import trio

from mcp_actors import open_servers
from mcp_actors.auth import FileTokenStore

from ..forkserver import Program, serve_python, start_python
from ..programs import FULL_SIZE
from ..source import ROOT
from .authority import Authority, Browser
from .sharing import TASKS
from .test_sign_in import change, signed_in, stored, whoami


async def share_a_token(authority: Authority, folder: Path, *, processes: int, expiries: int) -> None:
    """Let processes call a tool all the time while their token expires again and again. No call of theirs may fail."""
    await signed_in(authority, folder)
    change(folder, since=time.time() - 3570, expires_at=time.time() + 30)  # all want to refresh it at once
    authority.set(due=stored(folder)["tokens"]["access_token"])
    errors = folder / "stderr.txt"

    async def play(program: Program) -> None:
        code = await trio.to_thread.run_sync(program.wait, limiter=trio.CapacityLimiter(1))
        assert code == 0, errors.read_text()[-3000:]

    async def wait_callers() -> None:
        await trio.to_thread.run_sync(authority.wait_callers, processes * TASKS, abandon_on_cancel=True)

    with ExitStack() as stack:
        stderr = stack.enter_context(errors.open("w"))
        words = ("-m", "tests.auth.sharing", authority.url, folder)
        programs = [start_python(*words, cwd=ROOT, stdout=stderr, stderr=stderr) for _ in range(processes)]
        for program in programs:
            stack.enter_context(program)
        async with trio.open_nursery() as nursery:
            for program in programs:
                nursery.start_soon(play, program)
            try:
                for _ in range(expiries):
                    await wait_callers()
                    authority.set(expire=stored(folder)["tokens"]["access_token"])
                await wait_callers()
            finally:
                authority.set(over=True)
    counts = authority.counts
    # The authorization server takes the second use of a refresh token for a theft, and revokes all tokens.
    assert (counts["grants"]["refresh_token"], counts["refused"], counts["pages"]) == (1 + expiries, 0, 1)


async def test_processes_refresh_an_expiring_token_one_at_a_time(authority: Authority, tmp_path: Path) -> None:
    await share_a_token(authority, tmp_path, processes=10 if FULL_SIZE else 3, expiries=5 if FULL_SIZE else 2)


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
