"""Qt: open servers around the event loop of the window, and call them in threads.

Run it with ``python qt_app.py``.
"""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QVBoxLayout, QWidget

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


class Clock(QWidget):
    """Shows the time in a zone; a call does not block the window."""

    answered = Signal(
        str
    )  # a signal crosses from the thread of the call to that of the window

    def __init__(self, threads: ThreadPoolExecutor, servers: SyncServerGroup) -> None:
        super().__init__()
        self.threads, self.servers = threads, servers
        self.zone, self.text = QLineEdit("Europe/Paris"), QLabel()
        layout = QVBoxLayout(self)
        layout.addWidget(self.zone)
        layout.addWidget(self.text)
        self.zone.returnPressed.connect(self.ask)
        self.answered.connect(self.text.setText)

    def ask(self) -> None:
        self.threads.submit(self.call, self.zone.text())

    def call(self, zone: str) -> None:
        try:
            time = self.servers["time"].call("get_current_time", timezone=zone)
        except ServerError as error:
            self.answered.emit(str(error))
        else:
            self.answered.emit(time["datetime"])


def main() -> None:
    app = QApplication(sys.argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: app.quit())
    ticks = (
        QTimer()
    )  # Qt runs no Python while it waits, so no handler of a signal either
    ticks.timeout.connect(lambda: None)
    ticks.start(200)
    with (
        ThreadPoolExecutor() as threads,
        open_servers(TIME, drain_timeout=5) as servers,
    ):
        clock = Clock(threads, servers)
        clock.show()
        app.exec()


if __name__ == "__main__":
    main()
