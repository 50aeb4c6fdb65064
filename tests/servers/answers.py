"""Draw answers of a server to ``tools/call``, to compare the ways by which a request may go."""

from __future__ import annotations

import json
import random
from typing import Any, Final

BY_SESSION: Final = {"k": 1}
"""A ``_meta`` of the caller: such a request takes the way of the SDK's session."""

BLOCKS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "text", "text": "x"},
    {"type": "image", "data": "eA==", "mimeType": "image/png"},
    {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
    {"type": "resource_link", "name": "n", "uri": "file:///x"},
    {"type": "resource", "resource": {"uri": "file:///x", "text": "x"}},
)


class Answers:
    """Draws answers, valid and not, with what later revisions add and what servers get wrong."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def likely(self, share: float) -> bool:
        """Return True in this share of all cases."""
        return self.draw.random() < share

    def value(self, depth: int = 0) -> Any:
        """Return any value of JSON."""
        kinds: list[Any] = [None, True, 0, -1, 1.5, "", "text", 2**70]
        if depth < 2:
            kinds += [[self.value(depth + 1)], {"type": self.value(depth + 1)}, {}]
        return self.draw.choice(kinds)

    def item(self) -> Any:
        """Return a content block."""
        each = dict(self.draw.choice(BLOCKS))
        if self.likely(0.3):
            each[self.draw.choice([*each, "annotations", "_meta", "extra"])] = self.value()
        return each if self.likely(0.95) else self.value()

    def result(self) -> Any:
        """Return a result of ``tools/call``."""
        members: dict[str, Any] = {"content": [self.item() for _ in range(self.draw.randrange(3))]}
        for key in ("structuredContent", "isError", "_meta", "resultType", "ttlMs", "cacheScope", "requestState", "x"):
            if self.likely(0.15):
                members[key] = self.draw.choice([self.value(), "complete", {"a": 1}])
        if self.likely(0.1):
            del members["content"]
        return members if self.likely(0.95) else self.value()

    def error(self) -> Any:
        """Return an error."""
        code = self.draw.choice([-32603, -32601, -32700, 7, self.value()])
        members: dict[str, Any] = {"code": code, "message": "no"}
        if self.likely(0.5):
            members["data"] = self.value()
        if self.likely(0.2):
            members[self.draw.choice(["code", "message"])] = self.value()
        return members if self.likely(0.9) else self.value()

    def line(self) -> str:
        """Return a response."""
        members = {"result": self.result()} if self.likely(0.8) else {"error": self.error()}
        if self.likely(0.05):
            members |= {"error": self.error()}
        return '{"jsonrpc":"2.0","id":$id,' + json.dumps(members)[1:]
