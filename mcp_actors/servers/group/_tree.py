"""The supervision tree of a group, and how its servers start.

::

    servers                       starts in parallel, stops concurrently; a failing server never affects another
     ├─ servers:deadlines         enforces the deadlines of all requests, whether their server is connected or not
     ├─ time:supervisor           restarts this server by its own policy; parks it when the budget is spent
     │   └─ time                  the server actor
     ├─ docs:supervisor
     │   └─ docs                  with replicas=2: their pool, which restarts each of them by itself
     │       ├─ docs:1            a server actor
     │       └─ docs:2
     ├─ ...
     ├─ servers:memory            writes listed tools to the catalogue store, for the next run
     ├─ servers:watch             reloads configurations that change
     ├─ servers:status            writes states into the tables that the servers come from
     └─ servers:lifecycle         carries out stop(), start(), reconnect(), add(), remove(), reload()
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from ..._errors import ChildError
from ..._tasks import ClosingOrder
from ...kernel import ChildSpec, DormantSupervisor, Pool, Supervisor
from ..connection import ServerActor
from ..policy import DeadlineActor, seconds_to_retry
from ..record import REPLICA
from ..sources import LAST_STATUS_WAIT, StatusActor
from ._memory import FLUSH_WAIT, MemoryActor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...kernel import Actor, Backoff, SupervisorRef
    from ..policy import DeadlineTimer
    from ..record import ServerRecord
    from ..sources import StatusBoard
    from ._memory import CatalogMemory

GROUP: Final = "servers"
DEADLINES: Final = "servers:deadlines"
LIFECYCLE: Final = "servers:lifecycle"
MEMORY: Final = "servers:memory"
WATCH: Final = "servers:watch"
STATUS: Final = "servers:status"

WAITING_CHANGES: Final = sys.maxsize
"""The size of the mailbox for changes. Those that the group asks for itself cannot wait for room: the first use of a
lazy server, and at most a few more for each server. Callers' changes wait in any case, inside or outside of it."""


def supervisor_id(server: str) -> str:
    """Return the name of a server's own supervisor. Server names have no colon, so the two never collide."""
    return f"{server}:supervisor"


def group_specs(
    records: Iterable[ServerRecord],
    closing: ClosingOrder,
    *,
    timer: DeadlineTimer,
    memory: CatalogMemory | None,
    lifecycle: Callable[[], Actor],
    others: Iterable[ChildSpec],
) -> list[ChildSpec]:
    """Return the first children of the group's supervisor.

    Args:
        records: the servers, in configured order.
        closing: the order in which they close.
        timer: enforces the deadlines of their requests.
        memory: the remembered catalogues; None remembers nothing.
        lifecycle: makes the actor that carries out changes.
        others: the actors that look after the sources.
    """
    servers = [server_spec(record, closing) for record in records]
    deadlines = ChildSpec(DEADLINES, partial(DeadlineActor, timer))
    changes = ChildSpec(LIFECYCLE, lifecycle, mailbox_size=WAITING_CHANGES)
    return [deadlines, *_memory_specs(memory), *servers, changes, *others]


def server_spec(record: ServerRecord, closing: ClosingOrder) -> ChildSpec:
    """Return a server as a child of the group's supervisor. It is configured by its record, each time it is started."""
    return ChildSpec(supervisor_id(record.config.name), partial(_supervisor, record, closing))


def status_spec(board: StatusBoard) -> ChildSpec:
    """Return the actor that writes states into tables. Without it the group continues."""
    return ChildSpec(STATUS, partial(StatusActor, board), restart="temporary", shutdown=2 * LAST_STATUS_WAIT)


async def start_status(group: SupervisorRef, board: StatusBoard) -> None:
    """Start the actor that writes states into tables, if there are any. One that runs already follows the sources."""
    if board.tables:
        with suppress(ChildError):
            await group.start_child(status_spec(board))


def _memory_specs(memory: CatalogMemory | None) -> list[ChildSpec]:
    if memory is None:
        return []
    # temporary: if it crashes, the group continues without it.
    return [ChildSpec(MEMORY, partial(MemoryActor, memory), restart="temporary", shutdown=2 * FLUSH_WAIT)]


def _supervisor(record: ServerRecord, closing: ClosingOrder) -> Supervisor | DormantSupervisor:
    """Return a server's own supervisor, which awaits a strict start; the gate waits for the others.

    That of a lazy server is dormant until the server is used: of a thousand that are configured, few are.
    """
    config = record.config
    actor, recovery = partial(ServerActor, record, closing), _recovery(record)
    server = ChildSpec(
        config.name,
        actor if config.replicas == 1 else partial(_pool, actor, config.replicas, recovery),
        mailbox_size=config.mailbox_size,
        overflow=config.overflow,
    )
    record.woken = record.woken or not record.life.dormant
    return Supervisor(server, **recovery) if record.woken else DormantSupervisor(server)


class Recovery(TypedDict):
    """How failed connections of a server are restarted, as keyword arguments of a supervisor or a pool."""

    max_restarts: int
    window: float
    reset_after: float | None
    backoff: Backoff
    on_limit: Literal["end", "park"]
    park_retry: Callable[[BaseException | None], float | None] | None
    strict: bool
    await_start: bool


def _recovery(record: ServerRecord) -> Recovery:
    policy, parks = record.config.restart, record.config.on_failure == "park"
    return {
        "max_restarts": policy.max_restarts,
        "window": policy.window,
        "reset_after": policy.reset_after,
        "backoff": policy.backoff,
        "on_limit": "park" if parks else "end",
        "park_retry": partial(seconds_to_retry, policy) if parks else None,
        "strict": record.strict,
        "await_start": record.strict,
    }


def _pool(actor: Callable[[], Actor], replicas: int, recovery: Recovery) -> Pool:
    """Return the replicas of a server. Each may be restarted as often as the only process of a server."""
    return Pool(actor, replicas, separator=REPLICA, budget_per_member=True, **recovery)
