"""Read the sources of a group, notice their changes, and compare configurations.

Imported by ``group``, which applies what is found here. This room knows configurations, and of servers only
their events.
"""

from __future__ import annotations

from ._compare import (
    Difference as Difference,
    change_lines as change_lines,
    changed_fields as changed_fields,
    compare as compare,
)
from ._given import OF_CODE as OF_CODE, Configured as Configured, Given as Given, anchored as anchored
from ._reading import Sources as Sources
from ._status import LAST_STATUS_WAIT as LAST_STATUS_WAIT, StatusActor as StatusActor, StatusBoard as StatusBoard
from ._watch import ConfigRejected as ConfigRejected, WatchActor as WatchActor
