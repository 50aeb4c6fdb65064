"""Programs that get tokens without a person, and scopes that a person has to agree to later."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mcp_actors import ConnectFailed, HttpStatusError, open_servers
from mcp_actors.auth import SignInRequired

from .authority import SECRET, Authority, Browser
from .test_sign_in import change, signed_in, stored, whoami


@pytest.mark.parametrize("client", ["robot", "post"])
async def test_client_credentials_need_no_person(authority: Authority, tmp_path: Path, client: str) -> None:
    authority.set(post_only=client == "post")
    config = authority.config(tmp_path, client_id=client, client_secret=SECRET, grant="client_credentials")
    async with open_servers(config, strict=True) as servers:
        assert await whoami(servers) == client
    change(tmp_path, expires_at=time.time() - 1)
    async with open_servers(config, strict=True) as servers:
        assert await whoami(servers) == client
    counts = authority.counts
    assert SECRET not in json.dumps(stored(tmp_path))
    assert (counts["grants"]["client_credentials"], counts["pages"], counts["refused401"]) == (2, 0, 1)


async def test_a_token_of_a_program_that_is_refused_is_replaced_in_mid_session(
    authority: Authority, tmp_path: Path
) -> None:
    """A-24, B-09: the refused request is repeated once with the new token."""
    config = authority.config(tmp_path, client_id="robot", client_secret=SECRET, grant="client_credentials")
    async with open_servers(config, strict=True) as servers:
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        assert await whoami(servers) == "robot"
        assert servers["guarded"].statistics().incarnation == 1
    assert authority.grants("client_credentials") == 2


async def test_a_wrong_client_secret_parks_the_server_and_is_not_shown(authority: Authority, tmp_path: Path) -> None:
    config = authority.config(tmp_path, client_id="robot", client_secret="a wrong secret", grant="client_credentials")
    async with open_servers(config) as servers:
        error = servers.errors["guarded"]
        assert servers["guarded"].state == "failed"
        assert isinstance(error, ConnectFailed)
        assert not isinstance(error, SignInRequired)
        assert "issues no token: 401 invalid_client" in str(error)
        assert "a wrong secret" not in str(error)


async def test_another_issuer_than_the_configured_one_is_refused(authority: Authority, tmp_path: Path) -> None:
    config = authority.config(
        tmp_path,
        client_id="robot",
        client_secret=SECRET,
        grant="client_credentials",
        issuer=f"{authority.url}/another",
    )
    async with open_servers(config) as servers:
        assert servers["guarded"].state == "failed"
    assert authority.counts["grants"] == {}


async def test_a_tool_that_needs_more_scopes_fails_alone_without_a_callback(
    authority: Authority, tmp_path: Path
) -> None:
    authority.set(needs={"write": "files:write"})
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path)) as servers:
        with pytest.raises(HttpStatusError) as caught:
            await servers["guarded"].call_tool("write")
        assert caught.value.status == 403
        assert servers["guarded"].state == "ready"
        assert await whoami(servers) == "ada"


async def test_a_person_is_asked_for_more_scopes_where_a_callback_asks(authority: Authority, tmp_path: Path) -> None:
    authority.set(needs={"write": "files:write"})
    await signed_in(authority, tmp_path)
    browser = Browser()
    async with open_servers(authority.config(tmp_path, on_sign_in=browser.show)) as servers:
        await servers["guarded"].call_tool("write")
    assert len(browser.pages) == 1
    assert set(stored(tmp_path)["tokens"]["scope"].split()) >= {"files:read", "files:write"}


async def test_configured_scopes_are_asked_for(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path, scopes="files:write")) as servers:
        await servers["guarded"].sign_in(show=Browser().show)
    assert set(stored(tmp_path)["tokens"]["scope"].split()) - {"offline_access"} == {"files:write"}


async def test_a_client_that_is_registered_by_the_user_does_not_register_itself(
    authority: Authority, tmp_path: Path
) -> None:
    async with open_servers(authority.config(tmp_path, client_id="registered")) as servers:
        await servers["guarded"].sign_in(show=Browser().show)
        assert await whoami(servers) == "ada"
    assert authority.counts["registrations"] == 0
