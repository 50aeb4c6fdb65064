"""A user whose disk becomes full; run as a process, in which a limit for the size of files stands for the disk."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from mcp_actors import ConfigError, open_servers
from mcp_actors.auth import AuthorizationClient, SignedIn, _tokens
from mcp_actors.auth._flow import refresh

from .authority import Authority, Browser
from .test_sign_in import change, whoami

ROOM = 700
"""Bytes that can be written: a part of a sign-in, so the disk becomes full in the middle of a write."""


def fill() -> None:
    """Let each write of a file fail behind `ROOM` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))


@contextmanager
def full() -> Iterator[None]:
    """Have no space while the block runs, and some at its end."""
    fill()
    try:
        yield
    finally:
        make_room()


def make_room() -> None:
    """Have space."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def refresh_and_fill(exchange: AuthorizationClient, old: SignedIn) -> SignedIn:
    """Refresh a token; the disk is full when the answer is here."""
    new = await refresh(exchange, old)
    fill()
    return new


def content(folder: Path) -> list[str]:
    """Return all files of a store that are not locks."""
    return [each.read_text() for each in folder.iterdir() if each.suffix != ".lock"]


async def main(*words: str) -> None:
    """Sign in, and let the disk become full before and after a refresh; print what comes of it, a line each."""
    authority, folder, browser = Authority(words[0]), Path(words[1]), Browser()
    config = authority.config(folder)
    async with open_servers(config) as servers:
        with full():
            try:
                await servers["guarded"].sign_in(show=browser.show)
            except ConfigError as error:
                print(len(browser.pages), content(folder), error)
        await servers["guarded"].sign_in(show=browser.show)
    change(folder, expires_at=time.time() - 1)
    before = content(folder)
    with full():
        async with open_servers(config) as servers:
            print(authority.grants("refresh_token"), content(folder) == before, servers.errors["guarded"])
    vars(_tokens).update(REFRESH_PAUSE=0.0, refresh=refresh_and_fill)  # the next attempt to store it is the next call
    async with open_servers(config, strict=True) as servers:
        print(await whoami(servers), authority.grants("refresh_token"), content(folder) == before)
        make_room()
        print(await whoami(servers), len(content(folder)), content(folder) == before)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
