"""No token appears in an error, a log, an event, a repr, a status or a traceback."""

from __future__ import annotations

import copy
import logging
import pickle
import time
import traceback
from base64 import b64encode
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest
from mcp import MCPError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from mcp_actors import McpActorsError, open_servers
from mcp_actors.auth import AuthorizationClient, OAuth, SignInFailed, SignInRequired
from mcp_actors.kernel import Event
from mcp_actors.transports import Masker

from .authority import SECRET, Authority, Browser
from .test_sign_in import change, signed_in, stored, whoami


async def test_no_token_is_shown_anywhere(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    secrets: set[str] = set()

    def observe(event: Event) -> None:
        shown.append(repr(event))

    def collect() -> None:
        tokens = stored(tmp_path)["tokens"]
        secrets.update(value for name, value in tokens.items() if name.endswith("_token"))

    await signed_in(authority, tmp_path)
    collect()
    async with open_servers(authority.config(tmp_path), observers=[observe]) as servers:
        with pytest.raises(MCPError, match="refused <") as quoted:
            await servers["guarded"].call_tool("leak")
        shown.append(str(quoted.value))
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"])
        await whoami(servers)
        collect()
        tokens = stored(tmp_path)["tokens"]
        for kind in ("refresh_token", "access_token"):
            authority.set(revoke=tokens[kind])
        with pytest.raises(SignInRequired) as caught:
            await whoami(servers)
        error = caught.value
        frames = caught.tb.tb_next  # without that of this test, which has the tokens
        captured = traceback.TracebackException(type(error), error, frames, capture_locals=True)
        shown += [repr(error), str(error), "".join(captured.format())]
        await servers["guarded"].wait_state("needs_auth")
        shown += [repr(servers.errors), repr(servers.status()), repr(servers), repr(servers["guarded"].config)]
        authority.set(refuse=True)
        with suppress(McpActorsError):
            await servers["guarded"].sign_in(show=Browser().show)
    assert len(secrets) == 4
    for secret in secrets:
        assert secret not in caplog.text
        assert not [text for text in shown if secret in text]


async def test_a_failed_refresh_shows_no_token(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await signed_in(authority, tmp_path)
    tokens = stored(tmp_path)["tokens"]
    change(tmp_path, expires_at=time.time() - 1)
    authority.set(revoke=tokens["refresh_token"])
    async with open_servers(authority.config(tmp_path)) as servers:
        text = f"{servers.errors}{traceback.format_exception(servers.errors['guarded'])}"
    for secret in (tokens["access_token"], tokens["refresh_token"]):
        assert secret not in text
        assert secret not in caplog.text


@pytest.mark.parametrize("configured", [True, False])
async def test_a_client_secret_that_comes_back_is_masked(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, configured: bool
) -> None:
    """C-17: plain, and as base64 of ``id:secret``; also of a client that has registered itself."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    options = {"client_id": "confidential", "client_secret": SECRET} if configured else {}
    browser = Browser()
    authority.set(quote=True)
    config = authority.config(tmp_path, on_sign_in=browser.show, **options)
    async with open_servers(config, observers=[lambda event: shown.append(repr(event))]) as servers:
        await servers["guarded"].wait_state("needs_auth")
        with pytest.raises(SignInFailed, match="invalid_grant") as caught:
            await servers["guarded"].sign_in(show=browser.show)
        shown += [repr(caught.value), repr(servers.errors), repr(servers.status()), caplog.text]
    secret = SECRET if configured else authority.counts["secret"]
    client = "confidential" if configured else parse_qs(urlsplit(browser.pages[-1]).query)["client_id"][0]
    pair = b64encode(f"{client}:{quote(secret, safe='')}".encode()).decode()
    assert "<auth.client_secret>" in repr(shown) if configured else "<token>" in repr(shown)
    for each in (secret, pair, pair.rstrip("=")):
        assert not [text for text in shown if each in text]


async def test_a_stored_client_secret_is_masked_however_often_its_token_is_refreshed(tmp_path: Path) -> None:
    """C-17: it outlives all tokens."""
    masker = Masker()
    learn = partial(masker.add_recent, "<token>")
    client = OAuthClientInformationFull(client_id="me", client_secret="issued-to-this-program")
    async with httpx2.AsyncClient() as http:
        exchange = AuthorizationClient(http, "https://mcp.example/mcp", OAuth(), None, masker, learn)
        for number in range(20):
            exchange.learn_credentials(OAuthToken(access_token=f"access-{number}", refresh_token=f"r-{number}"), client)
    pair = b64encode(b"me:issued-to-this-program").decode()
    assert masker(f"{pair} issued-to-this-program access-19") == "<token> <token> <token>"


def test_the_error_can_be_copied_and_pickled() -> None:
    error = SignInRequired.because("docs", "not signed in", "Bearer")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(twin), twin.state, twin.hopeless, twin.challenge) == (str(error), "needs_auth", True, "Bearer")
