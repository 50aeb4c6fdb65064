"""Programs that are their own Python: of PyInstaller and shiv, with a server that is the program itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.source import EXAMPLES

from .ledger import BOUND
from .program import SCRIPTS, dear

PROGRAM: Final = EXAMPLES / "places" / "frozen_app.py"
LEFT_OUT: Final = (
    *("agent_framework", "agents", "anthropic", "hypothesis", "langchain", "langchain_core", "langsmith", "numpy"),
    *("openai", "pandas", "psycopg", "pyarrow", "pydantic_ai", "pytest", "ray", "rich", "tkinter", "IPython"),
)
"""What this program does not use and this environment has, which would make the build take minutes."""

BUILD: Final = 600.0
"""Seconds to make a program of PyInstaller, which reads and packs all that it may import."""


def printed(folder: Path, *command: str | Path) -> list[str]:
    """Return what a program prints whose folder and environment are not those of the checkout."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@dear
def test_the_program_is_its_own_server_before_it_is_frozen(tmp_path: Path) -> None:
    assert printed(tmp_path, sys.executable, PROGRAM) == ["5"]


def test_a_program_of_pyinstaller_is_its_own_server(tmp_path: Path) -> None:
    pytest.importorskip("PyInstaller", reason="PyInstaller: needs PyInstaller; install the extra 'places'")
    options = ["--onedir", "--name", "app", "--log-level", "ERROR", "--distpath", "dist", "--workpath", "work"]
    collect = ["--collect-submodules", "mcp_actors", "--copy-metadata", "mcp", "--copy-metadata", "mcp_actors"]
    left_out = [word for name in LEFT_OUT for word in ("--exclude-module", name)]
    command = [sys.executable, "-m", "PyInstaller", *options, *collect, *left_out, str(PROGRAM)]
    done = subprocess.run(command, cwd=tmp_path, timeout=BUILD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert printed(tmp_path, tmp_path / "dist" / "app" / "app") == ["5"]


def test_a_program_of_shiv_is_its_own_server(tmp_path: Path) -> None:
    pytest.importorskip("shiv", reason="shiv: needs shiv; install the extra 'places'")
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(PROGRAM, site)
    words = ["--site-packages", str(site), "--entry-point", "frozen_app:run", "--output-file", "app.pyz"]
    command = [str(SCRIPTS / "shiv"), *words, "--python", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, timeout=BUILD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert printed(tmp_path, tmp_path / "app.pyz") == ["5"]
