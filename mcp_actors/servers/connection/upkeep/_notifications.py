"""Keep the stream open over which a modern server announces changed lists.

Since 2026-07-28 a server sends these notifications only over a stream that the client opens (``subscriptions/listen``).
One task per connection, in the tree of the actor's owner, keeps it open for the lists that the server says can change.
The SDK passes these notifications to the same handler as those of an older server, so listeners see no difference and
this task only consumes the stream. A server never repeats what it sent while there was no stream, so each time the
stream is opened again, listeners receive `NotificationsMissed`.

A server that refuses the stream is used without it: its tools are listed at every connect.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, TypedDict

import trio
from attrs import define, field
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from ...._backoff import Backoff
from ...._errors import HttpStatusError
from ...._foreign import Log
from ...._text import problem_of
from ....transports import ConnectionOver, open_trace
from ...policy import is_transient
from ...record import Incoming, NotificationsMissed
from ._retrying import keep_trying

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...session import Session

logger = Log("mcp_actors.servers")

HEAD_START: Final = 0.25
"""Seconds that a connect waits for the stream before it lists the tools, so that no change between the two is missed.
If the stream opens later, the tools are listed again."""

RECONNECT_BACKOFF: Final = Backoff(first=0.1, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from the end of a stream to the next."""

LASTING: Final = 30.0
"""Seconds after which a stream counts as stable: the next one is opened at once, and the back-off starts anew."""

REFUSALS: Final = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Error codes of a server that does not support the stream."""


class Lists(TypedDict, total=False):
    """The lists that may change, as keyword arguments of `mcp.Client.listen`."""

    tools_list_changed: bool
    prompts_list_changed: bool
    resources_list_changed: bool


AFTER_END: Final = 0.001
"""Seconds between the end of a stable stream and the next one: nearly at once."""


def lists_that_change(session: Session) -> Lists:
    """Return the lists for which a server needs a stream; none for a server of the legacy era."""
    if not session.modern:
        return {}
    can, lists = session.capabilities, Lists()
    if can.tools is not None and can.tools.list_changed:
        lists["tools_list_changed"] = True
    if can.prompts is not None and can.prompts.list_changed:
        lists["prompts_list_changed"] = True
    if can.resources is not None and can.resources.list_changed:
        lists["resources_list_changed"] = True
    return lists


@define(eq=False)
class ChangeStream:
    """The stream of one connection over which the server announces changed lists.

    Args:
        server: the name of the server.
        session: the session of the connection.
        incoming: runs the task, and passes notifications on.
        lists: the lists that may change.
        on_gone: called if the endpoint is gone.
    """

    server: str
    session: Session
    incoming: Incoming
    lists: Lists
    on_gone: Callable[[ConnectionOver], None]
    _opened: trio.Event = field(factory=trio.Event, init=False)
    _listed: bool = field(default=False, init=False)

    async def begin(self) -> None:
        """Start the task, and wait for the stream for at most `HEAD_START`."""
        self.incoming.tasks.start_soon(self._run, name=f"{self.server}:listen")
        with trio.move_on_after(HEAD_START):
            await self._opened.wait()
        self._listed = True

    async def _run(self) -> None:
        # A connect that was cancelled may have closed the session already, before this task ran. `listen`
        # would then leave a coroutine that is never awaited.
        await trio.lowlevel.checkpoint_if_cancelled()
        going_on = True
        while going_on:
            going_on = await keep_trying(self._consume, RECONNECT_BACKOFF, self._describe, level=logging.DEBUG)
            # A stream often ends because the connection does, and then this task is cancelled a step or two later. The
            # SDK would leave a coroutine without an owner if a session that has just ended was asked for a stream.
            await trio.sleep(AFTER_END)

    async def _consume(self) -> None:
        """Open a stream and consume it until it ends; raise the reason unless it was stable."""
        trace, opened_at = open_trace(), math.inf
        error: Exception = SubscriptionLost("closed by the server")
        try:
            async with self.session.listen(**self.lists) as stream:
                opened_at = trio.current_time()
                if self._listed:
                    self.incoming.listeners.tell(NotificationsMissed())
                self._opened.set()
                async for _ in stream:
                    pass
        except Exception as exc:
            error = trace.failure or exc
        self._opened.set()  # also if it was never opened: then `begin` has nothing to wait for
        if isinstance(error, ConnectionOver):
            self.on_gone(error)
        if trio.current_time() - opened_at < LASTING:
            raise error

    def _describe(self, error: Exception, delay: float) -> str | None:
        problem = problem_of(error)
        if _is_refusal(error):
            logger.debug("server %r: does not support a stream of notifications: %s", self.server, problem)
            return None
        return f"server {self.server!r}: stream of notifications ended ({problem}); opening it again in {delay:.3g} s"


def _is_refusal(error: Exception) -> bool:
    """Return True if the server does not support the stream; False if it ended, or failed to open this time."""
    match error:
        case SubscriptionLost() if isinstance(error.__cause__, MCPError):
            return error.__cause__.code in REFUSALS
        case MCPError():
            return error.code in REFUSALS
        case HttpStatusError():
            return not is_transient(error)
        case _:
            return False
