"""Connect a client's pipes with a scripted server, as its process.

It is a program, run as ``python _relay.py PORT TOKEN``: it connects to that port of the loopback address, and sends the
token and its process id in a line. Then it passes bytes on, from stdin in a thread, and to stdout. It exits when the
server closes the connection. It imports only the standard library, because tests start many of it, and it knows nothing
of MCP: the server is in the process of the test, which can kill or suspend this one at any moment.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    """Pass bytes on in both directions until either side ends."""
    port, token = sys.argv[1:]
    server = socket.create_connection(("127.0.0.1", int(port)))
    # Otherwise the second of two messages in a row would wait for the delayed acknowledgement of the first, 40 ms.
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    server.sendall(f"{token} {os.getpid()}\n".encode())
    threading.Thread(target=pass_stdin_on, args=(server,), daemon=True).start()
    while data := server.recv(65536):
        while data:
            data = data[os.write(1, data) :]
    os._exit(0)


def pass_stdin_on(server: socket.socket) -> None:
    """Send what the client writes, and its end."""
    while data := os.read(0, 65536):
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
