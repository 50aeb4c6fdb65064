"""List kept resources again when they have changed.

One task per connection, like the one for the tools, whose delays it shares (``_tools``). The connect has listed them
already; if that failed, this task begins with its failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._text import problem_of
from ...requests import KeepResources
from ._retrying import keep_trying
from ._tools import AFTER_FAILURE, Pace, refresh

if TYPE_CHECKING:
    from ....kernel import ActorRef
    from ...record import ServerRecord


async def keep_resources_listed(record: ServerRecord, actor: ActorRef, failure: Exception | None) -> None:
    """List the resources whenever they are stale, until the connection ends.

    Args:
        record: the record of the server.
        actor: the server actor.
        failure: why the connect could not list them; None if it has.
    """
    pace, failures = Pace(), [] if failure is None else [failure]

    def describe(error: Exception, delay: float) -> str:
        return (
            f"server {record.config.name!r}: its resources could not be listed: {problem_of(error)}; the last list is "
            f"kept, and the request is repeated in {delay:.3g} s"
        )

    async def attempt() -> None:
        if failures:
            raise failures.pop()
        await refresh(record, actor, record.resources, KeepResources, pace)

    async with record.resources.freshness.turn:
        while await keep_trying(attempt, AFTER_FAILURE, describe):
            pass
