"""A server that tries to forge lines of a command wherever it can write text; run as a process."""

from __future__ import annotations

import json
import sys
from typing import Any

FORGED = "x\nFORGED a\r\nFORGED b\x85FORGED c\u2028FORGED d\x1b[2J\x1b[1;1HFORGED e\u202eFORGED f\u2066[bold]g[/]\x07"
TOOL = {"name": f"tool {FORGED}", "description": FORGED, "inputSchema": {"type": "object", "properties": {FORGED: {}}}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the members of the answer to a request."""
    if method == "initialize":
        info = {"name": FORGED, "version": FORGED, "title": FORGED}
        capabilities: dict[str, Any] = {"tools": {}}
        members = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        return {"result": members | {"instructions": FORGED}}
    if method == "tools/list":
        return {
            "result": {
                "tools": [TOOL, *({"name": name, "inputSchema": {"type": "object"}} for name in ("fails", "errs"))]
            }
        }
    if method == "tools/call" and params["name"] == "fails":
        return {"result": {"content": [{"type": "text", "text": FORGED}], "isError": True}}
    return {"error": {"code": -32050, "message": FORGED, "data": FORGED}}


def main() -> None:
    """Serve, or end at once."""
    sys.stderr.write(FORGED)
    sys.stderr.flush()
    if "--exit" in sys.argv:
        sys.exit(3)
    print(FORGED, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            reply = answer(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
