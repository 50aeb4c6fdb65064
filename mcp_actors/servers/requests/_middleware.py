"""Send a tool call through middleware, and requeue it if needed.

Without middleware, the kernel's signal `NotSent` puts an unsent call back into its place in the mailbox, unnoticed by
the caller. Middleware is the user's code: it cannot know that signal, and may send a call more than once. It therefore
sees a `ConnectionLost` with ``outcome="not_sent"``. The call is requeued only if that very error leaves the middleware
and nothing of the call was sent before, because the whole middleware then runs again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..._errors import ConnectionLost
from ...kernel import NotSent

if TYPE_CHECKING:
    from ...config import Middleware
    from ._request import Request

T = TypeVar("T")


async def send_through(
    middleware: tuple[Middleware, ...], request: Request[T], send: Callable[[Request[T]], Awaitable[T]], server: str
) -> T:
    """Send a request through middleware.

    Raises:
        NotSent: the request was not sent, and the middleware let that error pass.
        Exception: `send` or a middleware raised it.
    """
    sent = 0
    unsent: list[ConnectionLost] = []

    async def send_on(request: Request[T]) -> T:
        nonlocal sent
        sent += 1
        try:
            return await send(request)
        except NotSent:
            sent -= 1
            unsent.append(_lost_unsent(server, request.operation, again=sent > 0))
        raise unsent[-1]

    try:
        return await request.through(send_on, middleware, server)
    except ConnectionLost as exc:
        if sent or not any(exc is each for each in unsent):
            raise
    finally:
        unsent.clear()  # breaks the reference cycle: their tracebacks refer to this frame
    raise NotSent


def _lost_unsent(server: str, operation: str, *, again: bool) -> ConnectionLost:
    """Return the error for a call that was not sent, or not sent again."""
    if again:
        return ConnectionLost(
            f"server {server!r}: connection lost before {operation} was sent again; the earlier attempts of a "
            "middleware may have taken effect",
            server=server,
        )
    return ConnectionLost(
        f"server {server!r}: connection lost before {operation} was sent; re-raise it in the middleware, and the "
        "call waits for the next connection",
        server=server,
        outcome="not_sent",
    )
