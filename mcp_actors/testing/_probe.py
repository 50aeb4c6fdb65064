"""An actor that answers as a test says and records its messages."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from attrs import frozen

from ..kernel import Actor, Call, Message
from ._news import News, fits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Probe:
    """A substitute for an actor that records its messages and answers them as a test says.

    `actor` makes the actors, so that a probe outlives the restarts of its actor::

        async with open_supervisor(
            ChildSpec("prices", probe.actor), observers=[events]
        ) as supervisor:
            prices = supervisor.child("prices")

    Attributes:
        received: all messages that were handled, in order, over all incarnations.
        starts: the number of incarnations that were started.
    """

    def __init__(self, *, max_in_flight: int = 1) -> None:
        self.received: list[Message] = []
        self.starts: int = 0
        self._max_in_flight = max_in_flight
        self._answers: dict[type[Message], deque[_Answer]] = {}
        self._start_failures: deque[Exception] = deque()
        self._news = News()

    def actor(self) -> Actor:
        """Return a new actor for `open_actor`, or for a `ChildSpec` as its factory."""
        return _ProbeActor(self, self._max_in_flight)

    def reply(self, kind: type[Call[T]], *values: T) -> None:
        """Answer the next messages of a class with these values, in order. The last one answers all later ones too.

        A `Call` without an answer raises a `LookupError`; a plain `Message` needs none.
        """
        self._answers.setdefault(kind, deque()).extend(_Answer(value=value) for value in values)

    def fail(self, kind: type[Message], error: Exception, *, crash: bool = False) -> None:
        """Raise an error from the handler of the next message of a class.

        Args:
            kind: the class of the message.
            error: what the caller receives.
            crash: True ends the incarnation too, as a failure.
        """
        self._answers.setdefault(kind, deque()).append(_Answer(error=error, crash=crash))

    def hold(self, kind: type[Call[T]], value: T) -> anyio.Event:
        """Keep the next message of a class waiting until the returned event is set; then answer it with a value.

        **Cancellation**: if its caller leaves, the message is not answered.
        """
        event = anyio.Event()
        self._answers.setdefault(kind, deque()).append(_Answer(value=value, until=event))
        return event

    def fail_start(self, *errors: Exception) -> None:
        """Let the next starts fail with these errors."""
        self._start_failures.extend(errors)

    async def wait_for(self, kind: type[M], /, *, number: int = 1, **fields: object) -> M:
        """Return the message of a class whose fields have these values; wait until it is handled.

        Messages that were handled before this call count too.

        Args:
            kind: the class of the message.
            number: which one of them, counted from 1.
            fields: names of attributes and their values.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            found = [each for each in self.received if fits(each, kind, fields)]
            if len(found) >= number:
                return found[number - 1]
            await self._news.wait()

    def _receive(self, message: Message) -> _Answer:
        self.received.append(message)
        self._news.wake()
        answers = self._answers.get(type(message))
        if not answers:
            return _Answer(error=_no_answer(type(message)) if isinstance(message, Call) else None)
        # A value goes on answering, as a server would; a failure or a wait is for one message.
        keep = len(answers) == 1 and answers[0].lasts
        return answers[0] if keep else answers.popleft()


def _no_answer(kind: type[Message]) -> LookupError:
    return LookupError(f"probe: no answer for {kind.__name__}; call reply({kind.__name__}, …) or fail(…) before")


@frozen(kw_only=True)
class _Answer:
    """The answer to one message."""

    value: object = None
    error: Exception | None = None
    crash: bool = False
    until: anyio.Event | None = None

    @property
    def lasts(self) -> bool:
        """Whether it may answer later messages too."""
        return self.error is None and self.until is None


class _ProbeActor(Actor):
    """One incarnation of a probe."""

    def __init__(self, probe: Probe, max_in_flight: int) -> None:
        self.max_in_flight = max_in_flight
        self._probe = probe
        self._fatal: Exception | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._probe.starts += 1
        if self._probe._start_failures:
            raise self._probe._start_failures.popleft()
        yield

    async def handle(self, message: Message) -> Any:
        answer = self._probe._receive(message)
        if answer.until is not None:
            await answer.until.wait()
        if answer.error is not None:
            if answer.crash:
                self._fatal = answer.error
            raise answer.error
        return answer.value

    def is_fatal(self, exc: Exception) -> bool:
        return exc is self._fatal
