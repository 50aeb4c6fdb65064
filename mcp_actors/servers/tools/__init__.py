"""The tools of one server: listed, filtered, and checked.

The record owns one; requests and the group read it. It may touch `basics` alone.
"""

from __future__ import annotations

from ._admission import ToolChanges as ToolChanges
from ._catalog import Difference as Difference, Reporter as Reporter, ServerCatalog as ServerCatalog
from ._freshness import Freshness as Freshness, Ticket as Ticket
from ._identity import fingerprint as fingerprint, launch_pin as launch_pin
from ._known import KnownTool as KnownTool, known_tools as known_tools
