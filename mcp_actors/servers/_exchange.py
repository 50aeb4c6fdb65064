"""What a transport knows about a request, for whoever waits for its answer.

The SDK tells of everything that goes wrong as an `mcp.MCPError` of a few words. What it does carry from the task that
asks to the task that talks to the network is the context. So the asking task puts an `Exchange` into its context, the
transport finds it there, and writes into it what the error that comes back cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

if TYPE_CHECKING:
    from ._requests import Request

__all__ = ["ConnectionOver", "Exchange", "current_exchange", "open_exchange"]


class ConnectionOver(Exception):
    """The connection is of no more use.

    As the failure of a request it also says that the request provably had no effect. Then it reaches no caller: the
    request goes back to its place, and the next connection serves it.
    """


@define(eq=False)
class Exchange:
    """One request of a caller, and the messages that it takes.

    Attributes:
        failure: what became of the last message, if it was not answered in MCP's own terms: a `ServerError` for the
            caller, or `ConnectionOver`.
        begun: a message of it was with the server, so it may have had an effect.
        request: what was asked; None while a connection is made.
    """

    failure: Exception | None = None
    begun: bool = False
    request: Request[Any] | None = None
    _questions: int = field(default=0, init=False)

    @contextmanager
    def asked_back(self) -> Iterator[None]:
        """The server asks something back: until it is told, lack of progress is not its fault."""
        deadline = self.request.deadline if self.request is not None else None
        self._questions += 1
        if deadline is not None:
            deadline.asked_back = True
            deadline.suspend()
        try:
            yield
        finally:
            self._questions -= 1
            if deadline is not None and not self._questions:
                deadline.asked_back = False
                deadline.renew()


_exchange: Final[ContextVar[Exchange | None]] = ContextVar("exchange", default=None)


def open_exchange(request: Request[Any] | None = None) -> Exchange:
    """Begin an exchange: it is the current one in this context, and in whatever is started from it."""
    exchange = Exchange(request=request)
    _exchange.set(exchange)
    return exchange


def current_exchange() -> Exchange:
    """Return the exchange that the running code is part of; one that nobody looks at if there is none."""
    return _exchange.get() or Exchange()
