"""Confine this process by Landlock and seccomp, then run a program.

`confined` puts this script in front of a server's command. The script imports only the standard library::

    python -I -S -B _landlock.py RULES PROGRAM COMMAND [ARGUMENT …]

RULES is JSON: permitted files, ports and signals, and default environment variables. PROGRAM is a path, and COMMAND its
``argv[0]``. Landlock restricts files, TCP ports and signals; a filter (seccomp) refuses some system calls that Landlock
does not restrict.

Owns: nothing.
Writes: restrictions of this process; its environment; stderr. Replaces this process.
Calls: nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys

# The numbers are from ``linux/landlock.h``, ``linux/seccomp.h``, and the tables of system calls.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1  # the flag of CREATE_RULESET that asks for the version
PATH_BENEATH, NET_PORT = 1, 2
NO_NEW_PRIVS, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 3  # bind and connect
ABSTRACT_SOCKETS, SIGNALS = 1, 2
SCOPES = 6  # the version of Landlock that knows these two

NOT_EXECUTABLE = 126
"""The exit code of a shell for a program that cannot be run."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → the column in the tables below, and the number of the calling convention."""

LISTEN, IO_URING_SETUP = (50, 201), (425, 425)
SOCKET, SETSOCKOPT, PRLIMIT = (41, 198), (54, 208), (302, 261)
SENDTO, SENDMSG, SENDMMSG = (44, 206), (46, 211), (307, 269)
SHARED = (
    *((29, 194), (30, 196), (31, 195)),  # shmget, shmat, shmctl
    *((68, 186), (69, 189), (70, 188), (71, 187)),  # msgget, msgsnd, msgrcv, msgctl
    *((64, 190), (65, 193), (66, 191), (220, 192)),  # semget, semop, semctl, semtimedop
    *((240, 180), (241, 181)),  # mq_open, mq_unlink
    *((248, 217), (249, 218), (250, 219)),  # add_key, request_key, keyctl
)
"""Memory, messages, semaphores and keys that processes of one user share without files."""

LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
KILL, REFUSE, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000  # REFUSE: with EPERM
NUMBER, MACHINE = 0, 4  # the offsets in `struct seccomp_data`
X32 = 1 << 30  # calls of a second convention of x86_64, with other numbers

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
SMC, MPTCP = 256, 262
TCP_LEVEL, FASTOPEN_CONNECT, UPPER_PROTOCOL = 6, 30, 31  # an upper protocol turns a TCP socket into one of SMC
FASTOPEN = 1 << 29

Condition = tuple[int, int, int, bool]
"""The offset of an argument, a comparison, its operand, and its outcome. A call is refused if all conditions hold."""


def argument(position: int, comparison: int, operand: int, outcome: bool = True) -> Condition:
    return 16 + 8 * position, comparison, operand, outcome


def refused_calls(ports: list[int] | None) -> list[tuple[tuple[int, int], list[Condition]]]:
    """Return the refused system calls and their conditions.

    Landlock does not restrict these calls:

    - always: io_uring, resource limits of other processes, and anything that processes of one user share without files
    - if TCP is restricted: ways around ``bind`` and ``connect``, and sockets other than unix, IP and netlink
    - if no TCP port is allowed: every ``listen``, also of unix sockets
    """
    foreign = argument(0, EQUAL, 0, False)
    limits = argument(2, EQUAL, 0, False)
    upper_half = (limits[0] + 4, *limits[1:])
    calls: list[tuple[tuple[int, int], list[Condition]]] = [(call, []) for call in (*SHARED, IO_URING_SETUP)]
    calls += [(PRLIMIT, [foreign, half]) for half in (limits, upper_half)]
    if ports is None:
        return calls
    calls += [(SOCKET, [argument(0, EQUAL, family, False) for family in (UNIX, INET, INET6, NETLINK)])]
    calls += [(SOCKET, [argument(2, EQUAL, protocol)]) for protocol in (SMC, MPTCP)]
    calls += [(call, [argument(at, ANY_BIT, FASTOPEN)]) for call, at in ((SENDTO, 3), (SENDMSG, 2), (SENDMMSG, 3))]
    of_tcp = argument(1, EQUAL, TCP_LEVEL)
    calls += [(SETSOCKOPT, [of_tcp, argument(2, EQUAL, option)]) for option in (FASTOPEN_CONNECT, UPPER_PROTOCOL)]
    return calls if ports else [*calls, (LISTEN, [])]  # Landlock lets a socket that is not bound listen on any port


def system_calls(ports: list[int] | None) -> bytes:
    """Return the filter of system calls as a program of the kernel's classic BPF."""
    column, machine = MACHINES[os.uname().machine]

    def step(code: int, operand: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, operand)

    refuse = step(RETURN, REFUSE)
    program = step(LOAD, MACHINE) + step(EQUAL, machine, 1) + step(RETURN, KILL)
    program += step(LOAD, NUMBER) + step(AT_LEAST, X32, 0, 1) + refuse
    for numbers, conditions in refused_calls(ports):
        tests = [(NUMBER, EQUAL, numbers[column], True), *conditions]
        for at, (offset, comparison, operand, outcome) in enumerate(tests):
            past = 2 * (len(tests) - at) - 1  # over the other tests and the refusal
            program += step(LOAD, offset) + step(comparison, operand, *((0, past) if outcome else (past, 0)))
        program += refuse
    return program + step(RETURN, ALLOW)


def version() -> int:
    """Return the version of the kernel's Landlock; 0 without Landlock."""
    found: int = ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, VERSION)
    return max(0, found)


def writable(abi: int) -> int:
    """Return all rights over files in this version of Landlock."""
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1


def confine(rules: dict[str, object]) -> None:
    """Restrict this process, its threads and children to some files, ports and system calls.

    The restrictions hold for good, and include abstract sockets where Landlock can.

    Raises:
        OSError: the kernel refuses.
    """
    libc, abi = ctypes.CDLL(None, use_errno=True), version()

    def call(function: object, *arguments: object) -> int:
        result: int = function(*arguments)  # type: ignore[operator]  # a function of C
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    ports: list[int] | None = rules["tcp"]  # type: ignore[assignment]  # JSON
    scoped = 0 if abi < SCOPES else ABSTRACT_SOCKETS | (0 if rules["signals"] else SIGNALS)
    handled = struct.pack("QQQ", writable(abi), 0 if ports is None else TCP, scoped)
    size = 8 if abi < 4 else 16 if abi < SCOPES else 24
    ruleset = call(libc.syscall, CREATE_RULESET, handled, size, 0)
    for path, right in [*((path, READ) for path in rules["read"]), *((path, writable(abi)) for path in rules["write"])]:  # type: ignore[attr-defined]  # JSON
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        allowed = right if is_folder else right & FILES & writable(abi)
        call(libc.syscall, ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    for port in ports or ():
        call(libc.syscall, ADD_RULE, ruleset, NET_PORT, struct.pack("QQ", TCP, port), 0)
    call(libc.prctl, NO_NEW_PRIVS, 1, 0, 0, 0)
    call(libc.syscall, RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    program = ctypes.create_string_buffer(code := system_calls(ports), len(code))
    counted = struct.pack("HP", len(code) // 8, ctypes.addressof(program))
    call(libc.prctl, SET_SECCOMP, SECCOMP_FILTER, counted, 0, 0)


if __name__ == "__main__":
    try:
        confine(given := json.loads(sys.argv[1]))
        for name, value in given["environment"].items():
            os.environ.setdefault(name, value)
        os.execv(sys.argv[2], sys.argv[3:])
    except OSError as error:
        sys.stderr.write(f"the sandbox cannot run {sys.argv[2]}: {error}\n")
        sys.exit(NOT_EXECUTABLE)
