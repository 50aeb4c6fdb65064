"""Prepare the process for a command: streams, extras, the SDK, logs.

`cli.main` calls `start` once, before the parser is imported, and gets the function of ``_app`` that runs a command.
Missing streams become the null device, output escapes what its encoding lacks, and the root logger gets a handler that
drops records, so that Python does not write them to stderr. If a package of the extra ``cli`` is missing or the SDK is
too old, the process exits with 1. That error goes directly to stderr, and with ``--json`` to stdout too, because the
libraries that `Output` needs may be missing.
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
    """Prepare this process for a command, and return the function that runs one.

    Raises:
        SystemExit: an extra is not installed, or the SDK is too old.
    """
    _open_missing_streams()
    missing = [name for name in ("cyclopts", "rich") if find_spec(name) is None]
    if missing:
        _refuse(f"mcp-actors requires {' and '.join(missing)}; run: pip install 'mcp-actors[cli]'")
    try:
        from .. import _sdk as _sdk
    except ImportError as error:
        _refuse(str(error))
    # The results say what happened to the servers. A log on stderr would repeat it between the lines of a command.
    logging.getLogger().addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a result must not fail in the last step
    from ._run import run

    return run


def _refuse(error: str) -> NoReturn:
    sys.stderr.write(f"error: {error}\n")
    if "--json" in sys.argv:
        print(json.dumps({"error": error}))  # noqa: T201  # the result of the command
    sys.exit(1)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that this process was started without.

    Otherwise the first pipe to a server would get its descriptor, and this process would write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process
