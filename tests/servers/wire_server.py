"""A server that answers exactly as its caller says: the argument ``lines`` of the tool `say` is written as it is.

In each line ``$id`` is the id of the request, as JSON, and ``$text`` that id as a JSON string. Standard library only.
Run as ``python wire_server.py ERA LOG``; every message that it reads is appended to the file LOG.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

Json = dict[str, Any]

MODERN = "2026-07-28"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("say", "mute", "ask", "echo")]


def command(era: str, log: str) -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server."""
    return sys.executable, ("-S", "-E", __file__, era, log)


def write(line: str) -> None:
    """Write one line."""
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def send(message: Json) -> None:
    """Write one message."""
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(of: str) -> Json:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": of}]}


class Server:
    """One run of the server."""

    def __init__(self, era: str) -> None:
        self.modern = era == "modern"
        self.asked: dict[object, object] = {}

    def reply(self, request: object, result: Json) -> None:
        """Answer a request."""
        send({"id": request, "result": result | ({"resultType": "complete"} if self.modern else {})})

    def take(self, message: Json) -> None:
        """Act on one message."""
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "server/discover" if self.modern:
                supported = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
                self.reply(request, supported | {"ttlMs": 0, "cacheScope": "private"})
            case "initialize" if not self.modern:
                info = {"name": "wire", "version": "1"}
                version = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                self.reply(request, version)
            case "tools/list":
                self.reply(request, {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"})
            case "tools/call":
                self.call(request, params)
            case "ping":
                self.reply(request, {})
            case None if request in self.asked:
                self.reply(self.asked.pop(request), text(json.dumps(message.get("result"))))
            case _ if request is not None:
                send({"id": request, "error": {"code": -32601, "message": "not found"}})

    def call(self, request: object, params: Json) -> None:
        """Call a tool."""
        arguments = params.get("arguments") or {}
        match params["name"]:
            case "say":
                for line in arguments["lines"]:
                    write(line.replace("$id", json.dumps(request)).replace("$text", json.dumps(str(request))))
            case "deaf":
                os.close(sys.stdin.fileno())
                self.reply(request, text("deaf"))
                time.sleep(60)  # it goes on, and reads nothing more
            case "slowly":
                whole = json.dumps({"jsonrpc": "2.0", "id": request, "result": text("slow")}) + "\n"
                for byte in whole.encode():
                    sys.stdout.buffer.write(bytes([byte]))
                    sys.stdout.buffer.flush()
                    time.sleep(0.0005)
            case "ask" if self.modern and "inputResponses" not in params:
                roots = {"roots": {"method": "roots/list"}}
                required = {"resultType": "input_required", "inputRequests": roots, "requestState": "halfway"}
                send({"id": request, "result": required})
            case "ask" if self.modern:
                self.reply(request, text(json.dumps([params["requestState"], params["inputResponses"]])))
            case "ask":
                self.asked[f"roots-{request}"] = request
                send({"id": f"roots-{request}", "method": "roots/list"})
            case "echo":
                self.reply(request, text(json.dumps([request, params])))


def main() -> None:
    """Serve until stdin ends."""
    server = Server(sys.argv[1])
    with open(sys.argv[2], "ab", buffering=0) as log:
        for line in sys.stdin.buffer:
            os.write(log.fileno(), line)
            server.take(json.loads(line))


if __name__ == "__main__":
    main()
