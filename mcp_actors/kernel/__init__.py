"""Actors on Trio, without MCP: mailboxes, incarnations, supervision.

Usable alone::

    from mcp_actors.kernel import Actor, Call, ChildSpec, open_supervisor

An `Actor` owns a resource, and handles messages, one after another or several at a time. `open_actor` runs an actor
during an ``async with`` block. `open_supervisor` runs a tree of actors, and restarts crashed actors. Actors run in Trio
tasks; no thread or process is started. Logs go to ``mcp_actors.kernel``.
"""

# Names under "For the layers above" are for servers, bridge, test tools and command line. The kernel imports no other
# folder, only files at the top of the package, and opens no file or socket.
#
# Each file of the kernel imports only earlier files of this list: ``_circles``, ``_events``, ``_envelope``,
# ``_mailbox``, ``_record``, ``_ref``, ``_later``, ``_timers``, ``_handlers``, ``_actor``, ``_serving``, ``_requests``,
# ``_incarnation``, ``_restart``, ``_table``, ``_children``, ``_supervisor``, ``_pool``, ``_open``.

from __future__ import annotations

from .._backoff import Backoff
from .._errors import (
    ActorCrashed,
    ActorError,
    ActorStartError,
    ActorStopped,
    ChildError,
    MailboxFull,
    RestartLimitReached,
)
from .._exports import publish
from ._actor import Actor, IgnoreStart, NotSent, Postpone, StopActor
from ._children import DormantSupervisor
from ._envelope import Call, Message, PendingCall
from ._events import (
    Crashed,
    DeadLetter,
    Event,
    EventHub,
    EventStream,
    GaveUp,
    MemberAdded,
    MemberRemoved,
    Observer,
    Overdue,
    RequestFinished,
    RequestStarted,
    Restarting,
    Started,
    StartFailed,
    Starting,
    StopFailed,
    Stopped,
    Stopping,
    Unhandled,
)
from ._handlers import handles
from ._incarnation import Shutdown
from ._later import Later, LaterQueue
from ._mailbox import OverflowPolicy
from ._open import open_actor, open_supervisor
from ._pool import Pool
from ._record import (
    ActorState,
    ActorStatistics,
    ChildInfo,
    ChildrenCount,
    DownReason,
    HandledMessage,
    RestartType,
    TreeNode,
)
from ._ref import ActorRef, Down, Monitor, SupervisorRef
from ._restart import AutoShutdown, ChildSpec, Strategy, SupervisorOptions
from ._supervisor import Supervisor
from ._timers import Timer

# For the layers above; not public.
from ._circles import act_for_caller as act_for_caller  # isort: skip
from ._envelope import CallFor as CallFor, CallWith as CallWith, M as M, M_contra as M_contra  # isort: skip
from ._envelope import Receives as Receives, Reply as Reply  # isort: skip
from ._restart import shows_options as shows_options  # isort: skip

__all__ = [
    "Actor",
    "ActorCrashed",
    "ActorError",
    "ActorRef",
    "ActorStartError",
    "ActorState",
    "ActorStatistics",
    "ActorStopped",
    "AutoShutdown",
    "Backoff",
    "Call",
    "ChildError",
    "ChildInfo",
    "ChildSpec",
    "ChildrenCount",
    "Crashed",
    "DeadLetter",
    "DormantSupervisor",
    "Down",
    "DownReason",
    "Event",
    "EventHub",
    "EventStream",
    "GaveUp",
    "HandledMessage",
    "IgnoreStart",
    "Later",
    "LaterQueue",
    "MailboxFull",
    "MemberAdded",
    "MemberRemoved",
    "Message",
    "Monitor",
    "NotSent",
    "Observer",
    "Overdue",
    "OverflowPolicy",
    "PendingCall",
    "Pool",
    "Postpone",
    "RequestFinished",
    "RequestStarted",
    "RestartLimitReached",
    "RestartType",
    "Restarting",
    "Shutdown",
    "StartFailed",
    "Started",
    "Starting",
    "StopActor",
    "StopFailed",
    "Stopped",
    "Stopping",
    "Strategy",
    "Supervisor",
    "SupervisorOptions",
    "SupervisorRef",
    "Timer",
    "TreeNode",
    "Unhandled",
    "handles",
    "open_actor",
    "open_supervisor",
]

publish(__name__, globals())
