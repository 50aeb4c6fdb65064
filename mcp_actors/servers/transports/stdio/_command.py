"""Find the program, working directory and environment of a stdio server.

`subprocess` reports a missing command, a missing working directory and a missing interpreter as the same
`FileNotFoundError`. So the program is looked up here, where each of them gets an error of its own.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Final

from ...._errors import ConnectFailed
from ....config.transports import INHERITED
from ...basics import own_shortage, shortage_of

_REMEDY_ARGUMENTS: Final = "put only the program into command, and its arguments into args"


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
        if not os.path.exists(os.path.join(base, command)) and _holds_arguments(command, path):
            raise _hopeless(server, f"command {command!r} not found; {_REMEDY_ARGUMENTS}")
        return _check_program(server, command, os.path.join(base, command))
    # Like exec, resolve relative entries of PATH against the working directory of the new process.
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
    """Return True if a command that does not exist is a whole command line."""
    program, *arguments = command.split()
    return bool(arguments) and shutil.which(program, path=path) is not None


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
