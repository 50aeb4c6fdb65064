"""``mcp-actors login``, ``logout`` and ``whoami`` with a real authorization server."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_actors._user_files import replace_file
from mcp_actors.auth import _stores

from ..auth.authority import Authority, run_authority
from .conftest import Run
from .terminal import Terminal, terminal, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")


def visit(url: str, *, goes_back: bool = True) -> str:
    """Open a page as a browser does, and return the URL that it ends at; `goes_back` means to this machine."""
    at = httpx2.URL(url)
    here = at.netloc
    with httpx2.Client(trust_env=False, verify=False, timeout=90) as client:
        while (goes_back or at.netloc == here) and (response := client.get(at)).has_redirect_location:
            at = at.join(response.headers["location"])
    return str(at)


@pytest.fixture(scope="module")
def authority_process(npm_packages: None) -> Iterator[Authority]:
    """The process with the two servers."""
    with run_authority() as authority:
        yield authority


@pytest.fixture
def authority(authority_process: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authorization server; a file that names its MCP server without credentials; and a browser."""
    authority_process.set(reset=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    write(tmp_path, {"docs": {"url": f"{authority_process.url}/mcp", "mcp_actors": {"protocol": "legacy"}}})

    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setattr("webbrowser.open", visit)
    return authority_process


def test_a_server_of_a_file_is_signed_in_to_once_and_out(authority: Authority, tmp_path: Path, run: Run) -> None:
    checked = run("check")
    assert checked.returncode == 3
    assert "needs_auth" in checked.stdout
    assert "mcp-actors login docs" in checked.stdout

    login = run("login", "docs")
    assert login.returncode == 0, login
    assert f"signed in to {authority.url}" in login.stdout
    assert f"{authority.url}/auth?" in login.stderr  # for a person whose browser is elsewhere

    checked = run("check")
    assert checked.returncode == 0, checked
    assert "signed in to" in checked.stdout

    shown = run("whoami", "--json")
    (found,) = json.loads(shown.stdout)
    assert (found["server"], found["issuer"], found["refreshable"]) == ("docs", authority.url, True)
    (path,) = (tmp_path / "data").glob("mcp-actors/tokens/*.json")
    tokens = json.loads(path.read_text())["tokens"]
    for secret in (tokens["access_token"], tokens["refresh_token"]):
        assert secret not in f"{checked} {login} {shown}"

    assert run("logout").stdout == "docs  signed out\n"
    assert run("logout").stdout == ""
    assert run("logout", "docs").stdout == "docs  was not signed in\n"
    assert run("whoami", "docs").returncode == 3
    assert run("check").returncode == 3


def test_a_refused_consent_is_an_error(authority: Authority, run: Run) -> None:
    authority.set(refuse=True)
    login = run("login", "docs")
    assert login.returncode == 1
    assert "error: server 'docs': sign-in failed (access_denied)" in login.stderr


def test_a_server_without_a_sign_in_is_refused_by_name(authority: Authority, tmp_path: Path, run: Run) -> None:
    token = {"url": "https://example.com/mcp", "auth": "a-token"}
    write(tmp_path, {"time": {"command": "time"}, "token": token})
    process = "error: server 'time' has no sign-in, because it is not reached over HTTP; give its credentials in env\n"
    for command in ("login", "logout", "whoami"):
        done = run(command, "time")
        assert (done.returncode, done.stderr) == (1, process)
    login = run("login", "token")
    assert login.returncode == 1
    remedy = 'write "auth": "oauth" into its entry in a file'
    assert f"server 'token' is not configured for a sign-in; {remedy}" in login.stderr


@pytest.mark.parametrize("command", ["logout", "whoami"])
@pytest.mark.parametrize("names", [(), ("docs",)])
def test_an_invalid_entry_is_an_error(command: str, names: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    write(tmp_path, {"docs": {"url": 3}})
    done = run(command, *names)
    assert done.returncode == 1
    assert "error: .mcp.json: mcpServers.docs.url: " in done.stderr


def test_a_sign_in_that_cannot_be_renewed_says_how_long_it_lasts(
    authority: Authority, tmp_path: Path, run: Run
) -> None:
    authority.set(refreshable=False, ttl=7300)
    assert run("login", "docs").stdout.endswith("for 2.0 h\n")
    assert run("whoami").stdout.endswith("for 2.0 h\n")
    assert "for 2.0 h" in run("check").stdout
    (path,) = tokens(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires_at": 1.0}))
    assert run("whoami").stdout.endswith("which has expired\n")


def test_credentials_that_are_in_a_scope_or_a_url_are_not_printed(
    authority: Authority, tmp_path: Path, run: Run
) -> None:
    """B-18: authorization servers choose the scopes."""
    assert run("login", "docs").returncode == 0
    (path,) = tokens(tmp_path)
    content = json.loads(path.read_text())
    secrets = [content["tokens"]["access_token"], content["tokens"]["refresh_token"], "key-of-the-url-4711"]
    content["tokens"]["scope"] = f"files {secrets[0]} {secrets[1]}"
    for metadata in (content["metadata"], None):
        path.write_text(json.dumps(content | {"metadata": metadata}))
        printed = f"{run('whoami')} {run('whoami', '--json')} {run('check')}"
        assert "files <token> <token>" in printed
        assert [each for each in secrets if each in printed] == []


def page_of(shown: Terminal) -> str:
    """Wait until the URL of the page and the prompt are shown, and return the URL."""
    shown.wait_for("paste the URL that it ends at")
    (url,) = re.findall(r"^http://\S+/auth\?\S+$", shown.text, re.MULTILINE)
    return str(url)


def tokens(folder: Path) -> list[Path]:
    """Return the files of the store that are not locks."""
    return [each for each in (folder / "data").rglob("*") if each.is_file() and each.suffix != ".lock"]


@pytest.mark.parametrize("moment", ["the person is asked", "the code is exchanged", "the terminal is closed"])
def test_a_login_that_is_interrupted_leaves_nothing(authority: Authority, tmp_path: Path, moment: str) -> None:
    authority.set(slow=300_000)
    with terminal(tmp_path, "login", "docs") as shown:
        page = page_of(shown)
        if moment == "the code is exchanged":
            visit(page)
        if moment == "the terminal is closed":
            shown.close()
            assert shown.process.wait(90) == 128 + signal.SIGHUP
        else:
            shown.type("\x03")
            assert shown.wait() == 130
            assert shown.text.endswith("cancelled\n")
            assert "Traceback" not in shown.text
    assert tokens(tmp_path) == []


def test_a_login_that_is_interrupted_in_a_write_that_hangs_ends_at_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """C-16: it says nothing, as the tokens are not stored yet."""
    released, written = threading.Event(), threading.Event()

    def interrupt(path: Path, data: bytes, *, durable: bool) -> None:
        if data.strip():
            signal.raise_signal(signal.SIGINT)
            released.wait(60)
        replace_file(path, data, durable=durable)
        if data.strip():
            written.set()

    monkeypatch.setattr(_stores, "replace_file", interrupt)
    login = run("login", "docs")
    assert not written.is_set()
    released.set()
    written.wait(60)
    assert (login.returncode, login.stdout) == (130, "")
    assert login.stderr.endswith("cancelled\n")


def test_over_ssh_the_url_is_pasted_and_no_text_browser_takes_the_terminal(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    browser, started = tmp_path / "w3m", tmp_path / "started"
    browser.write_text(f"#!/bin/sh\ntouch '{started}'\n")
    browser.chmod(0o755)
    over_ssh: dict[str, Any] = {
        "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    with terminal(tmp_path, "login", "docs", **over_ssh) as shown:
        shown.type(visit(page_of(shown), goes_back=False) + "\n")
        assert shown.wait() == 0
        assert "docs  signed in to" in shown.text
    assert not started.exists()
    assert len(tokens(tmp_path)) == 1
