"""Act as an interpreter whose program runs in a fork: start it, pass on signals, and end as it ends.

`forkserver.interpreter` returns an executable file that runs this, for shells and programs that start Python
themselves. The fork has the standard streams that this process was started with, so nothing is relayed but signals and
the exit code. If this process is killed, so is the fork.

It is imported by an interpreter without `site`, which starts in a tenth of the time that the SDK takes.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import sys
from typing import Any, Final

FLAGS: Final = ("-W", "-c", "-m", "-u")
"""The flags that a fork understands. With others, such as ``-S``, this becomes the interpreter itself."""

PASSED_ON: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def main(address: str) -> None:
    """Run the program of the command line in a fork, and end as it does."""
    executable, *words = sys.argv
    if words[0].startswith("-") and words[0][:2] not in FLAGS:
        os.execv(sys.executable, [sys.executable, *words])
    streams = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is not None]
    while (nothing := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # so that no socket is where a standard stream was closed
    ignored = [int(number) for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    # A signal that comes just before a system call does not interrupt it, but what has it written can be waited for.
    heard, hear = os.pipe()
    os.set_blocking(hear, False)
    signal.set_wakeup_fd(hear)
    for each in set(PASSED_ON) - set(ignored):
        signal.signal(each, lambda *_: None)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(address)
    request = (words, os.getcwd(), dict(os.environ), False, b"", os.path.abspath(executable), streams, ignored)
    socket.send_fds(server, [marshal.dumps(request)], streams)
    for number in range(3):
        os.dup2(nothing, number)
    fork = int(server.recv(16))
    sources: list[Any] = [server, heard]
    while server not in select.select(sources, [], [])[0]:
        for number in os.read(heard, 16):
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and its exit code is on its way
                os.kill(fork, number)
    code = int(server.recv(16))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
