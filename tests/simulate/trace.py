"""Write down what happens in a run, so that two runs can be compared, and one can be drawn."""

from __future__ import annotations

import trio
from attrs import define, field, frozen

from mcp_actors.kernel import Crashed, Event, GaveUp, RequestFinished, RequestStarted, Restarting
from mcp_actors.servers import ReplicaChanged, StateChanged, ToolsChanged


@frozen
class Entry:
    """Something that happened: at a place, or from one place to another."""

    time: float
    place: str
    text: str
    to: str | None = None

    def __str__(self) -> str:
        where = self.place if self.to is None else f"{self.place} -> {self.to}"
        return f"{self.time:.6f} {where}: {self.text}"


@define(eq=False)
class Trace:
    """All entries of a run; it is an observer, too."""

    entries: list[Entry] = field(factory=list)
    events: list[Event] = field(factory=list)

    def note(self, place: str, text: str, to: str | None = None) -> None:
        """Add an entry."""
        self.entries.append(Entry(trio.current_time(), place, text, to))

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)
        actor = event.replica if isinstance(event, ReplicaChanged) else event.actor
        server, _, replica = actor.rpartition(":")
        if replica.isdigit():
            self.note(server, f"{replica}: {described(event)}")
        else:
            self.note(event.actor, described(event))

    def lines(self) -> list[str]:
        """Return the entries as text."""
        return [str(entry) for entry in self.entries]


def described(event: Event) -> str:
    """Return an event in a few words."""
    match event:
        case StateChanged() | ReplicaChanged():
            return f"{event.old} -> {event.new}"
        case ToolsChanged():
            return f"shows {' '.join(event.tools)}"
        case Restarting():
            return f"restart {event.attempt} in {event.delay:.3f} s"
        case RequestStarted() | RequestFinished():
            return f"{type(event).__name__} {event.message} {event.incarnation}"
        case Crashed() | GaveUp():
            return f"{type(event).__name__} {event.incarnation} ({type(event.error).__name__})"
    return f"{type(event).__name__} {event.incarnation}"
