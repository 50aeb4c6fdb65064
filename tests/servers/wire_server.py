"""A server that answers exactly as its caller says: the argument ``lines`` of the tool `say` is written as it is.

In each line ``$id`` is the id of the request, as JSON, and ``$text`` that id as a JSON string. Standard library only.
Run as ``python wire_server.py ERA LOG``; every message that it reads is appended to the file LOG.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes as long as the start of an interpreter
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Json: TypeAlias = dict[str, Any]
else:
    Json = dict

MODERN = "2026-07-28"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("say", "mute", "ask", "echo")]
CAPABILITIES: Json = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
SCRIPTED = ("tools/call", "resources/read", "prompts/get", "completion/complete", *LISTS)
TASK = {"name": "task", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}


def command(era: str, log: str) -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server."""
    return sys.executable, ("-S", "-E", __file__, era, log)


def put(data: bytes) -> None:
    """Write to stdout."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def text(of: str) -> Json:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": of}]}


def filled(request: object, line: str) -> str:
    """Return a line with the id of a request in it."""
    return line.replace("$id", json.dumps(request)).replace("$text", json.dumps(str(request)))


class Server:
    """One run of the server.

    Args:
        era: of the protocol.
        put: writes to the client.

    Attributes:
        muted: the ids of the calls of `mute`, in order.
        script: the line that answers whatever may be sent past the SDK's session; None to answer as usual.
    """

    def __init__(self, era: str, put: Callable[[bytes], object]) -> None:
        self.modern = era == "modern"
        self.put = put
        self.asked: dict[object, object] = {}
        self.muted: list[object] = []
        self.script: str | None = None

    def write(self, line: str) -> None:
        """Write one line."""
        self.put(line.encode() + b"\n")

    def send(self, message: Json) -> None:
        """Write one message."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}))

    def ask(self, request: object, params: Json) -> None:
        """Ask for the roots, and answer with them."""
        if not self.modern:
            self.asked[f"roots-{request}"] = request
            self.send({"id": f"roots-{request}", "method": "roots/list"})
        elif "inputResponses" not in params:
            self.require_roots(request)
        else:
            self.reply(request, text(json.dumps([params["requestState"], params["inputResponses"]])))

    def refuse(self, request: object, params: Json) -> None:
        """Ask for the roots if an answer can do so, and then refuse to run without a task."""
        if self.modern and "inputResponses" not in params:
            self.require_roots(request)
        else:
            self.send({"id": request, "error": {"code": -32601, "message": "a task is required"}})

    def require_roots(self, request: object) -> None:
        """Answer that the roots are needed first."""
        roots = {"roots": {"method": "roots/list"}}
        required = {"resultType": "input_required", "inputRequests": roots, "requestState": "halfway"}
        self.send({"id": request, "result": required})

    def reply(self, request: object, result: Json) -> None:
        """Answer a request."""
        self.send({"id": request, "result": result | ({"resultType": "complete"} if self.modern else {})})

    def take(self, message: Json) -> None:
        """Act on one message."""
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case str(method) if self.script is not None and method in SCRIPTED:
                self.write(filled(request, self.script))
            case "server/discover" if self.modern:
                supported = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
                self.reply(request, supported | {"ttlMs": 0, "cacheScope": "private"})
            case "initialize" if not self.modern:
                info = {"name": "wire", "version": "1"}
                version = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
                self.reply(request, version)
            case "tools/list":
                self.reply(request, {"tools": [*TOOLS, TASK], "ttlMs": 0, "cacheScope": "private"})
            case "tools/call":
                self.call(request, params)
            case "prompts/get" | "resources/read" | "completion/complete" as method:
                self.tell(method, request, params)
            case "ping":
                self.reply(request, {})
            case None if request in self.asked:
                self.reply(self.asked.pop(request), text(json.dumps(message.get("result"))))
            case _ if request is not None:
                self.send({"id": request, "error": {"code": -32601, "message": "not found"}})

    def tell(self, method: str, request: object, params: Json) -> None:
        """Report progress if that is wanted, and answer with the params; if it names "ask", ask for the roots first."""
        token, named = (params.get("_meta") or {}).get("progressToken"), params.get("name") or params.get("uri")
        if token is not None:
            self.send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        said = json.dumps(params)
        if self.modern and named == "ask" and "inputResponses" not in params:
            self.require_roots(request)
        elif method == "prompts/get":
            self.reply(request, {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]})
        elif method == "resources/read":
            page = {"ttlMs": 0, "cacheScope": "private"}
            self.reply(request, {"contents": [{"uri": named, "text": said}], **page})
        else:
            self.reply(request, {"completion": {"values": [said]}})

    def call(self, request: object, params: Json) -> None:
        """Call a tool."""
        arguments = params.get("arguments") or {}
        match params["name"]:
            case "say":
                self.put("".join(filled(request, line) + "\n" for line in arguments["lines"]).encode())
            case "ask":
                self.ask(request, params)
            case "echo":
                self.reply(request, text(json.dumps([request, params])))
            case "mute":
                self.muted.append(request)
            case "ask again":
                self.require_roots(request)
            case "task":
                self.refuse(request, params)
            case _:
                self.misbehave(request, params["name"], arguments)

    def misbehave(self, request: Any, tool: str, arguments: Json) -> None:
        """Call a tool that does what a process can do wrong."""
        match tool:
            case "raw":
                self.put(arguments.get("before", "").encode() * arguments.get("times", 1))
                self.put(filled(request, arguments["text"]).encode())
            case "guess":
                self.reply(request, text("guessed"))
                self.guess(request, arguments)
            case "stall":
                self.reply(request, text("stalled"))
                wait_for(arguments["until"])
                os.close(sys.stdin.fileno())
                time.sleep(600)
            case "finish":
                os.close(sys.stdin.fileno())
                with open(arguments["when"]) as fifo:
                    fifo.read()
                self.reply(request, text("finished"))
                time.sleep(600)
            case "deaf":
                os.close(sys.stdin.fileno())
                self.reply(request, text("deaf"))
                time.sleep(60)  # it goes on, and reads nothing more
            case "slowly":
                whole = json.dumps({"jsonrpc": "2.0", "id": request, "result": text("slow")}) + "\n"
                for byte in whole.encode():
                    self.put(bytes([byte]))
                    time.sleep(0.0005)

    def guess(self, request: Any, arguments: Json) -> None:
        """Answer what may be asked next, before it is read; say so, and read on once that was noticed."""
        wait_for(arguments["asked"])
        for number in [*range(1, 50), *range(request + 1, request + 5)]:
            self.reply(number, text("a guess"))
        self.send({"method": "notifications/message", "params": {"level": "info", "data": "guessed"}})
        wait_for(arguments["noticed"])


def wait_for(path: str) -> None:
    """Wait until there is a file."""
    while not os.path.exists(path):
        time.sleep(0.001)


def main() -> None:
    """Serve until stdin ends."""
    server = Server(sys.argv[1], put)
    with open(sys.argv[2], "ab", buffering=0) as log:
        for line in sys.stdin.buffer:
            os.write(log.fileno(), line)
            server.take(json.loads(line))


if __name__ == "__main__":
    main()
