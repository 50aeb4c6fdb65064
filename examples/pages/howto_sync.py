"""A program without an event loop that uses servers.

Prints::

    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
    ['Asia/Tokyo', 'Europe/Paris']
    no answer within five seconds: False
    200 {'timezone': 'Africa/Cairo', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, fail_after, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


def script() -> None:
    with open_servers(TIME) as servers:
        print(servers["time"].call("get_current_time", timezone="Europe/Paris"))


def several_threads() -> None:
    with ThreadPoolExecutor() as threads, open_servers(TIME) as servers:

        def ask(zone: str) -> str:
            answer = servers["time"].call("get_current_time", timezone=zone)
            return str(answer["timezone"])

        print(list(threads.map(ask, ["Asia/Tokyo", "Europe/Paris"])))


def with_a_limit() -> None:
    late = False
    with open_servers(TIME) as servers:
        try:
            with fail_after(5):
                servers["time"].call("get_current_time", timezone="Europe/Paris")
        except TimeoutError:
            late = True
    print("no answer within five seconds:", late)


class App:
    """A web application, as WSGI servers call it, each request in a thread."""

    servers: SyncServerGroup

    def __init__(self) -> None:
        self._stack = ExitStack()

    def start(self) -> None:
        """Open the servers: in each worker process, after the fork."""
        self.servers = self._stack.enter_context(open_servers(TIME))

    def stop(self) -> None:
        self._stack.close()

    def view(self, zone: str) -> tuple[int, Any]:
        try:
            answer = self.servers["time"].call("get_current_time", timezone=zone)
        except ServerError as error:  # the server is down, or slow
            return 503, str(error)
        return 200, answer


def web() -> None:
    app = App()
    app.start()
    try:
        print(*app.view("Africa/Cairo"))
    finally:
        app.stop()


if __name__ == "__main__":
    script()
    several_threads()
    with_a_limit()
    web()
