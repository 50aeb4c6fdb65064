"""Copy this checkout to another folder, for tests that need another path or other source."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from shutil import copy2
from typing import Final

import pytest

from .forkserver import begin_script
from .source import ROOT


def copy_checkout(place: Path) -> None:
    """Copy the files that git knows into a new folder, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            copy2(ROOT / name, place / name)


LINK: Final = Path(sysconfig.get_path("purelib"), "linked.pth")
"""What leads an environment of `link_environment` to its packages, which no sandbox and no move finds there."""

needs_packages: Final = pytest.mark.skipif(LINK.exists(), reason="the packages are those of another environment")


def link_environment(place: Path) -> None:
    """Make a virtual environment in a copy, with the packages and the programs of pip that this one has."""
    folder = place / ".venv"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    others = LINK.read_text().partition("\n")[2] if LINK.exists() else f"{LINK.parent}\n"
    (packages / LINK.name).write_text(f"{place}\n{others}")
    for script in Path(sys.prefix, "bin").iterdir():
        target = folder / "bin" / script.name
        begin, found, text = script.read_bytes().partition(b"# -*- coding")
        if found and begin.startswith(b"#!") and not target.exists():
            target.write_text(f"{begin_script(folder / 'bin' / 'python')}{found.decode()}{text.decode()}")
            target.chmod(0o755)
