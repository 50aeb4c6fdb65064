"""Messages of an incarnation to itself, from its timers and monitors.

They wait in the mailbox like the messages of others, in their order of arrival, but do not survive their incarnation:
the next one has set no timers and watches no actor yet. A full mailbox refuses none of them, whatever its policy: they
wait in the entrance then. Each timer and each monitor has at most one message in the mailbox.

They are sent in the context variables of ``running()``, not in those of the handler that has set the timer, nor of the
task that has ended the watched actor. So a message every second does not belong to the trace of one request forever,
and no chain of messages keeps the contexts of earlier ones alive.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from attrs import define, field

from ..._errors import ActorError
from ..mailbox import Envelope
from ..ref import ActorRef, Down, Monitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from ..mailbox import Message
    from ..ref import Record


class Source(Protocol):
    """A timer or a monitor."""

    @property
    def over(self) -> bool:
        """True once its messages are not to be handled: it was canceled, or its incarnation ends."""


class OwnEnvelope(Envelope):
    """A message of an incarnation to itself. No sender waits for it, so it is never open."""

    __slots__ = ("_source",)

    def __init__(self, message: Message, source: Source) -> None:
        super().__init__(message, is_call=False)
        self.open = False
        self._source = source

    @property
    def withdrawn(self) -> bool:
        """True if it is not to be handled."""
        return self._source.over


class OwnMonitor(Monitor):
    """A monitor of an actor, whose report is a message to that actor."""

    __slots__ = ("_envelope", "_own")

    def __init__(self, ref: ActorRef, own: OwnMessages) -> None:
        super().__init__(ref)
        self._own = own
        self._envelope: OwnEnvelope | None = None

    @property
    def over(self) -> bool:
        """True once its report is not to be handled."""
        return self.canceled or self._own.over

    def cancel(self) -> None:
        """Watch no longer."""
        super().cancel()
        self._own.monitors.pop(self, None)
        if self._envelope is not None:
            self._own.forget(self._envelope)

    def _deliver(self, down: Down) -> None:
        self._own.monitors.pop(self, None)
        self._envelope = self._own.send(down, self)


@define(eq=False, repr=False)
class OwnMessages:
    """Sends an incarnation its own messages, and removes them when it ends.

    Attributes:
        record: that of the actor.
        nursery: runs the tasks of the incarnation.
        crash: ends the incarnation with an exception.
        over: True once the end of the incarnation was decided.
        monitors: those that have not reported yet.
    """

    record: Record
    nursery: trio.Nursery
    crash: Callable[[BaseException], object]
    over: bool = field(kw_only=True)
    monitors: dict[OwnMonitor, None] = field(factory=dict, init=False)
    # A walk through a long queue would make each end slow. Weak, because it must keep no message alive.
    _sent: WeakSet[OwnEnvelope] = field(factory=WeakSet, init=False)

    def start_soon(self, fn: Callable[[], Awaitable[Any]], name: str) -> None:
        """Run a function in a task that ends with the incarnation."""
        self._in_context(partial(self.nursery.start_soon, fn, name=f"{self.record.name}:{name}"))

    def _in_context(self, fn: Callable[[], object]) -> None:
        # A copy: the context itself may be in use, by the owner or, where an actor takes messages without a task, by
        # another message to itself.
        self.nursery.parent_task.context.copy().run(fn)

    def send(self, message: Message, source: Source) -> OwnEnvelope | None:
        """Send a message. Return None if the mailbox is closed, because nothing more is handled then."""
        if self.record.mailbox.closed:
            return None
        envelope = OwnEnvelope(message, source)
        self._sent.add(envelope)
        try:
            self._in_context(partial(self.record.mailbox.put, envelope, wait=True))
        except BaseException as exc:
            # Of the key function of a pool. This may be a step of the actor that is watched, which must be completed.
            self.crash(exc)
        return envelope

    def watch(self, ref: ActorRef) -> OwnMonitor:
        """Watch an actor, unless the end of the incarnation was decided."""
        if not isinstance(ref, ActorRef):  # type: ignore[redundant-expr,unused-ignore]  # users may get it wrong
            raise TypeError(f"actor {self.record.name!r}: watch() takes an ActorRef, not {ref!r}")
        if ref._record is self.record:
            raise ActorError(
                f"actor {self.record.name!r}: cannot watch itself, because it has ended by then; clean up after the "
                "yield of running()",
                actor=self.record.name,
            )
        self.record.mailbox.check_class(Down)
        monitor = OwnMonitor(ref, self)
        if not self.over:
            self.monitors[monitor] = None
            monitor.begin()
        return monitor

    def has_queued(self, envelope: OwnEnvelope) -> bool:
        """Return True while an envelope waits in the mailbox."""
        return envelope.holder is self.record.mailbox and not envelope.withdrawn

    def forget(self, envelope: OwnEnvelope) -> None:
        """Remove an envelope from the mailbox if it waits there."""
        if getattr(envelope, "holder", None) is self.record.mailbox:  # else it was not queued, or was taken
            self.record.mailbox.forget(envelope)

    def close(self) -> None:
        """Remove all envelopes from the mailbox, because the end was decided. None that was taken returns to it."""
        self.over = True
        for monitor in tuple(self.monitors):
            monitor.cancel()
        for envelope in tuple(self._sent):
            self.forget(envelope)
