"""The supervision tree of a group.

::

    servers                       starts in parallel, stops concurrently; one server's trouble is never another's
     ├─ time:supervisor           restarts this server by its own policy, and parks it when that is spent
     │   ├─ time:deadlines        keeps the deadlines of its requests, whether it is connected or not
     │   └─ time                  the server actor
     ├─ ...
     └─ servers:lifecycle         carries out stop(), start(), reconnect()
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..kernel import ChildSpec, Supervisor
from ._actor import ServerActor
from ._deadlines import DeadlineActor
from ._lifecycle import LifecycleActor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._record import ServerRecord

GROUP: Final = "servers"
LIFECYCLE: Final = "servers:lifecycle"


def supervisor_id(server: str) -> str:
    """The name of a server's own supervisor; no server has it, for the names of servers have no colon."""
    return f"{server}:supervisor"


def group_specs(records: Iterable[ServerRecord]) -> list[ChildSpec]:
    """The children of the group's supervisor, in configured order."""
    servers = [ChildSpec(supervisor_id(record.config.name), partial(_supervisor, record)) for record in records]
    return [*servers, ChildSpec(LIFECYCLE, LifecycleActor)]


def _supervisor(record: ServerRecord) -> Supervisor:
    """A server's own supervisor."""
    config, policy = record.config, record.config.restart
    server = ChildSpec(
        config.name,
        partial(ServerActor, record),
        mailbox_size=config.mailbox_size,
        overflow=config.overflow,
    )
    deadlines = ChildSpec(f"{config.name}:deadlines", partial(DeadlineActor, record.deadlines))
    return Supervisor(
        deadlines,
        server,
        max_restarts=policy.max_restarts,
        window=policy.window,
        reset_after=policy.reset_after,
        backoff=policy.backoff,
        on_limit="park" if config.on_failure == "park" else "end",
        strict=record.required,
    )
