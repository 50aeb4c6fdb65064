"""A real MCP server in a real process, in the standard library only, that asks back and tells things as it is bid.

It speaks both eras: in the legacy one it sends requests of its own, since 2026-07-28 it answers with what it needs
(``input_required``) and is asked again.

Run as ``python asking_server.py --era modern``; `command` builds that line for a test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the imports are a third of the time that it takes to start this, and tests start thousands
    from typing import Any, TypeAlias

    Json: TypeAlias = dict[str, Any]

METHOD_NOT_FOUND = -32601

MODERN = "2026-07-28"

META = "io.modelcontextprotocol/"

TOOLS = ("ask", "ask_later", "withdraw", "answers", "tell", "seen", "die", "silent", "guarded", "times")


def command(*flags: str) -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server with `flags`; ``-S -E`` saves half of its start."""
    return sys.executable, ("-S", "-E", __file__, *flags)


class AskingServer:
    """One run of the server."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.capabilities: Json = {}
        self.client: Json = {}
        self.level: str | None = None
        self.methods: list[str] = []
        self.asked = 0
        self.waiting: dict[str, tuple[object, dict[str, Json | None]]] = {}
        self.later: list[Json] = []
        self.calls = 0
        self.notices = ""

    def send(self, message: Json) -> None:
        """Send one message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n" + self.notices)
        sys.stdout.flush()
        self.notices = ""

    def serve(self) -> None:
        """Read and answer until stdin ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self.answered(message)
                continue
            self.methods.append(message["method"])
            self.take(message["method"], message.get("params") or {}, message.get("id"))

    def take(self, method: str, params: Json, id: object) -> None:
        """Look at one message, and answer it if it is to be answered at once."""
        meta = params.get("_meta") or {}
        self.capabilities = meta.get(META + "clientCapabilities", self.capabilities)
        self.client = meta.get(META + "clientInfo", self.client)
        self.level = meta.get(META + "logLevel", self.level)
        if method == "notifications/initialized" and self.flags.ask_at_start:
            self.ask(None, [{"method": self.flags.ask_at_start}])
        if id is None:
            return
        result = self.result(method, params, id)
        if result is not None and "error" in result:
            self.send({"id": id, **result})
        elif result is not None:
            self.reply(id, result)

    def reply(self, id: object, result: Json) -> None:
        """Answer a request."""
        if self.flags.era == "modern":
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.send({"id": id, "result": result})

    def result(self, method: str, params: Json, id: object) -> Json | None:
        """Return what a request is answered with; None for no answer now."""
        capabilities: Json = {"tools": {}, "logging": {}}
        match method:
            case "initialize" if self.flags.era == "legacy":
                self.capabilities, self.client = params["capabilities"], params["clientInfo"]
                identity = {"name": "asking", "version": "1.0"}
                return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": identity}
            case "server/discover" if self.flags.era == "modern":
                return {"supportedVersions": [MODERN], "capabilities": capabilities}
            case "logging/setLevel" if self.flags.era == "legacy" and not self.flags.no_levels:
                self.level = params["level"]
                return {}
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
            case "tools/call":
                return self.call(params, params.get("arguments") or {}, id)
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}}

    def call(self, params: Json, arguments: Json, id: object) -> Json | None:
        """Run a tool: the method of its name."""
        assert params["name"] in TOOLS
        if params["name"] == "ask":
            return self.ask_now(params, arguments["questions"], id)
        if params["name"] == "ask_later":
            self.reply(id, content("soon"))
            self.ask(None, arguments["questions"])
            return None
        result: Json | None = getattr(self, params["name"])(**arguments)
        return result

    def ask_now(self, params: Json, questions: list[Json], id: object) -> Json | None:
        """Ask the client these questions, all at once, and return the answers."""
        if self.flags.era == "legacy":
            self.ask(id, questions)
            return None
        if "inputResponses" in params:
            return content(list(params["inputResponses"].values()))
        requests = {f"q{number}": each for number, each in enumerate(questions)}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "state"}

    def withdraw(self) -> Json:
        """Take back all questions that were not answered."""
        for id in list(self.waiting):
            self.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        return content("withdrawn")

    def answers(self) -> Json:
        """Return the answers to what was asked later."""
        return content(self.later)

    def tell(self, notifications: list[Json]) -> Json:
        """Send these notifications."""
        for each in notifications:
            self.send(each)
        return content("told")

    def die(self, notifications: list[Json]) -> Json:
        """Send these notifications, and end at once."""
        self.tell(notifications)
        os._exit(9)

    def seen(self) -> Json:
        """Return the client's capabilities and name, the log level, and the methods of all messages."""
        known = {"capabilities": self.capabilities, "client": self.client, "level": self.level}
        return content({**known, "methods": self.methods})

    def guarded(self, data: Json, refusals: int, done: list[str]) -> Json:
        """Refuse the first calls with these data, and report pages as done in the same write."""
        self.calls += 1
        if self.calls > refusals:
            return content("in")
        notices = [{"method": "notifications/elicitation/complete", "params": {"elicitationId": id}} for id in done]
        self.notices = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in notices)
        return {"error": {"code": -32042, "message": "not yet", "data": data}}

    def times(self) -> Json:
        """Return how often `guarded` was called."""
        return content(self.calls)

    def silent(self) -> None:
        """Never answer."""

    def ask(self, call: object, questions: list[Json]) -> None:
        """Send requests, of which a call needs the answers, or none."""
        ids = [f"question {self.asked + number}" for number in range(len(questions))]
        self.asked += len(ids)
        answers: dict[str, Json | None] = dict.fromkeys(ids)
        for id, question in zip(ids, questions, strict=True):
            self.waiting[id] = call, answers
            self.send({"id": id, **question})

    def answered(self, message: Json) -> None:
        """An answer to a question has come."""
        call, answers = self.waiting.pop(message["id"])
        answers[message["id"]] = answer = message.get("result") or {"error": message.get("error")}
        if call is None:
            self.later.append(answer)
        elif all(each is not None for each in answers.values()):
            self.reply(call, content(list(answers.values())))


def content(value: object) -> Json:
    """Return a tool result that holds a value as JSON."""
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=["legacy", "modern"], default="legacy", help="which era it speaks")
    parser.add_argument("--ask-at-start", metavar="METHOD", help="ask this as soon as the session is initialized")
    parser.add_argument("--no-levels", action="store_true", help="refuse logging/setLevel")
    AskingServer(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
