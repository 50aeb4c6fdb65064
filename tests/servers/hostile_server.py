"""A real MCP server in a real process that is up to no good, in the standard library only.

What it lists is said by its arguments; what else it does, by the tool that is called. It speaks newline-delimited
JSON-RPC in the legacy era.

Run as ``python hostile_server.py --values 1000000 …``; `hostile` configures it for a test.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # the imports are a third of the time that it takes to start this, and tests start thousands
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Json: TypeAlias = dict[str, Any]

CHANGED = "notifications/tools/list_changed"

QUESTION: Json = {
    "messages": [],
    "maxTokens": 1,
    "message": "?",
    "requestedSchema": {"type": "object", "properties": {}},
}

IN_ONE_TOOL = 20_000
"""Values: a tool with so many is within the limits by itself."""


def parse_flags() -> argparse.Namespace:
    """Read the ways to be hostile from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=0, metavar="N", help="list so many tiny values, in many tools")
    parser.add_argument("--tools", type=int, default=0, metavar="N", help="list so many small tools")
    parser.add_argument("--pages", choices=["endless", "empty", "long"], help="what cursors are like")
    parser.add_argument("--notice", action="store_true", help="give notice of a change after each list")
    return parser.parse_args()


class HostileServer:
    """One connection."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.pages = 0
        self.writing = threading.Lock()

    def run(self) -> None:
        """Answer whatever comes, until there is no more."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.answer(message["id"], message["method"], message.get("params") or {})

    def answer(self, request: object, method: str, params: Json) -> None:
        """Answer one request."""
        match method:
            case "initialize":
                info = {"name": "hostile", "version": "1"}
                tools = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}}
                version = params["protocolVersion"]
                self.reply(request, {"protocolVersion": version, "capabilities": tools, "serverInfo": info})
            case "tools/list":
                self.reply(request, {"tools": self.tools(), **self.cursor()})
                if self.flags.notice:
                    self.notify(CHANGED)
            case "resources/list":
                resources = [{"name": f"r{n}", "uri": f"x:{n}", "_meta": meta} for n, meta in self.crowd("a") * 2]
                self.reply(request, {"resources": resources, **self.cursor()})
            case "tools/call":
                mischief: Callable[[object, Json], None] = getattr(self, f"call_{params['name']}")
                mischief(request, params.get("arguments") or {})
            case "ping" | "resources/subscribe" | "resources/unsubscribe":
                self.reply(request, {})
            case _:
                error = {"code": -32601, "message": f"Method not found: {method}"}
                self.write({"jsonrpc": "2.0", "id": request, "error": error})

    # --- what it lists ----------------------------------------------------------------------------------------------

    def tools(self) -> list[Json]:
        """The tools, each within the limits."""
        names = [name.removeprefix("call_") for name in dir(self) if name.startswith("call_")]
        small = [{"name": name, "inputSchema": {"type": "object"}} for name in names if not self.pages]
        large = [{"name": f"t{n}", "inputSchema": {"type": "object", **values}} for n, values in self.crowd("enum")]
        more = [{"name": f"s{n}", "inputSchema": {"type": "object"}} for n in range(self.flags.tools)]
        return small + more + large

    def crowd(self, key: str) -> list[tuple[int, Json]]:
        """Objects with all the values."""
        return [(n, {key: [1] * IN_ONE_TOOL}) for n in range(self.flags.values // IN_ONE_TOOL)]

    def cursor(self) -> Json:
        """The cursor to the next page."""
        self.pages += 1
        cursors = {"endless": f"page {self.pages}", "empty": "", "long": "x" * 100_000}
        return {} if self.flags.pages is None else {"nextCursor": cursors[self.flags.pages]}

    # --- what its tools do ------------------------------------------------------------------------------------------

    def call_echo(self, request: object, arguments: Json) -> None:
        """Be good."""
        self.reply(request, text(arguments.get("text", "")))

    def call_burst(self, request: object, arguments: Json) -> None:
        """Send so many notifications of one kind at once, before the answer."""
        for number in range(arguments["number"]):
            self.notify(arguments["method"], **(arguments.get("params") or {"level": "info", "data": number}))
        self.reply(request, text("done"))

    def call_strangers(self, request: object, arguments: Json) -> None:
        """Answer, report progress of and cancel requests that do not exist; then answer twice."""
        for stranger in (10**6, "mine", None, True, -1, 1.5):
            self.reply(stranger, text("for nobody"))
            self.notify("notifications/progress", progressToken=stranger, progress=1)
            self.notify("notifications/cancelled", requestId=stranger)
        for _ in range(2):
            self.reply(request, text("done"))

    def call_questions(self, request: object, arguments: Json) -> None:
        """Ask so many things at once, whether this side said that it answers or not."""
        for number in range(arguments["number"]):
            self.write({"jsonrpc": "2.0", "id": f"q{number}", "method": arguments["method"], "params": QUESTION})
        self.reply(request, text("done"))

    def call_flood(self, request: object, arguments: Json) -> None:
        """Ask questions without end; stop reading after a notice, or keep answering meanwhile."""
        if arguments.get("reads"):
            threading.Thread(target=self.flood, args=(arguments,), daemon=True).start()
            self.reply(request, text("done"))
        else:
            self.reply(request, text("done"))
            self.flood(arguments)

    def flood(self, arguments: Json) -> None:
        """Ask, and take back some of it if that is wanted, as fast as the other side reads."""
        for number in itertools.count():
            request = number % arguments["ids"] if "ids" in arguments else number
            self.write({"jsonrpc": "2.0", "id": request, "method": arguments["method"], "params": QUESTION})
            if arguments.get("takes_back"):
                self.notify("notifications/cancelled", requestId=request)

    def call_storm(self, request: object, arguments: Json) -> None:
        """Write a line without end, to stdout or to stderr; answer before, or never.

        In the line ID stands for the id of the request, and FILL for a long text.
        """
        part = arguments["part"].replace("ID", json.dumps(request)).replace("FILL", "x" * arguments.get("fill", 0))
        part = part.encode("latin-1")
        line = part * arguments.get("times", 1) + arguments.get("end", "\n").encode()
        lines = line * max(1, 65_536 // len(line))
        if arguments.get("answers", True):
            self.reply(request, text("done"))
        threading.Thread(target=self.storm, args=(arguments.get("stream", 1), lines), daemon=True).start()

    def storm(self, stream: int, lines: bytes) -> None:
        """Write as fast as the other side reads."""
        while True:
            with self.writing:
                write_all(stream, lines)

    def call_crowd(self, request: object, arguments: Json) -> None:
        """Answer with so many values."""
        content = b'{"content":[],"structuredContent":{"a":[' + b"1," * arguments["number"] + b"1]}}"
        self.write_raw(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(request).encode(), content))

    def call_long(self, request: object, arguments: Json) -> None:
        """Answer with so many bytes, and say first or last whom; values as wanted."""
        begin, end = b'{"jsonrpc":"2.0"', b"}"
        id_ = b',"id":%s' % json.dumps(request).encode()
        if arguments.get("id_last"):
            end = id_ + end
        else:
            begin += id_
        sys.stdout.buffer.write(begin + b',"result":{"content":[],"structuredContent":{"a":[1')
        part = arguments["part"].encode() * 10_000
        for _ in range(arguments["bytes"] // len(part)):
            sys.stdout.buffer.write(part)
        self.write_raw(b"]}}" + end)

    def call_last_words(self, request: object, arguments: Json) -> None:
        """Answer without a line end, and exit."""
        answer = json.dumps({"jsonrpc": "2.0", "id": request, "result": text("goodbye")})
        sys.stdout.buffer.write(answer.encode())
        sys.stdout.buffer.flush()
        os._exit(0)

    def call_nan(self, request: object, arguments: Json) -> None:
        """Answer with what JSON does not have."""
        self.reply(request, {**text("done"), "structuredContent": {"a": float("nan"), "b": float("inf")}})

    def call_repeat(self, request: object, arguments: Json) -> None:
        """Send a line, in which an item is repeated and ``$id`` is the id of this request, then an answer."""
        line = arguments["line"].replace("$id", json.dumps(request))
        line = line.replace("$items", ",".join([arguments["item"]] * arguments["number"]))
        for _ in range(arguments.get("times", 1)):
            self.write_raw(line.encode())
        self.reply(request, text("done"))

    # --- the wire ---------------------------------------------------------------------------------------------------

    def reply(self, request: object, result: Json) -> None:
        """Send a result."""
        self.write({"jsonrpc": "2.0", "id": request, "result": result})

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message: Json) -> None:
        """Send a message."""
        self.write_raw(json.dumps(message, separators=(",", ":")).encode())

    def write_raw(self, line: bytes) -> None:
        """Send a line."""
        with self.writing:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()


def write_all(stream: int, data: bytes) -> None:
    """Write all of it, so that lines stay whole."""
    while data:
        data = data[os.write(stream, data) :]


def text(content: str) -> Json:
    """Return the result of a tool that says something."""
    return {"content": [{"type": "text", "text": content}]}


if __name__ == "__main__":
    HostileServer(parse_flags()).run()
