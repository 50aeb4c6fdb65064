"""Prepare the standard streams and root logger; check the installed libraries.

Runs before cyclopts and rich are imported, because they may be missing. Errors go directly to stderr, and with
``--json`` also to stdout.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import TextIOWrapper
from typing import NoReturn


def start() -> Callable[[Sequence[str]], int]:
    """Prepare this process, and return the function that runs a command."""
    _open_missing_streams()
    missing = [name for name in ("cyclopts", "rich") if find_spec(name) is None]
    if missing:
        _refuse(f"mcp-actors requires {' and '.join(missing)}; run: pip install 'mcp-actors[cli]'")
    try:
        from .. import _sdk as _sdk
    except ImportError as error:
        _refuse(str(error))
    # The results say what happened. Log lines, which Python writes to stderr by default, would only repeat it.
    logging.getLogger().addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # or an unencodable character would raise
    from ._run import run

    return run


def _refuse(error: str) -> NoReturn:
    sys.stderr.write(f"error: {error}\n")
    if "--json" in sys.argv:
        print(json.dumps({"error": error}))  # noqa: T201  # the result of the command
    sys.exit(1)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that is missing.

    Otherwise the first pipe to a server would get the free descriptor, and this process would print into the pipe.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the end
