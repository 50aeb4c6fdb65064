"""Find the files of a daemon, connect to it, or start it.

A daemon serves the servers of a configuration file to all editors of a user. Two hundred clients may start at once, and
any may be killed. An exclusive lock admits one daemon. `attach` runs this file but does not import ``mcp_actors``, so
imports are few.

Owns: nothing.
Writes: the daemon's folder, lock and log. Removes stale sockets; starts daemons.
Calls: nothing.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import sys
import time

TYPE_CHECKING = False  # as in `typing`, whose import costs 1 MB
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

PACKAGE_VERSION: Final = "0.1.0"
"""The package's version (checked by a test). Each version has its own daemons."""

DIRECTORY: Final = "notifications/mcp_actors/directory"
"""A notification with the client's working directory. The client's own servers start there."""

# --- The files of a daemon, and who may use them ----------------------------------------------------------------------

MAX_PATH: Final = 103 if sys.platform == "darwin" else 107  # bytes in the path of a unix socket


class DaemonRefused(OSError):
    """A daemon cannot be used or started. The text says why, and what to do."""


class Names:
    """The files of one daemon: its lock, its log, a socket for clients, and a socket for commands.

    `config` is the configuration file's real path, perhaps with ``#server``. The daemon works in the file's `folder`.
    """

    def __init__(self, file: str, server: str, base: str) -> None:
        self.config: str = joined(file, server)
        self.folder: str = os.path.dirname(file)
        self.socket: str = f"{base}.sock"
        self.control: str = f"{base}.ctl"
        self.log: str = f"{base}.log"
        self.lock: str = f"{base}.lock"


def folder() -> str:
    """Return the folder of the user's daemons; make it if missing.

    Raises:
        DaemonRefused: the folder cannot be made, or others could have put files there.
    """
    parent = os.environ.get("XDG_RUNTIME_DIR", "")
    if not (os.path.isabs(parent) and os.path.isdir(parent) and os.stat(parent).st_uid == os.geteuid()):
        parent = os.path.expanduser("~/.cache")
    if not os.path.isabs(parent):
        raise DaemonRefused("there is no folder for the files of daemons; set XDG_RUNTIME_DIR or HOME")
    path = f"{parent}/mcp-actors"
    try:
        if not os.path.lexists(path):
            os.makedirs(path, 0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise DaemonRefused(
            f"{path} cannot be made ({error.strerror}); set XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
        problem = f"is not a folder of this user alone ({stat.filemode(found.st_mode)}, uid {found.st_uid})"
        raise DaemonRefused(f"{path} {problem}; run: chmod 700 {path}; or remove it")
    return path


def names_for(config: str) -> Names:
    """Return the files of a configuration's daemon; `config` is an absolute path, perhaps with ``#server``.

    The files are named by a hash of the user, the configuration file, the server (for ``FILE#server``, a daemon of a
    single server), the version, and the values of the environment variables in the file.

    Raises:
        DaemonRefused: the path is not absolute, the file cannot be read, or the daemon's files have no place.
    """
    file, server = file_and_server(config)
    if not os.path.isabs(file):
        raise DaemonRefused(f"--config needs the absolute path of a file, not {config!r}; write the whole path")
    values = [(name, os.environb.get(name)) for name in sorted(_variables(_read(file)))]
    file = os.path.realpath(file)
    identity = ascii((os.geteuid(), file, server, PACKAGE_VERSION, values))
    names = Names(file, server, f"{folder()}/{_sha256(identity.encode())[:16]}")
    if len(os.fsencode(names.socket)) > MAX_PATH:
        problem = f"the path of a socket has at most {MAX_PATH} bytes, and {names.socket} has more"
        raise DaemonRefused(f"{problem}; set XDG_RUNTIME_DIR to a folder with a shorter path")
    return names


def file_and_server(config: str) -> tuple[str, str]:
    """Split ``PATH#server``. The server is empty for a path alone, even one that contains ``#``."""
    file, mark, server = config.rpartition("#")
    return (file, server) if mark and not os.path.lexists(config) else (config, "")


def real_name(config: str) -> str:
    file, server = file_and_server(config)
    return joined(os.path.realpath(file), server)


def joined(file: str, server: str) -> str:
    return f"{file}#{server}" if server else file


def _read(file: str) -> bytes:
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as opened:
            found = os.fstat(opened.fileno())
            if stat.S_ISREG(found.st_mode) and found.st_size <= 16 * 1024**2:  # as in the rest of the package
                return opened.read()
        problem = "is not a configuration file"
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    raise DaemonRefused(f"{file} {problem}; check the path and its permissions")


def _variables(data: bytes) -> set[bytes]:
    """Return the variables that a file names. A word too many costs at worst another daemon."""
    data = data.replace(b"\0", b"").replace(b"'", b'"')  # UTF-16 has zeros
    pieces = data.split(b"${")
    names = {
        piece.partition(b"}")[0].partition(b":-")[0].removeprefix(b"env:")
        for index, piece in enumerate(pieces)
        if index and not pieces[index - 1].endswith(b"$")  # "$${" is literal
    }
    for key in (b"env_from", b"env_vars"):
        for piece in data.split(key)[1:]:
            listed = piece.partition(b"[")[2].partition(b"]")[0]
            names.update(listed.split(b'"')[1::2])
    for piece in data.split(b"bearer_token_env_var")[1:]:
        names.update(piece.split(b'"', 5)[:5])  # the key may end with a quote, and TOML has triple quotes
    for piece in data.split(b"env_http_headers")[1:]:
        end = b"\n[" if piece.lstrip(b'" \t').startswith(b"]") else b"}"  # a TOML table, or an object
        names.update(piece.partition(end)[0].split(b'"'))
    return names


def _sha256(data: bytes) -> str:
    for name in ("_sha2", "_sha256", "hashlib"):  # hashlib loads OpenSSL, 2 MB
        try:
            return str(__import__(name).sha256(data).hexdigest())
        except ImportError:
            continue
    raise AssertionError("hashlib is a part of Python")


def check_socket(path: str) -> bool:
    """Return True for a socket of this user, False for nothing; raise `DaemonRefused` for anything else."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        problem = f"is not a socket of this user ({stat.filemode(found.st_mode)}, uid {found.st_uid})"
        raise DaemonRefused(f"{path} {problem}; remove it")
    return True


def peer_uid(connection: socket.socket) -> int:
    """Return the uid at the other end of a unix socket."""
    if sys.platform == "linux":
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
    else:
        data = connection.getsockopt(0, 1, 76)  # LOCAL_PEERCRED: a version, the uid, groups
    return int.from_bytes(data[4:8], sys.byteorder)


# --- Connect to the daemon, or start it -------------------------------------------------------------------------------

START_SECONDS: Final = 60.0  # until a daemon listens; on a busy machine the imports take ten
MAX_LOG: Final = 1024 * 1024  # bytes of a log; a longer log is cut to half of this


def daemon_command(names: Names) -> list[str]:
    """Return the command of the daemon. ``-P`` ignores modules in its working directory.

    `sys.executable` may not find the package by name, as with shiv, so use the path of a file.
    """
    package = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")
    files = ["--config", names.config, "--socket", names.socket, "--control", names.control]
    return [sys.executable, "-P", package, "serve", *files, "--idle", "60"]  # seconds without clients


def open_daemon(
    names: Names, command: list[str], former: bytes = b"", look: Callable[[], object] = lambda: None
) -> socket.socket:
    """Return a non-blocking connection to a daemon, started if necessary, once ready.

    Args:
        names: the files of the daemon.
        command: starts the daemon.
        former: the process id of the daemon whose connection was lost, or empty. A killed process closes connections
            before its listening socket, so nothing connects for half a second while the lock file has this id.
        look: called repeatedly while waiting. May raise.

    Raises:
        OSError: no connection after `START_SECONDS`, or none is possible.
    """
    began, start, pause = time.time(), time.monotonic(), 0.005
    while time.monotonic() < start + START_SECONDS:
        ends = former and time.monotonic() < start + 0.5 and former == holder(names.lock)
        try:
            return (None if ends else connect(names.socket)) or _start(names, command, began, look)
        except BlockingIOError:  # the daemon starts or ends, or the backlog is full
            look()
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
    raise DaemonRefused(
        f"the daemon of {names.config} accepts no connection; end the process that is named in {names.lock}"
    )


def holder(lock: str) -> bytes:
    """Return the process id of the lock's last daemon; empty if unknown."""
    try:
        with open(lock, "rb") as opened:
            return opened.read(20)
    except OSError:
        return b""


def connect(path: str) -> socket.socket | None:
    """Connect; return None if nothing listens."""
    if not check_socket(path):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
        if (uid := peer_uid(connection)) != os.geteuid():
            raise DaemonRefused(f"another user (uid {uid}) listens on {path}; remove it")
    except OSError as error:
        connection.close()
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
            return None
        raise
    return connection


def cut_log(log: int) -> int:
    size = os.fstat(log).st_size
    if size > MAX_LOG:
        kept = os.pread(log, MAX_LOG // 2, size - MAX_LOG // 2)
        os.ftruncate(log, 0)
        size = os.write(log, kept[kept.find(b"\n") + 1 :])
    return size


def _start(names: Names, command: list[str], began: float, look: Callable[[], object]) -> socket.socket:
    """Start a daemon and connect. Raise BlockingIOError if another process has the lock."""
    log = os.open(names.log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    lock = -1
    try:
        # The lock comes before everything else: of all clients that find no daemon, one gets past this line, and the
        # others retry. Nothing unlocks explicitly: the daemon inherits the descriptor, so the lock lasts until the last
        # process that holds it is gone, also if this client is killed now. Look for a daemon again with the lock held,
        # or the sockets of one that started meanwhile would be removed below.
        lock = os.open(names.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (connection := connect(names.socket)) is not None:
            return connection  # started meanwhile; on NFS the lock may not be inherited
        noted = os.pread(lock, 8192, 0)
        if noted and not noted.isdigit() and began <= os.fstat(lock).st_mtime <= time.time() + 1:
            # Another client has just failed to start it; two hundred clients need not try in turn.
            raise DaemonRefused(noted.decode(errors="replace"))
        for path in (names.socket, names.control):
            if check_socket(path):
                os.unlink(path)  # of a killed daemon
        size = cut_log(log)
        ready = _spawn(names, command, lock, log, look)
        if (connection := connect(names.socket)) is not None:
            return connection
        if ready is None:  # the process id stays in the file, for the user
            problem = f"the daemon of {names.config} was not ready within {START_SECONDS:g} s"
            raise DaemonRefused(f"{problem}: {end_of(names.log, size)}; end it: kill -9 {holder(names.lock).decode()}")
        problem = f"the daemon of {names.config} did not start: {end_of(names.log, size)}; fix that and try again"
        os.ftruncate(lock, 0)
        os.pwrite(lock, problem.encode(errors="replace"), 0)
        raise DaemonRefused(problem)
    finally:
        os.close(log)
        if lock >= 0:
            os.close(lock)  # a daemon holds it, too


def end_of(log: str, start: int = 0) -> str:
    """Return the last lines of a log as one printable line."""
    with open(log, "rb") as opened:
        opened.seek(max(start, os.fstat(opened.fileno()).st_size - 1000))
        lines = opened.read().decode(errors="replace").splitlines()[-10:]
    shown = "; ".join("".join(c if c.isprintable() else " " for c in line).strip() for line in lines)
    return shown or "its log is empty"


def _spawn(names: Names, command: list[str], lock: int, log: int, look: Callable[[], object]) -> bool | None:
    """Start a daemon; return True once ready, False if it has ended, None if not ready in time."""
    reads, writes = os.pipe()
    with open(reads, "rb", 0) as output:
        with open(writes, "wb", 0):
            child = os.fork()
            if not child:
                _become(names, command, (writes, log, lock, reads))
        _wait_for(child)
        said, deadline = b"", time.monotonic() + START_SECONDS
        while not said.endswith(b"\n"):
            look()
            if time.monotonic() >= deadline:
                return None
            if select.select([reads], [], [], 0.05)[0]:  # else look at the client again
                if not (piece := output.read(1024)):
                    break
                said += piece
    return said == b"ready\n"


def _wait_for(child: int) -> None:
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return  # the editor ignores SIGCHLD, so the system reaps the child


def _become(names: Names, command: list[str], descriptors: tuple[int, int, int, int]) -> None:
    """Turn a child process into the daemon. Never returns.

    The daemon has both ends of the pipe, and so can report "ready" even if the client was killed.
    """
    _, log, lock, _ = descriptors
    try:
        # Fork twice and leave the session: editors kill their children, and a terminal its session. Write the process
        # id before exec, so that a daemon that hangs can be found. Of the inherited descriptors only 0 to 4 stay open:
        # an editor's pipe kept open here would keep the editor waiting for its end.
        if os.fork():
            os._exit(0)
        os.setsid()
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d" % os.getpid(), 0)
        import signal  # only here: the client's memory is measured

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, servers would have no exit codes
        for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
            os.dup2(source, target)
            os.set_inheritable(target, True)  # dup2 of the same number does nothing
        os.closerange(5, os.sysconf("SC_OPEN_MAX"))
        os.chdir(names.folder)
        os.execv(command[0], command)
    except BaseException as error:
        os.write(log, f"{command[0]}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(127)
