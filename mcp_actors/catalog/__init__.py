"""The tools of all servers, as immutable data.

Everything here is computed from listings and calls; only the store of the pins touches the disk. The servers keep the
snapshots and report what has changed. This folder knows nothing of them.
"""

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import publish
from ._names import NameCollision, assign_names, check_naming, public_name
from ._pins import OnToolChange, Pins, PinVerdict, identity_pin, judge, pin, pins_of
from ._snapshot import CatalogEntry, CatalogSnapshot, Listing
from ._tools import CatalogTool, ListedTool, result_value
from ._validation import StrictSchema, ToolChecks, Validation, strict_schema

__all__ = [
    "CatalogEntry",
    "CatalogSnapshot",
    "CatalogTool",
    "ListedTool",
    "Listing",
    "NameCollision",
    "OnToolChange",
    "PinVerdict",
    "Pins",
    "StrictSchema",
    "ToolChecks",
    "Validation",
    "assign_names",
    "check_naming",
    "identity_pin",
    "judge",
    "pin",
    "pins_of",
    "public_name",
    "result_value",
    "strict_schema",
]

publish("mcp_actors", {"CatalogSnapshot": CatalogSnapshot, "CatalogTool": CatalogTool})
publish(__name__, globals())
