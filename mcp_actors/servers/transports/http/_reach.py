"""Send HTTP requests, and notice a server that is gone.

A refused connection is the sign that a server is gone. But its requests in flight may still be answered: a server that
shuts down gracefully refuses new connections before it has finished. So a refused request is retried as long as other
requests are in flight, and fails when there are no more. After a connection broke during a request, a probe is sent to
the server, so that its end is noticed without further traffic.
"""

from __future__ import annotations

from typing import Any, Final

import httpx2
import trio
from attrs import define, field

from ...._foreign import Log
from ...basics import Background, own_shortage
from .._link import Lifeline
from ._bodies import is_sent, is_unsent, read_short
from ._failures import UNREACHED, HttpFailures, is_about
from ._redirects import MAX_REDIRECTS, Send, next_request_within_origin

logger = Log("mcp_actors.servers.http")

RETRY: Final = 0.25
"""Seconds between attempts to connect to a server that refuses connections while other requests are in flight."""

RETRY_FOR: Final = 60.0
"""Seconds until these attempts end. Few requests take longer, and one that is never answered must not keep them up."""

STALE: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""Errors of a kept connection that the server has closed meanwhile. If nothing of the request was sent, it is sent
again over the next connection."""

STALE_CONNECTIONS: Final = 100
"""Maximum of such attempts in a row. Pools hardly hold more, and the error of a server that closes every connection
must be raised."""

PROBE_TIMEOUT: Final = 10.0
"""Seconds for the response to a probe. A server without one is slow or frozen, but not known to be gone."""


@define(eq=False, repr=False)
class Reach:
    """Sends requests through a client, and knows which of them are in flight.

    Args:
        client: sends the requests.
        url: the endpoint.
        failures: builds the errors.
        lifeline: is notified if the server is gone and no request is left to fail.
        background: runs the probe.
    """

    _client: httpx2.AsyncClient
    _url: str
    _failures: HttpFailures
    _lifeline: Lifeline
    _background: Background
    _sent: set[httpx2.Request] = field(factory=set, init=False)
    _refused: set[httpx2.Request] = field(factory=set, init=False)
    _gone: trio.Event = field(factory=trio.Event, init=False)
    _probing: bool = field(default=False, init=False)

    @property
    def gone(self) -> bool:
        """True if the last request in flight could not reach the server."""
        return self._gone.is_set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, which counts as in flight until it is `finished`.

        **Cancellation**: ends this request and affects no other.

        Args:
            request: the request.
            options: further arguments of `httpx2.AsyncClient.send`.

        Raises:
            httpx2.ConnectError, httpx2.ConnectTimeout: the server could not be reached, and no request is in flight; or
                a shortage in this program has prevented it.
        """
        self._sent.add(request)
        give_up: float | None = None
        stale = 0
        while True:
            try:
                response = await self._client.send(request, stream=True, follow_redirects=False, **options)
            except UNREACHED as error:
                if own_shortage(error) is not None:
                    raise  # it is not the server that refuses
                now = trio.current_time()
                give_up = now + RETRY_FOR if give_up is None else give_up
                if not is_about(error, request) or is_sent(request) or now > give_up:
                    raise
                # The refused requests wait as long as one request in flight may still be answered. The last one that
                # is refused sets the event, so all of them fail in the same step and one reconnect serves all.
                self._refused.add(request)
                if self._sent > self._refused:
                    logger.debug("server %r: connection refused; trying again", self._failures.server)
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

    async def follow(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send a request, and follow redirects within the origin as far as `MAX_REDIRECTS`. Return the last response.

        The further requests are finished once they have a response; the first one still counts as in flight.
        """
        response = await send(request)
        for _ in range(MAX_REDIRECTS):
            if (following := next_request_within_origin(response)) is None:
                break
            await read_short(response)  # so that the connection can be used again
            try:
                response = await send(following)
            finally:
                self.finished(following)
        return response

    def finished(self, request: httpx2.Request) -> None:
        """Note that a request is no longer in flight, whatever its outcome."""
        self._sent.discard(request)
        self._refused.discard(request)

    def refused(self, error: Exception) -> None:
        """Note that a notification or a probe could not reach the server. Requests in flight notice that themselves."""
        if not self._sent and own_shortage(error) is None:
            self._lifeline.lose(self._failures.unreached(error))

    def look(self) -> None:
        """Start a probe that notices if the server is gone."""
        if not self._probing and not self._lifeline.lost and not self._lifeline.closing:
            self._probing = True
            self._background.start_soon(self._probe, name=f"{self._failures.server}:probe")

    async def _probe(self) -> None:
        request = self._client.build_request("OPTIONS", self._url)
        unreached: Exception | None = None
        try:
            with trio.move_on_after(PROBE_TIMEOUT):
                # Without the auth flow: it might ask the user for a password only because of this probe.
                response = await self.send(request, auth=None)
                await response.aclose()
        except UNREACHED as error:
            unreached = error
        except Exception:
            pass  # any other error proves that something listens there
        finally:
            self._probing = False
            self.finished(request)
        # After `finished`: the probe itself must not count as a request in flight.
        if unreached is not None:
            self.refused(unreached)
