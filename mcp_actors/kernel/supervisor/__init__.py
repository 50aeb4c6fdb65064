"""Supervise actors: the child table, restarts, and changes of both.

Only the face of the kernel, its doors and the pool import this room.
"""

from __future__ import annotations

from ._dormant import DormantSupervisor as DormantSupervisor
from ._options import (
    AutoShutdown as AutoShutdown,
    ParkRetry as ParkRetry,
    Strategy as Strategy,
    SupervisorOptions as SupervisorOptions,
    shows_options as shows_options,
)
from ._restart import ChildSpec as ChildSpec
from ._supervisor import Supervisor as Supervisor
from ._table import Child as Child, Run as Run
