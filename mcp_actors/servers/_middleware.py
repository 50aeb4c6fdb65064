"""A tool call on its way through middleware, when the connection ends before it was sent.

Without middleware the kernel's signal `NotSent` puts such a call back into its place in the mailbox, and nobody hears
of it. Middleware is code of the user's, which cannot know that signal and may let a call go on more than once. So it is
told in an error that it can read, and the call goes back only if that error comes out again and nothing of the call was
sent before: all of it will be done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from .._errors import ConnectionLost
from ..kernel import NotSent

if TYPE_CHECKING:
    from ..config import Middleware
    from ._request import Request

__all__ = ["send_through"]

T = TypeVar("T")


async def send_through(
    middleware: tuple[Middleware, ...], request: Request[T], send: Callable[[Request[T]], Awaitable[T]], server: str
) -> T:
    """Send a request through middleware.

    Raises:
        NotSent: it was not sent, and nobody has made anything else of that.
        Exception: what `send` or a middleware raised.
    """
    sent = 0
    unsent: list[ConnectionLost] = []

    async def let_go_on(request: Request[T]) -> T:
        nonlocal sent
        sent += 1
        try:
            return await send(request)
        except NotSent:
            sent -= 1
            unsent.append(_lost_unsent(server, request.operation, again=sent > 0))
        raise unsent[-1]

    try:
        return await request.through(let_go_on, middleware)
    except ConnectionLost as exc:
        if sent or not any(exc is each for each in unsent):
            raise
    finally:
        unsent.clear()  # their tracebacks refer to this frame
    raise NotSent


def _lost_unsent(server: str, operation: str, *, again: bool) -> ConnectionLost:
    """The error for a call that was not sent, or not once more."""
    if again:
        return ConnectionLost(
            f"server {server!r}: the connection ended before {operation} was sent once more; what a middleware sent "
            "of it before may have had its effect",
            server=server,
        )
    return ConnectionLost(
        f"server {server!r}: the connection ended before {operation} was sent; let this error pass, and the call "
        "waits for the next connection",
        server=server,
        outcome="not_sent",
    )
