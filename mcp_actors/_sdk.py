"""Refuse an SDK that is too old or hidden at import.

Otherwise the first name that an old SDK lacks would be the error, which does not say that a newer version has it; or,
if a program is called ``mcp.py``, a circular import. The file looks for the module, reads the version from the metadata
of the installed distribution ``mcp``, and raises an `ImportError` with the remedy. It accepts an SDK without metadata,
or whose version does not begin with two numbers. It imports neither `mcp` nor anything of the package.

``catalog``, ``config`` and ``transports`` import it before anything that imports `mcp`; ``adapters`` and the command
line import it when they are first used.
"""

from __future__ import annotations

import re
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import Final

OLDEST: Final = (2, 3)
"""The oldest version of the SDK that works. ``pyproject.toml`` has the same."""


def sdk_problem() -> str | None:
    """Return the error about the installed SDK, None if it is new enough."""
    found = PathFinder.find_spec("mcp")
    if found is not None and found.submodule_search_locations is None:
        return f"mcp_actors: {found.origin} hides the package mcp, because it has the same name; rename that file"
    try:
        installed = version("mcp")
    except PackageNotFoundError:
        return None  # it may come without its metadata, as in a zip file; an import says whether it is there
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
