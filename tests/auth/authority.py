"""A real authorization server with an MCP server that accepts its tokens (``provider.mjs``), and a person's browser."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import define, field

from mcp_actors import Http, RestartPolicy, ServerConfig
from mcp_actors.auth import FileTokenStore, OAuth

from ..node.packages import node, program

SECRET: Final = "a secret of a registered client"
"""The secret of all clients that have one."""

SCRIPT: Final = Path(__file__).with_name("provider.mjs")


@define
class Authority:
    """The two servers, in one process.

    Attributes:
        url: where both are.
    """

    url: str

    def set(self, **changes: Any) -> None:
        """Change what the servers do."""
        self._talk(json.dumps(changes).encode())

    @property
    def counts(self) -> dict[str, Any]:
        """What the servers have counted."""
        return self._talk(None)

    def wait_callers(self, number: int) -> None:
        """Block until so many callers have called a tool with a token that has not expired."""
        self._talk(None, f"?callers={number}", timeout=250)

    def wait_exchanges(self, number: int) -> None:
        """Block until so many requests for tokens have come."""
        self._talk(None, f"?exchanges={number}", timeout=250)

    def grants(self, kind: str) -> int:
        """Return how many tokens were granted by a grant type."""
        number: int = self.counts["grants"].get(kind, 0)
        return number

    def config(self, store: Path, name: str = "guarded", **options: Any) -> ServerConfig:
        """Return the configuration of the MCP server, with the tokens in a folder."""
        of_oauth = {key: options.pop(key) for key in tuple(options) if key in OAuth.__annotations__}
        auth = OAuth(store=FileTokenStore(store), **of_oauth)
        options.setdefault("restarts", RestartPolicy(max_restarts=1))
        return ServerConfig(name, Http(f"{self.url}/mcp", auth=auth), protocol="legacy", **options)

    def _talk(self, body: bytes | None, query: str = "", timeout: float = 90) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/control{query}", body)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def run_authority() -> Iterator[Authority]:
    """Run both servers while a block runs."""
    script = program("oidc-provider", "lib/index.js")
    command = [node(), SCRIPT, script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = next(line for line in process.stdout if line.strip().isdigit()).strip()
            yield Authority(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


@define(repr=False)
class Browser:
    """A person who opens the page and agrees, with a browser that follows redirects.

    Attributes:
        pages: the URLs that were shown.
        goes_back: whether the browser follows the last redirect, to the receiver of this machine.
        ended_at: the URL of that redirect.
    """

    goes_back: bool = True
    pages: list[str] = field(factory=list, init=False)
    ended_at: str = field(default="", init=False)

    async def show(self, url: str) -> str | None:
        """Open the page; return None, as a browser tells a program nothing."""
        self.pages.append(url)
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=90) as client:
            at = httpx2.URL(url)
            here = at.netloc
            while at.netloc == here:
                response = await client.get(at)
                if not response.has_redirect_location:
                    return None  # a page that waits
                at = at.join(response.headers["location"])
            self.ended_at = str(at)
            if self.goes_back:
                await client.get(at)
        return None

    async def paste(self, url: str) -> str | None:
        """Open the page, and return the URL of the last redirect as a person pastes it."""
        self.goes_back = False
        await self.show(url)
        return self.ended_at


async def no_page(url: str) -> None:
    """Fail, because a page is shown."""
    pytest.fail(f"the page {url} is shown")


async def never(url: str) -> str | None:
    """Show a page in a tab that is closed."""
    await trio.sleep_forever()
