"""Run a step for several actors at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from ..._collapse import collapse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable


class Named(Protocol):
    """An actor, or what is kept about one."""

    @property
    def name(self) -> str:
        """The name of the actor."""


N = TypeVar("N", bound=Named)


async def fan_out(step: Callable[[N], Awaitable[None]], actors: Iterable[N], purpose: str) -> None:
    """Run a step for each actor, concurrently.

    **Cancellation**: cancels the steps.

    Args:
        step: an async function that takes one of them.
        actors: the actors.
        purpose: the second part of the names of the tasks; the first is that of the actor.

    Raises:
        Exception: a step has raised it, and the others were cancelled; an `ExceptionGroup` if several have raised.
    """
    try:
        async with trio.open_nursery() as nursery:
            for actor in actors:
                nursery.start_soon(step, actor, name=f"{actor.name}:{purpose}")
    except BaseExceptionGroup as group:
        raise collapse(group) from None
