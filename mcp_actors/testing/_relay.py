"""Copy bytes between a client's pipes and a scripted server.

``python _relay.py PORT TOKEN`` connects to the port on loopback, sends a line with the token and the process id, and
copies bytes both ways until the server closes the connection. The server is in the test's process, so a test kills or
suspends this relay instead. Tests start many relays, so imports are few.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    port, token = sys.argv[1:]
    server = socket.create_connection(("127.0.0.1", int(port)))
    # With Nagle's algorithm, the second of two messages would wait 40 ms for the first one's acknowledgement.
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    server.sendall(f"{token} {os.getpid()}\n".encode())
    threading.Thread(target=pass_stdin_on, args=(server,), daemon=True).start()
    while data := server.recv(65536):
        while data:
            data = data[os.write(1, data) :]
    os._exit(0)


def pass_stdin_on(server: socket.socket) -> None:
    while data := os.read(0, 65536):
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
