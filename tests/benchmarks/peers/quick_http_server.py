"""The quick server over streamable HTTP, with kept-alive connections. Standard library only.

Run as ``python quick_http_server.py KIND``; it prints its URL, and ends when its stdin does. KIND is ``json`` for
answers in plain JSON, or ``events`` for a stream of events, in chunks, for each: the answer, and progress if wanted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

if __package__:
    from .quick_server import answer, report
else:
    from quick_server import answer, report  # type: ignore[import-not-found,no-redef]  # run as a script, like quick_server


def respond(method: str, body: bytes) -> tuple[HTTPStatus, bytes]:
    """Return what an HTTP request is answered with; there is no stream of notifications and no session to end."""
    if method != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED, b""
    message = json.loads(body)
    if "id" not in message:
        return HTTPStatus.ACCEPTED, b""
    return HTTPStatus.OK, json.dumps(answer(message), separators=(",", ":")).encode()


def events(*messages: bytes) -> bytes:
    """Return a stream that ends after these events."""
    each = [b"event: message\ndata: %b\n\n" % message for message in messages]
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in each) + b"0\r\n\r\n"


async def serve(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until the client closes it."""
    while request := await reader.readline():
        length = 0
        while (header := await reader.readline()).strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message = await reader.readexactly(length)
        status, body = respond(request.split()[0].decode(), message)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        if kind == "events" and body:
            head += "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            progress = [told] if (told := report(json.loads(message)).strip()) else []
            writer.write(head.encode() + events(*progress, body))
        else:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
    writer.close()


async def main() -> None:
    """Serve until stdin ends."""
    server = await asyncio.start_server(partial(serve, sys.argv[1]), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextmanager
def running(kind: str) -> Iterator[str]:
    """Run the server in a process of its own; yield its URL."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-E", __file__, kind], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    asyncio.run(main())
