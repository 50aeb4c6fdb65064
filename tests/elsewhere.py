"""Run the README's commands where little is as on an author's machine: ``nox -s elsewhere``.

They run in a copy of this checkout. Its path has blanks and letters beyond ASCII, and so has the folder for temporary
files. The user is an ordinary one, also if this is root. There is no HOME, no terminal and no language; a process may
open 256 files, on one core. Then the tests run once more without a network, and without node, npm and git; HOME is a
folder that is read-only. With ``--quick`` nothing is installed, and a tenth of the slice runs.

Owns: the copy, which it removes.
Calls: git, to list what belongs to the checkout; unshare and setpriv, which are part of Linux distributions.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from shutil import copy2
from typing import Final

from .forkserver import begin_script
from .source import ROOT, blocks

NAME: Final = "a checkout, ein Prüfstand"
NOBODY: Final = 65534
FILES: Final = 256
TESTS: Final = [".venv/bin/python", "-m", "pytest", "--slice"]
QUICK: Final = [*TESTS, "-q", "-n", "0", "--one-in", "10"]
OFFLINE: Final = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


class Elsewhere:
    """A copy of the checkout, and how to run commands in it.

    Attributes:
        place: the copy.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / NAME
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (self.place / name).parent.mkdir(parents=True, exist_ok=True)
                copy2(ROOT / name, self.place / name)
        (self.place.parent / "tmp").mkdir()

    def link_environment(self) -> None:
        """Make a virtual environment with the packages, and the programs of pip, that this one has."""
        folder = self.place / ".venv"
        venv.create(folder, symlinks=True)
        [packages] = folder.glob("lib/python*/site-packages")
        [ours] = Path(sys.prefix).glob("lib/python*/site-packages")
        (packages / "linked.pth").write_text(f"{self.place}\n{ours}\n")
        for script in Path(sys.prefix, "bin").iterdir():
            target = folder / "bin" / script.name
            begin, found, text = script.read_bytes().partition(b"# -*- coding")
            if found and begin.startswith(b"#!") and not target.exists():
                target.write_text(f"{begin_script(folder / 'bin' / 'python')}{found.decode()}{text.decode()}")
                target.chmod(0o755)

    def run(self, *words: str, **environment: str) -> int:
        """Run a command in the copy, as an ordinary user, and return its exit code."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        fixed = {"LANG": "C", "TMPDIR": str(self.place.parent / "tmp"), "PATH": os.environ["PATH"]}
        return subprocess.run(
            self._as_another(words),
            cwd=self.place,
            env={**kept, **fixed, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_restrict,
        ).returncode

    def _as_another(self, words: Sequence[str]) -> list[str]:
        if os.geteuid() != 0 or not can_be_another():
            return [*words]
        for folder, folders, files in os.walk(self.place.parent):
            for name in (".", *folders, *files):
                os.chown(Path(folder, name), NOBODY, NOBODY, follow_symlinks=False)
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return ["unshare", "--mount", "sh", "-c", f'{self._lend()} exec "$@"', "sh", *user, *words]

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
                there, here, over = quote(str(lent)), quote(str(path)), quote(str(closed[0]))
                lines.insert(0, f"mount --bind {here} {there} &&")
                lines.append(f"mount --types tmpfs --options mode=755 lent {over} &&")
                lines.append(f"mkdir --parents {here} && mount --bind {there} {here} &&")
        return " ".join(dict.fromkeys(lines))


def can_be_another() -> bool:
    """Return True if root can run a command as an ordinary user here, who sees the interpreter; else say so."""
    with suppress(FileNotFoundError):
        if subprocess.run(["unshare", "--mount", "setpriv", "--clear-groups", "true"], check=False).returncode == 0:
            return True
    print("another user: skipped, because unshare --mount and setpriv do not work here", flush=True)
    return False


def _restrict() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    if sys.platform == "linux":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@contextmanager
def copied() -> Iterator[Elsewhere]:
    """Yield a copy of this checkout, and remove it."""
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


def main(quick: str = "") -> int:
    """Run the commands until one fails, and return its exit code."""
    with copied() as elsewhere:
        if quick:
            elsewhere.link_environment()
            return elsewhere.run(*QUICK)
        for block in blocks(ROOT / "README.md"):
            for command in block.text.splitlines():
                if command.startswith("python3 -m venv") and (code := elsewhere.run("sh", "-c", command)):
                    return code
        path = without(["git", "node", "npm", "npx"], elsewhere.place.parent / "programs")
        (home := elsewhere.place.parent / "home").mkdir(mode=0o500)
        return elsewhere.run(*OFFLINE, *TESTS, PATH=path, HOME=str(home))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
