"""Refuse what is used on the wrong kind of event loop.

Trio's own check is not enough: trio-asyncio runs asyncio code inside a Trio task, and a nursery that is opened there
corrupts the run. sniffio, on which Trio depends, distinguishes the two.
"""

from __future__ import annotations

from typing import Literal

import sniffio
import trio


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


def check_trio(subject: str, *, here: bool) -> None:
    """Raise an error if the caller of a group or of one of its refs is outside its Trio run, as on asyncio.

    Args:
        subject: the group or the ref.
        here: whether the caller is in the thread of the group.

    Raises:
        RuntimeError: the caller is outside Trio, or in another thread.
    """
    if not here or not trio.lowlevel.in_trio_run():
        raise outside_trio(subject)


def outside_trio(subject: str) -> RuntimeError:
    """Return the error for the use of a group or of one of its refs outside its Trio run."""
    return RuntimeError(
        f"{subject}: used outside its Trio run; on asyncio, open the group with mcp_actors.bridge.open_servers; in a "
        "thread, call trio.from_thread.run(ref.call_tool, name, arguments) (with trio_token=... if Trio did not start "
        "the thread)"
    )
