"""Supervise actors: the child table, restarts, and changes of both.

Only the face of the kernel and its doors import this room.
"""

from __future__ import annotations

from ._restart import AutoShutdown as AutoShutdown, ChildSpec as ChildSpec, Strategy as Strategy
from ._supervisor import Supervisor as Supervisor

__all__ = [
    "AutoShutdown",
    "ChildSpec",
    "Strategy",
    "Supervisor",
]
