"""Take the place of ``mcp-server-time``: report every call, and hold calls until asked to answer.

It sends a line to the socket that its first argument names: ``start``, ``call ZONE`` before that call is answered,
``cancelled ZONE`` and ``end``, each with its process id. It answers a call whose zone begins with ``Held/`` at SIGUSR1.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOL = {
    "name": "get_current_time",
    "description": "Get the current time in a time zone.",
    "inputSchema": {
        "type": "object",
        "properties": {"timezone": {"type": "string"}},
        "required": ["timezone"],
    },
}

ledger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ledger.connect("\0" + sys.argv[1])
held: dict[Any, str] = {}


def report(*words: str) -> None:
    """Write a line to the ledger. Without a reader there is nothing to report to."""
    try:
        ledger.send(" ".join([str(os.getpid()), *words]).encode())
    except OSError:
        sys.exit("the ledger is closed")


def answer(id: Any, result: dict[str, Any]) -> None:
    """Answer a request."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
    sys.stdout.flush()


def tell_time(id: Any, zone: str) -> None:
    """Answer a call."""
    time = {"timezone": zone, "datetime": "2026-11-29T12:00:00+00:00", "day_of_week": "Sunday", "is_dst": False}
    answer(id, {"content": [{"type": "text", "text": json.dumps(time)}], "structuredContent": time})


def release(*_: object) -> None:
    """Answer the calls that are held."""
    while held:
        tell_time(*held.popitem())


def handle(message: dict[str, Any]) -> None:
    """Handle a message of the client."""
    match message:
        case {"method": "initialize", "id": id, "params": {"protocolVersion": version}}:
            about = {"name": "time", "version": "1.0"}
            answer(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
        case {"method": "tools/list", "id": id}:
            answer(id, {"tools": [TOOL]})
        case {"method": "tools/call", "id": id, "params": {"arguments": {"timezone": zone}}}:
            if zone.startswith("Held/"):
                held[id] = zone  # first, because the reader of the ledger may ask for the answer at once
                report("call", zone)
            else:
                report("call", zone)
                tell_time(id, zone)
        case {"method": "notifications/cancelled", "params": {"requestId": id}}:
            report("cancelled", held.pop(id, "?"))
        case {"method": "ping", "id": id}:
            answer(id, {})
        case {"id": id, "method": _}:
            error = {"code": -32601, "message": "method not found"}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}) + "\n")
            sys.stdout.flush()


signal.signal(signal.SIGUSR1, release)
report("start")
for line in sys.stdin:
    handle(json.loads(line))
report("end")
