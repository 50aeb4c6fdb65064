"""``mcp-actors login``, ``logout`` and ``whoami`` with a real authorization server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ..auth.authority import Authority, run_authority
from .conftest import Run
from .terminal import write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")


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

    def visit(url: str) -> bool:
        with httpx2.Client(trust_env=False) as client:
            response = client.get(url)
            while response.has_redirect_location:
                response = client.get(response.next_request.url)  # type: ignore[union-attr]  # it has a location
        return True

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

    assert "signed out" in run("logout").stdout
    assert run("whoami", "docs").returncode == 3
    assert run("check").returncode == 3


def test_a_refused_consent_is_an_error(authority: Authority, run: Run) -> None:
    authority.set(refuse=True)
    login = run("login", "docs")
    assert login.returncode == 1
    assert "error: server 'docs': sign-in failed (access_denied)" in login.stderr


def test_a_server_without_a_sign_in_is_refused_by_name(authority: Authority, tmp_path: Path, run: Run) -> None:
    write(tmp_path, {"time": {"command": "time"}})
    login = run("login", "time")
    assert login.returncode == 1
    assert "it is not configured for a sign-in" in login.stderr
