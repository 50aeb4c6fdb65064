"""Filter the tools of a server, and declare tools for it.

Imported by `ServerConfig`, by the readers of files and by the servers. This room uses the validators of the folder
around it and nothing else of it.
"""

from __future__ import annotations

from ._filter import (
    GLOB as GLOB,
    ToolContext as ToolContext,
    ToolFilter as ToolFilter,
    ToolPredicate as ToolPredicate,
    permitted as permitted,
)
from ._static import check_static_tools as check_static_tools, to_static_tools as to_static_tools
