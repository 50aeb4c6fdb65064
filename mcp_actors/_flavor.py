"""Refuse a door that is opened on the wrong kind of event loop.

Asking Trio alone is not enough: trio-asyncio runs asyncio code inside a Trio task, and a nursery that is opened there
corrupts the run. sniffio, which Trio depends on, knows both.
"""

from __future__ import annotations

from typing import Literal

import sniffio

__all__ = ["check_flavor"]


def check_flavor(door: str, flavor: Literal["asyncio", "trio"], remedy: str) -> None:
    """Refuse to go on unless the caller runs on that event loop.

    Args:
        door: what is being opened: ``"mcp_actors.open_servers()"``.
        flavor: what it needs.
        remedy: what to do on the other one, as an imperative.

    Raises:
        RuntimeError: the caller runs on another event loop, or on none.
    """
    try:
        running = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        running = "no event loop"
    if running != flavor:
        raise RuntimeError(f"{door}: needs {flavor} and was called on {running}; {remedy}")
