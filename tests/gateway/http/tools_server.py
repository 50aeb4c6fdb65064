"""A server for the page, whose texts are all HTML: of its tools, its results and its stderr. Standard library only."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes as long as the start of an interpreter
    from typing import Any

EVIL = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"

TEXT = {"type": "object", "properties": {"text": {"type": "string", "description": EVIL}}, "required": ["text"]}

TOOLS = [
    {"name": "echo", "description": EVIL, "inputSchema": TEXT},
    {"name": EVIL, "description": EVIL, "inputSchema": {"type": "object"}},
]


WAITING = [{"name": "wait", "inputSchema": {"type": "object"}}]
"""A tool that never answers."""

CITY, DAYS, UNIT = (
    {name: {"type": kind}} for name, kind in (("city", "string"), ("days", "integer"), ("unit", "string"))
)

CHANGING = [
    {"name": "report", "inputSchema": {"type": "object", "properties": given}} for given in (CITY | DAYS, CITY | UNIT)
]
"""A tool before and after the file that follows ``--changing`` is made."""

HOSTILE: list[dict[str, Any]] = [
    {"type": "object", "properties": given}
    for given in (
        {"a": {"enum": [{"toString": 1}, None, [], float("nan")]}, "c": {"enum": 5}},
        {"a": {"type": {"toString": 1}}, "b": {"type": []}, "c": {"description": {"toString": 1}}},
        {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}, "c": {"default": float("inf")}},
        {f"p{each}": {"type": "string"} for each in range(5000)},
        {each: {"type": "string"} for each in ("elements", "length", "toString", "__proto__", "submit")},
    )
]
"""Schemas that no form can be made from, or that harm what makes it."""


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "tools", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/call":
        if params["name"].startswith("hostile"):
            return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
        return {"content": [{"type": "text", "text": f"{EVIL} {params['arguments'].get('text')}"}]}
    hostile = [{"name": f"hostile{number}", "inputSchema": schema} for number, schema in enumerate(HOSTILE)]
    more = (hostile if "--hostile" in sys.argv else []) + (WAITING if "--waiting" in sys.argv else [])
    if "--changing" in sys.argv:
        more.append(CHANGING[os.path.exists(sys.argv[-1])])
    return {"tools": TOOLS + more} if method == "tools/list" else {}


def main() -> None:
    sys.stderr.write(f"{EVIL}\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and message.get("params", {}).get("name") != "wait":
            result = answer(message["method"], message.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
