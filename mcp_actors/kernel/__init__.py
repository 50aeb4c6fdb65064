"""Actors on Trio, without MCP: mailboxes, incarnations, supervision.

Usable alone::

    from mcp_actors.kernel import Actor, Call, ChildSpec, open_supervisor
"""

from __future__ import annotations

from .._backoff import Backoff as Backoff
from .._errors import (
    ActorCrashed as ActorCrashed,
    ActorError as ActorError,
    ActorStartError as ActorStartError,
    ActorStopped as ActorStopped,
    ChildError as ChildError,
    MailboxFull as MailboxFull,
    RestartLimitReached as RestartLimitReached,
)
from .._exports import publish
from ._events import (
    Crashed as Crashed,
    DeadLetter as DeadLetter,
    Event as Event,
    EventHub as EventHub,
    EventStream as EventStream,
    GaveUp as GaveUp,
    MemberAdded as MemberAdded,
    MemberRemoved as MemberRemoved,
    Observer as Observer,
    Overdue as Overdue,
    RequestFinished as RequestFinished,
    RequestStarted as RequestStarted,
    Restarting as Restarting,
    Started as Started,
    StartFailed as StartFailed,
    Starting as Starting,
    StopFailed as StopFailed,
    Stopped as Stopped,
    Stopping as Stopping,
    Unhandled as Unhandled,
)
from ._open import open_actor as open_actor, open_supervisor as open_supervisor
from .actor import (
    Actor as Actor,
    IgnoreStart as IgnoreStart,
    Later as Later,
    NotSent as NotSent,
    Shutdown as Shutdown,
    StopActor as StopActor,
    Timer as Timer,
    handles as handles,
)
from .mailbox import Call as Call, Message as Message, OverflowPolicy as OverflowPolicy
from .pool import Pool as Pool
from .ref import (
    ActorRef as ActorRef,
    ActorState as ActorState,
    ActorStatistics as ActorStatistics,
    ChildInfo as ChildInfo,
    ChildrenCount as ChildrenCount,
    Down as Down,
    DownReason as DownReason,
    Monitor as Monitor,
    PendingCall as PendingCall,
    RestartType as RestartType,
    SupervisorRef as SupervisorRef,
    TreeNode as TreeNode,
)
from .supervisor import (
    AutoShutdown as AutoShutdown,
    ChildSpec as ChildSpec,
    Strategy as Strategy,
    Supervisor as Supervisor,
    SupervisorOptions as SupervisorOptions,
)

# For the layers above; not public.
from ._circles import act_for_caller as act_for_caller  # isort: skip
from ._events import EVENT_BUFFER as EVENT_BUFFER  # isort: skip
from .mailbox import Reply as Reply  # isort: skip
from .supervisor import shows_options as shows_options  # isort: skip

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
    "Down",
    "DownReason",
    "Event",
    "EventHub",
    "EventStream",
    "GaveUp",
    "IgnoreStart",
    "Later",
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
