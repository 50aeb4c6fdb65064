"""A server whose calls end when a test says so, and which may hang. Standard library only."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOCK = threading.Lock()


def write(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(request: dict[str, Any]) -> None:
    """Carry out a call: ``wait`` ends once the file ``go`` exists, ``big`` at once, with a megabyte."""
    text = "x" * 1_000_000
    if request["params"]["name"] == "wait":
        (Path(sys.argv[1]) / "begun").touch()
        while not (Path(sys.argv[1]) / "go").exists():
            time.sleep(0.01)
        text = "done"
    write({"id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        method = request["method"]
        if "id" not in request:
            continue
        if method == "tools/call":
            threading.Thread(target=call, args=[request], daemon=True).start()
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("wait", "big")]
            write({"id": request["id"], "result": {"tools": tools}})
        elif method == "initialize":
            (Path(sys.argv[1]) / "starting").touch()
            while "--hangs" in sys.argv:
                time.sleep(1)
            info = {"serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}
            result = {"protocolVersion": request["params"]["protocolVersion"], **info}
            write({"id": request["id"], "result": result})
        else:
            write({"id": request["id"], "error": {"code": -32601, "message": "unknown"}})
    if "--lingers" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


if __name__ == "__main__":
    main()
