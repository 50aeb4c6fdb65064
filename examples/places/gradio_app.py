"""Gradio: open servers around the interface, whose functions run in threads.

Run it with ``python gradio_app.py``.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import gradio as gr

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


def main() -> None:
    """Serve the interface until Ctrl-C or SIGTERM."""
    with open_servers(TIME, drain_timeout=5) as servers:

        def now(zone: str) -> Any:
            try:
                return servers["time"].call("get_current_time", timezone=zone)
            except ServerError as error:
                raise gr.Error(str(error)) from error

        interface = gr.Interface(
            now, inputs="text", outputs="json", api_name="now", concurrency_limit=50
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        interface.launch()


if __name__ == "__main__":
    main()
