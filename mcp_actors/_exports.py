"""Set ``__module__`` of public classes and functions to their public module.

Tracebacks and `repr` then show ``mcp_actors.ConnectFailed``, not the private file of its code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType

__all__ = ["publish"]

_PACKAGE = __name__.partition(".")[0]


def publish(module: str, namespace: Mapping[str, object]) -> None:
    """Set ``__module__`` of every class and function in `namespace` that a private module of this package defines.

    It becomes ``mcp_actors`` for the names that ``mcp_actors/__init__.py`` offers, and `module` for all others. The
    last line of a folder's ``__init__`` is ``publish(__name__, globals())``. A file directly in ``mcp_actors``, such as
    ``_errors.py``, ends with a call for the folder that exports its names.

    A class or function whose ``__module__`` is already public keeps it, so several modules may re-export it. Names that
    begin with an underscore, constants, type aliases and things of other packages are left alone.

    `typing.get_type_hints` looks up the annotations of a *class* in the module that ``__module__`` names. For a
    published class, pass it the names that are missing there. Functions are not affected.

    Args:
        module: the dotted name under which users import the things.
        namespace: name → thing.
    """
    # The façade is the package that contains this file, so it has been imported; it lists its names as plain text.
    homes: Mapping[str, str] = sys.modules[_PACKAGE]._HOMES
    for name, thing in namespace.items():
        if name.startswith("_") or not isinstance(thing, (type, FunctionType)):
            continue
        if _is_private(thing.__module__):
            # The façade may offer another thing under this name: `open_servers` exists for Trio and for asyncio.
            home = homes.get(name)
            offered = home is not None and f"{thing.__module__}.".startswith(f"{home}.")
            thing.__module__ = _PACKAGE if offered else module


def _is_private(module: str) -> bool:
    """Return True if a dotted name belongs to this package and has a part that begins with an underscore."""
    package, *rest = module.split(".")
    return package == _PACKAGE and any(part.startswith("_") for part in rest)
