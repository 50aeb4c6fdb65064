"""Confine a server process to some files and TCP ports (`Sandbox`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ..._misuse import explained
from .. import _validators as check
from ..values import system_problem

_PORTS: Final = 65_536

_NOT_RESTRICTED: Final = (
    "UDP, SCTP, unix sockets with a path, priorities of processes, or modes, times and attributes of files"
)
"""The limits of a sandbox. The `repr` names them, so that readers of a configuration do not expect more."""


def _to_paths(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise check.refused("Sandbox", field, f"{field} is {check.a_type(value)}; give a tuple or list of paths")
    return tuple(_sandbox_path(field, each) for each in value)


def _sandbox_path(field: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise check.refused("Sandbox", field, f"{field} contains {check.a_type(value)}; give paths as str")
    if problem := system_problem(path):
        raise check.refused("Sandbox", field, f"{field} contains a path that {problem}")
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise check.refused("Sandbox", field, f"{field} contains {path!r}; give absolute paths, or paths with '~'")
    return os.path.normpath(path)


def _to_read(value: object) -> tuple[str, ...]:
    return _to_paths("read", value)


def _to_write(value: object) -> tuple[str, ...]:
    return _to_paths("write", value)


def _to_tcp(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    ports = tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)
    for port in ports:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < _PORTS:
            remedy = "give a tuple of port numbers from 1 to 65535, or None for no restriction"
            raise check.refused("Sandbox", "tcp", f"tcp contains {check.shown(port)}, which is not a port; {remedy}")
    return ports


@explained
@attrs.frozen(kw_only=True, repr=False)
class Sandbox:
    """The files and TCP ports that a server process and its children may use, on Linux with Landlock.

    It can read the files of the system (``/usr``, ``/etc``, libraries, a few devices), its program and the interpreter
    of that, and the paths given here; it can write to the paths given here, and nowhere else. Of a program in a folder
    ``bin``, as in a virtual environment, it can read that folder and the libraries next to it; of another one only its
    file. Commands that run packages (``npx``, ``uvx``) can also write to their cache folders and use port 443.

    Landlock restricts the content of files, TCP, abstract unix sockets, signals to processes outside, and reading their
    environment. A filter of system calls refuses other ways to use TCP (MPTCP, SMC, TCP Fast Open, io_uring), resource
    limits of other processes, and what processes share without files (System V IPC, message queues, keyrings).

    It does *not* restrict UDP and SCTP, unix sockets with a path, priorities and affinities of processes, and changes
    of the modes, times and extended attributes of files. With ports in ``tcp``, it can also listen on a port that the
    system selects. With ``signals=True`` and before Linux 6.12, it can connect to abstract sockets. As root it can send
    raw packets.

    A start takes 30 ms longer. A kernel without what the options need is refused at the start: version 6.12 has
    everything, 6.7 all but the restriction of signals and abstract sockets. So are machines that are neither x86_64
    nor aarch64, a path that leads through a folder of ``write`` to a place outside of it, and a folder of ``write``
    that contains the interpreter or the package which start the sandbox.

    Args:
        read: files and folders that it may read, with everything below. ``~`` is expanded. Default: none.
        write: files and folders that it may read and change. Default: none.
        tcp: ports that it may connect to or listen on. None does not restrict TCP. Default: none, so that no socket can
            listen, not even a unix socket.
        signals: True lets it signal all processes of its user. Default False.

    Raises:
        ConfigError: a path is not absolute, or a port is not a number from 1 to 65535.
    """

    read: tuple[str, ...] = attrs.field(default=(), converter=_to_read)
    write: tuple[str, ...] = attrs.field(default=(), converter=_to_write)
    tcp: tuple[int, ...] | None = attrs.field(default=(), converter=_to_tcp)
    signals: bool = attrs.field(default=False, validator=check.flag)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in attrs.asdict(self).items())
        return f"<Sandbox {shown}; does not restrict {_NOT_RESTRICTED}>"


def to_sandbox(value: Any) -> Any:
    """Return a mapping of a file as a `Sandbox`, and anything else as it is.

    Raises:
        ConfigError: the mapping is not valid.
    """
    if not isinstance(value, Mapping):
        return value
    names = [each.name for each in attrs.fields(Sandbox)]
    for key in value:
        if key not in names:
            remedy = f"the keys here are {', '.join(map(repr, names))}"
            raise check.refused(
                "Stdio", "sandbox", f"sandbox has the key {check.shown(key)}, which is not known; {remedy}"
            )
    return Sandbox(**value)


check_sandbox: Final = check.kind(
    Sandbox, type(None), remedy="give a Sandbox(read=…, write=…, tcp=…), or None for no restriction"
)
