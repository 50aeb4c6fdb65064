"""Decide whether a refusal is about one request, or about its session or credentials.

The HTTP status alone does not tell: servers answer 400 to an unknown session as to a bad argument, with all kinds of
texts. So the server is sent a ping, which needs nothing but the session and the credentials. If the ping is refused in
the same way, so will be every other request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND

from ._bodies import read_short

__all__ = ["PING_ID", "SESSION", "Refusals"]

SESSION: Final = "mcp-session-id"

PING_ID: Final = "mcp_actors:ping"
"""An id that no request of the SDK has, so the answer cannot be taken for another."""

PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": PING_ID, "method": "ping"}

PATIENCE: Final = 5.0
"""Seconds to wait for the ping. A server refuses at once; without an answer the refusal is about the request alone."""

OF_THE_SESSION: Final = (SESSION, "mcp-protocol-version", "accept")
"""Headers that the ping copies from the refused request."""


@define(eq=False)
class Refusals:
    """The refusals of one connection.

    Attributes:
        client: sends the ping.
        forgotten: True once the server does not know the session any more.
    """

    client: httpx2.AsyncClient
    forgotten: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    async def is_forgotten(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if a refusal means that the server does not know the session of the request.

        The specification requires 404 for that. Many servers answer 400 instead, some of them with an MCP error.

        Args:
            response: the refusal; it may be closed.
            error: the MCP error in it; None if there is none.
        """
        if response.status_code == HTTPStatus.NOT_FOUND:
            self.forgotten = self.forgotten or error is None or error.code != METHOD_NOT_FOUND
            return self.forgotten
        if response.status_code != HTTPStatus.BAD_REQUEST:
            return False
        async with self._turn:  # many requests are refused at the same time; one ping decides for all
            self.forgotten = self.forgotten or await self.meets_all(response, error)
        return self.forgotten

    async def are_of_credentials(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if a refusal means that the server accepts these credentials for no request.

        Some servers list their tools to everybody and require a token for calls only.
        """
        return response.status_code == HTTPStatus.UNAUTHORIZED and await self.meets_all(response, error)

    async def meets_all(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if a ping is refused as the request was: with the same status, and the same MCP error if any.

        **Cancellation**: leaves at once and affects no other request.
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
            pass  # this says nothing about the refusal; if the server is gone, other requests find that out
        return False


def _code(error: MCPError | None) -> int | None:
    return None if error is None else error.code
