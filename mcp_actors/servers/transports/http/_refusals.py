"""Decide whether a refusal concerns one request, its session or its credentials.

The HTTP status alone does not say: servers answer 400 both to an unknown session and to a bad argument, and 404 both to
an unknown session and to a thing that does not exist, with all kinds of texts. So a ping is sent to the server, which
needs only the session and the credentials. If the ping is refused in the same way, every other request would be refused
too.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, Final

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND

from ._bodies import read_short
from ._failures import check_refusal

SESSION: Final = "mcp-session-id"

PING_ID: Final = "mcp_actors:ping"
"""An id that no request of the SDK has, so the response cannot be mistaken for another."""

PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": PING_ID, "method": "ping"}

PING_TIMEOUT: Final = 5.0
"""Seconds to wait for the ping. A refusal comes at once; without a response, it concerned the request alone."""

SESSION_HEADERS: Final = (SESSION, "mcp-protocol-version")
"""Headers that the ping copies from the refused request."""

ACCEPT: Final = {"accept": "application/json, text/event-stream"}
"""The header that every POST needs. A request for a stream of notifications has another one."""

OF_A_SESSION: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})
"""Statuses of an unknown session. The specification requires the second; many servers send the first."""


@define(eq=False)
class Refusals:
    """The refusals of one connection.

    Attributes:
        client: sends the ping.
        forgotten: True once the server no longer knows the session.
    """

    client: httpx2.AsyncClient
    forgotten: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)
    _asked: float = field(default=-math.inf, init=False)

    async def is_forgotten(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if a refusal means that the server no longer knows the session of the request.

        **Cancellation**: leaves at once and affects no other request.

        Args:
            response: the refusal; it may be closed.
            error: the MCP error in it, if any.
        """
        if response.status_code not in OF_A_SESSION or _code(error) == METHOD_NOT_FOUND:
            return False
        refused = trio.current_time()
        async with self._turn:  # many requests are refused at the same time, and one ping decides for all
            if not self.forgotten and self._asked <= refused:
                asked = trio.current_time()
                self.forgotten = await self.meets_all(response, error)
                self._asked = asked
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
        headers = ACCEPT | {name: refused.headers[name] for name in SESSION_HEADERS if name in refused.headers}
        ping = self.client.build_request("POST", refused.url, headers=headers, json=PING)
        try:
            with trio.move_on_after(PING_TIMEOUT):
                answer = await self.client.send(ping, stream=True, follow_redirects=False)
                if answer.status_code != response.status_code:
                    await answer.aclose()
                    return False
                body, pinged = await read_short(answer)
                if pinged is not None:
                    check_refusal(body, PING_ID)
                return _code(pinged) == _code(error) and _code(pinged) != METHOD_NOT_FOUND
        except Exception:
            pass  # this proves nothing about the refusal; if the server is gone, other requests notice that
        return False


def _code(error: MCPError | None) -> int | None:
    return None if error is None else error.code
