"""The programs as processes of Erlang, if that is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from . import EXPECTED

SOURCE: Final = Path(__file__).with_name("twelve.erl")
TIMES: Final = 20
"""Erlang counts the processor's time in milliseconds, and takes a few of them for a program."""

PATIENCE: Final = 120.0


def installed() -> bool:
    """Return True if Erlang is installed."""
    return all(shutil.which(command) is not None for command in ("erl", "erlc"))


def seconds(sizes: Mapping[str, int], times: int = TIMES) -> dict[str, float]:
    """Return the seconds of the processor for each of these programs on one core."""
    words = [word for name, size in sizes.items() for word in (name, str(size), str(times))]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["erlc", "-o", folder, str(SOURCE)], check=True, timeout=PATIENCE)
        command = ["erl", "+S", "1", "+sbwt", "none", "-noshell", "-pa", folder, "-run", "twelve", "main"]
        ran = subprocess.run([*command, *words], check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    found = {}
    for name, result, milliseconds in map(json.loads, ran.stdout.splitlines()):
        if result != EXPECTED[name](sizes[name]):
            raise ValueError(f"{name}: Erlang returned {result} for the size {sizes[name]}")
        found[name] = milliseconds / times / 1000
    return found
