"""Record events, and wait for one."""

from __future__ import annotations

from typing import TypeVar

import anyio

from ..kernel import Event
from ._news import News, fits

E = TypeVar("E", bound=Event)


class EventRecorder(list[Event]):
    """A list of all events, in the order in which they happened.

    It is an observer: pass it in ``observers=[recorder]``. It works on Trio and on asyncio.
    """

    def __init__(self) -> None:
        super().__init__()
        self._news = News()

    def __call__(self, event: Event, /) -> None:
        """Take an event (as an `Observer`)."""
        self.append(event)
        self._news.wake()

    def of(self, kind: type[E], *actors: str) -> list[E]:
        """Return the events of one kind, of these actors (default: of all)."""
        return [event for event in self if isinstance(event, kind) and (not actors or event.actor in actors)]

    def states(self, server: str) -> list[str]:
        """Return the states that a server went through, without its first."""
        from ..servers import StateChanged  # not for tests of actors alone: it loads the SDK

        return [event.new for event in self.of(StateChanged, server)]

    async def wait_for(self, kind: type[E], /, *, after: Event | None = None, **fields: object) -> E:
        """Return the first event of a kind whose fields have these values; wait for it if it was not recorded yet.

        Events that were recorded before this call count too, so no event is missed. Nothing ends the wait but the
        event: put a ``fail_after`` around it.

        **Cancellation**: changes nothing.

        Args:
            kind: the class of the event.
            after: an event of this recorder; only later ones count. Pass the last result to wait for the next.
            fields: names of attributes and their values, such as ``server="files"`` or ``new="ready"``.

        Raises:
            ValueError: `after` was not recorded here.
            AttributeError: an event of this kind has no attribute of such a name.
        """
        await anyio.lowlevel.checkpoint()
        position = self._position_after(after)
        while True:
            for event in self[position:]:
                if fits(event, kind, fields):
                    return event
            position = len(self)
            await self._news.wait()

    def _position_after(self, event: Event | None) -> int:
        if event is None:
            return 0
        # By identity: two events may be equal.
        for position, each in enumerate(self, 1):
            if each is event:
                return position
        raise ValueError(f"after={event!r} was not recorded here; pass an event of this recorder")
