"""Authorization servers speak dialects: a table of what they say, and of what becomes of it."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from queue import Queue
from typing import Any, Final

import httpx2
import pytest
import trio

from mcp_actors import ConnectFailed, Http, ServerConfig, ServerUnavailable, bridge, open_servers
from mcp_actors.auth import AuthorizationClient, FileTokenStore, OAuth, SignInFailed, SignInRequired, sign_in, signed_in
from mcp_actors.auth._stores import key_of
from mcp_actors.auth._tokens import OAuthTokens
from mcp_actors.gateway._front import Front
from mcp_actors.gateway.http._page import Page

from ..gateway.hosts import BOUND, gateway
from ..servers.processes import eventually
from .authority import no_page
from .speaker import Speaker, speaking
from .test_hostile_answers import pasted

TABLE: Final[list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("dialects.toml").read_text())["row"]


def rows(what: str) -> pytest.MarkDecorator:
    """Run a test for each row in which that is done."""
    chosen = [row for row in TABLE if row["what"] == what]
    return pytest.mark.parametrize("row", chosen, ids=[row["name"] for row in chosen])


@pytest.fixture(scope="module")
def running() -> Iterator[Speaker]:
    with speaking() as speaker:
        yield speaker


@pytest.fixture
def speaker(running: Speaker) -> Speaker:
    running.say()
    return running


def options_of(row: dict[str, Any], speaker: Speaker) -> dict[str, Any]:
    """Return the options of `OAuth` for a row."""
    return {"issuer": speaker.read(row["issuer"])} if "issuer" in row else {}


def exchange_with(client: httpx2.AsyncClient, speaker: Speaker, folder: Path, **options: Any) -> AuthorizationClient:
    """Return what talks to the servers."""
    oauth = OAuth(store=FileTokenStore(folder), **options)
    return AuthorizationClient(client, f"{speaker.base}/mcp", oauth, None, str, lambda secret: None)


async def store_old(speaker: Speaker, oauth: OAuth) -> None:
    """Store a sign-in whose access token is "old"."""
    url = f"{speaker.base}/mcp"
    metadata = json.loads(speaker.answer("GET", "/.well-known/oauth-authorization-server", b"", None)[1])
    old = {
        "version": 1,
        "resource": url,
        "client": {"client_id": "me", "redirect_uris": None},
        "tokens": {"access_token": "old", "token_type": "Bearer", "refresh_token": "r"},
        "expires_at": None,
        "since": 0.0,
        "metadata": metadata,
        "protected": {"resource": url, "authorization_servers": [speaker.base]},
    }
    assert oauth.store is not None
    await oauth.store.save(key_of(url, oauth), json.dumps(old))


@rows("sign_in")
async def test_a_sign_in_reads_what_has_one_meaning(row: dict[str, Any], speaker: Speaker, tmp_path: Path) -> None:
    """D-20, D-22."""
    speaker.say(**row)
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        exchange = exchange_with(client, speaker, tmp_path, **options_of(row, speaker))
        if "fails" in row:
            with pytest.raises(SignInFailed) as caught:
                await sign_in("guarded", exchange, speaker.redirect)
            assert speaker.read(row["fails"]) in str(caught.value)
            assert await signed_in(exchange) is None
        else:
            tokens = (await sign_in("guarded", exchange, speaker.redirect)).tokens
            assert {name: getattr(tokens, name) for name in row["reads"]} == row["reads"]


REFUSED: Final = {"token": {"status": 403, "body": ""}}
"""A refusal that says nothing of the refresh token."""


def configured(speaker: Speaker, folder: Path, **options: Any) -> tuple[ServerConfig, OAuth]:
    """Return the configuration of the MCP server, and that of its sign-in."""
    oauth = OAuth(store=FileTokenStore(folder), **options)
    return ServerConfig("guarded", Http(f"{speaker.base}/mcp", auth=oauth), protocol="legacy"), oauth


async def test_a_server_whose_refresh_is_refused_needs_a_person_at_once(speaker: Speaker, tmp_path: Path) -> None:
    """D-21: whatever the words of the refusal. The token is sent once, by whatever program tries it."""
    speaker.say(**REFUSED)
    config, oauth = configured(speaker, tmp_path)
    await store_old(speaker, oauth)
    for _ in range(2):
        async with open_servers(config) as group:
            guarded = group["guarded"]
            await guarded.wait_state("needs_auth")
            assert not await guarded.signed_in()
            with pytest.raises(ServerUnavailable, match=r"run 'mcp-actors login guarded'"):
                await guarded.call_tool("now")
        assert len(speaker.forms) == 1

    speaker.say()
    async with open_servers(config) as group:
        await group["guarded"].sign_in(show=pasted)
        assert await group["guarded"].signed_in()
        assert await group["guarded"].call("now") == "noon"


@pytest.mark.parametrize("streams", [{}, {"streams": "end at once"}], ids=["call", "stream of notifications"])
async def test_a_new_session_is_tried_before_a_person_is_asked(
    streams: dict[str, str], speaker: Speaker, tmp_path: Path
) -> None:
    """B-03: the server answers 401 to a session that it has forgotten, and accepts the token in the next one."""
    config, oauth = configured(speaker, tmp_path, on_sign_in=no_page)
    await store_old(speaker, oauth)
    speaker.say(accepts="old", session="first", **streams, **REFUSED)
    async with open_servers(config, strict=True) as group:
        guarded = group["guarded"]
        speaker.row["session"] = "second"
        if not streams:
            assert await guarded.call("now") == "noon"
        await eventually(lambda: (guarded.state, guarded.statistics().incarnation) == ("ready", 2))


@pytest.mark.parametrize(
    "changes",
    [{}, {"session": "second"}, {"session": "second", "open": ["initialize"]}, {"open": ["initialize", "ping"]}],
    ids=["the session is known", "it is unknown", "anybody begins a session", "only a call needs a token"],
)
async def test_a_person_is_asked_if_the_token_is_refused_in_any_session(
    changes: dict[str, Any], speaker: Speaker, tmp_path: Path
) -> None:
    """D-21."""
    config, oauth = configured(speaker, tmp_path)
    await store_old(speaker, oauth)
    speaker.say(accepts="old", session="first", **REFUSED)
    async with open_servers(config, strict=True) as group:
        speaker.row |= changes | {"accepts": "another"}
        with pytest.raises(SignInRequired):
            await group["guarded"].call("now")
        await group["guarded"].wait_state("needs_auth")
        assert len(speaker.forms) == 1


async def test_a_client_of_a_gateway_hears_that_a_person_is_needed(speaker: Speaker, tmp_path: Path) -> None:
    """D-21: from its call, with the remedy."""
    config, oauth = configured(speaker, tmp_path)
    await store_old(speaker, oauth)
    speaker.say(accepts="old")
    async with gateway(tmp_path, config) as door:
        await door.group["guarded"].wait_state("ready")
        host = await door.connect()
        assert await host.call("guarded_now") == "noon"
        speaker.say(**REFUSED)
        error = await host.error("tools/call", {"name": "guarded_now"})
        assert "run 'mcp-actors login guarded'" in error["message"]
    assert len(speaker.forms) == 1


@pytest.mark.parametrize("host", ["thread", "guest"])
def test_on_the_bridge_a_refused_refresh_needs_a_person_at_once(
    host: bridge.Host, speaker: Speaker, tmp_path: Path
) -> None:
    """D-21."""
    speaker.say(**REFUSED)
    config, oauth = configured(speaker, tmp_path)

    async def main() -> None:
        async with bridge.open_servers(config, host=host) as group:
            await group["guarded"].wait_state("needs_auth")
            assert not await group["guarded"].signed_in()

    trio.run(store_old, speaker, oauth)
    asyncio.run(main())
    assert len(speaker.forms) == 1


@rows("refresh")
async def test_an_answer_to_a_refresh_is_judged_by_what_it_proves(
    row: dict[str, Any], speaker: Speaker, tmp_path: Path
) -> None:
    """D-21."""
    speaker.say(**row)
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        exchange = exchange_with(client, speaker, tmp_path)
        await store_old(speaker, exchange.oauth)
        client.auth = OAuthTokens("guarded", exchange)
        if "fails" not in row:
            assert (await client.post(exchange.url, json={"id": 1, "method": "tools/list"})).status_code == 200
        else:
            for _ in range(2):
                with pytest.raises(ConnectFailed) as caught:
                    await client.post(exchange.url, json={"id": 1, "method": "tools/list"})
                assert isinstance(caught.value, SignInRequired) == (row["then"] != "later")
        sent = ["with resource" if "resource" in form else "without resource" for form in speaker.forms]
        assert sent == row.get("forms", ["with resource"] * (2 if row.get("then") == "later" else 1))
        found = await signed_in(exchange)
        assert found is not None
        assert found.refused == (row.get("then") in ("needs_auth", "deleted"))
        kept = {"needs_auth": "r", "deleted": None, "later": "r", None: "next"}[row.get("then")]
        assert found.tokens.refresh_token == kept


WORDS: Final = [row for row in TABLE if "fails" in row]
WHO: Final = re.compile(
    r"the (metadata of the |answer of the )?authorization server|the redirect |the server names no issuer"
)
NEXT: Final = re.compile(
    r"; (report|correct|sign in again|register|check|run 'mcp-actors login|set|it is asked again)\b"
)
ROW: Final = re.compile(r"<tr><td>guarded</td><td>(.*?)</td><td>(.*?)</td>")


def assert_says(text: str, *also: str) -> None:
    """Check that a text says who has refused, and what to do next."""
    assert WHO.search(text), text
    assert NEXT.search(text), text
    assert [each for each in also if each not in text] == [], text


@pytest.mark.parametrize("row", WORDS, ids=[row["name"] for row in WORDS])
async def test_an_error_and_the_page_of_a_gateway_say_who_has_refused_and_what_to_do_next(
    row: dict[str, Any], speaker: Speaker, tmp_path: Path
) -> None:
    speaker.say(**row)
    options = {"on_sign_in": speaker.redirect} if row["what"] == "sign_in" else {}
    config, oauth = configured(speaker, tmp_path, **options, **options_of(row, speaker))
    if row["what"] == "refresh":
        await store_old(speaker, oauth)
    async with open_servers(config) as group:
        await group["guarded"].wait_state("needs_auth", "backoff", "failed")
        error = str(group.status()["guarded"].last_error)
        assert_says(error, speaker.read(row["fails"]))
        assert error.count("server 'guarded'") == 1
        page = Page(Front(group, "{tool}"), source="", actions=False).html().decode()
    [(_, reason)] = ROW.findall(page)
    assert_says(unescape(reason), speaker.read(row["fails"]))


class Person:
    """A person with a browser and a terminal, who pastes the URL of a page that says that something was refused.

    Attributes:
        pages: the pages of the sign-in that the browser shows.
    """

    def __init__(self) -> None:
        self.pages = Queue[str]()
        self._ends = Queue[str]()

    def browse(self, url: str) -> bool:
        """Open a page, as `webbrowser.open` does."""
        with httpx2.Client(trust_env=False, verify=False, follow_redirects=True) as client:
            shown = client.get(url)
        self.pages.put(unescape(shown.text))
        if shown.is_error:
            self._ends.put(str(shown.url))
        return True

    def isatty(self) -> bool:
        """Be the stdin of a terminal."""
        return True

    def __iter__(self) -> Iterator[str]:
        yield self._ends.get(timeout=BOUND)


@pytest.mark.parametrize("row", WORDS, ids=[row["name"] for row in WORDS])
def test_a_terminal_and_a_browser_say_who_has_refused_and_what_to_do_next(
    row: dict[str, Any],
    speaker: Speaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the commands themselves. A redirect is answered before its code is used, so the page refers to the program."""
    from mcp_actors.cli import _run

    speaker.say(**row)
    person = Person()
    for name, value in {"XDG_DATA_HOME": tmp_path, "XDG_STATE_HOME": tmp_path, "BROWSER": "any"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("webbrowser.open", person.browse)
    if "state" in row:  # such a redirect may be a stranger's, so it does not end the sign-in
        monkeypatch.setattr("sys.stdin", person)
    entry = {"url": f"{speaker.base}/mcp", "oauth": options_of(row, speaker), "mcp_actors": {"protocol": "legacy"}}
    (file := tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    if row["what"] == "refresh":
        trio.run(store_old, speaker, OAuth(store=FileTokenStore()))
    words = ("login", "guarded") if row["what"] == "sign_in" else ("tools", "guarded")
    assert _run.run((*words, "--config", str(file))) == 1
    assert_says(capsys.readouterr().err, speaker.read(row["fails"]))
    for _ in range(speaker.visits):
        page = person.pages.get(timeout=BOUND)
        if "Your program shows the outcome and the next step." not in page:
            assert_says(page)
