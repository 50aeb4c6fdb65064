"""The phases of a connection."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..._errors import ConnectPhase


class Phase(Enum):
    """The phase of a connection.

    ::

        opening --> negotiating --> listing --> serving --> draining --> gone
           ^             |                         |                      ^
           +-------------+                         +----------------------+

    A process may be started a second time, as a legacy server: then the connection is opening again. A connect that
    fails has no further phase. A connection over stdio is gone at once, with its requests. Over HTTP it drains first:
    no more requests are sent, and those that were sent are awaited.
    """

    OPENING = "open"
    NEGOTIATING = "negotiate"
    LISTING = "list_tools"
    SERVING = "serving"
    DRAINING = "draining"
    GONE = "gone"

    @property
    def connected(self) -> bool:
        """True once the connection has served; False while it connects."""
        return self in (Phase.SERVING, Phase.DRAINING, Phase.GONE)

    @property
    def of_connect(self) -> ConnectPhase:
        """The name of a phase of the connect, as `ConnectFailed.phase` has it."""
        match self:
            case Phase.OPENING:
                return "open"
            case Phase.NEGOTIATING:
                return "negotiate"
            case _:
                return "list_tools"
