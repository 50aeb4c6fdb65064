"""Signing in to a real authorization server, and staying signed in."""

from __future__ import annotations

import json
import stat
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from mcp_actors import ConfigError, RestartPolicy, ServerUnavailable, open_servers
from mcp_actors.auth import SignInFailed, SignInRequired, sign_out
from mcp_actors.servers import ServerGroup
from mcp_actors.transports import open_exchange

from ..servers.groups import server
from ..servers.links import text_of
from .authority import SECRET, Authority, Browser, never, run_authority


def stored(folder: Path) -> dict[str, Any]:
    """Return the only sign-in in a store."""
    (path,) = folder.glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def all_stored(folder: Path) -> list[dict[str, Any]]:
    """Return all sign-ins in a store."""
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def mode(folder: Path) -> int:
    """Return the mode of the only sign-in in a store."""
    (path,) = folder.glob("*.json")
    return stat.S_IMODE(path.stat().st_mode)


def change(folder: Path, **changes: Any) -> None:
    """Change the only sign-in in a store."""
    (path,) = folder.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


async def whoami(servers: ServerGroup, name: str = "guarded") -> str:
    """Call a tool; return whose token was sent."""
    result = await servers[name].call_tool("whoami")
    text: str = result.content[0].text  # type: ignore[union-attr]  # the server sends text only
    return text


async def signed_in(authority: Authority, folder: Path) -> None:
    """Sign in, and leave."""
    async with open_servers(authority.config(folder)) as servers:
        await servers["guarded"].sign_in(show=Browser().show)


async def test_a_sign_out_ends_a_sign_in_for_all_programs_and_asks_no_person(
    authority: Authority, tmp_path: Path
) -> None:
    """C-27: also where a callback would ask."""
    browser = Browser()
    async with open_servers(authority.config(tmp_path, on_sign_in=browser.show, connect="lazy")) as servers:
        guarded = servers["guarded"]
        assert not await guarded.signed_in()
        assert not await guarded.sign_out()
        assert guarded.state == "pending"
        assert await whoami(servers) == "ada"
        assert await guarded.signed_in()
        assert await guarded.sign_out()
        assert (guarded.state, await guarded.signed_in(), authority.counts["revoked"]) == ("needs_auth", False, 1)
        assert (all_stored(tmp_path), len(browser.pages)) == ([], 1)
        await guarded.sign_in(show=browser.show)
        assert await whoami(servers) == "ada"
        await guarded.stop()
        assert await guarded.sign_out()
        assert [ref.state for ref in servers.configured] == ["stopped"]


async def test_a_required_server_is_signed_out_of_without_an_error(authority: Authority, tmp_path: Path) -> None:
    """C-27: that it needs a sign-in afterwards is what was asked for."""
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path, required=True)) as servers:
        assert await servers["guarded"].sign_out()
        assert servers["guarded"].state == "needs_auth"


async def test_a_process_has_no_sign_in(tmp_path: Path) -> None:
    """C-27."""
    async with open_servers(server("a", connect="lazy")) as servers:
        for ask in (servers["a"].signed_in, servers["a"].sign_out):
            with pytest.raises(ConfigError, match="server 'a' has no sign-in, because it is not reached over HTTP"):
                await ask()


async def test_a_program_does_not_wait_for_the_person_of_an_optional_server(
    authority: Authority, tmp_path: Path
) -> None:
    with trio.fail_after(90):  # of 300 s for a sign-in
        async with open_servers(authority.config(tmp_path, on_sign_in=never)) as servers:
            assert (servers["guarded"].state, servers.errors) == ("connecting", {})


async def test_a_sign_in_is_asked_for_once_and_found_by_the_next_program(authority: Authority, tmp_path: Path) -> None:
    browser = Browser()
    async with open_servers(authority.config(tmp_path)) as servers:
        assert servers["guarded"].state == "needs_auth"
        await servers["guarded"].sign_in(show=browser.show)
        assert await whoami(servers) == "ada"
    assert len(browser.pages) == 1
    assert mode(tmp_path) == 0o600
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert authority.counts["pages"] == 1


async def test_without_a_sign_in_no_page_is_shown_and_calls_fail_at_once(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path, when_down="wait")) as servers:
        assert servers.active == ()
        assert [ref.name for ref in servers.failed] == ["guarded"]
        assert isinstance(servers.errors["guarded"], SignInRequired)
        with pytest.raises(ServerUnavailable, match="mcp-actors login guarded") as caught:
            await whoami(servers)
        assert caught.value.state == "needs_auth"
        with pytest.raises(ServerUnavailable, match=r"await servers\['guarded'\].sign_in\(\)") as caught:
            await servers["guarded"].wait_ready()
        assert caught.value.state == "needs_auth"
        assert servers["guarded"].statistics().restarts == 0
    assert authority.counts["pages"] == 0
    assert authority.counts["refused401"] == 1


async def test_a_required_server_without_a_sign_in_fails_the_start(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable) as caught:
        async with open_servers(authority.config(tmp_path, required=True)):
            pytest.fail("the block has begun")
    assert caught.value.state == "needs_auth"


async def test_a_strict_start_ends_with_the_error_and_any_other_start_serves_the_rest(
    authority: Authority, tmp_path: Path
) -> None:
    configs = authority.config(tmp_path), server("other")
    with pytest.raises(SignInRequired, match="mcp-actors login guarded"):
        async with open_servers(*configs, strict=True):
            pytest.fail("the block has begun")
    async with open_servers(*configs) as servers:
        assert [ref.name for ref in servers.active] == ["other"]
        assert text_of(await servers["other"].call_tool("echo", {"text": "x"})) == "x"


async def test_an_expired_token_is_refreshed_without_a_person(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    before = stored(tmp_path)
    change(tmp_path, expires_at=time.time() - 1)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    after = stored(tmp_path)
    assert after["tokens"]["refresh_token"] != before["tokens"]["refresh_token"]
    assert after["expires_at"] > time.time() + 3000
    counts = authority.counts
    assert (counts["pages"], counts["grants"]["refresh_token"], counts["refused401"]) == (1, 1, 1)


async def test_a_token_that_is_about_to_expire_is_refreshed_before_that(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        await whoami(servers)
    change(tmp_path, since=time.time() - 3570, expires_at=time.time() + 30)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        await whoami(servers)
    assert authority.grants("refresh_token") == 1


async def test_many_calls_at_the_expiry_need_one_refresh(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(whoami, servers)
    assert authority.grants("refresh_token") == 1


async def test_a_refused_token_is_refreshed_although_the_clock_says_it_is_valid(
    authority: Authority, tmp_path: Path
) -> None:
    await signed_in(authority, tmp_path)
    authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
    change(tmp_path, expires_at=time.time() + 300)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert authority.grants("refresh_token") == 1


async def test_a_revoked_refresh_token_ends_in_needs_auth_and_shows_no_page(
    authority: Authority, tmp_path: Path
) -> None:
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path)) as servers:
        await whoami(servers)
        tokens = stored(tmp_path)["tokens"]
        authority.set(revoke=tokens["refresh_token"])
        authority.set(revoke=tokens["access_token"])
        with pytest.raises(ServerUnavailable) as caught:
            await whoami(servers)
        assert caught.value.state == "needs_auth"
        assert caught.value.outcome == "not_sent"
        await servers["guarded"].wait_state("needs_auth")
        assert servers.active == ()
    assert authority.counts["pages"] == 1
    assert "refresh_token" not in stored(tmp_path)["tokens"]


async def test_an_expired_refresh_token_ends_in_needs_auth_and_shows_no_page(
    authority: Authority, tmp_path: Path
) -> None:
    await signed_in(authority, tmp_path)
    tokens = stored(tmp_path)["tokens"]
    for kind in ("refresh_token", "access_token"):
        authority.set(expire=tokens[kind])
    async with open_servers(authority.config(tmp_path)) as servers:
        assert servers["guarded"].state == "needs_auth"
        assert "has refused the refresh token: 400 invalid_grant" in str(servers.errors["guarded"])
    assert authority.counts["pages"] == 1


async def test_an_authorization_server_that_is_down_for_a_moment_costs_no_sign_in(
    authority: Authority, tmp_path: Path
) -> None:
    await signed_in(authority, tmp_path)
    change(tmp_path, expires_at=time.time() - 1)
    authority.set(down=1)
    async with open_servers(authority.config(tmp_path)) as servers:
        await servers["guarded"].wait_state("ready")
        assert await whoami(servers) == "ada"
    assert authority.counts["pages"] == 1


async def test_a_refused_consent_is_shown_once_and_named(authority: Authority, tmp_path: Path) -> None:
    authority.set(refuse=True)
    browser = Browser()
    async with open_servers(authority.config(tmp_path)) as servers:
        with pytest.raises(SignInFailed, match="access_denied") as caught:
            await servers["guarded"].sign_in(show=browser.show)
        assert caught.value.reason == "access_denied"
        assert servers["guarded"].state == "needs_auth"
    assert len(browser.pages) == 1


async def test_a_closed_tab_times_out_by_the_time_of_the_sign_in_alone(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path, sign_in_timeout=0.3)) as servers:
        with pytest.raises(SignInFailed, match="sign in again, or raise sign_in_timeout") as caught:
            await servers["guarded"].sign_in(show=never)
        assert caught.value.reason == "timed_out"


async def test_a_person_pastes_the_url_of_the_redirect(authority: Authority, tmp_path: Path) -> None:
    async with open_servers(authority.config(tmp_path)) as servers:
        await servers["guarded"].sign_in(show=Browser().paste)
        assert await whoami(servers) == "ada"


async def test_an_authorization_endpoint_keeps_its_query_and_sets_no_parameter_of_the_sign_in(
    authority: Authority, tmp_path: Path
) -> None:
    """C-14: the SDK appends a second query, in which the state would be lost."""
    endpoint = f"{authority.url}/auth?tenant=a%2Fb&state=theirs&redir%65ct_uri=x&"
    authority.set(metadata={"authorization_endpoint": endpoint})

    async def show(url: str) -> None:
        assert url.startswith(f"{authority.url}/auth?tenant=a%2Fb&response_type=code&")
        assert [len(httpx2.URL(url).params.get_list(name)) for name in ("state", "redirect_uri")] == [1, 1]
        await Browser().show(url)

    async with open_servers(authority.config(tmp_path)) as servers:
        await servers["guarded"].sign_in(show=show)
        assert await whoami(servers) == "ada"


async def test_two_accounts_at_one_url_have_two_sign_ins(authority: Authority, tmp_path: Path) -> None:
    """C-14: a sign-in, or the end of one, leaves the other account alone."""
    configs = [authority.config(tmp_path, name, account=name) for name in ("work", "home")]
    async with open_servers(*configs) as servers:
        for name in ("work", "home"):
            await servers[name].sign_in(show=Browser().show)
        assert len({each["tokens"]["access_token"] for each in all_stored(tmp_path)}) == 2
        async with open_exchange(configs[0]) as exchange:
            assert await sign_out(exchange)
        assert await whoami(servers, "home") == "ada"
    assert len(all_stored(tmp_path)) == 1


async def test_a_required_server_waits_for_a_person_where_a_callback_asks(authority: Authority, tmp_path: Path) -> None:
    browser = Browser()
    config = authority.config(tmp_path, required=True, on_sign_in=browser.show)
    async with open_servers(config) as servers:
        assert await whoami(servers) == "ada"
    assert len(browser.pages) == 1


async def test_a_callback_asks_once_whatever_is_restarted(authority: Authority, tmp_path: Path) -> None:
    authority.set(refuse=True)
    browser = Browser()
    async with open_servers(authority.config(tmp_path, on_sign_in=browser.show)) as servers:
        await servers["guarded"].wait_state("needs_auth")
        assert "access_denied" in str(servers.errors["guarded"])
    assert len(browser.pages) == 1


async def test_a_callback_that_raises_is_named_as_the_reason(authority: Authority, tmp_path: Path) -> None:
    async def show(url: str) -> str | None:
        raise ValueError("a defect")

    async with open_servers(authority.config(tmp_path, on_sign_in=show)) as servers:
        await servers["guarded"].wait_state("needs_auth")
        error = servers.errors["guarded"]
    assert "on_sign_in raised ValueError" in str(error)
    assert isinstance(error.__cause__, ValueError)


async def test_a_refresh_outlives_the_caller_that_needed_it(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        before = stored(tmp_path)["tokens"]
        authority.set(revoke=before["access_token"], slow=300)
        with trio.move_on_after(0.1) as scope:
            await whoami(servers)
        assert scope.cancelled_caught
        assert await whoami(servers) == "ada"
    assert authority.counts["refused"] == 0
    assert authority.grants("refresh_token") == 1


async def test_the_state_ends_when_another_program_signs_in(authority: Authority, tmp_path: Path) -> None:
    restart = RestartPolicy(max_restarts=1, park_retry=0.2)
    async with open_servers(authority.config(tmp_path, restarts=restart)) as servers:
        await signed_in(authority, tmp_path)
        await servers["guarded"].wait_state("ready")
        assert await whoami(servers) == "ada"


@pytest.mark.parametrize("offset", [300, -300])
async def test_a_clock_that_is_wrong_costs_no_sign_in_and_one_refresh(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: float
) -> None:
    """The tokens were stored by another machine with the same home, or before the clock was set."""
    authority.set(ttl=200)
    await signed_in(authority, tmp_path)
    monkeypatch.setattr("time.time", lambda clock=time.time: clock() + offset)
    if offset < 0:
        authority.set(expire=stored(tmp_path)["tokens"]["access_token"])  # and here it seems valid for long
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert [await whoami(servers) for _ in range(3)] == ["ada"] * 3
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert (authority.counts["pages"], authority.grants("refresh_token")) == (1, 1)


async def test_three_issuers_serve_one_group(authority: Authority, tmp_path: Path) -> None:
    """Each server gets tokens of its own issuer only, and the end of one sign-in is the end of no other."""
    with run_authority() as second, run_authority() as third:
        authorities = {"one": authority, "two": second, "three": third}
        configs = [each.config(tmp_path, name) for name, each in authorities.items()]
        async with open_servers(*configs) as servers:
            async with trio.open_nursery() as nursery:
                for name in authorities:
                    nursery.start_soon(partial(servers[name].sign_in, show=Browser().show))
            assert [await whoami(servers, name) for name in authorities] == ["ada"] * 3
            tokens = {each["metadata"]["issuer"].rstrip("/"): each["tokens"] for each in all_stored(tmp_path)}
            assert set(tokens) == {each.url for each in authorities.values()}
            for kind in ("refresh_token", "access_token"):
                second.set(revoke=tokens[second.url][kind])
            with pytest.raises(ServerUnavailable) as caught:
                await whoami(servers, "two")
            assert (caught.value.server, caught.value.state) == ("two", "needs_auth")
            assert [await whoami(servers, name) for name in ("one", "three")] == ["ada"] * 2
        assert [each.counts["refused401"] for each in (authority, third)] == [1, 1]


async def test_a_redirect_with_another_state_is_refused_and_a_strangers_ends_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    browser = Browser()

    async def forge(url: str) -> str:
        await browser.paste(url)
        return str(httpx2.URL(browser.ended_at).copy_set_param("state", "another"))

    async def show_to_a_stranger_too(url: str) -> str | None:
        redirect = httpx2.URL(httpx2.URL(url).params["redirect_uri"])
        async with httpx2.AsyncClient(trust_env=False, verify=False) as stranger:
            for query in ("code=forged&state=another", "error=access_denied&state=another", "code=forged"):
                answer = await stranger.get(redirect.copy_with(query=query.encode()))
                assert (answer.status_code, "location" in answer.headers) == (400, False)
        return await browser.show(url)

    async with open_servers(authority.config(tmp_path)) as servers:
        with pytest.raises(SignInFailed) as caught:
            await servers["guarded"].sign_in(show=forge)
        assert caught.value.reason == "state_mismatch"
        browser.goes_back = True
        await servers["guarded"].sign_in(show=show_to_a_stranger_too)
        assert await whoami(servers) == "ada"


async def test_a_redirect_of_another_issuer_is_refused_by_name(authority: Authority, tmp_path: Path) -> None:
    browser = Browser()

    async def mix_up(url: str) -> str:
        await browser.paste(url)
        return str(httpx2.URL(browser.ended_at).copy_set_param("iss", "https://evil.example"))

    async with open_servers(authority.config(tmp_path)) as servers:
        with pytest.raises(SignInFailed) as caught:
            await servers["guarded"].sign_in(show=mix_up)
    assert caught.value.reason == "issuer_mismatch"


async def test_another_issuer_than_the_configured_one_is_refused_before_a_page_is_shown(
    authority: Authority, tmp_path: Path
) -> None:
    async with open_servers(authority.config(tmp_path, issuer=f"{authority.url}/another")) as servers:
        with pytest.raises(SignInFailed, match=r"so nothing is sent to it; correct issuer$") as caught:
            await servers["guarded"].sign_in(show=never)
    assert caught.value.reason == "invalid_metadata"


async def test_a_callback_returns_the_code_if_the_redirect_is_not_to_this_machine(
    authority: Authority, tmp_path: Path
) -> None:
    async def show(url: str) -> None:
        """Wait for a redirect that does not come here."""

    async with open_servers(authority.config(tmp_path, redirect="https://app.example/back")) as servers:
        with pytest.raises(SignInFailed, match="return the code, or the URL that the browser ends at") as caught:
            await servers["guarded"].sign_in(show=show)
    assert caught.value.reason == "no_code"


async def test_a_configured_client_secret_is_not_stored_and_used_for_each_request(
    authority: Authority, tmp_path: Path
) -> None:
    config = authority.config(tmp_path, client_id="confidential", client_secret=SECRET)
    async with open_servers(config) as servers:
        await servers["guarded"].sign_in(show=Browser().show)
        assert SECRET not in json.dumps(stored(tmp_path))
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        assert await whoami(servers) == "ada"
        assert SECRET not in json.dumps(stored(tmp_path))
    async with open_exchange(config) as exchange:
        assert await sign_out(exchange)
    assert authority.counts["revoked"] == 1
