"""A server over stdio that can die in a call, for the comparison with other clients.

It uses the standard library only, so that it starts at once and knows none of them.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Timer
from typing import Any

NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
TOOLS = [
    {"name": "add", "inputSchema": {"type": "object", "properties": NUMBERS}},
    {"name": "work", "inputSchema": {"type": "object"}},
    {"name": "die", "inputSchema": {"type": "object"}},
]


def send(request: dict[str, Any], **outcome: object) -> None:
    """Answer a request."""
    line = json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome})
    print(line, flush=True)


def call(request: dict[str, Any]) -> None:
    """Add two numbers, work for three seconds, or exit half a second later."""
    name = request["params"]["name"]
    if name == "add":
        numbers = request["params"]["arguments"]
        send(request, result=text(str(numbers["a"] + numbers["b"])))
    elif name == "work":
        start(Timer(3, send, [request], {"result": text("done")}))
    else:
        start(Timer(0.5, os._exit, [1]))


def text(value: str) -> dict[str, Any]:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": value}]}


def start(timer: Timer) -> None:
    """Start a timer that ends with the process."""
    timer.daemon = True
    timer.start()


def serve(request: dict[str, Any]) -> None:
    """Answer a request as a server of the era before 2026-07-28 does."""
    method = request["method"]
    if method == "initialize":
        info = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "mortal", "version": "1.0"},
        }
        send(request, result=info)
    elif method == "tools/list":
        send(request, result={"tools": TOOLS})
    elif method == "tools/call":
        call(request)
    elif method == "ping":
        send(request, result={})
    else:
        send(request, error={"code": -32601, "message": f"unknown method {method}"})


if __name__ == "__main__":
    for received in map(json.loads, sys.stdin):
        if "id" in received:
            serve(received)
