"""The tools of servers as data: names, checks, pins, snapshots.

Each tool has a public name that is unique in its group. A `CatalogSnapshot` is what ``servers.tools`` is at a moment;
`strict_schema` and others convert schemas for model providers, `result_value` makes plain values of a result, and pins
notice changed definitions. Tools, pins and snapshots are immutable.
"""

# It gives tools public names, checks calls and results against their schemas, converts schemas for model providers,
# notices changed definitions, keeps listings in files between runs, and joins the tools of a group in a snapshot.
# Tools, pins and snapshots are immutable; `ToolChecks` keeps compiled schemas, and a `CatalogEntry` prepared variants
# of its tool.
#
# Programs and other rooms may use the names listed here; the rooms above also use a few more names of the files.
# `servers` keeps these objects and reports what has changed. The bridge, the adapters and the command line use
# `CatalogTool`, `CatalogSnapshot` or the default template of names. These files use single files of layer 0, and no
# other folder of the package. They start no task and send nothing. The `CatalogStore` reads and writes files; checks,
# conversions and the store write to the log.

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
