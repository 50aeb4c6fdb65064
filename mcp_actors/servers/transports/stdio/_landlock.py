"""Confine this process by Landlock, then run a program in its place.

This file is a program, which `_sandbox` puts in front of a server's command, with Python's standard library only:
``python -I -S _landlock.py RULES PROGRAM COMMAND [ARGUMENT …]``. The numbers are those of ``linux/landlock.h``.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1  # the flag of CREATE_RULESET that asks for the version
PATH_BENEATH, NET_PORT = 1, 2
NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 3  # bind and connect
ABSTRACT_SOCKETS, SIGNALS = 1, 2

FAILED = 126
"""The exit code of a shell for a program that cannot be run."""


def version() -> int:
    """Return the version of the kernel's Landlock; 0 without Landlock."""
    found: int = ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, VERSION)
    return max(0, found)


def writable(abi: int) -> int:
    """Return all rights over files that this version knows."""
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1


def confine(rules: dict[str, object]) -> None:
    """Restrict this process, its threads and children to some files and ports.

    Raises:
        OSError: the kernel refuses.
    """
    libc, abi = ctypes.CDLL(None, use_errno=True), version()

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(number, *arguments)
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    ports, scoped = rules["tcp"], ABSTRACT_SOCKETS | SIGNALS if rules["scoped"] else 0
    handled = struct.pack("QQQ", writable(abi), 0 if ports is None else TCP, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = call(CREATE_RULESET, handled, size, 0)
    for path, right in [*((path, READ) for path in rules["read"]), *((path, writable(abi)) for path in rules["write"])]:  # type: ignore[attr-defined]  # JSON
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        allowed = right if is_folder else right & FILES & writable(abi)
        call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    for port in ports or ():  # type: ignore[attr-defined]  # JSON
        call(ADD_RULE, ruleset, NET_PORT, struct.pack("QQ", TCP, port), 0)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "no_new_privs was refused")
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


if __name__ == "__main__":
    try:
        confine(json.loads(sys.argv[1]))
        os.execv(sys.argv[2], sys.argv[3:])
    except OSError as error:
        sys.stderr.write(f"the sandbox cannot run {sys.argv[2]}: {error}\n")
        sys.exit(FAILED)
