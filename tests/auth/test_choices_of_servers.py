"""Servers that try to choose the scopes of a sign-in, or where its codes, tokens and secrets go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from mcp_actors import ConnectFailed, HttpStatusError, ServerConfig, open_servers
from mcp_actors.auth import SignInFailed, sign_in, sign_out
from mcp_actors.transports import open_exchange

from .authority import SECRET, Authority, Browser, no_page, run_authority
from .test_sign_in import signed_in, stored, whoami

ROBOT: dict[str, Any] = {"client_id": "robot", "client_secret": SECRET, "grant": "client_credentials"}
CONFIDENTIAL: dict[str, Any] = {"client_id": "confidential", "client_secret": SECRET}


@pytest.fixture(scope="module")
def second_process(npm_packages: None) -> Iterator[Authority]:
    """A process with another authorization server."""
    with run_authority() as authority:
        yield authority


@pytest.fixture
def second(second_process: Authority) -> Authority:
    """Another authorization server, as new."""
    second_process.set(reset=True)
    return second_process


async def asked_scopes(config: ServerConfig) -> set[str]:
    """Sign in, and return the scopes on the page that the person sees."""
    browser = Browser()
    async with open_exchange(config) as exchange:
        await sign_in("guarded", exchange, browser.show)
    return set(httpx2.URL(browser.pages[0]).params["scope"].split())


async def refused(config: ServerConfig) -> SignInFailed:
    """Sign in, and return the failure."""
    async with open_exchange(config) as exchange:
        with pytest.raises(SignInFailed) as caught:
            await sign_in("guarded", exchange, no_page)
    return caught.value


# --- scopes ---------------------------------------------------------------------------------------------------------

METADATA = "/.well-known/oauth-protected-resource/mcp"

CHALLENGES = {
    "another scope": 'Bearer resource_metadata="{url}", scope="files:write"',
    "a scope in an unquoted value": 'Bearer resource_metadata={url}?x"scope="files:write',
    "a scope in the query": 'Bearer resource_metadata="{url}?scope=files:write"',
    "a scope in an error": 'Bearer error="x\\", scope=\\"files:write", resource_metadata="{url}"',
    "a second challenge": 'Basic scope="files:write", Bearer resource_metadata="{url}", Bearer scope="files:write"',
}


@pytest.mark.parametrize(
    ("challenge", "send_resource"), [*zip(CHALLENGES.values(), itertools.cycle([True, False]))], ids=CHALLENGES
)
async def test_no_challenge_widens_the_configured_scopes(
    authority: Authority, tmp_path: Path, challenge: str, send_resource: bool
) -> None:
    """C-10: for a person, and for a program."""
    authority.set(challenge=challenge.replace("{url}", authority.url + METADATA))
    options: dict[str, Any] = {"scopes": "files:read", "send_resource": send_resource}
    assert await asked_scopes(authority.config(tmp_path, **options)) == {"files:read", "offline_access"}
    async with open_servers(authority.config(tmp_path / "robot", **ROBOT, **options), strict=True):
        pass
    assert stored(tmp_path / "robot")["tokens"]["scope"] == "files:read"


async def test_a_challenge_that_closes_the_quotes_of_its_url_is_refused(authority: Authority, tmp_path: Path) -> None:
    """C-10: the rest of the URL would be another field."""
    authority.set(challenge=f'Bearer resource_metadata="{authority.url}{METADATA}\\", scope=\\"files:write"')
    error = await refused(authority.config(tmp_path, scopes="files:read"))
    assert (error.reason, authority.counts["posts"]) == ("invalid_metadata", [])


async def test_scopes_of_a_challenge_are_asked_for_where_none_are_configured(
    authority: Authority, tmp_path: Path
) -> None:
    authority.set(scope="files:write")
    assert await asked_scopes(authority.config(tmp_path)) == {"files:write", "offline_access"}


async def test_a_call_that_needs_other_scopes_than_the_configured_ones_fails_alone(
    authority: Authority, tmp_path: Path
) -> None:
    """C-10: also where a callback would ask, and for a program without a person."""
    authority.set(needs={"write": "files:write"})
    browser = Browser()
    configs = [
        authority.config(tmp_path / "a", "person", scopes="files:read", on_sign_in=browser.show, required=True),
        authority.config(tmp_path / "b", "robot", scopes="files:read", **ROBOT),
    ]
    async with open_servers(*configs, strict=True) as servers:
        for name in ("person", "robot"):
            with pytest.raises(HttpStatusError) as caught:
                await servers[name].call_tool("write")
            assert caught.value.status == 403
    assert len(browser.pages) == 1


async def test_scopes_that_were_added_to_the_configuration_are_asked_for_when_a_call_needs_them(
    authority: Authority, tmp_path: Path
) -> None:
    authority.set(needs={"write": "files:write"})
    await signed_in(authority, tmp_path)
    browser = Browser()
    config = authority.config(tmp_path, scopes="files:read files:write", on_sign_in=browser.show)
    async with open_servers(config) as servers:
        await servers["guarded"].call_tool("write")
    assert len(browser.pages) == 1


# --- metadata -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, CONFIDENTIAL, ROBOT], ids=["registers itself", "secret", "robot"])
@pytest.mark.parametrize("servers", ["{url}/tenant", "not a URL", "http://[::1"])
async def test_nothing_is_sent_until_the_named_authorization_server_has_given_valid_metadata(
    authority: Authority, tmp_path: Path, options: dict[str, Any], servers: str
) -> None:
    """C-11: not to the MCP server's own host either, which the revision of 2025-03-26 takes instead."""
    authority.set(protected={"authorization_servers": [servers.replace("{url}", authority.url)]})
    error = await refused(authority.config(tmp_path, **options))
    assert (error.reason, authority.counts["posts"]) == ("invalid_metadata", [])


async def test_metadata_that_a_challenge_names_and_that_are_missing_do_not_lead_to_the_own_host(
    authority: Authority, tmp_path: Path
) -> None:
    """C-11: what names them is not of the revision of 2025-03-26."""
    authority.set(protected=None)
    error = await refused(authority.config(tmp_path))
    assert (error.reason, authority.counts["posts"]) == ("invalid_metadata", [])


async def test_a_server_that_knows_nothing_of_such_metadata_is_its_own_authorization_server(
    authority: Authority, tmp_path: Path
) -> None:
    """As the revision of 2025-03-26 has it."""
    authority.set(protected=None, challenge="Bearer")
    async with open_servers(authority.config(tmp_path)) as servers:
        await servers["guarded"].sign_in(show=Browser().show)
        assert await whoami(servers) == "ada"


@pytest.mark.parametrize("protected", [{}, None])
async def test_an_authorization_server_that_cannot_give_its_metadata_now_is_unreachable(
    authority: Authority, tmp_path: Path, protected: dict[str, Any] | None
) -> None:
    """C-11: a retry may help, and nothing is sent meanwhile."""
    authority.set(protected=protected, metadata=None, **({} if protected is not None else {"challenge": "Bearer"}))
    assert (await refused(authority.config(tmp_path))).reason == "unreachable"
    async with open_servers(authority.config(tmp_path / "robot", **ROBOT)) as servers:
        error = servers.errors["guarded"]
        assert isinstance(error, ConnectFailed)
        assert not error.hopeless
    assert authority.counts["posts"] == []


# --- where a secret and a code go -----------------------------------------------------------------------------------


async def test_a_secret_goes_to_no_other_issuer_than_the_first_until_logout(
    authority: Authority, second: Authority, tmp_path: Path
) -> None:
    """C-12: for a person, whose second sign-in fails before a page is shown."""
    config = authority.config(tmp_path, **CONFIDENTIAL)
    async with open_exchange(config) as exchange:
        await sign_in("guarded", exchange, Browser().show)
    authority.set(protected={"authorization_servers": [second.url]})
    error = await refused(config)
    assert str(error) == (
        f"server 'guarded': sign-in failed (issuer_changed): the server names {second.url}, and the client_secret has "
        f"been used with {authority.url}, so it is not sent; if the change is right, run 'mcp-actors logout' for this "
        "server, and sign in again"
    )
    assert second.counts["posts"] == []
    async with open_exchange(config) as exchange:
        assert await sign_out(exchange)
        assert (await sign_in("guarded", exchange, Browser().show)).issuer == second.url


async def test_a_program_sends_its_secret_to_no_other_issuer_than_the_first(
    authority: Authority, second: Authority, tmp_path: Path
) -> None:
    """C-12: also after its token was refused in mid-session."""
    async with open_servers(authority.config(tmp_path, **ROBOT), strict=True) as servers:
        authority.set(protected={"authorization_servers": [second.url]})
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        with pytest.raises(ConnectFailed, match="client_secret has been used with"):
            await whoami(servers)
        authority.set(protected={"authorization_servers": [second.url, authority.url]})
        await servers["guarded"].restart()
        assert await whoami(servers) == "robot"
    assert second.counts["posts"] == []


@pytest.mark.parametrize("options", [{}, {"client_id": "registered"}], ids=["registers itself", "without a secret"])
async def test_a_client_without_a_secret_follows_a_change_of_issuer(
    authority: Authority, second: Authority, tmp_path: Path, options: dict[str, Any]
) -> None:
    """C-12: it registers anew if it has registered itself."""
    for at in (authority, second):
        authority.set(protected={"authorization_servers": [at.url]})
        async with open_exchange(authority.config(tmp_path, **options)) as exchange:
            assert (await sign_in("guarded", exchange, Browser().show)).issuer == at.url
        assert at.counts["registrations"] == (0 if options else 1)


@pytest.mark.parametrize("options", [CONFIDENTIAL, ROBOT], ids=["person", "program"])
async def test_the_configured_issuer_is_used_wherever_it_is_listed(
    authority: Authority, second: Authority, tmp_path: Path, options: dict[str, Any]
) -> None:
    """C-12, C-14, D-20: and no other one, also if it is not listed at all."""
    config = authority.config(tmp_path, issuer=authority.url, **options)
    for listed in ([second.url, authority.url], [second.url]):
        authority.set(protected={"authorization_servers": listed})
        async with open_exchange(config) as exchange:
            assert (await sign_in("guarded", exchange, Browser().show)).issuer == authority.url
    assert second.counts["posts"] == []


async def test_a_redirect_of_the_token_endpoint_gets_neither_code_nor_verifier(
    authority: Authority, tmp_path: Path
) -> None:
    connections: list[trio.SocketStream] = []
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def accept(stream: trio.SocketStream) -> None:
        async with stream:
            connections.append(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, accept, [listener])
        authority.set(redirect=f"http://127.0.0.1:{listener.socket.getsockname()[1]}/token")
        async with open_exchange(authority.config(tmp_path)) as exchange:
            with pytest.raises(SignInFailed, match="issues no token: 307") as caught:
                await sign_in("guarded", exchange, Browser().show)
        nursery.cancel_scope.cancel("the sign-in has ended")
    assert caught.value.reason == "token_refused"
    assert connections == []
