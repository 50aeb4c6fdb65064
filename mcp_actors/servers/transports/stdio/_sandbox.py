"""Run a server's command in its sandbox, and explain refusals.

The rules are those of the configuration and those that every program needs: the files of the system, its own, and those
of its interpreter. `_landlock`, a program, applies them to itself and then becomes the server.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...._errors import ConnectFailed
from . import _landlock

if TYPE_CHECKING:
    from ....config import Sandbox

SYSTEM: Final = (
    *("/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/sbin", "/usr"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/self", "/proc/stat", "/run/systemd/resolve"),
)
"""What every program reads. ``/proc/self`` is the server's own; environments of other processes stay unreadable."""

DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npm": ("~/.npm",),
    "npx": ("~/.npm",),
    "uv": ("~/.cache/uv", "~/.local/share/uv"),
    "uvx": ("~/.cache/uv", "~/.local/share/uv"),
}
"""The cache folders of commands that install packages before they run them, over port 443."""

NEEDS_FILES, NEEDS_TCP, NEEDS_SIGNALS = 3, 4, 6
"""The versions of Landlock that restrict these; before 3, files can be truncated."""

REFUSALS: Final = ("EACCES", "EPERM", "Permission denied", "PermissionError", "Operation not permitted")


def confined(
    server: str, sandbox: Sandbox, program: str, command: Iterable[str], environment: Mapping[str, str]
) -> list[str]:
    """Return the command line that runs a command in a sandbox. Blocks on the file system.

    Raises:
        ConnectFailed: this system cannot do that, or a path of the sandbox does not exist.
    """
    _check_system(server, sandbox)
    for field in ("read", "write"):
        for path in getattr(sandbox, field):
            if not os.path.exists(path):
                raise _refused(server, f"{path!r} does not exist; create it, or correct Sandbox({field}=…)")
    caches = [_at_home(folder, environment) for folder in RUNNERS.get(os.path.basename(program), ())]
    for folder in caches:
        os.makedirs(folder, exist_ok=True)
    ports = sandbox.tcp if sandbox.tcp is None or not caches else (*sandbox.tcp, 443)
    rules = {
        "read": [*_existing((*SYSTEM, *_around(program))), *sandbox.read],
        "write": [*_existing(DEVICES), *caches, *sandbox.write],
        "tcp": ports,
        "scoped": not sandbox.signals,
    }
    return [sys.executable, "-I", "-S", "-B", _landlock.__file__, json.dumps(rules), program, *command]


def hint(sandbox: Sandbox | None, last_words: str) -> str:
    """Return the remark for the error of a server that has ended with a refusal in its last words."""
    if sandbox is None or not any(refusal in last_words for refusal in REFUSALS):
        return ""
    return (
        f"; the sandbox refuses everything but read={list(sandbox.read)}, write={list(sandbox.write)} and "
        f"tcp={None if sandbox.tcp is None else list(sandbox.tcp)}; add what the server needs to its Sandbox"
    )


def _check_system(server: str, sandbox: Sandbox) -> None:
    if sys.platform != "linux":
        raise _refused(server, f"sandboxes need Landlock, which {sys.platform} does not have; remove sandbox")
    version = _landlock.version()
    needs = [("files", NEEDS_FILES)]
    needs += [("TCP ports (tcp=None does without)", NEEDS_TCP)] if sandbox.tcp is not None else []
    needs += [] if sandbox.signals else [("signals (signals=True does without)", NEEDS_SIGNALS)]
    for what, need in needs:
        if version < need:
            has = f"version {version}" if version else "none"
            problem = f"restricting {what} needs Landlock {need}, and this kernel has {has}"
            raise _refused(server, f"{problem}; use a newer kernel, or remove sandbox")


def _refused(server: str, problem: str) -> ConnectFailed:
    return ConnectFailed(f"server {server!r}: sandbox: {problem}", server=server, phase="open", hopeless=True)


def _at_home(folder: str, environment: Mapping[str, str]) -> str:
    return folder.replace("~", environment.get("HOME", os.path.expanduser("~")), 1)


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _around(program: str) -> Iterator[str]:
    """Yield the files of a program: its folder, the libraries next to that, and those of its interpreter."""
    for path in dict.fromkeys((os.path.abspath(program), os.path.realpath(program))):
        yield from _installed(path)
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return
    if first.startswith(b"#!") and (words := first[2:].split()):
        interpreter = os.fsdecode(words[0])
        yield from _installed(interpreter)
        yield from _installed(os.path.realpath(interpreter))


def _installed(program: str) -> Iterator[str]:
    folder = os.path.dirname(program)
    prefix = os.path.dirname(folder)
    yield folder
    if os.path.basename(folder) == "bin":
        settings = os.path.join(prefix, "pyvenv.cfg")
        yield from (os.path.join(prefix, name) for name in ("lib", "lib64", "libexec"))
        yield settings
