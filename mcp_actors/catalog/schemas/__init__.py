"""Check values against JSON schemas of servers, and convert the schemas.

Imported by the pins, by the servers (which check calls) and by programs (`strict_schema`). This room uses the canonical
and frozen values of the folder around it, and the type of a listed tool.
"""

from __future__ import annotations

from ._strict import StrictSchema as StrictSchema, strict_schema as strict_schema
from ._validation import ToolChecks as ToolChecks, Validation as Validation
from ._violations import dotted as dotted, kind_of as kind_of, listed as listed
