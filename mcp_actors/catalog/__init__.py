"""The tools of servers as data: public names, argument checks, pins, snapshots.

This file only gathers classes and functions. ``servers.tools`` is a `CatalogSnapshot`. `strict_schema` converts schemas
for model providers. `result_value` turns a result into plain values. A pin detects a changed definition.
"""

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import publish
from ._names import NameCollision, assign_names, check_naming, public_name
from ._pins import OnToolChange, Pins, PinVerdict, identity_pin, judge, pin, pins_of
from ._snapshot import CatalogEntry, CatalogSnapshot, Listing
from ._tools import (
    CatalogTool,
    ListedTool,
    data_text as data_text,
    decoded as decoded,
    note_call as note_call,
    plain_base64 as plain_base64,
    result_value,
    text_of as text_of,
    unwrapped as unwrapped,
)
from ._validation import StrictSchema, ToolChecks, Validation, check_call as check_call, strict_schema

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
