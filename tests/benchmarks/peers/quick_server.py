"""A server that does next to nothing, so that the client is measured. Standard library only, legacy era.

It treats all clients alike. It does not know ``server/discover``, so a client that sends it falls back to
``initialize``. And it runs in a session of its own, whether its client starts it in one or not. Run as
``python quick_server.py [SECONDS]``; so many seconds it sleeps before it reads anything.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

Json = dict[str, Any]

TEXT = "text"
METHOD_NOT_FOUND = -32601

INITIALIZED: Json = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "quick", "version": "1.0"},
}
TOOLS: Json = {
    "tools": [
        {
            "name": "echo",
            "description": "Return the text.",
            "inputSchema": {"type": "object", "properties": {TEXT: {"type": "string"}}, "required": [TEXT]},
        },
        {
            "name": "fill",
            "description": "Return a text of that length.",
            "inputSchema": {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]},
        },
    ]
}


def command(seconds: float = 0.0) -> list[str]:
    """Return the command line that runs this server; ``-S -E`` saves half of its start."""
    return [sys.executable, "-S", "-E", __file__, str(seconds)]


def result_of(message: Json) -> Json:
    """Return what a request is answered with.

    Raises:
        KeyError: the method is not known.
    """
    if message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        text = arguments[TEXT] if TEXT in arguments else "x" * arguments["length"]
        return {"content": [{"type": "text", "text": text}]}
    return {"initialize": INITIALIZED, "tools/list": TOOLS, "ping": {}}[message["method"]]


def answer(message: Json) -> Json:
    """Return the answer to a request."""
    try:
        return {"jsonrpc": "2.0", "id": message["id"], "result": result_of(message)}
    except KeyError:
        error = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {message['method']}"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def report(message: Json) -> bytes:
    """Return a line that reports progress of a request, if its client wants that."""
    token = message.get("params", {}).get("_meta", {}).get("progressToken")
    if token is None:
        return b""
    told = {"progressToken": token, "progress": 1, "total": 1}
    told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def write(data: bytes) -> None:
    """Write all of it, without a buffer: a message at a time, as most servers do."""
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(1, unwritten) :]


def leave_session() -> None:
    """Begin a session of its own, unless it has one.

    Linux schedules the processes of a session as a group (``sched_autogroup_enabled``). On a busy machine a client and
    a server in the same one answer each other within the share of their group, and those in two wait for their turns,
    which takes six times as long.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()


def main() -> None:
    """Answer requests until stdin ends."""
    leave_session()
    time.sleep(float(sys.argv[1]))
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            write(report(message) + json.dumps(answer(message), separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    main()
