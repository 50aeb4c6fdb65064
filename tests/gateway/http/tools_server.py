"""A server for the page, whose texts are all HTML: of its tools, its results and its stderr. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

EVIL = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"

TEXT = {"type": "object", "properties": {"text": {"type": "string", "description": EVIL}}, "required": ["text"]}

TOOLS = [
    {"name": "echo", "description": EVIL, "inputSchema": TEXT},
    {"name": EVIL, "description": EVIL, "inputSchema": {"type": "object"}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "tools", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"{EVIL} {params['arguments'].get('text')}"}]}
    return {"tools": TOOLS} if method == "tools/list" else {}


def main() -> None:
    sys.stderr.write(f"{EVIL}\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
