"""A real browser, driven over a pipe with the DevTools protocol: JSON messages that end with a null byte.

See https://chromedevtools.github.io/devtools-protocol/. Tests are skipped where there is no Chromium.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias

import trio

Json: TypeAlias = dict[str, Any]

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

BOUND: Final = 60.0
"""Seconds for anything that a browser has to do, on a machine that is busy."""


class BrowserError(Exception):
    """The browser refused a command."""


class Browser:
    """One page of a browser.

    Args:
        to: takes commands.
        back: gives answers and events.
    """

    def __init__(self, to: trio.lowlevel.FdStream, back: trio.lowlevel.FdStream) -> None:
        self._to, self._from = to, back
        self._rest = b""
        self._number = 0
        self._session = ""
        self.console: list[str] = []

    async def open(self) -> None:
        """Open an empty page."""
        target = await self.command("Target.createTarget", url="about:blank")
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.command(f"{domain}.enable")

    async def command(self, method: str, **params: Any) -> Json:
        """Run a command of the protocol, and return its result."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._to.send_all(json.dumps(message).encode() + b"\0")
        while True:
            answer = await self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(answer["error"]["message"])
                result: Json = answer["result"]
                return result

    async def _receive(self) -> Json:
        while b"\0" not in self._rest:
            data = await self._from.receive_some(1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: Json = json.loads(line)
        if message.get("method") == "Log.entryAdded":
            self.console.append(message["params"]["entry"]["text"])
        return message

    async def go(self, url: str) -> None:
        """Load a page."""
        found = await self.command("Page.navigate", url=url)
        assert not found.get("errorText"), found

    async def run(self, script: str) -> Any:
        """Run an expression in the page, and return its value."""
        found = await self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def wait(self, script: str) -> Any:
        """Wait until an expression is true in the page, and return its value."""
        with trio.fail_after(BOUND):
            while True:
                with suppress(BrowserError):  # another page is being loaded
                    if value := await self.run(script):
                        return value
                await trio.sleep(0.02)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size and the color scheme of the page."""
        phone = width < 500
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """Return a picture of the whole page, in PNG."""
        found = await self.command("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])


@contextmanager
def _started() -> Iterator[tuple[int, int]]:
    """Start a browser that reads commands from its descriptor 3, and writes answers to its descriptor 4."""
    assert CHROMIUM is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    flags += ["--disable-background-networking", "--remote-debugging-pipe"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        process = subprocess.Popen(
            ["bash", "-c", shell, CHROMIUM, f"--user-data-dir={profile}", *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield ours_out, ours_in
        finally:
            process.terminate()
            process.wait(BOUND)


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Start a browser, and open an empty page."""
    with _started() as (writes, reads):
        async with trio.lowlevel.FdStream(writes) as to, trio.lowlevel.FdStream(reads) as back:
            browser = Browser(to, back)
            with trio.fail_after(BOUND):
                await browser.open()
            yield browser
