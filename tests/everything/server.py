"""Running the server: as a child of the client over stdio, or as a process of its own over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Literal

from ..node.packages import node, program

Transport = Literal["stdio", "streamableHttp", "sse"]

PRELOADED: Final = Path(__file__).with_name("on_loopback.mjs")


def command(transport: Transport) -> tuple[str, list[str]]:
    """Return the program that runs the server, and its arguments.

    Raises:
        NodeMissing: it is not there, and could not be fetched.
    """
    script = program("@modelcontextprotocol/server-everything", "dist/index.js")
    return str(node()), [str(script), transport]


@contextmanager
def over_http(transport: Transport, log: IO[bytes], port: int = 0) -> Iterator[int]:
    """Run the server, not over stdio, and yield its port; what it prints goes to `log`.

    It prints its port when it listens, so no polling is needed. At the end its whole process group is killed.
    """
    program, arguments = command(transport)
    said, say = os.pipe()
    with os.fdopen(said) as listening:
        process = subprocess.Popen(
            [program, "--import", str(PRELOADED), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PORT_TO": str(say), "ON_PORT": str(port)},
            pass_fds=[say],
            start_new_session=True,
        )
        try:
            os.close(say)
            yield int(listening.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
