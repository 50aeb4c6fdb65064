"""One actor: its class and its runs.

Imports the mailbox, the events and the references; knows nothing of how a supervisor works.
"""

from __future__ import annotations

from ._actor import (
    Actor as Actor,
    IgnoreStart as IgnoreStart,
    NotSent as NotSent,
    StopActor as StopActor,
    check_actor as check_actor,
)
from ._handlers import handles as handles
from ._incarnation import Incarnation as Incarnation
from ._later import Later as Later
from ._requests import Sweeper as Sweeper
from ._stop import Shutdown as Shutdown, stop as stop, stop_within as stop_within
from ._timers import Timer as Timer
