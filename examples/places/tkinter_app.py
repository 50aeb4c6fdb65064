"""Tkinter: open servers around the main loop, and call them in threads.

Run it with ``python tkinter_app.py``.
"""

from __future__ import annotations

import tkinter as tk
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


class Clock:
    """A window that shows the time in a zone; a call does not block it."""

    def __init__(
        self, root: tk.Tk, threads: ThreadPoolExecutor, servers: SyncServerGroup
    ):
        self.root, self.threads, self.servers = root, threads, servers
        self.zone = tk.StringVar(root, "Europe/Paris")
        self.text = tk.StringVar(root)
        tk.Entry(root, textvariable=self.zone).pack()
        tk.Button(root, text="Now", command=self.ask).pack()
        tk.Label(root, textvariable=self.text).pack()

    def ask(self) -> None:
        call = self.servers["time"].call
        future = self.threads.submit(call, "get_current_time", timezone=self.zone.get())
        self.show(future)

    def show(self, future: Future[Any]) -> None:
        """Show an answer once it is there: only the thread of the window may use widgets."""
        if not future.done():
            self.root.after(50, self.show, future)
            return
        try:
            self.text.set(future.result()["datetime"])
        except ServerError as error:
            self.text.set(str(error))


def main() -> None:
    with (
        ThreadPoolExecutor() as threads,
        open_servers(TIME, drain_timeout=5) as servers,
    ):
        root = tk.Tk()
        Clock(root, threads, servers)
        root.mainloop()


if __name__ == "__main__":
    main()
