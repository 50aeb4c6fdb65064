"""Wait for what a recorder or a probe notes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class News:
    """Wakes the tasks, of any event loop, that wait for the next note."""

    def __init__(self) -> None:
        self._waiting: list[anyio.Event] = []

    def wake(self) -> None:
        """Wake all tasks that wait; each looks again for what it waits for."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set()

    async def wait(self) -> None:
        """Wait for the next note."""
        self._waiting.append(event := anyio.Event())
        await event.wait()


def fits(note: object, kind: type[T], fields: Mapping[str, object]) -> TypeGuard[T]:
    """Return True for an object of a class whose attributes have these values.

    Raises:
        AttributeError: it has no attribute of such a name.
    """
    return isinstance(note, kind) and all(getattr(note, name) == value for name, value in fields.items())
