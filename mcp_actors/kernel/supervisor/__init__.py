"""Supervise actors: the child table, restarts, and changes of both.

Only the face of the kernel and its doors import this room.
"""

from __future__ import annotations

from ._messages import SupervisorRef as SupervisorRef, ref_to as ref_to
from ._restart import (
    AutoShutdown as AutoShutdown,
    ChildSpec as ChildSpec,
    RestartType as RestartType,
    Strategy as Strategy,
)
from ._supervisor import Supervisor as Supervisor
from ._table import ChildInfo as ChildInfo, ChildrenCount as ChildrenCount

__all__ = [
    "AutoShutdown",
    "ChildInfo",
    "ChildSpec",
    "ChildrenCount",
    "RestartType",
    "Strategy",
    "Supervisor",
    "SupervisorRef",
    "ref_to",
]
