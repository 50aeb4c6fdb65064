"""A user whose home becomes read-only; run as a process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

from mcp_actors import ConfigError, Http, RestartPolicy, ServerConfig, ServerError, open_servers
from mcp_actors.auth import OAuth

from .authority import Authority, Browser

NOBODY = 65534


def leave_root(home: Path) -> None:
    """Go on as another user, if this is root: root may write everywhere."""
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@contextmanager
def read_only(home: Path) -> Iterator[None]:
    """Take the right to write away, from the home and all in it."""
    folders = [home, *(each for each in home.rglob("*") if each.is_dir())]
    for each in folders:
        each.chmod(0o500)
    try:
        yield
    finally:
        for each in folders:
            each.chmod(0o700)


async def main(*words: str) -> None:
    """Sign in and call a tool; print what comes of it, a line each."""
    url, home = words[0], Path.home()
    config = ServerConfig(
        "guarded", Http(f"{url}/mcp", auth=OAuth()), protocol="legacy", restarts=RestartPolicy(max_restarts=1)
    )
    browser = Browser()
    # Import what is imported late: another user may not be able to read the interpreter.
    async with open_servers(Authority(url).config(Path(words[1]))) as servers:
        await servers["guarded"].sign_in(show=Browser().show)
    leave_root(home)
    with read_only(home):
        async with open_servers(config) as servers:
            print(servers["guarded"].state)
            try:
                await servers["guarded"].sign_in(show=browser.show)
            except ConfigError as error:
                print(len(browser.pages), error)
    async with open_servers(config) as servers:
        await servers["guarded"].sign_in(show=browser.show)
    with read_only(home):
        async with open_servers(config, strict=True) as servers:
            print((await servers["guarded"].call_tool("whoami")).content[0].text)  # type: ignore[union-attr]  # text
    (path,) = home.rglob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires_at": time.time() - 1}))
    with read_only(home):
        async with open_servers(config) as servers:
            print(servers["guarded"].state, servers.errors["guarded"])
            with suppress(ServerError):
                await servers["guarded"].call_tool("whoami")
    async with open_servers(config, strict=True) as servers:
        print((await servers["guarded"].call_tool("whoami")).content[0].text)  # type: ignore[union-attr]  # text


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
