"""Public names of tools, and the book that keeps them.

Imported by the snapshot, and for its default by the groups that take a template. This room uses nothing of the folder
around it.
"""

from __future__ import annotations

from ._book import NameBook as NameBook, NameCollision as NameCollision, ToolName as ToolName
from ._public import (
    DEFAULT_NAMING as DEFAULT_NAMING,
    ToolKey as ToolKey,
    assign_names as assign_names,
    check_naming as check_naming,
    public_name as public_name,
)
