"""A program on asyncio signs in, with a callback on its own event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from mcp_actors import bridge

from .authority import Authority, Browser


def test_a_program_on_asyncio_signs_in(authority: Authority, tmp_path: Path) -> None:
    browser, loops = Browser(), set()

    async def show(url: str) -> str | None:
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        async with httpx2.AsyncClient(trust_env=False):
            return await browser.show(url)

    async def main() -> None:
        async with bridge.open_servers(authority.config(tmp_path)) as servers:
            assert servers["guarded"].state == "needs_auth"
            await servers["guarded"].sign_in(show=show)
            result = await servers["guarded"].call_tool("whoami")
            assert result.content[0].text == "ada"  # type: ignore[union-attr]  # the server sends text only
        assert loops == {asyncio.get_running_loop()}

    asyncio.run(main())


def test_a_callback_in_the_configuration_is_called_on_the_event_loop(authority: Authority, tmp_path: Path) -> None:
    loops = set()

    async def show(url: str) -> str | None:
        loops.add(asyncio.get_running_loop())
        return await Browser().show(url)

    async def main() -> None:
        async with bridge.open_servers(authority.config(tmp_path, on_sign_in=show)) as servers:
            await servers["guarded"].call_tool("whoami")
        assert loops == {asyncio.get_running_loop()}

    asyncio.run(main())
