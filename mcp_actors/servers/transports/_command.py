"""What to run for a stdio server: its environment, its working directory, its program. Everything wrong is named.

The program is looked up here and not by `subprocess`, because that reports a missing command, a missing working
directory and a missing interpreter as one and the same `FileNotFoundError`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Final

from ..._errors import ConnectFailed
from ...config._secrets import INHERITED
from ._shortage import shortage_of

__all__ = ["child_environment", "explain_spawn_error", "find_program"]

_REMEDY_ARGUMENTS: Final = "write only the program there, and its arguments into args"


def child_environment(environ: Mapping[str, str], *, env_from: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return a server's whole environment: the allow-list, the names in `env_from` that are set, and `env`."""
    inherited = {name: environ[name] for name in (*INHERITED, *env_from) if name in environ}
    return {**inherited, **env}


def find_program(server: str, command: str, *, cwd: str | None, path: str | None) -> str:
    """Return the path of the program that `command` names to a process in `cwd` with that ``PATH``.

    Looks at the file system: to be called in a thread.

    Raises:
        ConnectFailed: there is no such directory, no such command, or it is not executable.
    """
    if cwd is not None and not os.path.isdir(cwd):
        problem = "is not a directory" if os.path.exists(cwd) else "does not exist"
        raise _hopeless(server, f"working directory {cwd!r} {problem}; create it or correct cwd")
    base = os.curdir if cwd is None else os.path.abspath(cwd)
    if os.path.dirname(command):
        if not os.path.exists(os.path.join(base, command)) and _holds_arguments(command, path):
            raise _hopeless(server, f"command {command!r} not found; {_REMEDY_ARGUMENTS}")
        return _check_program(server, command, os.path.join(base, command))
    # An entry of PATH that is relative is relative to the process's directory, as exec has it.
    places = [os.path.join(base, entry) for entry in (os.defpath if path is None else path).split(os.pathsep)]
    found = shutil.which(command, path=os.pathsep.join(places))
    if found is not None:
        return found
    for candidate in (os.path.join(place, command) for place in places):
        if os.path.isfile(candidate):
            return _check_program(server, command, candidate)
    if _holds_arguments(command, path):
        raise _hopeless(server, f"command {command!r} not found; {_REMEDY_ARGUMENTS}")
    raise _hopeless(server, f"command {command!r} not found; install it or set an absolute path")


def _holds_arguments(command: str, path: str | None) -> bool:
    """Whether a command that does not exist is a whole command line."""
    program, *arguments = command.split()
    return bool(arguments) and shutil.which(program, path=path) is not None


def _check_program(server: str, command: str, program: str) -> str:
    if not os.path.exists(program):
        raise _hopeless(server, f"command {command!r} not found: {program!r} does not exist; correct the path")
    if os.path.isdir(program):
        raise _hopeless(server, f"command {command!r} is a directory; name the program in it")
    if not os.access(program, os.X_OK):
        raise _hopeless(server, f"command {command!r} is not executable; try: chmod +x {program}")
    return program


def explain_spawn_error(server: str, command: str, error: OSError | ValueError) -> ConnectFailed:
    """Say why a program that was found could not be started."""
    if isinstance(error, ValueError):
        return _hopeless(server, f"command {command!r} cannot be started ({error}); correct its arguments or env")
    match error.errno:
        case errno.ENOENT:
            why = "the interpreter that its first line ('#!…') names does not exist; install it"
        case errno.ENOEXEC:
            why = "it is no program this system can run; a script needs a first line such as '#!/bin/sh'"
        case errno.EACCES | errno.EPERM:
            why = "permission denied; check the permissions of the program and of its working directory"
        case _:
            why = error.strerror or type(error).__name__
    return ConnectFailed(
        f"server {server!r}: command {command!r} cannot be started: {why}",
        server=server,
        phase="open",
        hopeless=shortage_of(error) is None,
    )


def _hopeless(server: str, problem: str) -> ConnectFailed:
    return ConnectFailed(f"server {server!r}: {problem}", server=server, phase="open", hopeless=True)
