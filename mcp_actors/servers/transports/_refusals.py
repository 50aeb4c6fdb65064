"""Tells a request that the server refuses from a session, or credentials, that it refuses.

A status alone does not say which of the two it is: servers answer 400 to an unknown session as they do to a bad
argument, and put it in many words. So they are asked. A ping has no arguments; it needs nothing but the session and the
credentials. If it is refused in the same way, so will be every other request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND

from ._http_bodies import read_short

__all__ = ["PING_ID", "SESSION", "Refusals"]

SESSION: Final = "mcp-session-id"

PING_ID: Final = "mcp_actors:ping"
"""No request of the SDK has such an id, so the answer is taken for no other."""

PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": PING_ID, "method": "ping"}

PATIENCE: Final = 5.0
"""Seconds for an answer to the ping. A refusal takes no time; without one, only the request was refused."""

OF_THE_SESSION: Final = (SESSION, "mcp-protocol-version", "accept")
"""Headers of the refused request that the ping has, too."""


@define(eq=False)
class Refusals:
    """The refusals of one connection.

    Attributes:
        client: sends the ping.
        forgotten: whether the server does not know the session any more.
    """

    client: httpx2.AsyncClient
    forgotten: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    async def is_forgotten(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return whether the response to a request of a session means that the server does not know that session.

        The specification has 404 for it. Many servers answer 400 instead, and only some of them with an error of MCP.

        Args:
            response: a refusal, which may be closed.
            error: the error of MCP in it.
        """
        if response.status_code == HTTPStatus.NOT_FOUND:
            self.forgotten = self.forgotten or error is None or error.code != METHOD_NOT_FOUND
            return self.forgotten
        if response.status_code != HTTPStatus.BAD_REQUEST:
            return False
        async with self._turn:  # many requests are refused at a time; the first one asks for all of them
            self.forgotten = self.forgotten or await self.meets_all(response, error)
        return self.forgotten

    async def are_of_credentials(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return whether a response means that the server serves nobody with these credentials.

        There are servers that list their tools to anybody, and want a token for calls alone.
        """
        return response.status_code == HTTPStatus.UNAUTHORIZED and await self.meets_all(response, error)

    async def meets_all(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return whether a ping is refused as its request was: with the same status, and the same error of MCP if any.

        **Cancellation**: touches no other request.
        """
        refused = response.request
        headers = {name: refused.headers[name] for name in OF_THE_SESSION if name in refused.headers}
        ping = self.client.build_request("POST", refused.url, headers=headers, json=PING)
        try:
            with trio.move_on_after(PATIENCE):
                answer = await self.client.send(ping, stream=True, follow_redirects=False)
                if answer.status_code != response.status_code:
                    await answer.aclose()
                    return False
                _, said = await read_short(answer)
                return _code(said) == _code(error) and _code(said) != METHOD_NOT_FOUND
        except Exception:
            pass  # it says nothing about the refusal; what has happened to the server, other requests find out
        return False


def _code(error: MCPError | None) -> int | None:
    return None if error is None else error.code
