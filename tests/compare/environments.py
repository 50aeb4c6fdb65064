"""The environments of the clients: one for each set of packages, made once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ASK: Final = "import importlib.metadata, json, sys; print(json.dumps([*map(importlib.metadata.version, sys.argv[1:])]))"


def interpreter(client: dict[str, Any], cache: Path) -> str:
    """Return the interpreter of a client's environment, which is made if it is not there."""
    if client["install"] == ["."]:
        return sys.executable
    folder = cache / hashlib.sha256(json.dumps(client["install"]).encode()).hexdigest()[:12]
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *client["install"]], check=True)
        (folder / "complete").touch()
    return python


def versions(client: dict[str, Any], python: str) -> dict[str, str]:
    """Return the versions that are installed."""
    found = subprocess.run([python, "-c", ASK, *client["versions"]], check=True, capture_output=True, text=True)
    return dict(zip(client["versions"], json.loads(found.stdout), strict=True))
