"""Textual: open servers around the application, which runs on asyncio.

Run it with ``python textual_app.py``.
"""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult
from textual.widgets import Input, Label

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import AsyncioServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


class Clock(App[None]):
    """Shows the time in a zone."""

    def __init__(self, servers: AsyncioServerGroup) -> None:
        super().__init__()
        self.servers = servers

    def compose(self) -> ComposeResult:
        yield Input("Europe/Paris")
        yield Label("Press Enter.")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.run_worker(
            self.show(event.value), exclusive=True
        )  # cancels the call before

    async def show(self, zone: str) -> None:
        try:
            time = await self.servers["time"].call("get_current_time", timezone=zone)
        except ServerError as error:
            self.query_one(Label).update(str(error))
        else:
            self.query_one(Label).update(f"{zone}: {time['datetime']}")


async def main() -> None:
    async with open_servers(TIME, drain_timeout=5) as servers:
        await Clock(servers).run_async()


if __name__ == "__main__":
    asyncio.run(main())
