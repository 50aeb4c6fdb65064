"""The data files: what is compared, what may be expected, what was found."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results.json"
CLIENTS: Final[dict[str, Any]] = tomllib.loads((HERE / "clients.toml").read_text())
_TABLE: Final = tomllib.loads((HERE / "faults.toml").read_text())
FAULTS: Final[dict[str, Any]] = _TABLE["faults"]
VERDICTS: Final[dict[str, str]] = _TABLE["verdicts"]


def read_results() -> dict[str, Any]:
    """Return the results: the date, the versions of each client, and the cells by fault and client."""
    if not RESULTS.exists():
        return {"date": "", "python": "", "versions": {}, "cells": {}}
    return dict(json.loads(RESULTS.read_text()))


def write_results(results: dict[str, Any]) -> None:
    """Keep the results."""
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def mark(fault: str, word: str) -> str:
    """Return whether a verdict meets the expectation: ``✓``, ``~`` (in part), ``✗``, or ``·`` (not offered)."""
    if word == "not offered":
        return "·"
    row = FAULTS[fault]
    return "✓" if word in row["passes"] else "~" if word in row["partly"] else "✗"
