"""Run the README's commands where little is as on an author's machine: ``nox -s elsewhere``.

They run in a copy of this checkout. Its path has blanks and letters beyond ASCII, and so has the folder for temporary
files. The user is an ordinary one, also if this is root. There is no HOME, no terminal and no language; a process may
open 256 files, on one core. Then the tests run once more without a network, and without node, npm and git; HOME is a
folder that is read-only. With ``--quick`` nothing is installed, and a tenth of the slice runs.

Owns: the copy, which it removes.
Calls: git, to list what belongs to the checkout; unshare and setpriv, which are part of Linux distributions.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .copies import copy_checkout, link_environment
from .source import commands

NAME: Final = "a checkout, ein Prüfstand"
NOBODY: Final = 65534
ANOTHER: Final = ["unshare", "--mount"]
"""Run a command whose mounts end with it."""

FILES: Final = 256
TESTS: Final = [".venv/bin/python", "-m", "pytest", "--slice"]
QUICK: Final = [*TESTS, "-q", "-n", "0", "--one-in", "10"]
ALONE: Final = ["unshare", "--map-root-user", "--net", "sh", "-c"]
"""Run a line of shell without a network, as a root of no more than that."""

LOOPBACK: Final = "ip link set lo up"


class Elsewhere:
    """A folder with a hostile name, and how to run commands in it as an ordinary user.

    Attributes:
        place: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / NAME
        self.place.mkdir()
        (folder / "tmp").mkdir()
        other = [*ANOTHER, "sh", "-c", "setpriv --clear-groups true"]
        self._other = os.geteuid() == 0 and works(*other, skipped="another user")

    def run(self, *words: str, **environment: str) -> int:
        """Run a command in the folder, and return its exit code."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"  # so that python3 is the one that runs this
        fixed = {"LANG": "C", "TMPDIR": str(self.place.parent / "tmp"), "PATH": path}
        return subprocess.run(
            self._as_another(words),
            cwd=self.place,
            env={**kept, **fixed, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_restrict,
        ).returncode

    def run_offline(self, *words: str) -> int:
        """Run a command without a network, node, npm and git; HOME is a folder that is read-only."""
        (home := self.place.parent / "home").mkdir(mode=0o500)
        path = without(["git", "node", "npm", "npx"], self.place.parent / "programs")
        if works(*ALONE, LOOPBACK, skipped="without a network"):
            user = NOBODY if self._other else os.geteuid()
            words = (*ALONE, f'{LOOPBACK} && exec unshare --map-user={user} --map-group={user} "$@"', "sh", *words)
        return self.run(*words, PATH=path, HOME=str(home))

    def _as_another(self, words: Sequence[str]) -> list[str]:
        if not self._other:
            return [*words]
        for folder, folders, files in os.walk(self.place.parent):
            for name in (".", *folders, *files):
                os.chown(Path(folder, name), NOBODY, NOBODY, follow_symlinks=False)
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return [*ANOTHER, "sh", "-c", f'{self._lend()} exec "$@"', "sh", *user, *words]

    def _lend(self) -> str:
        """Return the lines of shell that show the interpreter to others, also if it is in a folder of root's.

        An empty folder takes the place of the closed one, and the interpreter its place in there. The mounts end with
        the process.
        """
        lines: list[str] = []
        for number, path in enumerate(map(Path, (sys.base_prefix, sys.prefix))):
            closed = [each for each in reversed(path.parents) if not each.stat().st_mode & 0o001]
            if closed:
                (lent := self.place.parent / f"lent {number}").mkdir(exist_ok=True)
                there, here, over = shlex.quote(str(lent)), shlex.quote(str(path)), shlex.quote(str(closed[0]))
                lines.insert(0, f"mount --bind {here} {there} &&")
                lines.append(f"mount --types tmpfs --options mode=755 lent {over} &&")
                lines.append(f"mkdir --parents {here} && mount --bind {there} {here} &&")
        return " ".join(dict.fromkeys(lines))


def works(*words: str, skipped: str) -> bool:
    """Return True if a command works here, or say in one line what is skipped."""
    with suppress(FileNotFoundError):
        if subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return True
    print(f"{skipped}: skipped, because this does not work here: {shlex.join(words)}", flush=True)
    return False


def _restrict() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    if sys.platform == "linux":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@contextmanager
def opened() -> Iterator[Elsewhere]:
    """Yield a new folder, and remove it."""
    with tempfile.TemporaryDirectory(prefix="mcp-actors ") as folder:
        yield Elsewhere(Path(folder))


def without(programs: Sequence[str], folder: Path) -> str:
    """Return a PATH with links to all programs but these."""
    folder.mkdir()
    for each in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(each).glob("*")):
            if program.name not in programs and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands until one fails, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.elsewhere", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="install nothing, and run a tenth of the slice")
    quick = parser.parse_args(arguments).quick
    with opened() as elsewhere:
        copy_checkout(elsewhere.place)
        if quick:
            link_environment(elsewhere.place)
            return elsewhere.run(*QUICK)
        for command in commands():
            if code := elsewhere.run("sh", "-c", command):
                return code
        return elsewhere.run_offline(*TESTS)


if __name__ == "__main__":
    sys.exit(main())
