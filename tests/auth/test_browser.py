"""The browser of this machine, if it has one."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import h11
import httpx2
import pytest
import trio

from mcp_actors import open_servers
from mcp_actors.auth import NoBrowser, _receiver, open_browser

from ..forkserver import begin_script
from .authority import Authority, Browser
from .test_sign_in import whoami

PAGE = "https://issuer.example/authorize?state=the-state&code_challenge=the-challenge"
DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")

BROWSER = """{begin}import http.client, os, sys, urllib.parse
sys.stdout = open({heard!r}, "a")
at, cookies = sys.argv[1], {{}}
print("argv", open("/proc/self/cmdline").read() if os.path.exists("/proc/self/cmdline") else sys.argv)
while at:
    parts = urllib.parse.urlsplit(at)
    if parts.hostname != "127.0.0.1":
        print("page", at)
        break
    connection = http.client.HTTPConnection(parts.netloc)
    connection.putrequest("GET", parts.path + ("?" + parts.query if parts.query else ""))
    if cookies:
        connection.putheader("cookie", "; ".join("=".join(each) for each in cookies.items()))
    connection.endheaders()
    answer = connection.getresponse()
    set_cookies = answer.headers.get_all("set-cookie") or ()
    cookies |= dict(each.split(";")[0].split("=", 1) for each in set_cookies)
    at = answer.headers["location"] and urllib.parse.urljoin(at, answer.headers["location"])
    print("answer", answer.status)
    connection.close()
"""


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Have a program be the browser, which follows redirects; return what it has noted."""
    program, heard = tmp_path / "browser", tmp_path / "heard"
    program.write_text(BROWSER.format(begin=begin_script(sys.executable, "-SE"), heard=str(heard)))
    program.chmod(0o755)
    for name in DISPLAYS[1:]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BROWSER", str(program))
    monkeypatch.setattr(webbrowser, "_tryorder", None)  # it reads the variable once
    monkeypatch.setattr(webbrowser, "_browsers", {})
    visited = note_end(webbrowser.open, monkeypatch)

    def lines() -> list[str]:
        visited.wait()
        return heard.read_text().splitlines()

    return lines


def note_end(show: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have a function open pages; return an event that is set when it has returned. No sign-in waits for that."""
    returned = threading.Event()

    def opened(url: str) -> bool:
        try:
            return show(url)
        finally:
            returned.set()

    monkeypatch.setattr("webbrowser.open", opened)
    return returned


@pytest.mark.parametrize("found", [None, *DISPLAYS])
async def test_no_browser_is_started_in_a_terminal_without_a_display(
    found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would start a text browser there."""
    opened: list[str] = []

    def show(url: str) -> bool:
        answer = httpx2.get(url, trust_env=False, verify=False)
        opened.append(answer.headers["location"])
        return True

    monkeypatch.setattr("sys.platform", "linux")
    for name in DISPLAYS:
        monkeypatch.setenv(name, "x" if name == found else "")
    returned = note_end(show, monkeypatch)
    if found is None:
        with pytest.raises(NoBrowser, match="use mcp-actors login, or give a function that shows the URL"):
            await open_browser(PAGE)
    else:
        await open_browser(PAGE)
        await trio.to_thread.run_sync(returned.wait)
    assert opened == ([] if found is None else [PAGE])


@pytest.mark.parametrize("raises", [False, True])
async def test_a_browser_that_cannot_be_started_is_an_error(raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "any")

    def fail(url: str) -> bool:
        if raises:
            raise webbrowser.Error
        return False

    monkeypatch.setattr("webbrowser.open", fail)
    with pytest.raises(NoBrowser, match=r"^no browser can be opened here; use mcp-actors login, or give a function "):
        await open_browser(PAGE)


async def test_a_program_may_show_the_page_in_another_way_where_there_is_no_browser(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in DISPLAYS:
        monkeypatch.setenv(name, "")
    person = Browser()

    async def show(url: str) -> str | None:
        with pytest.raises(NoBrowser) as caught:
            await open_browser(url)
        assert caught.value.reason == "no_browser"
        return await person.show(url)

    async with open_servers(authority.config(tmp_path / "tokens")) as servers:
        await servers["guarded"].sign_in(show=show)
        assert await whoami(servers) == "ada"
    assert len(person.pages) == 1


async def test_a_sign_in_does_not_wait_for_the_end_of_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    def stay(url: str) -> bool:
        httpx2.get(url, trust_env=False, verify=False)
        return closed.wait()

    monkeypatch.setenv("BROWSER", "any")
    returned = note_end(stay, monkeypatch)
    await open_browser(PAGE)
    closed.set()
    await trio.to_thread.run_sync(returned.wait)


@pytest.mark.parametrize("loop", [trio.run, lambda fn: asyncio.run(fn())])
def test_the_page_is_in_no_command_line(loop: Callable[..., None], browser: Callable[[], list[str]]) -> None:
    """C-15: with its state and its challenge, a stranger could get a code of theirs accepted."""

    async def main() -> None:
        with anyio.fail_after(60):
            await open_browser(PAGE)

    loop(main)
    argv, answer, page = browser()
    assert (answer, page) == ("answer 302", f"page {PAGE}")
    assert "http://127.0.0.1:" in argv
    for secret in ("issuer.example", "the-state", "the-challenge"):
        assert secret not in argv


async def test_a_whole_sign_in_starts_no_program_with_its_page(
    authority: Authority, tmp_path: Path, browser: Callable[[], list[str]]
) -> None:
    """C-15."""
    async with open_servers(authority.config(tmp_path / "tokens")) as servers:
        await servers["guarded"].sign_in()
        assert await whoami(servers) == "ada"
    argv = [line for line in browser() if line.startswith("argv")]
    assert len(argv) == 1
    assert not [word for word in ("state", "code_challenge", authority.url) if word in argv[0]]


async def open_page(during: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a page with a browser that is a function, in a thread."""
    monkeypatch.setenv("BROWSER", "any")

    def show(url: str) -> bool:
        during(url)
        return True

    returned = note_end(show, monkeypatch)
    await open_browser(PAGE)
    await trio.to_thread.run_sync(returned.wait)


async def test_the_first_page_leads_on_once_and_only_at_its_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-15: the command line is worth nothing once the browser has opened it."""
    answers: list[tuple[int, str | None]] = []

    def visit(url: str) -> None:
        with httpx2.Client(trust_env=False, verify=False) as client:
            for method, at in (("GET", str(httpx2.URL(url).join("/guess"))), ("HEAD", url), ("GET", url)):
                answer = client.request(method, at)
                answers.append((answer.status_code, answer.headers.get("location")))
            with suppress(httpx2.TransportError):  # the page has gone
                answers.append((200, client.get(url).headers.get("location")))

    await open_page(visit, monkeypatch)
    assert answers[:3] == [(400, None), (400, None), (302, PAGE)]
    assert PAGE not in [location for _, location in answers[3:]]


def test_of_two_requests_at_once_one_is_led_on() -> None:
    """C-15: a stranger who is as fast as the browser does not go unnoticed."""
    page = _receiver._FirstPage(PAGE)
    request = h11.Request(method="GET", target=page.path, headers=[("host", "127.0.0.1")])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        with connection:
            answers = [page.judge(request, connection) for _ in range(2)]
    assert [each.location for each in answers] == [PAGE, None]
    assert "was opened before; begin the sign-in again" in answers[1].text


def get_as(user: int, url: str) -> str:
    """Get a URL in a process of another user; return the error."""
    code = "import encodings.idna, os, sys, urllib.request as r; os.setuid(int(sys.argv[2])); r.urlopen(sys.argv[1])"
    command = [sys.executable, "-SEc", code, url, str(user)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose a connection is")
async def test_a_process_of_another_user_cannot_open_the_first_page_before_the_browser(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C-15: it reads the command line as soon as the browser starts."""
    seen: list[object] = []

    def visit(url: str) -> None:
        with monkeypatch.context() as other:
            # Only root can start a process of another user. To anybody else, their own seem to be of another one.
            us = os.getuid()
            if us == 0:
                seen.append("HTTP Error 400" in get_as(65534, url))
            else:
                other.setattr(os, "getuid", lambda: us + 1)
                other.setattr(os, "geteuid", lambda: us + 1)
                seen.append(httpx2.get(url, trust_env=False, verify=False).status_code == 400)
        seen.append(httpx2.get(url, trust_env=False, verify=False).headers["location"])

    await open_page(visit, monkeypatch)
    assert seen == [True, PAGE]
    assert "refused to a process of another user" in caplog.text


def test_where_the_system_does_not_tell_users_apart_the_page_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_receiver, "_table", lambda path: ())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            assert client.getsockname() == connection.getpeername()
            assert not _receiver.is_stranger(connection)
