"""Hears of changes where one has to ask for that: since 2026-07-28 they are told over a stream that the client opens.

One task for each connection, in the tree of the actor's owner, keeps that stream open for the lists that the server
says can change. What comes over it reaches the listeners in the same way as an older server's notifications do (see
`Listeners`), for the SDK passes on both alike; here they are only counted off. Nothing is sent again that was sent
while there was no stream, so whenever one is opened anew, listeners are told that they may have missed something.

A server that does not let anybody listen is quietly done without. It would be asked for its tools at every connect.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Final, TypedDict

import trio
from attrs import define, field
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ...._backoff import Backoff
from ...._errors import HttpStatusError
from ...basics import ConnectionOver, open_trace, problem_of
from ...policy import asked_to_wait, is_transient
from ...record import Incoming, NotificationsMissed

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import Client

__all__ = ["Listening", "Lists", "lists_that_change"]

logger = logging.getLogger("mcp_actors.servers")

HEAD_START: Final = 0.25
"""Seconds that a connect waits for the stream to stand before it lists the tools, so that no change falls between the
two. If it takes longer the tools are listed once more, later."""

AGAIN: Final = Backoff(first=0.1, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from the end of a stream to the next."""

LASTING: Final = 30.0
"""Seconds after which a stream counts as one that stood: its end is then the first of a new row."""

REFUSALS: Final = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Errors with which a server says that it lets nobody listen."""


class Lists(TypedDict, total=False):
    """Which lists to hear of, in the words of `mcp.Client.listen`."""

    tools_list_changed: bool
    prompts_list_changed: bool
    resources_list_changed: bool


def lists_that_change(client: Client) -> Lists:
    """Return the lists of a server of which one has to ask to hear; none for a server of the legacy era."""
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return {}
    can, lists = client.server_capabilities, Lists()
    if can.tools is not None and can.tools.list_changed:
        lists["tools_list_changed"] = True
    if can.prompts is not None and can.prompts.list_changed:
        lists["prompts_list_changed"] = True
    if can.resources is not None and can.resources.list_changed:
        lists["resources_list_changed"] = True
    return lists


@define(eq=False)
class Listening:
    """The stream over which one server tells of changes, on one connection.

    Args:
        server: its name.
        client: the connection.
        incoming: what comes over it.
        lists: what to hear of.
        on_gone: called if the endpoint turns out not to be there any more.
    """

    server: str
    client: Client
    incoming: Incoming
    lists: Lists
    on_gone: Callable[[ConnectionOver], None]
    _stands: trio.Event = field(factory=trio.Event, init=False)
    _listed: bool = field(default=False, init=False)
    _opened_at: float = field(default=math.inf, init=False)

    async def begin(self) -> None:
        """Start to listen, and wait a little for the stream: what is asked for after this is asked for in time."""
        self.incoming.tasks.start_soon(self._run, name=f"{self.server}:listen")
        with trio.move_on_after(HEAD_START):
            await self._stands.wait()
        self._listed = True

    async def _run(self) -> None:
        ends = 0
        while True:
            trace, self._opened_at = open_trace(), math.inf
            error: Exception | None = None
            try:
                await self._listen()
            except Exception as exc:
                error = trace.failure or exc
            self._stands.set()  # or never will, so that there is nothing to wait for
            if isinstance(error, ConnectionOver):
                self.on_gone(error)
            if error is not None and _is_refusal(error):
                logger.debug("server %r: tells of no changes: %s", self.server, problem_of(error))
                return
            ends = 1 if trio.current_time() - self._opened_at >= LASTING else ends + 1
            delay = max(AGAIN.delay(ends, random=random.random), asked_to_wait(error))
            logger.debug(
                "server %r: its stream of notifications ended (%s); asking for it again in %.3g s",
                self.server,
                problem_of(error) if error is not None else "as they may",
                delay,
            )
            await trio.sleep(delay)

    async def _listen(self) -> None:
        """Hold a stream open until it ends."""
        async with self.client.listen(**self.lists) as stream:
            self._opened_at = trio.current_time()
            if self._listed:
                self.incoming.listeners.tell(NotificationsMissed())
            self._stands.set()
            async for _ in stream:
                pass


def _is_refusal(error: Exception) -> bool:
    """Whether a server lets nobody listen; otherwise the stream only ended, or could not be opened this time."""
    match error:
        case SubscriptionLost() if error.__cause__ is not None and isinstance(error.__cause__, MCPError):
            return error.__cause__.code in REFUSALS
        case MCPError():
            return error.code in REFUSALS
        case HttpStatusError():
            return not is_transient(error)
        case _:
            return False
