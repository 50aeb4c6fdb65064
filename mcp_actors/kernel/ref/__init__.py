"""References to actors, and the record of an actor that they read.

Imports the mailbox and the events; knows neither the class of an actor nor its runs.
"""

from __future__ import annotations

from ._child_info import (
    ChildInfo as ChildInfo,
    ChildrenCount as ChildrenCount,
    RestartType as RestartType,
    Spec as Spec,
)
from ._end import (
    CUT_SHORT as CUT_SHORT,
    End as End,
    EndReason as EndReason,
    failure_of as failure_of,
    failure_text as failure_text,
    interrupted as interrupted,
    not_started as not_started,
)
from ._pending import PendingCall as PendingCall
from ._record import (
    ActorState as ActorState,
    ActorStatistics as ActorStatistics,
    Change as Change,
    DownReason as DownReason,
    Record as Record,
    Sweeps as Sweeps,
)
from ._ref import (
    ActorRef as ActorRef,
    ChildChange as ChildChange,
    CountChildren as CountChildren,
    DeleteChild as DeleteChild,
    Down as Down,
    Monitor as Monitor,
    RestartChild as RestartChild,
    StartChild as StartChild,
    StopChild as StopChild,
    SupervisorRef as SupervisorRef,
    WhichChildren as WhichChildren,
    ref_to as ref_to,
)
from ._tree import TreeNode as TreeNode
