"""Resolve relative paths in an entry, and those with ``~``.

A path should mean here what it means in the program that the file is for. All programs start the servers of a project
in its folder. Most do not expand ``~``, so a command or a directory that begins with it works in none of them and is
safe to expand. VS Code expands it in arguments too; elsewhere an argument is passed unchanged, because it may be meant
for the server itself or for another machine.
"""

from __future__ import annotations

import os

from ...values import literal
from ._fields import Fields
from ._surroundings import Surroundings


def locate(transport: Fields, around: Surroundings) -> None:
    """Resolve the paths of a command as the program that the file is for does."""
    values = transport.values
    for field in ("command", "cwd"):
        if field in values:
            values[field] = _from_home(values[field])
    args = values.get("args")
    if around.of_vs_code and isinstance(args, (list, tuple)):
        values["args"] = tuple(map(_from_home, args))
    if around.cwd is not None:
        values["cwd"] = _within(literal(around.cwd), values.get("cwd"))


def _from_home(path: object) -> object:
    if not isinstance(path, str) or path.partition("/")[0] != "~":
        return path
    return literal(os.path.expanduser("~")) + path[1:]


def _within(folder: str, path: object) -> object:
    """Return a path relative to a folder; leave one that is absolute, or may be because it begins with a variable."""
    if path is None:
        return folder
    return os.path.join(folder, path) if isinstance(path, str) and path and not path.startswith("${") else path
