"""The name, mailbox and state of an actor, across its incarnations."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Final, Literal, get_args

import trio
from attrs import frozen

from ..._collapse import EXITS
from .._events import DeadLetter, Stopped
from ._end import stopped

if TYPE_CHECKING:
    from .._events import Event, EventHub
    from ..mailbox import Envelope, Mailbox

ActorState = Literal["starting", "running", "backoff", "stopping", "stopped", "failed"]

STATES: Final[tuple[ActorState, ...]] = get_args(ActorState)


@frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor.

    Attributes:
        state: its state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        queued: messages that wait in the mailbox.
        in_flight: messages that are being handled.
    """

    state: ActorState
    incarnation: int
    queued: int
    in_flight: int


class Change:
    """Wakes the tasks that wait for something to change. While none waits it is a single attribute."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def __call__(self) -> None:
        """Wake all tasks that wait; each checks again for what it waits for."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class Record:
    """The lasting part of one actor. Refs only read it; its supervisor and its incarnations write it.

    Attributes:
        killed: True if its latest incarnation was killed.
        gave_up: True from the moment its supervisor stops restarting it until it is started again.
        reentrant: True if its handlers may call it; see `Actor.reentrant`. Set by each incarnation.
        in_flight: the envelopes that are being handled; empty between incarnations.
        children: for a supervisor, the records of its children by id, which outlive its incarnations too.
        parent: the record of its supervisor; None for the actor that a block has opened.
    """

    __slots__ = (
        "_change",
        "_thread",
        "children",
        "gave_up",
        "hub",
        "in_flight",
        "incarnation",
        "killed",
        "mailbox",
        "name",
        "parent",
        "reentrant",
        "state",
    )

    def __init__(self, name: str, mailbox: Mailbox, hub: EventHub, parent: Record | None = None) -> None:
        self.name: str = name
        self.mailbox: Mailbox = mailbox
        self.hub: EventHub = hub
        self.state: ActorState = "starting"
        self.incarnation: int = 0
        self.killed: bool = False
        self.gave_up: bool = False
        self.reentrant: bool = False
        self.in_flight: set[Envelope] = set()
        self.children: dict[str, Record] | None = None
        self.parent: Record | None = parent
        self._thread = get_ident()
        self._change = Change()

    @property
    def lives_here(self) -> bool:
        """True if the caller is in the thread of the actor's Trio run. When that ends, so does the actor."""
        return get_ident() == self._thread

    @property
    def path(self) -> str:
        """The names from the actor that a block has opened down to this one."""
        names, above = [self.name], self.parent
        while above is not None:
            names.append(above.name)
            above = above.parent
        return "/".join(reversed(names))

    def become(self, state: ActorState) -> None:
        """Set the state, and wake the tasks that wait for a change."""
        self.state = state
        self._change()

    async def wait_change(self) -> None:
        """Wait until the state is set anew."""
        await self._change.wait()

    def note(self, kind: type[Event], **details: object) -> None:
        """Emit an event about this actor, if there are observers."""
        if self.hub.observers:
            common = {"actor": self.name, "incarnation": self.incarnation, "time": trio.current_time()}
            try:
                self.hub.emit(kind(**common, **details))  # type: ignore[arg-type]  # each caller knows its kind's fields
            except EXITS as exc:
                self.hub.leave(exc)

    def note_stopped(self) -> None:
        """Emit `Stopped`."""
        self.note(Stopped, killed=self.killed)

    def close(self, why: str) -> None:
        """Close the mailbox, and answer all queued messages: nothing restarts the actor automatically."""
        for dropped in self.mailbox.close(lambda: stopped(self.name, why)):
            self.note(DeadLetter, message=type(dropped.message).__name__)

    def statistics(self) -> ActorStatistics:
        """Return a snapshot, as frozen data."""
        return ActorStatistics(
            state=self.state, incarnation=self.incarnation, queued=self.mailbox.queued, in_flight=len(self.in_flight)
        )


def elsewhere(name: str) -> RuntimeError:
    """Return the error of a message from outside the actor's Trio run, which could corrupt both sides."""
    return RuntimeError(
        f"actor {name!r}: used outside its Trio run; in a thread call "
        "trio.from_thread.run(ref.call, message) or trio.from_thread.run_sync(ref.tell_nowait, message) (with "
        "trio_token=... if Trio did not start the thread), in an asyncio program open it with mcp_actors.bridge"
    )
