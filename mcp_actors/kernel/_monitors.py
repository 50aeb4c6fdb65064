"""Watch an actor until its incarnation ends.

A `Monitor` is a watcher of the actor's record, and reports the end of an incarnation as a `Down`. References and actors
make monitors. `check_not_within` refuses a wait for an end that waits for the code that asks. This file starts no task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import define, field, frozen

from .._errors import ActorError
from ._circles import current_sender, is_bounded
from ._envelope import Message
from ._record import Change, DownReason, Record, elsewhere

if TYPE_CHECKING:
    from ._ref import ActorRef


@frozen(kw_only=True)
class Down(Message):
    """An incarnation of a watched actor has ended, and has released everything; see `Actor.watch`.

    Attributes:
        ref: the actor that was watched.
        reason: ``"normal"`` (it ended itself), ``"shutdown"`` (it was stopped, or its supervisor gave up on a child),
            ``"crashed"`` (also: it failed to start), ``"killed"`` (it did not stop in time), ``"ignored"`` (there was
            nothing to run); or ``"not_running"``: it had stopped before it was watched, or is not started after all.
        error: the failure, for reading: the exception of a crash, a supervisor's `RestartLimitReached`, or what the
            clean-up in ``running()`` raised after another end.
        incarnation: the number of the incarnation that has ended.
        comes_back: True if another incarnation is expected. Its supervisor may still give up, so watch it again.
    """

    ref: ActorRef
    reason: DownReason
    error: BaseException | None = field(eq=False)
    incarnation: int
    comes_back: bool


@define(eq=False, repr=False)
class Monitor:
    """Watches an actor until its incarnation ends, once; see `ActorRef.watch` and `Actor.watch`.

    Attributes:
        ref: the actor that is watched.
        canceled: True once `cancel` was called.
    """

    ref: ActorRef
    canceled: bool = field(default=False, init=False)
    _down: Down | None = field(default=None, init=False)
    _change: Change = field(factory=Change, init=False)

    def __repr__(self) -> str:
        return f"<Monitor of {self.ref.name!r}>"

    def begin(self) -> None:
        """Begin to watch. If the actor has stopped, this reports it at once."""
        record = self.ref._record
        if not record.lives_here:
            raise elsewhere(record.name)
        record.watch(self._report)

    def cancel(self) -> None:
        """Watch no longer. A `Down` that is still queued is removed. Synchronous, and possible in any state."""
        self.canceled = True
        self.ref._record.unwatch(self._report)
        self._change()

    def _report(self, reason: DownReason, error: BaseException | None, comes_back: bool) -> None:
        if self.canceled:  # by code that the report to another monitor has run
            return
        number = self.ref._record.incarnation
        down = Down(ref=self.ref, reason=reason, error=error, incarnation=number, comes_back=comes_back)
        self._down = down
        self._change()
        self._deliver(down)

    def _deliver(self, down: Down) -> None:
        """Pass the report on. A hook for the monitors of actors."""

    async def wait(self) -> Down:
        """Wait until the incarnation has ended, and return the report. Several tasks may wait.

        **Cancellation**: only ends the waiting.

        Raises:
            RuntimeError: the monitor was canceled.
            ActorError: code of the actor that is watched, or of one below it, waits for its end without a deadline.
        """
        if self._down is None:
            check_not_within(self.ref._record)
        await trio.lowlevel.checkpoint()
        while self._down is None:
            if self.canceled:
                raise RuntimeError(f"monitor of actor {self.ref.name!r}: was canceled; watch the actor again")
            await self._change.wait()
        return self._down


def check_not_within(record: Record) -> None:
    """Raise an error if code of an actor, or of one below it, is about to wait for the end of that actor.

    The end waits for that code: a handler is only ever cancelled then, and `running` is left first.
    """
    sender = current_sender()
    if sender is None or is_bounded(sender):
        return
    for each in record.walk():
        if sender in each.in_flight or sender is each.mailbox.life:
            raise ActorError(
                f"actor {record.name!r}: {each.name!r} waits for its end, which waits for {each.name!r}; call "
                "self.stop() to end an actor from within, or wait in a task outside of it",
                actor=record.name,
            )
