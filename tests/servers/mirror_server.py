"""A server that notes every byte it is sent, and answers every request of both eras. Standard library only.

Run as ``python mirror_server.py ERA KIND LOG``. ERA is ``legacy`` or ``modern``. KIND is ``stdio``; or ``json`` or
``events`` for streamable HTTP on the loopback interface, and then the port is printed first. Each message is appended
to the file LOG before it is answered, as one line of JSON with the HTTP verb and headers, if there are any.

The tools are the ways to have a server say something before it answers. While there is a file LOG with ``.script`` at
its end, requests of the method in its first line are answered with the rest of it, in which ``$id`` is the id.
"""

from __future__ import annotations

import json
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # the imports are a third of the time that it takes to start this
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from typing import Any, TypeAlias

    Json: TypeAlias = dict[str, Any]
    Send: TypeAlias = Callable[[Json], None]

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
METHOD_NOT_FOUND = -32601

CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "resources": {"subscribe": True, "listChanged": True},
}
REGION = {"type": "string", "x-mcp-header": "Region"}
COUNT = {"type": "integer", "x-mcp-header": "Count"}
TOOLS: list[Json] = [
    *({"name": name, "inputSchema": {"type": "object"}} for name in ("say", "ask", "mute", "wörk")),
    {"name": "where", "inputSchema": {"type": "object", "properties": {"region": REGION, "count": COUNT}}},
    {
        "name": "shaped",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
]
SECOND = "second page"


def command(era: str, kind: str, log: str) -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server; ``-S -E`` saves half of its start."""
    return sys.executable, ("-S", "-E", __file__, era, kind, log)


class Mirror:
    """One run of the server, over whatever transport."""

    def __init__(self, era: str, log: str) -> None:
        self.modern = era == "modern"
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.script = f"{log}.script"
        self.lock = threading.Lock()
        self.questions = 0
        self.open: dict[object, tuple[set[object], Callable[[], None]]] = {}

    def note(self, **entry: object) -> None:
        """Append to the log, in one write."""
        os.write(self.log, json.dumps(entry).encode() + b"\n")

    def scripted(self, message: Json) -> bytes | None:
        """Return the answer of the script to a message, if there is one."""
        try:
            with open(self.script, encoding="utf-8") as file:
                method, _, line = file.read().partition("\n")
        except FileNotFoundError:
            return None
        if "id" not in message or message.get("method") != method:
            return None
        return line.replace("$id", json.dumps(message["id"])).replace("$text", json.dumps(str(message["id"]))).encode()

    def take(self, message: Json, send: Send) -> None:
        """Act on one message; `send` reaches the client with anything about it."""
        request, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            self.answered(request)
        elif request is not None and method == "tools/call":
            self.call(request, params, send)
        elif request is not None and method == "subscriptions/listen" and self.modern:
            about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: request}}
            send({"method": "notifications/subscriptions/acknowledged", "params": about})
        elif request is not None:
            self.reply(request, self.result(method, params), send)

    def reply(self, request: object, result: Json | None, send: Send) -> None:
        """Answer a request; None is an error."""
        if result is None:
            send({"id": request, "error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}})
        else:
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.modern else {}
            send({"id": request, "result": more | result})

    def result(self, method: str, params: Json) -> Json | None:
        """Return what a request is answered with."""
        identity = {"name": "mirror", "version": "1"}
        if method == "server/discover" and self.modern:
            about = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
            return about | {"_meta": {SERVER_INFO: identity}}
        if method == "initialize" and not self.modern:
            return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": identity}
        if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe") and not self.modern:
            return {}
        return self.page(method, params) or self.part(method)

    def page(self, method: str, params: Json) -> Json | None:
        """Return the first or the second page of a list."""
        items: dict[str, tuple[str, list[Json]]] = {
            "tools/list": ("tools", TOOLS),
            "prompts/list": ("prompts", [{"name": "greet"}, {"name": "leave"}]),
            "resources/list": ("resources", [{"uri": "a:b", "name": "a"}, {"uri": "a:c", "name": "c"}]),
            "resources/templates/list": ("resourceTemplates", [{"uriTemplate": f"a:{{{n}}}", "name": n} for n in "xy"]),
        }
        if method not in items:
            return None
        member, found = items[method]
        if params.get("cursor") == SECOND:
            return {member: found[1:]}
        return {member: found[:1], "nextCursor": SECOND}

    def part(self, method: str) -> Any:
        """Return a resource, a prompt or completions."""
        parts: Json = {
            "resources/read": {"contents": [{"uri": "a:b", "text": "x"}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]},
            "completion/complete": {"completion": {"values": ["x"]}},
        }
        return parts.get(method)

    # --- tools ------------------------------------------------------------------------------------------------------

    def call(self, request: object, params: Json, send: Send) -> None:
        """Call a tool."""
        arguments = params.get("arguments") or {}
        done: Json = {"content": [{"type": "text", "text": "done"}]}
        if params["name"] == "shaped":
            done |= {"structuredContent": {"a": 1}}
        for number in range(arguments.get("reports", 0)):
            told = {"progressToken": params["_meta"]["progressToken"], "progress": number + 1, "total": 2}
            send({"method": "notifications/progress", "params": told})
        if params["name"] == "mute":
            return
        if params["name"] != "ask":
            self.reply(request, done, send)
        elif self.modern:
            self.require(request, params, arguments, send)
        else:
            self.ask(arguments["questions"], lambda: self.reply(request, done, send), send)

    def require(self, request: object, params: Json, arguments: Json, send: Send) -> None:
        """Answer that input is required, as often as the call says; then answer."""
        rounds = int(params.get("requestState") or 0)
        if rounds == arguments.get("rounds", 1):
            self.reply(request, {"content": [{"type": "text", "text": "done"}]}, send)
            return
        questions = {f"q{number}": each for number, each in enumerate(arguments["questions"])}
        required = {"resultType": "input_required", "inputRequests": questions, "requestState": str(rounds + 1)}
        send({"id": request, "result": required})

    def ask(self, questions: list[Json], then: Callable[[], None], send: Send) -> None:
        """Ask all of this; go on once all is answered."""
        ids: list[object] = [f"question-{self.questions + number}" for number in range(len(questions))]
        self.questions += len(questions)
        waiting = set(ids)
        with self.lock:
            self.open |= dict.fromkeys(ids, (waiting, then))
        for each, question in zip(ids, questions, strict=True):
            send({"id": each, **question})

    def answered(self, question: object) -> None:
        """Go on if this was the last answer."""
        with self.lock:
            waiting, then = self.open.pop(question, (set(), lambda: None))
            waiting.discard(question)
            done = not waiting
        if done:
            then()


def serve_stdio(mirror: Mirror) -> None:
    """Serve one client until stdin ends."""

    def send(message: Json) -> None:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    for line in sys.stdin.buffer:
        mirror.note(message=json.loads(line))
        if (script := mirror.scripted(json.loads(line))) is None:
            mirror.take(json.loads(line), send)
        else:
            os.write(1, script + b"\n")


class Exchange:
    """The answer to one POST: plain JSON if nothing comes before it and `kind` says so, else a stream of events."""

    def __init__(self, handler: BaseHTTPRequestHandler, kind: str, headers: Json) -> None:
        self.handler = handler
        self.kind = kind
        self.headers = headers
        self.begun = False
        self.ended = threading.Event()

    def begin(self, **headers: str) -> None:
        """Send the head of the response."""
        self.begun = True
        self.handler.send_response(200)
        for name, value in {**self.headers, **headers}.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def send(self, message: Json) -> None:
        """Send a message; a response ends it."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode(), last="method" not in message)

    def write(self, data: bytes, *, last: bool) -> None:
        """Write a message, which may be the last."""
        if last and self.kind == "json" and not self.begun:
            self.begin(**{"Content-Type": "application/json", "Content-Length": str(len(data))})
            self.handler.wfile.write(data)
        else:
            if not self.begun:
                self.begin(**{"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            event = b"event: message\ndata: %b\n\n" % data
            self.handler.wfile.write(b"%x\r\n%b\r\n" % (len(event), event) + b"0\r\n\r\n" * last)
        if last:
            self.ended.set()


def handler_of(mirror: Mirror, kind: str) -> type[BaseHTTPRequestHandler]:
    """Return what answers HTTP requests."""
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

        def note(self, verb: str, message: Json | None = None) -> None:
            headers = [[name.lower(), value] for name, value in self.headers.items()]
            mirror.note(verb=verb, headers=headers, message=message)

        def finish_empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.note("POST", message)
            if "id" not in message or "method" not in message:
                self.finish_empty(202)
                mirror.take(message, lambda _: None)
                return
            session = {"Mcp-Session-Id": "session-1"} if message["method"] == "initialize" else {}
            exchange = Exchange(self, kind, session)
            if (script := mirror.scripted(message)) is None:
                mirror.take(message, exchange.send)
                exchange.ended.wait()
            else:
                exchange.write(script, last=True)

        def do_GET(self) -> None:
            self.note("GET")
            if mirror.modern:
                self.finish_empty(405)
                return
            Exchange(self, kind, {}).begin(**{"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            threading.Event().wait()

        def do_DELETE(self) -> None:
            self.note("DELETE")
            self.finish_empty(200)

    return Handler


def serve_http(mirror: Mirror, kind: str) -> None:
    """Serve any number of clients until stdin ends."""
    from http.server import ThreadingHTTPServer

    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(mirror, kind))
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def main(era: str, kind: str, log: str) -> None:
    """Serve until stdin ends."""
    mirror = Mirror(era, log)
    if kind == "stdio":
        serve_stdio(mirror)
    else:
        serve_http(mirror, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
