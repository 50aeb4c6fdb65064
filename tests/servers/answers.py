"""Draw answers of a server, to compare the ways by which a request may go.

They are taken from answers of MCP's reference server, as it wrote them, and from answers that are made here; and are
changed here and there, as servers get things wrong and as later revisions add fields.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

BY_SESSION: Final = {"k": 1}
"""A ``_meta`` of the caller: in a test with the mark ``own_way``, such a call over a pipe has a task."""

METHODS: Final = (
    *("tools/call", "resources/read", "prompts/get", "completion/complete"),
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
)

RECORDED: Final = [
    line.split(" ", 1) for line in Path(__file__).with_name("reference_answers.txt").read_text().splitlines()
]
"""What @modelcontextprotocol/server-everything 2026.8.31 answered to its client: method and line."""

BLOCKS: Final[tuple[Json, ...]] = (
    {"type": "text", "text": "x"},
    {"type": "image", "data": "eA==", "mimeType": "image/png"},
    {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
    {"type": "resource_link", "name": "n", "uri": "file:///x"},
    {"type": "resource", "resource": {"uri": "file:///x", "text": "x"}},
)

PAGE: Final[Json] = {"ttlMs": 0, "cacheScope": "private"}

MADE: Final[tuple[tuple[str, Json], ...]] = (
    (
        "tools/call",
        {"content": [*BLOCKS], "structuredContent": {"a": [1, None]}, "isError": True, "_meta": {"k": 1}},
    ),
    ("tools/call", {"content": [], "resultType": "complete"}),
    ("resources/read", {"contents": [{"uri": "file:///x", "blob": "eA=="}], "ttlMs": 5, "cacheScope": "public"}),
    ("tools/call", {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}}),
    ("resources/read", {"resultType": "input_required", "requestState": "halfway"}),
    ("tools/list", PAGE | {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in ("a", "b", "a")]}),
    ("prompts/list", PAGE | {"prompts": [{"name": f"prompt-{number}"} for number in range(40)]}),
    ("resources/list", PAGE | {"resources": [{"uri": "x:a", "name": "a"}], "nextCursor": "more"}),
    ("resources/templates/list", PAGE | {"resourceTemplates": [{"uriTemplate": "x:{a}", "name": "a"}]}),
    ("completion/complete", {"completion": {"values": ["a", "b"], "total": 2, "hasMore": False}}),
    ("prompts/get", {"description": "d", "messages": [{"role": "assistant", "content": each} for each in BLOCKS]}),
)

FIELDS: Final = (
    *("content", "structuredContent", "isError", "_meta", "resultType", "ttlMs", "cacheScope", "requestState"),
    *(
        "inputRequests",
        "contents",
        "messages",
        "description",
        "annotations",
        "x",
        "task",
        "nextCursor",
        "completion",
        "tools",
        "prompts",
    ),
)

RESULT_TYPES: Final = ("complete", "input_required")

ERRORS: Final = (-32603, -32601, -32602, -32700, -32000, -32001, -32042, 7, 0, 2**40)


class Answers:
    """Draws answers, valid and not."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def likely(self, share: float) -> bool:
        """Return True in this share of all cases."""
        return self.draw.random() < share

    def value(self, depth: int = 0) -> Any:
        """Return any value of JSON."""
        kinds: list[Any] = [
            None,
            True,
            0,
            -1,
            1.5,
            "",
            "text",
            "complete",
            "input_required",
            "é\u2028\x00",
            2**70,
            -(2**63),
            1e300,
        ]
        if depth < 2:
            kinds += [[self.value(depth + 1)], {"type": self.value(depth + 1)}, {}, [], {"a": self.value(depth + 1)}]
        return self.draw.choice(kinds)

    def error(self) -> Any:
        """Return an error."""
        members: Json = {"code": self.draw.choice(ERRORS), "message": "no"}
        if self.likely(0.5):
            members["data"] = self.value()
        return self.changed(members) if self.likely(0.5) else members

    def changed(self, tree: Any) -> Any:
        """Change a value somewhere: replace, remove, add, wrap or double it."""
        if not isinstance(tree, dict | list) or not tree or self.likely(0.15):
            return self.draw.choice([self.value(), [tree], {"a": tree}])
        key: Any = self.draw.choice([*tree]) if isinstance(tree, dict) else self.draw.randrange(len(tree))
        how = self.draw.choice(["deeper", "deeper", "deeper", "remove", "add", "add"])
        if how == "deeper":
            tree[key] = self.changed(tree[key])
        elif how == "remove":
            del tree[key]
        elif isinstance(tree, dict):
            tree[self.draw.choice(FIELDS)] = self.value()
        else:
            tree.append(copy.deepcopy(tree[key]))
        return tree

    def spelled(self, line: str) -> str:
        """Write a line in another way; rarely one that is not JSON."""
        member = '"result":{"content":[]},'
        spellings: list[Callable[[], str]] = [
            lambda: line.replace("$id", "$text"),
            lambda: line.replace(":", " : ").replace(",", " , "),
            lambda: json.dumps(json.loads(line.replace("$id", '"$id"'))).replace('"$id"', "$id"),
            lambda: line + "\r",
            lambda: "{" + member + line[1:],
            lambda: line[:-1] + "," + member[:-1] + "}",
            lambda: line.replace("1", "NaN", 1),
            lambda: line[: -self.draw.randrange(1, 9)],
            lambda: line.replace("2.0", "1.0"),
            lambda: line.replace('"2.0",', '"2.0","method":null,'),
            lambda: line.replace('"2.0",', '"2.0","x":' + "[" * 300 + "]" * 300 + ","),
        ]
        return self.draw.choice(spellings)()

    def line(self) -> str:
        """Return the answer to a call of a tool."""
        while True:
            method, line = self.plain_answer()
            if method == "tools/call":
                return line

    def answer(self) -> tuple[str, str]:
        """Return a method, and the line that answers it, perhaps in an unusual spelling."""
        method, line = self.plain_answer()
        return method, self.spelled(line) if self.likely(0.15) else line

    def plain_answer(self) -> tuple[str, str]:
        """Return a method, and the line that answers it."""
        if self.likely(0.5):
            method, line = self.draw.choice(RECORDED)
            members = json.loads(line.replace('"id":$id', '"id":0'))
            del members["jsonrpc"], members["id"]
        else:
            method, result = self.draw.choice(MADE)
            members = {"result": copy.deepcopy(result)}
            line = written(members)
        if self.likely(0.1):
            method = self.draw.choice(METHODS)
        if self.likely(0.15):
            members, line = {"error": self.error()}, ""
        if self.likely(0.05):
            members |= {"error": self.error()}
            line = ""
        if self.likely(0.7):
            for _ in range(self.draw.choice([1, 1, 2, 3])):
                top = self.draw.choice([*members])
                members[top] = self.changed(members[top])
            line = ""
        return method, line or written(members)


def written(members: Json) -> str:
    """Return a response."""
    return '{"jsonrpc":"2.0","id":$id,' + json.dumps(members)[1:]
