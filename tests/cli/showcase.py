"""A server of the standard library whose tools have every kind of schema and of result; run as a process."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

FORGED = "x\nFORGED\x1b[2J\u202e"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 48
DEEP: dict[str, Any] = {"type": "string"}
for _ in range(50):
    DEEP = {"type": "array", "items": DEEP}

FORECAST = {
    "type": "object",
    "properties": {
        "units": {"enum": ["metric", "imperial"], "default": "metric", "description": "Of all\nnumbers."},
        "city": {"type": "string", "description": "Its name.", "minLength": 1, "maxLength": 80},
    },
    "required": ["city"],
}
SEARCH = {
    "type": "object",
    "$defs": {
        "Order": {"enum": ["asc", "desc"], "type": "string"},
        "Node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Node"}}},
        "Rows": {"type": "object", "properties": {"first": {"type": "integer"}}, "required": ["first"]},
    },
    "properties": {
        "tags": {"type": "array", "items": {"type": "string"}},
        "order": {"$ref": "#/$defs/Order"},
        "node": {"$ref": "#/$defs/Node"},
        "rows": {"allOf": [{"$ref": "#/$defs/Rows"}], "description": "Which."},
        "note": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None},
        "version": {"const": 2},
        "exact": {"type": "boolean", "default": True},
        "either": {"type": ["integer", "string"]},
        "labels": {"type": "object", "additionalProperties": {"type": "number"}},
        "far": {"$ref": "https://example.com/schema"},
        "lost": {"$ref": "#/$defs/Nothing"},
    },
    "required": ["tags", "order"],
    "additionalProperties": {"type": "integer"},
}
HOSTILE = {
    "type": "object",
    "properties": {
        FORGED: {"enum": [FORGED], "description": FORGED, "pattern": FORGED, "default": FORGED},
        "deep": DEEP,
        "wide": {"enum": [*range(1000)]},
    },
}
OTHERS: dict[str, Any] = {
    "nothing": {"type": "object"},
    "picture": {"type": "object"},
    "gallery": {"type": "object"},
    "mixed": {"type": "object"},
    "broken": {"type": "object"},
    "crash": {"type": "object"},
    "fails": {"type": "object"},
    "show": {
        "type": "object",
        "properties": {"order": {"enum": ["1"], "type": "string"}},
        "additionalProperties": True,
    },
}
TOOLS = [
    {"name": "forecast", "description": "Forecast the weather.\n\nFor days.", "inputSchema": FORECAST},
    {"name": "search", "inputSchema": SEARCH},
    {"name": "hostile", "description": FORGED, "inputSchema": HOSTILE},
    *({"name": name, "inputSchema": schema} for name, schema in OTHERS.items()),
]


def image(data: bytes = PICTURE) -> dict[str, str]:
    """Return a picture as a part of a result."""
    return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(data).decode()}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a tool."""
    text = {"type": "text", "text": json.dumps(arguments, sort_keys=True)}
    if name == "crash":
        print("Traceback\nValueError: no\x1b[2J gas", file=sys.stderr, flush=True)
        os._exit(7)
    parts = {
        "picture": [image()],
        "gallery": [image(), image(b"two")],
        "mixed": [{"type": "text", "text": "a chart:"}, image()],
        "broken": [{**image(), "data": "no base64!"}],
    }
    return {"content": parts.get(name, [text]), "isError": name == "fails"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0911  # one for each method
    """Return the members of the answer to a request."""
    if method == "initialize":
        members = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "show", "version": "1"}}
        return {"result": {**members, "capabilities": {"tools": {}, "resources": {}, "prompts": {}}}}
    match method:
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            if "progressToken" in params.get("_meta", {}) and params["name"] == "forecast":
                token = params["_meta"]["progressToken"]
                about = {"progressToken": token, "progress": 1, "total": 4, "message": "map\x1b[2J"}
                print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": about}), flush=True)
            return {"result": call(params["name"], params.get("arguments", {}))}
        case "resources/list":
            return {"result": {"resources": [{"name": "map", "uri": "map://oslo"}]}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": []}}
        case "resources/read":
            blob = {"uri": params["uri"], "mimeType": "image/png", "blob": base64.b64encode(PICTURE).decode()}
            text = {"uri": params["uri"], "text": "a map"}
            return {"result": {"contents": [text if params["uri"].endswith("text") else blob]}}
        case "prompts/list":
            return {"result": {"prompts": [{"name": "plan", "arguments": [{"name": "city", "required": True}]}]}}
        case "prompts/get":
            content = {"type": "text", "text": f"Plan a day in {params['arguments']['city']}."}
            return {"result": {"messages": [{"role": "user", "content": content}]}}
    return {"error": {"code": -32601, "message": "unknown"}}


def main() -> None:
    """Serve."""
    print("warming\x1b[2J up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "--log" in sys.argv:
            with open(sys.argv[sys.argv.index("--log") + 1], "a") as log:
                log.write(f"{message['method']}\n")
        if "id" in message:
            reply = answer(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
