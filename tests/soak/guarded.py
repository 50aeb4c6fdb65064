"""HTTP servers of the soak whose tokens expire all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import trio
from attrs import define

from mcp_actors import ServerConfig, open_servers
from tests.auth.authority import Authority, Browser
from tests.auth.test_sign_in import stored

LASTS = 5
"""Seconds for which a token is valid."""

NEW = 1.0
"""Seconds in which a token is not refused. A server that refuses a new one requires another sign-in."""


@define
class Guarded:
    """Servers that share the tokens of one person.

    Attributes:
        authority: the authorization server, with the MCP server that all of them are.
        folder: has the tokens.
        number: how many servers there are.
    """

    authority: Authority
    folder: Path
    number: int

    def configs(self, options: Callable[[str], Mapping[str, object]]) -> list[ServerConfig]:
        """Configure them with the options for each name."""
        names = [f"guarded{number}" for number in range(self.number)]
        return [self.authority.config(self.folder, name, **options(name)) for name in names]

    async def sign_in(self) -> None:
        """Let a person sign in, once for all of them."""
        self.authority.set(ttl=LASTS)
        async with open_servers(self.authority.config(self.folder)) as servers:
            await servers["guarded"].sign_in(show=Browser().show)

    async def expire(self) -> None:
        """Let the server refuse the current token, which its clients take for a valid one."""
        signed_in = stored(self.folder)
        token = signed_in["tokens"]["access_token"]
        if time.time() < signed_in["since"] + NEW:
            return
        await trio.to_thread.run_sync(lambda: self.authority.set(expire=token))

    @property
    def defects(self) -> list[str]:
        """What must not happen: an authorization server takes the second use of a refresh token for a theft."""
        counts = self.authority.counts
        defects = [f"{counts['refused']} refreshes were refused"] if counts["refused"] else []
        return [*defects, *(["no token was refreshed"] if not self.refreshed else [])]

    @property
    def refreshed(self) -> int:
        """How often the token was refreshed."""
        return self.authority.grants("refresh_token")
