"""One actor: its class, its reference, and its runs.

Imports the mailbox and the events; knows nothing of supervisors.
"""

from __future__ import annotations

from ._actor import (
    Actor as Actor,
    IgnoreStart as IgnoreStart,
    NotSent as NotSent,
    StopActor as StopActor,
    check_actor as check_actor,
)
from ._end import (
    CUT_SHORT as CUT_SHORT,
    End as End,
    EndReason as EndReason,
    failure_of as failure_of,
    failure_text as failure_text,
    not_started as not_started,
)
from ._incarnation import Incarnation as Incarnation
from ._record import ActorState as ActorState, ActorStatistics as ActorStatistics, Record as Record
from ._ref import ActorRef as ActorRef, PendingCall as PendingCall
from ._requests import Requests as Requests
from ._stop import Shutdown as Shutdown, stop as stop, stop_within as stop_within

__all__ = [
    "CUT_SHORT",
    "Actor",
    "ActorRef",
    "ActorState",
    "ActorStatistics",
    "End",
    "EndReason",
    "IgnoreStart",
    "Incarnation",
    "NotSent",
    "PendingCall",
    "Record",
    "Requests",
    "Shutdown",
    "StopActor",
    "check_actor",
    "failure_of",
    "failure_text",
    "not_started",
    "stop",
    "stop_within",
]
