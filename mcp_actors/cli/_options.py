"""The options that all commands have."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

__all__ = ["AsJson", "ConfigFile"]

ConfigFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--config", "-c"],
        help="The configuration file. Default: .mcp.json, mcp.json, .vscode/mcp.json or .cursor/mcp.json, "
        "whichever is there first.",
        show_default=False,
    ),
]

AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.", show_default=False)]
