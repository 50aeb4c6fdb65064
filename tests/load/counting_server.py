"""A server that writes down the id of every call it carries out, before it answers, or dies. Standard library only.

The file outlives the server, so it has the calls of all processes that were killed.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes as long as the start of an interpreter
    from typing import Any

TOOL = {"name": "run", "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}


def answer(method: str, params: dict[str, Any], file: int) -> dict[str, Any] | None:
    """Carry out one request; None for what is not known here."""
    if method == "tools/call":
        # One short write to a file that is only appended to: it is there whole or not at all.
        os.write(file, b"%d\n" % params["arguments"]["id"])
        if params["arguments"].get("die"):
            os._exit(9)
        return {"content": [{"type": "text", "text": str(params["arguments"]["id"])}]}
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "counting", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {} if method == "ping" else None


def main() -> None:
    """Serve until stdin ends."""
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(message["method"], message.get("params") or {}, file)
        reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
