"""Find a stdio server's program; build its environment and its sandbox.

`subprocess` reports a missing command, working directory or interpreter as the same `FileNotFoundError`. So the command
and the directory are looked up first, and a missing interpreter is explained. In a sandbox, this Python runs
``_landlock``, which becomes the server. ``_process`` does the look-ups in a thread, because each may block.

Owns: nothing.
Writes: missing cache folders of npm and uv.
Calls: config, transports, _landlock.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from glob import iglob
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Final

from ..._errors import ConfigError, ConnectFailed
from ..._python import our_python
from ..._text import own_shortage, shortage_of
from ...config._template import INHERITED
from .._link import not_open
from . import _landlock

if TYPE_CHECKING:
    from ...config import Sandbox, Stdio


_PROGRAM_FOLDERS: Final = (
    *("node_modules/.bin", ".venv/bin", "venv/bin"),  # below the working directory
    *("~/.local/bin", "~/bin", "~/.cargo/bin", "~/go/bin", "~/.bun/bin", "~/.deno/bin", "~/.volta/bin"),
    *("~/.local/share/mise/shims", "~/.asdf/shims", "~/.nvm/versions/node/*/bin"),
    *("/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin", "/usr/bin", "/bin"),
)
"""Folders of programs, often missing from the PATH of a service, an editor or a desktop. ``*`` is any version."""

_INSTALL: Final = {
    "bunx": "install Bun (https://bun.sh)",
    "docker": "install Docker (https://docs.docker.com/get-docker)",
    **dict.fromkeys(("node", "npm", "npx"), "install Node.js (https://nodejs.org)"),
    **dict.fromkeys(("uv", "uvx"), "install uv (https://docs.astral.sh/uv)"),
}
"""Program → how to install it. Most shared configurations run one of these programs."""

PROXIES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
"""Variables that name a proxy, also in lower case."""

_UPPER_CASE_WORD: Final = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")

_MISSING_MODULE: Final = re.compile(r"(?:No module named|Cannot find (?:module|package)) '?([\w@][\w@/-]*)(?![.\w])")
"""A package that Python or Node lacks; not a file or a module of a package, which no installer knows."""

_CONTAINERS: Final = ("docker", "podman")

_KEEPS_STDIN: Final = re.compile(r"-[a-z]*i[a-z]*|--interactive(?:=true)?")
"""The options of ``docker run`` that connect stdin."""

_OF_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\|.*\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)


def child_environment(transport: Stdio, environ: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return a server's whole environment: variables set here, of the allow-list and ``env_from``, and `env`."""
    names = [*INHERITED, *transport.env_from]
    if os.path.basename(transport.command) in _CONTAINERS:
        names += ["DOCKER_HOST", "DOCKER_CONTEXT"]
    environment = {name: environ[name] for name in names if name in environ} | dict(env)
    if environment.keys().isdisjoint(("LANG", "LC_ALL", "LC_CTYPE")) and _has_utf8():
        environment["LC_CTYPE"] = "C.UTF-8"
    return environment


@cache
def _has_utf8() -> bool:
    """Return True if the system has the locale C.UTF-8. Without a locale, many programs print ASCII only."""
    if sys.platform not in ("linux", "darwin"):
        return False
    library = ctypes.CDLL(None)
    library.newlocale.restype = ctypes.c_void_p
    library.freelocale.argtypes = [ctypes.c_void_p]
    found = library.newlocale(1 if sys.platform == "linux" else 2, b"C.UTF-8", None)  # the mask of LC_CTYPE
    if found:
        library.freelocale(found)
    return bool(found)


def find_program(server: str, command: str, *, cwd: str | None, path: str | None, source: str | None = None) -> str:
    """Return the path of the program that `command` names in the directory `cwd` and with this ``PATH``. Blocks.

    Raises:
        ConnectFailed: the directory or the command does not exist, or the program is not executable.
    """
    if cwd is not None and not os.path.isdir(cwd):
        reason = "is not a directory" if os.path.exists(cwd) else "does not exist"
        raise not_open(server, f"working directory {cwd!r} {reason}; create it or correct cwd")
    base = os.curdir if cwd is None else os.path.abspath(cwd)
    if os.path.dirname(command):
        if not os.path.exists(os.path.join(base, command)) and (remedy := _misplaced(command, path)):
            raise not_open(server, f"command {command!r} not found; {remedy}")
        return _check_program(server, command, os.path.join(base, command))
    # Like exec, resolve relative entries against the working directory of the new process.
    places = [os.path.join(base, entry) for entry in (os.defpath if path is None else path).split(os.pathsep)]
    if sys.executable:
        # Last: a server installed next to this Python is found without an activated environment.
        places.append(os.path.dirname(sys.executable))
    found = shutil.which(command, path=os.pathsep.join(places))
    if found is not None:
        return found
    for candidate in (os.path.join(place, command) for place in places):
        if os.path.isfile(candidate):
            return _check_program(server, command, candidate)
    if remedy := _misplaced(command, path):
        raise not_open(server, f"command {command!r} not found; {remedy}")
    if elsewhere := next(_found_elsewhere(command, base), None):
        problem = f"command {command!r} not found on PATH, but there is {elsewhere!r}"
        raise not_open(server, f"{problem}; set command to that path, or add its folder to PATH")
    remedy = _INSTALL.get(command, "install it")
    place = f" in {source}" if source and os.path.isabs(source) else ""
    raise not_open(server, f"command {command!r} not found; {remedy} or set an absolute path{place}")


def _misplaced(command: str, path: str | None) -> str | None:
    program, *arguments = command.split()
    if arguments and shutil.which(program, path=path) is not None:
        return "put only the program into command, and its arguments into args"
    name = PureWindowsPath(command).stem
    if name.lower() in ("cmd", "powershell") and (command.lower() == name.lower() or _OF_WINDOWS.match(command)):
        return f"this is not Windows; leave out {name!r} and its '/c': set command to the program after them"
    if _OF_WINDOWS.match(command):
        return f"it is for Windows, and this is not Windows; set command to {name!r} or to a path of this system"
    return None


def _found_elsewhere(command: str, base: str) -> Iterator[str]:
    for place in _PROGRAM_FOLDERS:
        folder = os.path.join(base, os.path.expanduser(place))
        for each in sorted(iglob(folder), reverse=True) if "*" in place else (folder,):
            program = os.path.join(each, command)
            if os.path.isfile(program) and os.access(program, os.X_OK):
                yield program


def _check_program(server: str, command: str, program: str) -> str:
    if not os.path.exists(program):
        raise not_open(server, f"command {command!r} not found: {program!r} does not exist; correct the path")
    if os.path.isdir(program):
        raise not_open(server, f"command {command!r} is a directory; add the name of the program")
    if not os.access(program, os.X_OK):
        raise not_open(server, f"command {command!r} is not executable (permission denied); run: chmod +x {program}")
    return program


def explain_spawn_error(server: str, command: str, error: OSError | ValueError | RuntimeError) -> ConnectFailed:
    """Return the error if a program, or the thread that looks for it, could not be started."""
    reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
    remedy = "correct its args or env"
    match getattr(error, "errno", None):
        case errno.ENOENT:
            reason, remedy = "its '#!' line names an interpreter that does not exist", "install that interpreter"
            with suppress(OSError), open(getattr(error, "filename", None) or command, "rb") as program:
                if program.read(4) == b"\x7fELF":
                    reason, remedy = "it needs a loader that does not exist here", "use a build for this system's libc"
        case errno.ENOEXEC:
            reason, remedy = "exec format error", "give a script a '#!/bin/sh' line, or use a program for this system"
        case errno.EPERM:
            reason, remedy = "operation not permitted", "allow setsid and execve in this program's sandbox (seccomp)"
        case errno.EACCES:
            reason, remedy = "permission denied", "check the permissions of the program and of its working directory"
        case _ if (shortage := own_shortage(error)) is not None:
            remedy = shortage.remedy
        case _ if shortage_of(error) is not None:
            remedy = "try again later"
    failed = not_open(server, f"command {command!r} cannot be started ({reason}); {remedy}")
    failed.hopeless = shortage_of(error) is None and own_shortage(error) is None
    return failed


# --- Run a server's command in its sandbox, and explain refusals ------------------------------------------------------

# There are rules for configured files, and for files that every program needs: of the system, of the program and of its
# interpreter. The program `_landlock` applies the rules to itself and then becomes the server.
#
# Before a restart, a server may have replaced anything in the folders that it may write to, also by links. So a path
# that leads through such a folder gets no rule of its own (`_way_through`).


SYSTEM: Final = (
    *("/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/sbin", "/usr"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/self", "/proc/stat", "/run/systemd/resolve"),
)
"""Files that every program reads. ``/proc/self`` is the server's own; other processes stay unreadable."""

DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

INSTALLER_CACHES: Final = {"npm": "~/.npm", "npx": "~/.npm", "uv": "~/.cache/uv", "uvx": "~/.cache/uv"}
"""The cache folders of commands that install packages, over port 443, before they run them."""

_LOADED: Final = re.compile(r"LD_.*|GCONV_PATH|LOCPATH", re.DOTALL)
"""Variables by which the C library loads code or writes files when a program starts."""

NEEDS_FILES, NEEDS_TCP, NEEDS_SIGNALS = 3, 4, 6
"""The first versions of Landlock that restrict files, TCP and signals; before 3, files can be truncated."""

PERMISSION_WORDS: Final = ("EACCES", "EPERM", "Permission denied", "PermissionError", "Operation not permitted")


def confined(
    server: str, sandbox: Sandbox, program: str, command: Iterable[str], environment: Mapping[str, str]
) -> list[str]:
    """Return the command line that runs a command in a sandbox. Blocks on the file system.

    Raises:
        ConnectFailed: this system has no sandboxes, or a path of the sandbox does not exist.
    """
    _check_system(server, sandbox)
    try:
        python = our_python(f"server {server!r}: sandbox", _landlock.__file__)
    except ConfigError as exc:
        raise ConnectFailed(f"{exc}, or remove sandbox", server=server, phase="open", hopeless=True) from exc
    folders = [os.path.realpath(path) for path in sandbox.write]
    cache = INSTALLER_CACHES.get(os.path.basename(program))
    caches = [] if cache is None else [_at_home(cache, environment)]
    caches = [folder for folder in caches if _way_through(folder, folders) is None]
    for folder in caches:
        os.makedirs(folder, exist_ok=True)
    folders += map(os.path.realpath, caches)
    for path in (python, os.__file__, _landlock.__file__):
        if _is_replaceable(path, folders):
            problem = f"its folders for writing contain {path!r}, which starts the sandbox"
            raise _refused(server, f"{problem}; give Sandbox(write=…) folders without it")
    is_uv = cache == INSTALLER_CACHES["uv"]
    # The interpreters of uv are read-only: other programs run them, and the tools next to them, unconfined.
    pythons = [_at_home("~/.local/share/uv/python", environment)] if is_uv else []
    derived = [*SYSTEM, *_around(program, folders), *pythons]
    rules = {
        "read": [
            *(path for path in _existing(derived) if _way_through(path, folders) is None),
            *_granted(server, "read", sandbox.read, folders),
        ],
        "write": [*_existing(DEVICES), *caches, *_granted(server, "write", sandbox.write, folders)],
        "tcp": sandbox.tcp if sandbox.tcp is None or cache is None else (*sandbox.tcp, 443),
        "signals": sandbox.signals,
        "environment": {
            **{name: value for name, value in environment.items() if _LOADED.fullmatch(name)},
            # uvx must lock its folder of installed tools. With an empty folder in the cache, no installed tool runs.
            **({"UV_TOOL_DIR": os.path.join(caches[0], "mcp_actors-tools")} if is_uv and caches else {}),
        },
    }
    return [python, "-I", "-S", "-B", _landlock.__file__, json.dumps(rules), program, *command]


def environment_of_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the sandbox is started, without variables that load code.

    The starting program is not confined yet, and the server may have put code into a folder of ``LD_LIBRARY_PATH``. So
    the rules carry these variables, for the server alone.
    """
    return {name: value for name, value in environment.items() if not _LOADED.fullmatch(name)}


def hint(transport: Stdio, last_words: str) -> str:
    """Return remarks on a failed start: something missing, a refusal of the sandbox, a variable that was not passed."""
    explain = (_missing_file, _missing_module, _missing_stdin, _refusal, _not_passed)
    return "".join(each(transport, last_words) for each in explain)


def _missing_file(transport: Stdio, last_words: str) -> str:
    if any(problem in last_words for problem in ("No such file", "Cannot find module", "can't open file")):
        for each in transport.args:
            if ("." in each or "/" in each) and each in last_words:
                return f"; correct {each!r} in args, or set cwd"
    return ""


def _missing_module(transport: Stdio, last_words: str) -> str:
    missing = _MISSING_MODULE.findall(last_words)[-1:]
    return "".join(f"; install {each!r} for {transport.command!r}, or set a command that has it" for each in missing)


def _missing_stdin(transport: Stdio, last_words: str) -> str:
    open_ended = any(map(_KEEPS_STDIN.fullmatch, transport.args)) or transport.args[:1] not in (("run",), ("exec",))
    if open_ended or os.path.basename(transport.command) not in _CONTAINERS:
        return ""
    return f"; without '-i' the container has no stdin; write {transport.args[0]!r}, '-i' in args"


def _refusal(transport: Stdio, last_words: str) -> str:
    sandbox = transport.sandbox
    if sandbox is None or not any(refusal in last_words for refusal in PERMISSION_WORDS):
        return ""
    return (
        f"; the sandbox refuses everything but read={list(sandbox.read)}, write={list(sandbox.write)} and "
        f"tcp={None if sandbox.tcp is None else list(sandbox.tcp)}; add what the server needs to its Sandbox"
    )


def _not_passed(transport: Stdio, last_words: str) -> str:
    """Name a variable that is set here and not passed on: a word of the last words, or a proxy."""
    given = {name.upper() for name in (*transport.env, *transport.env_from, *INHERITED)}
    for wanted, when in (
        (_UPPER_CASE_WORD.findall(last_words), ""),
        ((each for name in PROXIES for each in (name, name.lower())), "if it needs the proxy, "),
    ):
        if names := [each for each in dict.fromkeys(wanted) if os.environ.get(each) and each.upper() not in given]:
            return f"; {names[0]} is set here and not passed to it; {when}set env_from={names!r}"
    return ""


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
    if (machine := os.uname().machine) not in _landlock.MACHINES:
        problem = f"filtering system calls is supported on {' and '.join(_landlock.MACHINES)}, and this is {machine}"
        raise _refused(server, f"{problem}; remove sandbox")


def _refused(server: str, problem: str) -> ConnectFailed:
    return not_open(server, f"sandbox: {problem}")


def _at_home(folder: str, environment: Mapping[str, str]) -> str:
    return folder.replace("~", environment.get("HOME", os.path.expanduser("~")), 1)


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _granted(server: str, field: str, paths: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """Yield the configured paths that need a rule of their own.

    Raises:
        ConnectFailed: a path does not exist, or the server could make it lead elsewhere.
    """
    for path in paths:
        if not os.path.exists(path):
            raise _refused(server, f"{path!r} does not exist; create it, or correct Sandbox({field}=…)")
        real = os.path.realpath(path)
        others = folders if field == "read" else [folder for folder in folders if folder != real]
        through = _way_through(path, others)
        if through is None:
            yield path
        elif not _is_within(real, through):
            problem = f"{path!r} leads through {through!r}, which the server may change, to {real!r}"
            raise _refused(server, f"{problem}; give the real path in Sandbox({field}=…)")


def _way_through(path: str, folders: Iterable[str]) -> str | None:
    """Return the first of the `folders`, by real paths, that the path or its links lead through; None without any."""
    here, left, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    while left:
        for folder in folders:
            if _is_within(here, folder):
                return folder
        name = left.pop()
        there = os.path.normpath(os.path.join(here, name))
        if name in ("", ".", "..") or not os.path.islink(there) or links == 40:  # as in the kernel
            here = there
        else:
            target, links = os.readlink(there), links + 1
            here = "/" if os.path.isabs(target) else here
            left += target.split("/")[::-1]
    return None


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def _is_replaceable(path: str, folders: Iterable[str]) -> bool:
    return os.path.realpath(path) in folders or _way_through(path, folders) is not None


def _around(program: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield the files of a program and its interpreter, unless replaceable by the server."""
    if _is_replaceable(program, folders):
        return
    yield from _installed(program)
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return
    if first.startswith(b"#!") and (words := first[2:].split()):
        interpreter = os.fsdecode(words[0])
        if os.path.isabs(interpreter) and not _is_replaceable(interpreter, folders):
            yield from _installed(interpreter)


def _installed(program: str) -> Iterator[str]:
    """Yield the folder ``bin`` of a program and neighbouring libraries; without a ``bin``, the program alone."""
    for path in dict.fromkeys((os.path.abspath(program), os.path.realpath(program))):
        folder = os.path.dirname(path)
        prefix = os.path.dirname(folder)
        if os.path.basename(folder) == "bin":
            yield folder
            yield from (os.path.join(prefix, name) for name in ("lib", "lib64", "libexec", "pyvenv.cfg"))
        else:
            yield path
