"""Find the program, working directory and environment of a stdio server.

`subprocess` reports a missing command, a missing working directory and a missing interpreter as the same
`FileNotFoundError`. So the program is looked up here, where each of them gets an error of its own.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from glob import iglob
from pathlib import PureWindowsPath
from typing import Final

from ...._errors import ConnectFailed
from ....config._template import INHERITED
from ...basics import own_shortage, shortage_of

_REMEDY_ARGUMENTS: Final = "put only the program into command, and its arguments into args"

_ELSEWHERE: Final = (
    *("node_modules/.bin", ".venv/bin", "venv/bin"),  # below the working directory
    *("~/.local/bin", "~/bin", "~/.cargo/bin", "~/go/bin", "~/.bun/bin", "~/.deno/bin", "~/.volta/bin"),
    *("~/.local/share/mise/shims", "~/.asdf/shims", "~/.nvm/versions/node/*/bin"),
    *("/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin", "/usr/bin", "/bin"),
)
"""Where people have programs that the PATH of a service, an editor or a desktop often lacks. ``*`` is any version."""

_NODE: Final = "install Node.js (https://nodejs.org)"
_UV: Final = "install uv (https://docs.astral.sh/uv)"
_INSTALL: Final = {
    "bunx": "install Bun (https://bun.sh)",
    "docker": "install Docker (https://docs.docker.com/get-docker)",
    "node": _NODE,
    "npm": _NODE,
    "npx": _NODE,
    "uv": _UV,
    "uvx": _UV,
}
"""Program → what to install for it. Most configurations that people share begin with one of them."""

_SHELLS_OF_WINDOWS: Final = frozenset({"cmd", "powershell"})
_OF_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\|.*\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)


def child_environment(environ: Mapping[str, str], *, env_from: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return a server's whole environment: the allow-list, the names in `env_from` that are set, and `env`."""
    inherited = {name: environ[name] for name in (*INHERITED, *env_from) if name in environ}
    return {**inherited, **env}


def find_program(server: str, command: str, *, cwd: str | None, path: str | None) -> str:
    """Return the path of the program that `command` names in the directory `cwd` and with that ``PATH``.

    Blocks on the file system, so call it in a thread.

    Raises:
        ConnectFailed: the directory or the command does not exist, or the program is not executable.
    """
    if cwd is not None and not os.path.isdir(cwd):
        reason = "is not a directory" if os.path.exists(cwd) else "does not exist"
        raise _hopeless(server, f"working directory {cwd!r} {reason}; create it or correct cwd")
    base = os.curdir if cwd is None else os.path.abspath(cwd)
    if os.path.dirname(command):
        if not os.path.exists(os.path.join(base, command)) and (remedy := _misplaced(command, path)):
            raise _hopeless(server, f"command {command!r} not found; {remedy}")
        return _check_program(server, command, os.path.join(base, command))
    # Like exec, resolve relative entries of PATH against the working directory of the new process.
    places = [os.path.join(base, entry) for entry in (os.defpath if path is None else path).split(os.pathsep)]
    if sys.executable:
        # Last: a server that was installed next to this program is found without an activated environment.
        places.append(os.path.dirname(sys.executable))
    found = shutil.which(command, path=os.pathsep.join(places))
    if found is not None:
        return found
    for candidate in (os.path.join(place, command) for place in places):
        if os.path.isfile(candidate):
            return _check_program(server, command, candidate)
    if remedy := _misplaced(command, path):
        raise _hopeless(server, f"command {command!r} not found; {remedy}")
    if elsewhere := next(_found_elsewhere(command, base), None):
        problem = f"command {command!r} not found on PATH, but there is {elsewhere!r}"
        raise _hopeless(server, f"{problem}; set command to that path, or add its folder to PATH")
    remedy = _INSTALL.get(command, "install it")
    raise _hopeless(server, f"command {command!r} not found; {remedy} or set an absolute path")


def _misplaced(command: str, path: str | None) -> str | None:
    """Return the remedy for a whole command line, or for a command of Windows."""
    program, *arguments = command.split()
    if arguments and shutil.which(program, path=path) is not None:
        return _REMEDY_ARGUMENTS
    name = PureWindowsPath(command).stem
    if name.lower() in _SHELLS_OF_WINDOWS and (command.lower() == name.lower() or _OF_WINDOWS.match(command)):
        return f"this is not Windows; leave out {name!r} and its '/c': set command to the program after them"
    if _OF_WINDOWS.match(command):
        return f"it is for Windows, and this is not Windows; set command to {name!r} or to a path of this system"
    return None


def _found_elsewhere(command: str, base: str) -> Iterator[str]:
    """Yield the programs of this name in the usual folders outside PATH."""
    for place in _ELSEWHERE:
        folder = os.path.join(base, os.path.expanduser(place))
        for each in sorted(iglob(folder), reverse=True) if "*" in place else (folder,):
            program = os.path.join(each, command)
            if os.path.isfile(program) and os.access(program, os.X_OK):
                yield program


def _check_program(server: str, command: str, program: str) -> str:
    if not os.path.exists(program):
        raise _hopeless(server, f"command {command!r} not found: {program!r} does not exist; correct the path")
    if os.path.isdir(program):
        raise _hopeless(server, f"command {command!r} is a directory; add the name of the program")
    if not os.access(program, os.X_OK):
        raise _hopeless(server, f"command {command!r} is not executable (permission denied); run: chmod +x {program}")
    return program


def explain_spawn_error(server: str, command: str, error: OSError | ValueError | RuntimeError) -> ConnectFailed:
    """Return the error for a program that could not be started, or not even looked for because there is no thread."""
    reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
    remedy = "correct its args or env"
    match getattr(error, "errno", None):
        case errno.ENOENT:
            reason, remedy = "its '#!' line names an interpreter that does not exist", "install that interpreter"
        case errno.ENOEXEC:
            reason, remedy = "exec format error", "give a script a '#!/bin/sh' line, or use a program for this system"
        case errno.EACCES | errno.EPERM:
            reason, remedy = "permission denied", "check the permissions of the program and of its working directory"
        case _ if (shortage := own_shortage(error)) is not None:
            remedy = shortage.remedy
        case _ if shortage_of(error) is not None:
            remedy = "try again later"
    failed = _hopeless(server, f"command {command!r} cannot be started ({reason}); {remedy}")
    failed.hopeless = shortage_of(error) is None and own_shortage(error) is None
    return failed


def _hopeless(server: str, reason: str) -> ConnectFailed:
    return ConnectFailed(f"server {server!r}: {reason}", server=server, phase="open", hopeless=True)
