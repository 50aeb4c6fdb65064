"""One process signs in, and another one uses the server without a question.

The server and its sign-in page are on this machine (``servers/sign_in.py``). `browse` plays the person with a browser.

Logs::

    server 'mail': needs_auth: not signed in; run 'mcp-actors login mail', ...

Prints::

    first process: needs_auth
    first process: Dinner at eight?
    second process: Dinner at eight?
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2
import trio

from mcp_actors import Http, ServerConfig, open_servers
from mcp_actors.auth import FileTokenStore, OAuth

SERVER = Path(__file__).parents[1] / "servers" / "sign_in.py"


def mail(url: str, folder: str) -> ServerConfig:
    return ServerConfig("mail", Http(url, auth=OAuth(store=FileTokenStore(folder))))


async def browse(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
        await browser.get(url)


async def first(url: str, folder: str) -> None:
    async with open_servers(mail(url, folder)) as servers:
        print("first process:", servers["mail"].state)
        await servers["mail"].sign_in(show=browse)
        print("first process:", await servers["mail"].call("read"))


async def second(url: str, folder: str) -> None:
    async with open_servers(mail(url, folder)) as servers:
        print("second process:", await servers["mail"].call("read"), flush=True)


def run(folder: str) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, SERVER], stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        trio.run(first, url, folder)
        sys.stdout.flush()
        subprocess.run([sys.executable, __file__, url, folder], check=True)


if sys.argv[1:]:
    trio.run(second, sys.argv[1], sys.argv[2])
else:
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
