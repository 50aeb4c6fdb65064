"""What a transport knows about a request, for whoever waits for its answer.

The SDK tells of everything that goes wrong as an `mcp.MCPError` of a few words. What it does carry from the task that
asks to the task that talks to the network is the context. So the asking task puts an `Exchange` into its context, the
transport finds it there, and writes into it what the error that comes back cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from attrs import define, field

__all__ = ["ConnectionOver", "Exchange", "current_exchange", "open_exchange"]


class ConnectionOver(Exception):
    """The connection is of no more use.

    As the failure of a request it also says that the request provably had no effect. Then it reaches no caller: the
    request goes back to its place, and the next connection serves it.
    """


class Deadline(Protocol):
    """The deadline of a request, as far as an exchange needs it."""

    @property
    def operation(self) -> str:
        """The operation, in the words of the protocol."""

    asked_back: bool

    def suspend(self) -> None:
        """Do not count the time that passes now as a lack of progress."""

    def renew(self) -> None:
        """Count it again, from now on."""


@define(eq=False)
class Exchange:
    """One request of a caller, and the messages that it takes.

    Attributes:
        failure: what became of the last message, if it was not answered in MCP's own terms: a `ServerError` for the
            caller, or `ConnectionOver`.
        begun: a message of it was with the server, so it may have had an effect.
        deadline: the deadline of the request; None while a connection is made.
    """

    failure: Exception | None = None
    begun: bool = False
    deadline: Deadline | None = None
    _questions: int = field(default=0, init=False)

    @contextmanager
    def asked_back(self) -> Iterator[None]:
        """The server asks something back: until it is told, lack of progress is not its fault."""
        deadline = self.deadline
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


def open_exchange(deadline: Deadline | None = None) -> Exchange:
    """Begin an exchange: it is the current one in this context, and in whatever is started from it."""
    exchange = Exchange(deadline=deadline)
    _exchange.set(exchange)
    return exchange


def current_exchange() -> Exchange:
    """Return the exchange that the running code is part of; one that nobody looks at if there is none."""
    return _exchange.get() or Exchange()
