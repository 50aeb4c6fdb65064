"""The base of links over HTTP: a task that owns the client.

Ownership: the owner task of the actor enters `open_link_over_http` and leaves it. In between, a background task of the
link owns the HTTP client and the SDK's transport: it enters both, waits until the link is left, and leaves both. The
SDK reacts to some errors by cancelling everything around it. In a task of its own that ends only this task: the session
reads the end of its stream, and the owner task is not cancelled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
import httpx2
import trio
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from ...._collapse import leaves
from ...._errors import LimitExceeded
from ...._text import measured
from ....config import Http, Sse
from ...basics import Background, Certificates, open_background
from .._link import Lifeline, Link
from ..credentials import Masker, discreet, install_filters, named_credentials
from ..wire import ANSWERS_A_SECOND, ANSWERS_AT_ONCE, HELD_BYTES, Bucket, ReadingPace, ServerRequests
from ._bodies import HeardBody, reads_of
from ._client import bound_on_connections, finish_refresh, make_client, proxy_variable
from ._failures import HttpFailures, describe

if TYPE_CHECKING:
    from ....config import ServerConfig

Configured = TypeVar("Configured", Http, Sse)


CLOSING: Final = 0.9
"""The part of ``stop_timeout`` in which a server may react to the end of a session. The rest is for what follows: the
actor has as much time in all, and is killed after that."""


class HttpLink(Link, ABC, Generic[Configured]):
    """A link to an HTTP endpoint."""

    _background: Background
    """Runs the tasks that use the client. They end before it is closed, because it would not close what they open."""

    def __init__(
        self,
        config: ServerConfig,
        transport: Configured,
        client: httpx2.AsyncClient,
        on_lost: Callable[[], None],
        masker: Masker,
    ) -> None:
        super().__init__(Lifeline(on_lost), masker)
        self.endpoint: str = transport.display_url
        self.max_connections: int | None = bound_on_connections(config, transport)
        self._name = config.name
        self._stop_timeout = config.stop_timeout
        self._max_values = config.limits.max_message_values
        self._pace = ReadingPace(config.limits.max_notifications)
        self._answers = Bucket(ANSWERS_AT_ONCE, ANSWERS_A_SECOND)
        self._requests = ServerRequests(config.name, config.limits.max_requests)
        self._transport: Configured = transport
        self._client = client
        client.event_hooks["response"].append(self._hear)
        self._failures = HttpFailures(
            config.name, transport.display_url, masker, named_credentials(transport), proxy_variable(transport)
        )
        self._opened = trio.Event()
        self._left = trio.Event()
        self._ended = trio.Event()

    @property
    def configured_url(self) -> str:
        """The URL as it is configured, credentials included."""
        return self._transport.url

    def __repr__(self) -> str:
        state = "closed" if self._left.is_set() else "lost" if self.lost else "open"
        return f"<{type(self).__name__} {self._name!r} {self.endpoint}, {state}>"

    def admit(self, message: JSONRPCMessage) -> None:
        """Count a message of the server before the session sees it, and mask an error.

        Raises:
            anyio.EndOfStream: the server has sent too many requests, so the connection is lost.
        """
        self.masker.mask_error(message)
        size = measured(message, HELD_BYTES)[0] if isinstance(message, JSONRPCRequest) else 0
        try:
            self._requests.receive(message, size, trio.current_time())
        except LimitExceeded as exceeded:
            self._lifeline.lose(exceeded)
            raise anyio.EndOfStream from None

    async def wait_turn(self, message: JSONRPCMessage) -> None:
        """Wait until a message may be sent, if it answers the server: it may have sent hundreds of requests at once."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and (wait := self._answers.take(trio.current_time())):
            await trio.sleep(wait)

    async def _hear(self, response: httpx2.Response) -> None:
        """Note when the server was last heard: at the response, and at each piece of its body. A response hook."""
        self._lifeline.heard_at = trio.current_time()
        response.stream = HeardBody(response.stream, self._lifeline, reads_of(response))  # type: ignore[arg-type]  # an AsyncClient's is

    @abstractmethod
    async def live(self) -> None:
        """Stay connected, in the task of the link, until ``_left`` is set or the connection ends.

        An implementation sets `target`, then ``_opened``.
        """

    async def run(self) -> None:
        """Own the client and the connection until the link is left or the connection fails."""
        try:
            with discreet(self.masker, self.configured_url):
                async with self._client, finish_refresh(self._client), open_background() as self._background:
                    await self.live()
        except Exception as error:
            # This must come before the events below, which wake `wait_open` and the reader of the session: both then
            # look for the error that ended the connection.
            self._lifeline.lose(self.masker.clean(first_failure(error, self.masker)))
        finally:
            self._opened.set()
            self._ended.set()

    async def wait_open(self) -> None:
        """Wait until `target` is set.

        Raises:
            Exception: the connection failed before; the exception is `failure`.
        """
        await self._opened.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """End the session within ``stop_timeout``, if the server reacts, and close all connections.

        **Cancellation**: does not interrupt it, because the server would keep an unused session.
        """
        self._lifeline.closing = True
        self._left.set()
        # Shielded and bounded. When the time is over, leaving `open_background` cancels the task that owns the client.
        with trio.move_on_after(self._stop_timeout * CLOSING, shield=True):
            await self._ended.wait()


def first_failure(error: Exception, masker: Masker) -> Exception:
    """Return the first exception in nested groups; the others become its notes."""
    first, *others = (leaf for leaf in leaves(error) if isinstance(leaf, Exception))
    for other in others:
        first.add_note(f"also: {describe(other, masker)}")
    return first


@asynccontextmanager
async def open_link_over_http(
    kind: type[HttpLink[Configured]],
    config: ServerConfig,
    transport: Configured,
    masker: Masker,
    certificates: Certificates,
    *,
    on_lost: Callable[[], None],
) -> AsyncIterator[HttpLink[Configured]]:
    """Create the client, and keep a link of the given class open until the block is left.

    Raises:
        ConnectFailed: a credential cannot be resolved, or the client cannot be created.
        Exception: the link could not be opened.
    """
    client = await make_client(config, transport, masker, certificates)
    async with open_background() as background:
        link = kind(config, transport, client, on_lost, masker)
        background.start_soon(link.run, name=f"{config.name}:http")
        install_filters()
        try:
            with discreet(masker, link.configured_url):
                await link.wait_open()
                yield link
        finally:
            await link.close()
