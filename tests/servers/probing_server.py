"""A server that evaluates expressions, with the standard library only: it finds out what its process may do."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOL = {"name": "evaluate", "inputSchema": {"type": "object"}}


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def listen(port: int) -> None:
    socket.create_server(("127.0.0.1", port)).close()


def connect_with_data(port: int) -> None:
    with socket.socket() as stream:
        stream.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))


def connect_to_abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect("\0" + name)


def call(function: str, *arguments: Any) -> None:
    """Call a function of C."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[function](*arguments) < 0:
        raise OSError(ctypes.get_errno(), function)


def child_reads(path: str) -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", f"open({path!r}).read()"], check=True, capture_output=True)


ACTIONS: dict[str, Callable[..., object]] = {
    "read": lambda path: Path(path).read_text(),
    "write": lambda path: Path(path).write_text("changed"),
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.remove,
    "make": lambda path: Path(path).mkdir(),
    "list": os.listdir,
    "chmod": lambda path: Path(path).chmod(0o600),
    "connect": connect,
    "listen": listen,
    "listen without a port": lambda: socket.socket().listen(),
    "connect with data": connect_with_data,
    "connect to abstract": connect_to_abstract,
    "open socket": lambda *what: socket.socket(*what).close(),
    "call": call,
    "limit": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.prlimit(0, resource.RLIMIT_NOFILE)),
    "signal": lambda pid: os.kill(pid, signal.SIGCONT),
    "child reads": child_reads,
}


def evaluate(action: str, *arguments: Any) -> str:
    """Return ``"done"``, or the name of the error."""
    try:
        ACTIONS[action](*arguments)
    except Exception as error:
        return type(error).__name__
    return "done"


def answer(request: Any) -> Any:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "probing", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            said = evaluate(*request["params"]["arguments"]["what"])
            return {"content": [{"type": "text", "text": said}]}


def main() -> None:
    """Answer requests until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)


if __name__ == "__main__":
    main()
