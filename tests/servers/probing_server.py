"""A server that evaluates expressions, with the standard library only: it finds out what its process may do."""

from __future__ import annotations

import json
import os
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
