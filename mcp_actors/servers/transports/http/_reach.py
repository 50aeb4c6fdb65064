"""Whether an HTTP server can still be reached, and what follows if not.

A connection that is refused is the sign that a server is gone. But requests that are with it may still be answered: a
server that shuts down politely refuses new connections before it has finished. So a refused request is tried again as
long as other requests are with the server, and gives up when there are none. After a request was lost on its way, the
server is asked for a sign of life, so that the end of a server is noticed without further traffic.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import httpx2
import trio

from ...basics import Background
from .._lifeline import Lifeline
from ._bodies import is_unsent
from ._failures import UNREACHED, HttpFailures, is_about

__all__ = ["Reach"]

logger = logging.getLogger("mcp_actors.servers.http")

RETRY: Final = 0.25
"""Seconds between attempts to reach a server that refuses connections while other requests are with it."""

RETRY_FOR: Final = 60.0
"""Seconds that such attempts go on. Few requests take longer, and one that is never answered must not keep us here."""

STALE: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""How a kept connection fails that the server has closed in the meantime. If that is noticed before the body of the
request was offered to it, the next connection will do."""

STALE_CONNECTIONS: Final = 100
"""So many in a row at most: more are hardly kept, and a server that closes every connection is told as what it is."""

LOOK_TIMEOUT: Final = 10.0
"""Seconds for a sign of life. A server that gives none is slow, or frozen, but not known to be gone."""


class Reach:
    """Sends requests through a client, and knows which of them are with the server.

    Args:
        client: what sends.
        url: the endpoint.
        failures: makes the errors.
        lifeline: told when the server is gone and no request is left to tell it.
        background: runs what looks after the server.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        failures: HttpFailures,
        lifeline: Lifeline,
        background: Background,
    ) -> None:
        self._client = client
        self._url = url
        self._failures = failures
        self._lifeline = lifeline
        self._background = background
        self._sent: set[httpx2.Request] = set()
        self._refused: set[httpx2.Request] = set()
        self._gone = trio.Event()
        self._looking = False

    @property
    def gone(self) -> bool:
        """Whether the server could not be reached by the last request that there was."""
        return self._gone.is_set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, which counts as being with the server until it is `finished`.

        **Cancellation**: ends this request and touches no other.

        Args:
            request: what to send.
            options: more for `httpx2.AsyncClient.send`.

        Raises:
            httpx2.ConnectError, httpx2.ConnectTimeout: the server could not be reached, and no request is with it.
        """
        self._sent.add(request)
        give_up = trio.current_time() + RETRY_FOR
        stale = 0
        while True:
            try:
                response = await self._client.send(request, stream=True, follow_redirects=False, **options)
            except UNREACHED as error:
                if not is_about(error, request) or trio.current_time() > give_up:
                    raise
                self._refused.add(request)
                if self._sent > self._refused:
                    logger.debug("%s: refuses a connection; trying again", self._failures.server)
                    with trio.move_on_after(RETRY):
                        await self._gone.wait()
                else:
                    self._gone.set()
                if self.gone:
                    raise
            except STALE:
                stale += 1
                if stale > STALE_CONNECTIONS or not is_unsent(request):
                    raise
            else:
                self._refused.discard(request)
                return response

    def finished(self, request: httpx2.Request) -> None:
        """A request is not with the server any more, whatever came of it."""
        self._sent.discard(request)
        self._refused.discard(request)

    def refused(self, error: Exception) -> None:
        """The server could not be reached by something that is no request. Those would find out by themselves."""
        if not self._sent:
            self._lifeline.lose(self._failures.unreached(error))

    def look(self) -> None:
        """Find out soon whether the server is still there."""
        if not self._looking and not self._lifeline.lost and not self._lifeline.closing:
            self._looking = True
            self._background.start_soon(self._look, name=f"{self._failures.server}:look")

    async def _look(self) -> None:
        request = self._client.build_request("OPTIONS", self._url)
        failure: Exception | None = None
        try:
            with trio.move_on_after(LOOK_TIMEOUT):
                # Without the auth flow: it might ask the user for a password, only because of this.
                response = await self.send(request, auth=None)
                await response.aclose()
        except UNREACHED as error:
            failure = error
        except Exception:
            pass  # whatever it is, something is there
        finally:
            self._looking = False
            self.finished(request)
        if failure is not None:
            self.refused(failure)
