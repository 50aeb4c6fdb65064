"""A daemon for the tests of `attach`: one line, one message, and it does what the messages say.

It is run as ``line_server.py SOCKET LEDGER MODE``. Every line that it reads is appended to the ledger, behind the id of
its process; but what says where the client works is appended to another file. It uses the standard library only, so it
starts in 20 ms.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes as long as the start of an interpreter
    from typing import Any


def main(path: str, ledger: str, mode: str) -> None:
    if mode == "fail":
        print("first line\nerror: the file is \x1b[31mwrong\x1b[0m", file=sys.stderr)
        sys.exit(1)
    if mode.startswith("slow"):
        time.sleep(float(mode.removeprefix("slow")))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(512)
    with open(f"{ledger}.starts", "a+") as starts:
        starts.write(f"{os.getpid()}\n")
        starts.seek(0)
        number = len(starts.readlines())
    print("ready", flush=True)
    if mode == "second reads nothing" and number == 2:
        time.sleep(600)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        connection, _ = listener.accept()
        if mode == "refuse":
            connection.close()
            continue
        threading.Thread(target=serve, args=(connection, ledger), daemon=True).start()


def serve(connection: socket.socket, ledger: str) -> None:
    at_end = []
    with connection, connection.makefile("rb") as lines, open(ledger, "a", buffering=1) as log:
        for line in lines:
            if line.isspace():
                continue
            message = json.loads(line)
            method = message.get("method")
            if method == "notifications/mcp_actors/directory":
                with open(f"{ledger}.directories", "a") as directories:
                    directories.write(json.dumps(message["params"]) + "\n")
                continue
            log.write(json.dumps([os.getpid(), message]) + "\n")
            if method is None or "id" not in message:
                continue
            if message.get("params", {}).get("at_end"):
                at_end.append(message["id"])
            elif message.get("params", {}).get("refuse"):
                answer(connection, message["id"], {"code": -32602, "message": "no"}, "error")
            elif method in ("tools/call", "tools/list", "server/discover"):
                do(connection, message)
            else:
                answer(connection, message["id"], {"method": method})
        for id in at_end:
            answer(connection, id, {})


def do(connection: socket.socket, message: dict[str, Any]) -> None:
    wanted = message.get("params", {})
    for line in wanted.get("say", ()):
        connection.sendall(line.encode() + b"\n")
    if "nap" in wanted:
        time.sleep(wanted["nap"])
    if wanted.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if not wanted.get("hang"):
        answer(connection, message["id"], {"pid": os.getpid(), "big": "x" * wanted.get("big", 0)})


def answer(connection: socket.socket, id: object, result: object, kind: str = "result") -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": id, kind: result}, separators=(",", ":"))
    connection.sendall(text.encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
