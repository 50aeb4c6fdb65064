"""Find the Python interpreter to run users' scripts and this package's files.

In a frozen program `sys.executable` is the program itself, which would start itself again and again. A file in a zip
archive cannot be run. Both cases raise `ConfigError`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from ._errors import ConfigError

_INTERPRETER: Final = re.compile(
    r"\.?(python|pypy|graalpy)[\d.]*[dmtw]{0,2}(_d|-dbg|-32|-64|-intel64|-arm64|-wrapped)?(\.exe)?", re.IGNORECASE
)
"""The names of interpreters. Programs that embed Python, such as ``uwsgi``, have other names."""


def our_python(who: str, file: str | None = None) -> str:
    """Return the path of this program's interpreter.

    Args:
        who: the subject of errors: ``"server 'docs': sandbox"``.
        file: the file of this package to run; None for a user's script.

    Raises:
        ConfigError: this program is not run by an interpreter, or the file is in an archive.
    """
    python = sys.executable or ""
    names = {os.path.basename(path) for path in (python, os.path.realpath(python))}
    if getattr(sys, "frozen", False) or not any(map(_INTERPRETER.fullmatch, names)):
        problem = f"a Python interpreter is needed, and sys.executable is {sys.executable!r}"
        raise ConfigError(f"{who}: {problem}; run this program with an installed Python")
    if file is not None and not os.path.isfile(file):
        raise ConfigError(f"{who}: cannot run {file!r}, which is in an archive; install mcp-actors with pip")
    return python
