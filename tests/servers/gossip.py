"""A server that repeats its credentials in every possible way; a process without dependencies.

``--exit`` ends it before it serves, and so does ``--long``, after long last words. Else its tools do what they are
called: ``error`` is answered with an error, ``misfit`` with an invalid result, ``data`` with a result, ``end`` ends it;
and ``noise`` writes to stderr and to stdout. With ``--schemas``, the tools ``shape`` and ``other`` have output schemas
that repeat it too, and are answered with results that are not as these say. The environment variable ``GOSSIP`` is what
it repeats, and ``FORM`` how: ``plain``, ``upper``, ``json``, ``url``, or with a character that is not drawn in it
(``hidden``), or an escape sequence (``escape``).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper": str.upper,
    "json": lambda text: json.dumps(text)[1:-1],
    "hidden": lambda text: f"{text[:6]}\u200b{text[6:]}",
    "escape": lambda text: f"{text[:6]}\x1b[0m{text[6:]}",
    "url": lambda text: quote(text, safe=""),
}
GOSSIP = FORMS[os.environ.get("FORM", "plain")](os.environ["GOSSIP"])
TOOLS: dict[str, dict[str, Any]] = {
    "error": {},
    "misfit": {},
    "data": {},
    "end": {},
    "noise": {},
}
if "--schemas" in sys.argv:
    TOOLS |= {
        "shape": {"outputSchema": {"type": "object", "properties": {"of": {"enum": [GOSSIP]}, "as": {"const": "x"}}}},
        "other": {"outputSchema": {"type": "object", "properties": {"of": {"enum": [GOSSIP]}}}},
    }


def say(text: str) -> None:
    """Write to stderr, in two pieces that part what is repeated."""
    middle = text.find(GOSSIP) + len(GOSSIP) // 2
    for piece in (text[:middle], text[middle:]):
        sys.stderr.write(piece)
        sys.stderr.flush()
        time.sleep(0.01)


def call(tool: str) -> dict[str, Any]:
    """Do what a tool does, and return the members of the answer."""
    if tool == "error":
        return {"error": {"code": -32001, "message": f"token={GOSSIP} is invalid", "data": {"given": [GOSSIP]}}}
    if tool == "misfit":
        return {"result": {"content": 5, GOSSIP: GOSSIP}}
    if tool in ("shape", "other"):
        structured = {"as": GOSSIP} if tool == "shape" else {"of": "x"}
        return {"result": {"content": [], "structuredContent": structured}}
    if tool == "end":
        # More than is kept of stderr, and a line that is longer than what is logged as one.
        say("x" * 100_000 + f"token={GOSSIP}" + "y" * (64 * 1024 - len(GOSSIP) // 2) + "\n")
        sys.exit(3)
    if tool == "noise":
        say(f"token={GOSSIP} is invalid\n")
        print(f"{'x' * 60} token={GOSSIP}", flush=True)
    return {"result": {"content": [{"type": "text", "text": GOSSIP}]}}


def main() -> None:
    """Serve."""
    if "--long" in sys.argv:
        # What is kept of it begins in the middle of what is repeated.
        say("x" * 100_000 + GOSSIP + "y" * (64 * 1024 - len(GOSSIP.encode()) // 2))
        sys.exit(3)
    if "--exit" in sys.argv:
        say(f"token={GOSSIP} is invalid\n")
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"result": {}}
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "gossip", "version": "1"}
            answer = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        elif message["method"] == "tools/list":
            answer = {
                "result": {
                    "tools": [{"name": each, "inputSchema": {"type": "object"}, **more} for each, more in TOOLS.items()]
                }
            }
        elif message["method"] == "tools/call":
            answer = call(message["params"]["name"])
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
