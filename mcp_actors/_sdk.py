"""Raise an `ImportError` if the SDK is too old or hidden.

A program's file ``mcp.py`` hides the SDK, the package `mcp`. Python's errors (a circular import, a missing name)
suggest no remedy, so this file is imported before `mcp`.
"""

from __future__ import annotations

import re
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import Final

OLDEST: Final = (2, 3)
"""The oldest version of the SDK that works, as in ``pyproject.toml``."""


def sdk_problem() -> str | None:
    """Return why the installed SDK cannot be used, or None. Accept a version that does not begin with two numbers."""
    found = PathFinder.find_spec("mcp")
    if found is not None and found.submodule_search_locations is None:
        return f"mcp_actors: {found.origin} hides the package mcp, because it has the same name; rename that file"
    try:
        installed = version("mcp")
    except PackageNotFoundError:
        return None  # perhaps installed without metadata, as in a zip file
    number = re.match(r"(\d+)\.(\d+)", installed)
    if number is None or (int(number[1]), int(number[2])) >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return (
        f"mcp_actors: requires the package mcp in version {oldest} or later, and {installed} is installed; "
        f"run: pip install --upgrade 'mcp>={oldest}'"
    )


if problem := sdk_problem():
    raise ImportError(problem, name="mcp")
