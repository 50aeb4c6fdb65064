"""What paths in an entry mean: those that begin with ``~``, and relative ones.

A file should do here what it does in the program that it was written for. All of them start the servers of a project in
its folder. Of ``~`` most make nothing, so a command or a directory that begins with it works nowhere, and only one
meaning is possible. VS Code replaces it in arguments too; elsewhere an argument is passed as it is, as it may be meant
for the server, or for another machine.
"""

from __future__ import annotations

import os

from ...values import literal
from ._fields import Fields
from ._surroundings import Surroundings


def locate(transport: Fields, around: Surroundings) -> None:
    """Let the paths of a command mean what they mean where the file comes from."""
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
    """Return a path that begins in a folder, unless it is absolute, or begins with a variable, which may be."""
    if path is None:
        return folder
    return os.path.join(folder, path) if isinstance(path, str) and path and not path.startswith("${") else path
