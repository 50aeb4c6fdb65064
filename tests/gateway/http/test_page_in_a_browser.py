"""The page in a real browser, before a gateway that is a process with real servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from ...programs import FULL_SIZE
from ...source import ROOT
from .browser import BOUND, CHROMIUM, Browser, running_browser
from .tools_server import EVIL, HOSTILE

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

SECOND = 1.0 if FULL_SIZE else 10.0
"""Seconds until a kill is on the screen. The machine may be busy with other tests."""


@frozen
class Served:
    """A gateway over HTTP.

    Attributes:
        url: its address, with the token as printed.
        address: the same without the token.
    """

    url: str

    @property
    def address(self) -> str:
        return self.url.partition("#")[0]

    @property
    def token(self) -> str:
        return self.url.partition("#token=")[2]


@asynccontextmanager
async def served(
    folder: Path, *options: str, flags: Sequence[str] = (), names: Sequence[str] = ("tools",), **settings: str
) -> AsyncIterator[Served]:
    server = str(Path(__file__).with_name("tools_server.py"))
    entry = {"command": sys.executable, "args": ["-I", "-S", server, *flags], "mcp_actors": settings}
    file = folder / "mcp.json"
    servers = {name: {"command": "no-such-server"} if name == "dead" else entry for name in names}
    file.write_text(json.dumps({"mcpServers": servers}))
    command = [sys.executable, "-m", "mcp_actors", "serve", "--http", "127.0.0.1:0", "--config", str(file), *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "HOME": str(folder)}
    run = partial(trio.run_process, command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        async with process.stdout as stdout:
            with trio.fail_after(BOUND):
                line = await stdout.receive_some()
            yield Served(line.decode().strip())
            process.terminate()


LIVE = "document.querySelector('#live')?.textContent.startsWith('live')"


def row(name: str, cell: int) -> str:
    """Return an expression for the text of a cell in the row of a server."""
    rows = "[...document.querySelectorAll('#servers tr')]"
    return f"{rows}.find(each => each.cells[0].textContent === {name!r})?.cells[{cell}].textContent"


async def signed_in(browser: Browser, gateway: Served) -> None:
    await browser.go(gateway.url)
    await browser.wait(LIVE)
    await browser.wait(f"{row('tools', 1)} === 'ready'")


async def test_the_printed_address_opens_the_page_and_the_token_leaves_the_address(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        assert re.fullmatch(rf"{gateway.address}ui/[\w-]{{32}}/", await browser.run("location.href"))
        assert gateway.token not in await browser.run("document.documentElement.outerHTML")
        assert await browser.run("document.cookie") == ""
        assert browser.console == []


async def test_problems_come_first_and_servers_are_counted_and_filtered(tmp_path: Path) -> None:
    """No row moves while the pointer or the focus is in the table: a button would be another server's."""
    shown = "[...document.querySelectorAll('#servers tr')].filter(each => !each.hidden)"
    rows = f"{shown}.map(each => each.cells[0].textContent)"
    names = ("tools", *(f"other{number}" for number in range(6)), "dead")
    async with served(tmp_path, names=names) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        await browser.wait("document.querySelector('#summary').textContent === 'Servers: 7 ready, 1 failed'")
        await browser.wait(f"{rows}[0] === 'dead'")
        assert await browser.run(rows) == ["dead", *names[:-1]]
        await browser.run("document.querySelector('[aria-label=\"Stop other3\"]').focus()")
        await browser.run("post('stop', {server: 'dead'})")
        await browser.wait(f"{row('dead', 1)} === 'stopped'")
        assert (await browser.run(rows))[0] == "dead"
        await browser.run("document.querySelector('#filter').focus()")
        await browser.wait(f"{rows}[0] === 'tools'")
        await browser.run("document.querySelector('#filter').value = 'OTHER3'")
        await browser.run("document.querySelector('#filter').dispatchEvent(new Event('input'))")
        assert await browser.run(rows) == ["other3"]


async def test_a_person_without_the_token_sees_a_form(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, running_browser() as browser:
        await browser.go(f"{gateway.address}ui/")
        await browser.wait("document.body?.dataset.view === 'sign-in'")
        assert await browser.run("getComputedStyle(document.querySelector('main')).display") == "none"
        await browser.run("document.querySelector('#token').value = 'wrong'; document.querySelector('button').click()")
        await browser.wait("document.querySelector('.error')?.textContent.includes('does not know')")
        await browser.run(
            f"document.querySelector('#token').value = {gateway.token!r}; document.querySelector('button').click()"
        )
        await browser.wait(LIVE)


async def test_a_kill_is_on_the_screen_within_a_second(tmp_path: Path) -> None:
    """Facts are sent at most ten times a second, so an outage of 30 ms may show as a restart alone."""
    async with served(tmp_path) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        found = await trio.to_thread.run_sync(status_of, gateway)
        await browser.run(
            "window.states = []; new MutationObserver(() => states.push([performance.now(), "
            f"{row('tools', 1)}, {row('tools', 3)}])).observe(document.querySelector('#servers'), "
            "{subtree: true, childList: true, characterData: true}); window.began = performance.now()"
        )
        os.kill(found["servers"]["tools"]["pid"], signal.SIGKILL)
        seen = await browser.wait("states.find(([_, state, restarts]) => state !== 'ready' || restarts === '1')")
        assert seen[0] - await browser.run("began") < 1000 * SECOND
        await browser.wait(f"{row('tools', 3)} === '1' && {row('tools', 1)} === 'ready'")


async def test_a_tool_is_called_by_its_form_and_texts_of_a_server_are_text(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 2")
        names = await browser.run("[...document.querySelectorAll('#tools summary')].map(each => each.textContent)")
        assert names == ["echo", EVIL]
        assert await browser.run("document.querySelector('#tools .about').textContent") == EVIL
        assert EVIL in await browser.run("document.querySelector('#stderr').textContent")
        await browser.run("document.querySelector('#tools details').open = true")
        await browser.run(
            "document.querySelector('#tools [name=text]').value = '<b>hi</b>'; "
            "document.querySelector('#tools form button').click()"
        )
        await browser.wait(f"document.querySelector('#tools pre').textContent === {EVIL + ' <b>hi</b>'!r}")
        assert await browser.run("document.images.length + document.scripts.length") == 1
        assert await browser.run("document.title") == "mcp-actors"
        assert browser.console == []


async def test_a_call_that_does_not_end_can_be_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path, flags=("--waiting",)) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)

        async def in_flight(number: int) -> None:
            while (await trio.to_thread.run_sync(status_of, gateway))["servers"]["tools"]["in_flight"] != number:  # noqa: ASYNC110 - no event
                await trio.sleep(0.05)

        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 3")
        waiting = "document.querySelector('#tools details:last-child')"
        call, cancel = (f"{waiting}.querySelectorAll('button')[{number}]" for number in range(2))
        assert await browser.run(f"{cancel}.hidden")
        for _ in range(2):
            await browser.run(f"{waiting}.open = true; {call}.click()")
            with trio.fail_after(BOUND):
                await in_flight(1)
            assert await browser.run(f"[{call}.disabled, {cancel}.hidden]") == [True, False]
            await browser.run(f"{cancel}.click()")
            await browser.wait(f"{waiting}.querySelector('pre').textContent === 'cancelled; it may have taken effect'")
            with trio.fail_after(BOUND):
                await in_flight(0)
            assert await browser.run(f"[{call}.disabled, {cancel}.hidden]") == [False, True]
        assert browser.console == []


async def test_a_form_and_a_result_are_kept_until_the_page_is_left(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    flags, names = ("--changing", str(changed)), ("tools", "others")
    async with served(tmp_path, flags=flags, names=names) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)

        async def choose(name: str) -> None:
            await browser.run(
                f"[...document.querySelectorAll('button.name')].find(e => e.textContent === '{name}').click()"
            )
            await browser.wait(f"!$('server').hidden && $('server-name').textContent === '{name}'")

        async def restart(number: int) -> None:
            await browser.run("document.querySelector('[aria-label=\"Restart tools\"]').click()")
            await browser.wait(f"{row('tools', 3)} === '{number}' && {row('tools', 1)} === 'ready'")

        shown = (
            "[...document.querySelectorAll('#tools details')].map(each => [each.open, "
            "each.querySelector('pre').textContent, ...[...each.querySelectorAll('input')].map(each => each.value)])"
        )
        await choose("tools")
        echo, report = (f"document.querySelectorAll('#tools details')[{number}]" for number in (0, 2))
        await browser.run(
            f"{echo}.open = true; {echo}.querySelector('input').value = 'hi'; {echo}.querySelector('button').click()"
        )
        await browser.wait(f"{echo}.querySelector('pre').textContent === {EVIL + ' hi'!r}")
        await browser.run(f"{report}.open = true; {report}.querySelector('[name=city]').value = 'Graz'")
        await browser.run(
            f"{report}.querySelector('[name=days]').value = 3; {report}.querySelector('[name=days]').focus()"
        )
        kept = [[True, f"{EVIL} hi", "hi"], [False, ""], [True, "", "Graz", "3"]]
        assert await browser.run(shown) == kept
        await choose("others")
        assert await browser.run(shown) == [[False, "", ""], [False, ""], [False, "", "", ""]]
        await choose("tools")
        assert await browser.run(shown) == kept
        await browser.run(f"{report}.querySelector('[name=days]').focus()")
        await restart(1)
        assert await browser.run(shown) == kept
        assert await browser.run("document.activeElement.name") == "days"
        changed.touch()
        await restart(2)
        await browser.wait(f"!!{report}.querySelector('[name=unit]')")
        assert await browser.run(shown) == [*kept[:2], [True, "", "Graz", ""]]
        notes = await browser.run(
            "[...document.querySelectorAll('#tools .changed:not([hidden])')].map(e => e.textContent)"
        )
        assert notes == ["This tool has changed; check the form before you call it. Not kept: days = 3"]
        await browser.run(f"{report}.querySelector('button').click()")
        await browser.wait("!document.querySelector('#tools .changed:not([hidden])')")
        assert browser.console == []


async def test_a_changed_tool_is_approved_below_its_definition_and_a_person_signs_out(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    flags = ("--changing", str(changed))
    async with served(tmp_path, flags=flags, on_tool_change="block") as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 3 && $('changes').hidden")
        changed.touch()
        await browser.run("document.querySelector('[aria-label=\"Restart tools\"]').click()")
        review = "document.querySelector('#changes details')"
        await browser.wait(f"!$('changes').hidden && {review}?.textContent === 'reportApprove report'")
        assert await browser.run(f"{review}.querySelector('button').hidden")
        await browser.run(f"{review}.open = true")
        await browser.wait(f"!{review}.querySelector('button').hidden")
        shown = await browser.run(f"{review}.querySelector('pre').textContent")
        assert shown.startswith("inputSchema: {")
        assert '"unit"' in shown
        await browser.run(f"{review}.querySelector('button').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 3 && $('changes').hidden")
        left = await browser.run("location.href")
        await browser.run("document.querySelector('header form button').click()")
        await browser.wait("document.body?.dataset.view === 'sign-in'")
        await browser.go(left)
        await browser.wait("document.body?.dataset.view === 'sign-in' && location.pathname === '/ui/'")
        assert browser.console == []


async def test_a_page_with_a_form_that_was_begun_is_not_loaded_again_when_its_sign_in_ends(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    async with served(tmp_path, "--token-file", str(tokens)) as gateway, running_browser() as browser:
        token = tokens.read_text().strip()
        await signed_in(browser, gateway)
        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 2")
        await browser.run("document.querySelector('#tools input').value = 'half of it'")
        tokens.write_text(f"{token}-and-more\n")
        await browser.run("document.querySelector('#reload').click()")
        await browser.wait("document.querySelector('#live').textContent === 'signed out; load the page again'")
        assert await browser.run("document.querySelector('#tools input').value") == "half of it"


async def test_schemas_of_all_kinds_leave_the_page_alive(tmp_path: Path) -> None:
    async with served(tmp_path, flags=("--hostile",)) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait(f"document.querySelectorAll('#tools details').length === {2 + len(HOSTILE)}")
        await browser.wait("document.querySelectorAll('#tree circle').length > 0")
        last = "document.querySelector('#tools details:last-child')"
        await browser.run(f"for (const each of {last}.querySelectorAll('input')) each.value = each.name")
        await browser.run(f"{last}.querySelector('button').click()")
        await browser.wait(f"{last}.querySelector('pre').textContent.startsWith('{{')")
        sent = json.loads(await browser.run(f"{last}.querySelector('pre').textContent"))
        assert sent == {name: name for name in HOSTILE[-1]["properties"]}
        assert browser.console == []


async def test_a_server_is_stopped_and_started_with_the_keyboard(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, running_browser() as browser:
        await signed_in(browser, gateway)
        for label, state in (("Stop tools", "stopped"), ("Start tools", "ready")):
            await browser.wait(f"!!document.querySelector('[aria-label=\"{label}\"]')")
            await browser.run(f"document.querySelector('[aria-label=\"{label}\"]').focus()")
            for kind in ("keyDown", "keyUp"):
                key = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
                await browser.command("Input.dispatchKeyEvent", type=kind, **key)
            await browser.wait(f"{row('tools', 1)} === {state!r}")


async def test_what_the_page_shows_fits_a_phone_and_each_control_has_a_name(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, running_browser() as browser:
        await browser.size(390, 800)
        await signed_in(browser, gateway)
        await browser.run("document.querySelector('#servers button.name').click()")
        await browser.wait("document.querySelectorAll('#tools details').length === 2")
        assert await browser.run("document.documentElement.scrollWidth") == 390
        found = await browser.command("Accessibility.getFullAXTree")
        roles = {"button", "textbox", "combobox", "link", "image", "SvgRoot"}
        controls = [each for each in found["nodes"] if each.get("role", {}).get("value") in roles]
        assert len(controls) >= 5
        assert [each for each in controls if not each.get("name", {}).get("value")] == []


async def test_a_page_whose_gateway_ends_says_so_and_goes_on_with_the_next_one(tmp_path: Path) -> None:
    async with running_browser() as browser:
        async with served(tmp_path, "--token-file", str(tmp_path / "token")) as gateway:
            await signed_in(browser, gateway)
        await browser.wait("document.querySelector('#live').textContent.includes('does not answer')")


# --- Access -----------------------------------------------------------------------------------------------------------


def fetch(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Send a request as a program does, and return the status and the text of the reply."""
    request = urllib.request.Request(url, body, {name.replace("_", "-"): each for name, each in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=BOUND) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as reply:
        with reply:
            return reply.code, reply.read().decode()


def status_of(gateway: Served) -> Any:
    status, text = fetch(f"{gateway.address}status", authorization=f"Bearer {gateway.token}")
    assert status == 200
    return json.loads(text)


def signed_in_as_a_browser(gateway: Served) -> tuple[str, str]:
    """Sign in as a browser does, and return the address of the page and the cookie."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            return None

    opener = urllib.request.build_opener(Stay)
    with pytest.raises(urllib.error.HTTPError) as raised:
        opener.open(f"{gateway.address}ui/sign-in", f"token={gateway.token}".encode(), timeout=BOUND)
    with raised.value as reply:
        path = str(reply.headers["location"])
        assert (reply.code, path[:4], path[-1]) == (303, "/ui/", "/")
        cookie = str(reply.headers["set-cookie"])
    assert re.fullmatch(rf"mcp-actors=[\w-]{{43}}; Max-Age=43200; HttpOnly; SameSite=Strict; Path={path}", cookie)
    return gateway.address.rstrip("/") + path, cookie.partition(";")[0]


STOP = b'{"do": "stop", "server": "tools"}'


async def test_an_action_needs_the_cookie_and_the_origin_of_the_page(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as gateway:
        host = gateway.address.removeprefix("http://").rstrip("/")

        def ask() -> None:
            page, cookie = signed_in_as_a_browser(gateway)
            url, guessed = f"{page}do", "mcp-actors=guessed"
            assert fetch(url, STOP)[0] == 401
            assert fetch(url, STOP, cookie=guessed)[0] == 401
            assert fetch(url, STOP, authorization=f"Bearer {gateway.token}")[0] == 401
            for origin in ("http://evil.example", "null", "http://127.0.0.1", f"http://{host}.evil.example"):
                assert fetch(url, STOP, cookie=cookie, origin=origin)[0] == 403, origin
            assert fetch(url, STOP, cookie=cookie, host="evil.example")[0] == 421
            assert fetch(f"{gateway.address}ui/", host="evil.example")[0] == 421
            assert fetch(f"{page}live", cookie=guessed)[0] == 401
            token = f"token={gateway.token}".encode()
            assert fetch(f"{gateway.address}ui/sign-in", token, origin="http://evil.example")[0] == 403
            assert fetch(f"{gateway.address}mcp", b"{}", cookie=cookie, content_type="application/json")[0] == 401
            assert fetch(f"{gateway.address}status", cookie=cookie)[0] == 401
            assert status_of(gateway)["servers"]["tools"]["state"] != "stopped"
            assert fetch(url, STOP, cookie=cookie, origin=f"http://{host}") == (200, "{}")
            assert status_of(gateway)["servers"]["tools"]["state"] == "stopped"

        await trio.to_thread.run_sync(ask)


async def test_a_large_body_without_a_sign_in_is_not_read(tmp_path: Path) -> None:
    """A form of sixteen megabytes took five seconds of the event loop."""
    async with served(tmp_path) as gateway:

        def ask() -> None:
            for path, status in (("ui/sign-in", 413), ("ui/do", 401)):
                assert fetch(f"{gateway.address}{path}", b"a=b&" * 2048)[0] == status
            page, cookie = signed_in_as_a_browser(gateway)
            big = {"cookie": cookie, "content_length": str(2 * 1024 * 1024), "expect": "100-continue"}
            assert fetch(f"{page}do", b"{}", **big)[0] == 413

        await trio.to_thread.run_sync(ask)


async def test_an_action_that_is_wrong_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:

        def ask() -> None:
            page, cookie = signed_in_as_a_browser(gateway)
            url = f"{page}do"
            for body in (b"", b"[" * 100_000, b"[]", b'"stop"'):
                assert fetch(url, body, cookie=cookie) == (400, "the body is not a JSON object\n")
            unknown = b'{"do": "stop", "server": "nothing"}'
            assert fetch(url, unknown, cookie=cookie) == (409, '{"error": "there is no server \'nothing\'"}')

        await trio.to_thread.run_sync(ask)


async def test_without_a_token_the_page_only_shows(tmp_path: Path) -> None:
    async with served(tmp_path, "--no-token") as gateway, running_browser() as browser:
        await browser.go(gateway.url)
        await browser.wait(f"{LIVE} && {row('tools', 1)} === 'ready'")
        assert await browser.run("getComputedStyle(document.querySelector('td.actions')).display") == "none"
        assert (await trio.to_thread.run_sync(fetch, f"{gateway.address}ui/do", STOP))[0] == 409
