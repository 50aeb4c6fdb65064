"""``mcp-actors ui``: the page of a daemon, or of a file."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from ..forkserver import interpreter
from ..gateway.http import tools_server
from ..source import ROOT

BOUND = 60.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a configuration file, and all files of this user. Its path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entry = {"command": sys.executable, "args": ["-I", "-S", tools_server.__file__]}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
        (folder / "run").mkdir(0o700)
        yield folder


def environment(place: Path) -> Mapping[str, str]:
    return {**os.environ, "HOME": str(place), "XDG_RUNTIME_DIR": str(place / "run"), "PYTHONPATH": str(ROOT)}


def mcp_actors(place: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """Start a command in the folder."""
    command = [interpreter(), "-m", "mcp_actors", *words]
    return subprocess.Popen(command, cwd=place, env=environment(place), text=True, **options)


def said(place: Path, *words: str) -> tuple[int, str, str]:
    """Run a command, and return its exit code and what it has printed."""
    pipe = subprocess.PIPE
    with mcp_actors(place, *words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as program:
        out, err = program.communicate(timeout=BOUND)
    return program.returncode, out, err


@contextmanager
def daemon(place: Path) -> Iterator[None]:
    """Keep a daemon with one client running during a block."""
    pipe = subprocess.PIPE
    with mcp_actors(place, "attach", "--config", str(place / "mcp.json"), stdin=pipe, stdout=pipe) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        client.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) + "\n")
        client.stdin.flush()
        assert "serverInfo" in client.stdout.readline()
        try:
            yield
        finally:
            said(place, "stop", "--config", str(place / "mcp.json"))
            client.stdin.close()
            client.wait(BOUND)


def fetch(url: str, body: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, body, timeout=BOUND) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as reply:
        with reply:
            return reply.code, reply.read().decode()


def test_the_page_of_a_daemon_shows_the_servers_that_its_clients_use(place: Path) -> None:
    file = str(place / "mcp.json")
    with daemon(place):
        code, out, err = said(place, "ui", "--config", file, "--no-browser")
        assert (code, err) == (0, "")
        [line] = out.splitlines()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=([\w-]{43})", line)
        assert found is not None
        address, token = found.groups()
        assert fetch(f"{address}ui/live")[0] == 401
        assert fetch(f"{address}mcp", b"{}")[0] in (401, 404)
        request = urllib.request.Request(f"{address}status", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=BOUND) as reply:
            assert [*json.load(reply)["servers"]] == ["tools"]
        request = urllib.request.Request(f"{address}mcp", b"{}", headers={"authorization": f"Bearer {token}"})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request, timeout=BOUND)
        assert said(place, "ui", "--config", file, "--no-browser") == (0, out, "")


def test_without_a_daemon_a_file_must_be_named_because_its_servers_are_started(place: Path) -> None:
    (place / "mcp.json").rename(place / ".mcp.json")
    code, out, err = said(place, "ui", "--no-browser")
    assert (code, out) == (1, "")
    assert err == (
        "error: no daemon runs for .mcp.json; to start its servers here, name it: mcp-actors ui --config .mcp.json\n"
    )


def test_a_file_that_cannot_be_used_has_an_exit_code_of_its_own(place: Path) -> None:
    code, out, err = said(place, "ui", "--config", "none.json", "--no-browser")
    assert (code, out, err) == (78, "", "error: none.json: file not found; correct the path, or create the file\n")


def test_a_file_is_served_until_ctrl_c(place: Path) -> None:
    pipe = subprocess.PIPE
    words = ("ui", "--config", "mcp.json", "--no-browser")
    with mcp_actors(place, *words, stdout=pipe, stderr=pipe) as program:
        assert program.stdout is not None
        address = program.stdout.readline().partition("#")[0]
        assert len([*(place / "run" / "mcp-actors").glob("*.html")]) == 1
        status, text = fetch(f"{address}ui/")
        assert (status, 'data-view="sign-in"' in text) == (200, True)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=BOUND)
    assert program.returncode == 0
    assert [*(place / "run" / "mcp-actors").glob("*.html")] == []


def test_a_browser_is_opened_unless_it_is_refused(place: Path) -> None:
    """D-50: all users see the command line of a browser, so a file leads it to the page."""
    opened = place / "opened"
    browser = place / "browser"
    browser.write_text(f"#!/bin/sh\necho \"$@\" > '{opened}.part' && mv '{opened}.part' '{opened}'\n")
    browser.chmod(0o755)
    with daemon(place):
        pipe = subprocess.PIPE
        command = [interpreter(), "-m", "mcp_actors", "ui", "--config", "mcp.json"]
        given = {**environment(place), "BROWSER": str(browser)}
        done = subprocess.run(command, cwd=place, env=given, stdout=pipe, text=True, timeout=BOUND, check=True)
        address, words = done.stdout.strip(), opened.read_text()
        assert address.partition("#token=")[2] not in words
        file = Path(unquote(urlsplit(words.strip()).path))
        assert f'content="0; url={address}"' in file.read_text()
        assert (file.parent, stat.filemode(file.stat().st_mode)) == (place / "run" / "mcp-actors", "-rw-------")
    assert [each.name for each in file.parent.glob("*.html")] == []


def test_a_file_whose_path_is_not_utf_8_has_a_token_too() -> None:
    from mcp_actors.cli import _http

    options = _http.HttpOptions("127.0.0.1:0", None, False, (), ())
    _, file, made = _http._access("/x/\udcff.json", options)
    assert Path(file).read_text().strip() == made
