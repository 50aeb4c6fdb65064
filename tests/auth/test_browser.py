"""The browser of this machine, if it has one."""

from __future__ import annotations

import threading

import pytest
import trio

from mcp_actors.auth import open_browser
from mcp_actors.auth._failures import Refused

PAGE = "https://issuer.example/authorize"
DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


@pytest.mark.parametrize("found", [None, *DISPLAYS])
async def test_no_browser_is_started_in_a_terminal_without_a_display(
    found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would start a text browser there."""
    opened: list[str] = []

    def show(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("sys.platform", "linux")
    for name in DISPLAYS:
        monkeypatch.setenv(name, "x" if name == found else "")
    monkeypatch.setattr("webbrowser.open", show)
    if found is None:
        with pytest.raises(Refused, match="use mcp-actors login, or give a function that shows the URL"):
            await open_browser(PAGE)
    else:
        await open_browser(PAGE)
    assert opened == ([] if found is None else [PAGE])


async def test_a_sign_in_does_not_wait_for_the_end_of_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, opened = threading.Event(), trio.Event()

    def stay(url: str) -> bool:
        trio.from_thread.run_sync(opened.set)
        return closed.wait()

    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setattr("webbrowser.open", stay)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_browser, PAGE)
        await opened.wait()
        nursery.cancel_scope.cancel("the redirect has come")
    closed.set()
