"""Refuse a context manager on the wrong kind of event loop.

Trio's own check is not enough: trio-asyncio runs asyncio code inside a Trio task, and a nursery that is opened there
corrupts the run. sniffio, on which Trio depends, distinguishes the two.
"""

from __future__ import annotations

from typing import Literal

import sniffio


def check_flavor(door: str, flavor: Literal["asyncio", "trio"], remedy: str) -> None:
    """Raise an error unless the caller runs on the given kind of event loop.

    Args:
        door: the function that is called, for the error: ``"mcp_actors.open_servers()"``.
        flavor: the event loop that it needs.
        remedy: what to do on the other event loop, as an imperative.

    Raises:
        RuntimeError: the caller runs on another event loop, or on none.
    """
    try:
        running = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        running = "no event loop"
    if running != flavor:
        raise RuntimeError(f"{door}: needs {flavor} and was called on {running}; {remedy}")
