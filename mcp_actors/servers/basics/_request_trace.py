"""Let a transport report why a request failed.

The SDK reports every failure as an `mcp.MCPError` of a few words. It does carry context variables from the task that
sends a request to the task that talks to the network. So the sending task puts a `RequestTrace` into its context; the
transport finds it there and adds what the error cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from attrs import define, field


class ConnectionOver(Exception):
    """The connection cannot be used any more.

    As the failure of a request it also means that the request provably had no effect. No caller sees it: the request
    returns to its place in the queue, and the next connection serves it.

    Attributes:
        refusal: the error for the request if the next connection refuses it in the same way, as one of a session that
            the server does not know; None if no connection was made.
    """

    def __init__(self, message: str, *, refusal: Exception | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class Deadline(Protocol):
    """The part of a request's deadline that a trace needs."""

    @property
    def operation(self) -> str:
        """The protocol's method and its main argument."""

    asked_back: bool

    def suspend(self) -> None:
        """Stop the time without progress."""

    def renew(self) -> None:
        """Restart the time without progress."""


@define(eq=False)
class RequestTrace:
    """One request of a caller, over all its messages (attempts, pages, further rounds).

    Attributes:
        failure: why the latest message failed, unless the server answered it with an MCP error: a `ServerError` for
            the caller, or `ConnectionOver`.
        begun: True once a message was sent, so that the request may have had an effect.
        deadline: the deadline of the request; None while a connection is opened.
        reports: the `Reports` that its caller is to see before the result; None if there are none, or no result yet.
    """

    failure: Exception | None = None
    begun: bool = False
    deadline: Deadline | None = None
    reports: Any = field(default=None, init=False)
    _questions: int = field(default=0, init=False)

    @contextmanager
    def asked_back(self) -> Iterator[None]:
        """Stop the time without progress while the server waits for our answer to its question."""
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


_trace: Final[ContextVar[RequestTrace | None]] = ContextVar("trace", default=None)


def open_trace(deadline: Deadline | None = None) -> RequestTrace:
    """Start a trace for this context and for all tasks started from it."""
    trace = RequestTrace(deadline=deadline)
    _trace.set(trace)
    return trace


def current_trace() -> RequestTrace:
    """Return the trace of this context, or a fresh one without effect if there is none."""
    return _trace.get() or RequestTrace()
