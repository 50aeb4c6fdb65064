"""Answers of authorization servers, and values of stores, that are not what they should be."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcp_actors import ConfigError, ConnectFailed
from mcp_actors.auth import FileTokenStore, OAuth, SignInFailed, SignInRequired, _stores
from mcp_actors.auth._exchange import AuthorizationClient
from mcp_actors.auth._sign_in import CHALLENGE_TIMEOUT, sign_in
from mcp_actors.auth._stores import key_of
from mcp_actors.auth._tokens import OAuthTokens

from .authority import no_page
from .test_sign_in import stored

URL: Final = "https://mcp.example/mcp"
ISSUER: Final = "https://as.example"
METADATA: Final = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}
ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
NEW: Final = {"access_token": "new", "token_type": "Bearer", "expires_in": 3600}
STORED: Final[dict[str, Any]] = {
    "version": 1,
    "resource": URL,
    "client": {"client_id": "me", "redirect_uris": None},
    "tokens": {"access_token": "refused", "token_type": "Bearer", "refresh_token": "r"},
    "expires_at": None,
    "since": 0.0,
    "metadata": METADATA,
    "protected": None,
    "challenge": None,
    "asked": None,
}


@define
class Servers:
    """An MCP server that accepts the token ``new``, and its authorization server.

    Attributes:
        token: the status and the answer of the token endpoint.
        metadata: changes of the metadata.
        challenge: what the MCP server answers to a request without a token.
        refreshes: how many requests the token endpoint got.
        sent: the refresh tokens that it got.
        codes: the codes that it got.
        registered: the client that it registers.
    """

    token: tuple[int, object] = (200, NEW)
    metadata: dict[str, object] = field(factory=dict)
    challenge: bytes = b"Bearer"
    refreshes: int = 0
    sent: list[str] = field(factory=list)
    codes: list[str] = field(factory=list)
    registered: dict[str, object] = field(
        factory=lambda: {"client_id": "me", "redirect_uris": ["http://127.0.0.1/callback"]}
    )

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        path = request.url.path
        if path == "/mcp":
            status = 200 if request.headers.get("authorization") == "Bearer new" else 401
            return httpx2.Response(status, headers=[(b"www-authenticate", self.challenge)])
        if path == "/token":
            self.refreshes += 1
            form = parse_qs(request.content.decode())
            self.sent += form.get("refresh_token", [])
            self.codes += form.get("code", [])
            return httpx2.Response(self.token[0], content=json.dumps(self.token[1]))
        if "oauth-protected-resource" in path:
            return httpx2.Response(200, json={"resource": URL, "authorization_servers": [ISSUER]})
        if "well-known" in path:
            return httpx2.Response(200, json=METADATA | self.metadata)
        return httpx2.Response(201, json=self.registered)

    def exchange(self, folder: Path, **options: Any) -> AuthorizationClient:
        """Return what talks to them."""
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        oauth = OAuth(**({"store": FileTokenStore(folder)} | options))
        return AuthorizationClient(client, URL, oauth, None, str, lambda secret: None)

    @asynccontextmanager
    async def client(self, folder: Path, stored: str) -> AsyncIterator[httpx2.AsyncClient]:
        """Open a client with a stored sign-in."""
        await FileTokenStore(folder).save(key_of(URL, self.exchange(folder).oauth), stored)
        async with self.client_of(folder) as client:
            yield client

    def client_of(self, folder: Path) -> httpx2.AsyncClient:
        """Return a client with the sign-in of a folder."""
        auth = OAuthTokens("guarded", self.exchange(folder))
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self), auth=auth)


async def pasted(url: str) -> str:
    """Agree, and paste the URL of the redirect."""
    return f"http://127.0.0.1/callback?code=c&state={parse_qs(urlsplit(url).query)['state'][0]}"


@pytest.mark.parametrize("code", ["ab+c/==", "a=b&c", "4/0AY0e=", "a b"])
async def test_a_code_alone_is_pasted_whatever_is_in_it(tmp_path: Path, code: str) -> None:
    """C-14: a "=" does not make it a query."""
    servers = Servers()

    async def show(url: str) -> str:
        return f" {code}\n"

    await sign_in("guarded", servers.exchange(tmp_path), show)
    assert servers.codes == [code]


@pytest.mark.parametrize("pasted", ["http://127.0.0.1/callback", "?code=c", "code=c&state=another", "error=x"])
async def test_what_a_redirect_has_without_the_state_of_the_sign_in_is_not_a_code(tmp_path: Path, pasted: str) -> None:
    async def show(url: str) -> str:
        return pasted

    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", Servers().exchange(tmp_path), show)
    assert caught.value.reason == "state_mismatch"


async def test_many_refused_calls_at_a_failing_refresh_need_no_sign_in(tmp_path: Path) -> None:
    servers = Servers(token=(503, {}))
    errors: list[ConnectFailed] = []

    async def call() -> None:
        with pytest.raises(ConnectFailed) as caught:
            await client.post(URL)
        errors.append(caught.value)

    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert {(type(error), error.hopeless) for error in errors} == {(ConnectFailed, False)}
        assert servers.refreshes == 1
        servers.token = (200, NEW)
        assert (await client.post(URL)).status_code == 200


@define(eq=False)
class OneConnection(httpx2.AsyncBaseTransport):
    """Sends a request when the answer to the one before was closed."""

    servers: Servers
    free: trio.Semaphore = field(factory=lambda: trio.Semaphore(1))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        await self.free.acquire()
        await request.aread()
        answer = await self.servers(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=Held(answer.content, self.free))


@define(eq=False)
class Held(httpx2.AsyncByteStream):
    """A body that holds its connection until it is closed."""

    content: bytes
    free: trio.Semaphore

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content

    async def aclose(self) -> None:
        self.free.release()


@pytest.mark.parametrize("grant", ["authorization_code", "client_credentials"])
async def test_a_refused_request_holds_no_connection_while_its_token_is_replaced(tmp_path: Path, grant: str) -> None:
    """The authorization server is asked through the same client, which may have no other connection."""
    servers = Servers()
    exchange = servers.exchange(tmp_path, grant=grant, client_id="me", client_secret="secret")
    exchange.client, exchange.secret = httpx2.AsyncClient(transport=OneConnection(servers)), "secret"
    await FileTokenStore(tmp_path).save(key_of(URL, exchange.oauth), json.dumps(STORED))
    async with exchange.client as client:
        client.auth = OAuthTokens("guarded", exchange)
        assert (await client.post(URL)).status_code == 200


@pytest.mark.parametrize("grant", ["authorization_code", "client_credentials"])
async def test_many_refused_calls_make_one_attempt_at_a_token_that_is_refused(tmp_path: Path, grant: str) -> None:
    """A refresh token that was used is not sent again, and a wrong secret does not lock its client out."""
    servers = Servers(token=(200, NEW | {"access_token": "not\na token"}))
    exchange = servers.exchange(tmp_path, grant=grant, client_id="me", client_secret="secret")
    exchange.secret = "secret"
    errors: list[ConnectFailed] = []

    async def call() -> None:
        with pytest.raises(ConnectFailed, match=r"the access token has characters|that was refused") as caught:
            await client.post(URL)
        errors.append(caught.value)

    await FileTokenStore(tmp_path).save(key_of(URL, exchange.oauth), json.dumps(STORED))
    auth = OAuthTokens("guarded", exchange)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(servers), auth=auth) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert [error.hopeless for error in errors] == [True] * 5
        assert servers.refreshes == 1
        servers.token = (200, NEW)
        if grant == "client_credentials":
            assert (await client.post(URL)).status_code == 200
        else:
            with pytest.raises(SignInRequired):
                await client.post(URL)
            assert servers.refreshes == 1


async def test_a_401_without_metadata_requires_a_sign_in_only_where_one_is_configured(tmp_path: Path) -> None:
    """A server of a file without credentials, whose 401 may mean anything else."""
    servers = Servers()

    async def status(**options: bool) -> int:
        auth = OAuthTokens("guarded", servers.exchange(tmp_path, **options))
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(servers), auth=auth) as client:
            return (await client.post(URL)).status_code

    assert await status(optional=True) == 401
    with pytest.raises(SignInRequired):
        await status()
    servers.challenge = b'Bearer resource_metadata="https://mcp.example/metadata"'
    with pytest.raises(SignInRequired):
        await status(optional=True)


async def test_a_lock_that_another_process_keeps_is_not_hopeless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Servers().client(tmp_path, json.dumps(STORED)) as client:
        monkeypatch.setattr(_stores, "LONGEST_WAIT", 0.1)
        monkeypatch.setattr(_stores, "_locked", lambda descriptor, path: False)
        with pytest.raises(ConnectFailed, match="another process has held") as caught:
            await client.post(URL)
    assert not caught.value.hopeless


@pytest.mark.parametrize(
    "stored",
    [
        "[" * 100_000,
        *(json.dumps(STORED | each) for each in ({"tokens": None}, {"client": None}, {"since": None})),
        json.dumps(STORED | {"expires_at": "soon"}),
        json.dumps(STORED | {"resource": "https://other.example/mcp"}),
        json.dumps(STORED | {"tokens": {"access_token": "a\nb", "token_type": "Bearer"}}),
    ],
)
async def test_a_damaged_value_counts_as_not_signed_in(tmp_path: Path, stored: str) -> None:
    async with Servers().client(tmp_path, stored) as client:
        with pytest.raises(SignInRequired, match="not signed in"):
            await client.post(URL)


@pytest.mark.parametrize(
    "changes", [{"access_token": "a\nb"}, {"access_token": "töken"}, {"access_token": ""}, {"expires_in": 10**400}]
)
async def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(tmp_path: Path, changes: dict[str, object]) -> None:
    servers = Servers(token=(200, NEW | changes))
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        with pytest.raises(ConnectFailed, match="cannot be used") as caught:
            await client.post(URL)
    assert "ken" not in str(caught.value).replace("token", "")
    with pytest.raises(SignInFailed, match=r"cannot be used|not valid"):
        await sign_in("guarded", servers.exchange(tmp_path / "other"), pasted)


async def test_a_wrong_client_secret_is_named_with_a_remedy(tmp_path: Path) -> None:
    servers = Servers(token=(401, {"error": "invalid_client"}))
    remedy = "check client_id and client_secret"
    with pytest.raises(SignInFailed, match=rf"issues no token: 401 invalid_client; {remedy}$"):
        await sign_in("guarded", servers.exchange(tmp_path), pasted)


@pytest.mark.parametrize("lifetime", [0, -1])
async def test_a_token_that_has_expired_when_it_is_issued_is_used_until_it_is_refused(
    tmp_path: Path, lifetime: int
) -> None:
    servers = Servers(token=(200, NEW | {"expires_in": lifetime}))
    assert (await sign_in("guarded", servers.exchange(tmp_path / "other"), pasted)).expires_at is None
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        servers.refreshes = 0
        assert [(await client.post(URL)).status_code for _ in range(3)] == [200] * 3
    assert servers.refreshes == 1


async def test_an_empty_refresh_token_is_not_sent(tmp_path: Path) -> None:
    servers = Servers(token=(200, NEW | {"refresh_token": ""}))
    assert not (await sign_in("guarded", servers.exchange(tmp_path / "other"), pasted)).renewable
    stored = STORED | {"tokens": STORED["tokens"] | {"refresh_token": ""}}
    async with servers.client(tmp_path, json.dumps(stored)) as client:
        with pytest.raises(SignInRequired, match="has no refresh token"):
            await client.post(URL)


async def test_an_empty_refresh_token_does_not_replace_one(tmp_path: Path) -> None:
    servers = Servers(token=(200, NEW | {"refresh_token": ""}))
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        assert (await client.post(URL)).status_code == 200
    assert stored(tmp_path)["tokens"]["refresh_token"] == "r"


async def test_an_error_that_comes_with_status_200_is_one(tmp_path: Path) -> None:
    """GitHub sends them so, and with names of its own."""
    servers = Servers(token=(200, {"error": "bad_refresh_token", "error_description": "It has expired."}))
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        with pytest.raises(SignInRequired, match=r"400 bad_refresh_token \(It has expired.\)"):
            await client.post(URL)
    with pytest.raises(
        SignInFailed,
        match=r"issues no token: 400 bad_refresh_token \(It has expired.\); sign in again, or ask its operator$",
    ):
        await sign_in("guarded", servers.exchange(tmp_path / "other"), pasted)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"expires_in": "leaked"}, "expires_in: Input should be a valid integer, unable to parse string as an integer"),
        ({"expires_in": float("nan")}, "expires_in: Input should be a finite number"),
        ({"scope": {"leaked": 1}}, "scope: Input should be a valid string"),
        ({"token_type": "leaked"}, "token_type: Input should be 'Bearer'"),
    ],
)
async def test_an_answer_with_a_wrong_type_is_named_and_not_shown(
    tmp_path: Path, changes: dict[str, object], problem: str
) -> None:
    servers = Servers(token=(200, NEW | changes))
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", servers.exchange(tmp_path), pasted)
    said = f"the authorization server issues no token: invalid answer ({problem}); report that to its operator"
    assert str(caught.value) == f"server 'guarded': sign-in failed (token_refused): {said}"
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        with pytest.raises(ConnectFailed) as failed:
            await client.post(URL)
    said = f"the authorization server has answered a refresh without a valid token ({problem})"
    assert str(failed.value).startswith(f"server 'guarded': {said}; run 'mcp-actors login guarded'")


@pytest.mark.parametrize(("status", "said"), [(404, "404"), (200, "invalid answer")])
async def test_a_url_at_which_nothing_knows_oauth_is_what_to_check(tmp_path: Path, status: int, said: str) -> None:
    """A wrong path, or a site that answers every request with a page."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        return httpx2.Response(status, html="<h1>Welcome</h1>")

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    exchange = AuthorizationClient(client, URL, OAuth(store=FileTokenStore(tmp_path)), None, str, lambda secret: None)
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", exchange, pasted)
    problem = f"the host of the URL publishes no OAuth metadata, and registers no client: {said}"
    remedy = "if the server takes a key or a token, give it in headers; if it lets everybody in, do not sign in; else "
    remedy += "check its URL, or register a client there, and set client_id"
    assert str(caught.value) == f"server 'guarded': sign-in failed (registration_refused): {problem}; {remedy}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"authorization_endpoint": f"{ISSUER}/authorize#here"}, "invalid_metadata"),
        ({"authorization_endpoint": f"{ISSUER}/{'x' * 70_000}"}, "invalid_metadata"),
        ({"registration_endpoint": f"{ISSUER}/{'x' * 70_000}"}, "invalid_metadata"),
        ({"token_endpoint": "http://as.example/token"}, "insecure_url"),
        *(({name: "https://127.1/x"}, "private_address") for name in ENDPOINTS),
        *(({name: f"https://x@{urlsplit(ISSUER).netloc}/y"}, "invalid_metadata") for name in ENDPOINTS),
        ({"issuer": "https://evil.example"}, "issuer_mismatch"),
        ({"code_challenge_methods_supported": ["plain"]}, "pkce_unsupported"),
        ({"code_challenge_methods_supported": []}, "pkce_unsupported"),
    ],
)
async def test_metadata_that_cannot_be_used_are_refused_by_name_before_a_page_is_shown(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    """C-19: a person should not agree to a sign-in that fails then."""
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", Servers(metadata=changes).exchange(tmp_path), no_page)
    assert caught.value.reason == reason


@define
class Redirecting(Servers):
    """The same with metadata at another place.

    Attributes:
        location: where the first place leads.
        redirects: how many redirects were sent.
    """

    location: str = "/moved/well-known"
    redirects: int = 0

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        if request.url.host == "as.example" and request.url.path.startswith("/.well-known/"):
            self.redirects += 1
            return httpx2.Response(302, headers={"location": self.location})
        return await Servers.__call__(self, request)


async def test_metadata_may_be_at_another_place_of_their_origin(tmp_path: Path) -> None:
    servers = Redirecting()
    assert (await sign_in("guarded", servers.exchange(tmp_path), pasted)).tokens.access_token == "new"
    assert servers.redirects == 1


@pytest.mark.parametrize(
    "location",
    ["/.well-known/oauth-authorization-server", "http://as.example/x", "https://127.0.0.1/x", "//x@as.example/"],
)
async def test_redirects_of_metadata_that_lead_nowhere_end_the_sign_in(tmp_path: Path, location: str) -> None:
    servers = Redirecting(location=location)
    with pytest.raises(SignInFailed):
        await sign_in("guarded", servers.exchange(tmp_path), no_page)
    assert servers.redirects < 20


async def test_metadata_that_do_not_announce_pkce_are_refused_unless_it_is_assumed(tmp_path: Path) -> None:
    """Neither the SDK nor the TypeScript SDK does that, but MCP's specification requires it since 2025-11-25."""
    servers = Servers(metadata={"code_challenge_methods_supported": None})
    with pytest.raises(SignInFailed, match=r"do not announce PKCE .* set assume_pkce=True") as caught:
        await sign_in("guarded", servers.exchange(tmp_path), pasted)
    assert caught.value.reason == "pkce_unsupported"
    assert (await sign_in("guarded", servers.exchange(tmp_path, assume_pkce=True), pasted)).tokens.access_token == "new"


async def test_s256_is_required_even_where_pkce_is_assumed(tmp_path: Path) -> None:
    servers = Servers(metadata={"code_challenge_methods_supported": ["plain"]})
    with pytest.raises(SignInFailed, match="PKCE by plain only"):
        await sign_in("guarded", servers.exchange(tmp_path, assume_pkce=True), pasted)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ('Bearer resource_metadata="http://["', "insecure_url"),
        ('Bearer resource_metadata="file:///etc/passwd"', "insecure_url"),
        ('Bearer resource_metadata="https://169.254.169.254/x"', "private_address"),
        ('Bearer resource_metadata="https://x@mcp.example/x"', "invalid_metadata"),
        (f'Bearer resource_metadata="https://a.example/{"x" * 70_000}"', "invalid_metadata"),
    ],
)
async def test_a_challenge_that_cannot_be_used_is_refused_by_name(tmp_path: Path, challenge: str, reason: str) -> None:
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", Servers(challenge=challenge.encode()).exchange(tmp_path), pasted)
    assert caught.value.reason == reason


@pytest.mark.parametrize("location", ["https://169.254.169.254/x", "https://x@mcp.example/x", "https://x@as.example/x"])
@pytest.mark.parametrize("step", ["oauth-protected-resource", "oauth-authorization-server"])
async def test_a_redirect_of_metadata_is_not_followed_elsewhere(tmp_path: Path, step: str, location: str) -> None:
    """Neither to a private address nor to a host behind a user."""
    asked: list[str] = []

    class Redirecting(Servers):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            asked.append(str(request.url))
            if step in request.url.path:
                return httpx2.Response(302, headers={"location": location})
            return await super().__call__(request)

    with suppress(SignInFailed):
        await sign_in("guarded", Redirecting().exchange(tmp_path), pasted)
    assert step in str(asked)
    assert location not in asked


async def test_a_challenge_may_have_characters_beyond_ascii(tmp_path: Path) -> None:
    servers = Servers(challenge='Bearer scope="é", error="ü"'.encode())
    assert (await sign_in("guarded", servers.exchange(tmp_path), pasted)).tokens.access_token == "new"


async def test_an_explanation_that_is_not_text_is_not_shown(tmp_path: Path) -> None:
    servers = Servers(token=(400, {"error": {"a": 1}, "error_description": ["leaked"]}))
    with pytest.raises(SignInFailed, match=r"issues no token: 400; sign in again, or ask its operator$"):
        await sign_in("guarded", servers.exchange(tmp_path), pasted)


class Memory:
    """A store in memory, for tests whose clock must not run ahead of a thread."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def load(self, key: str) -> str | None:
        await trio.lowlevel.checkpoint()
        return self.values.get(key)

    async def save(self, key: str, value: str) -> None:
        await trio.lowlevel.checkpoint()
        self.values[key] = value

    async def delete(self, key: str) -> None:
        await trio.lowlevel.checkpoint()
        self.values.pop(key, None)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        yield


ELSEWHERE: Final[dict[str, Any]] = {"redirect": "https://app.example/callback", "store": Memory()}


@pytest.mark.parametrize("silent", ["protected", "authorization-server", "register", "token"])
async def test_an_authorization_server_that_is_silent_is_not_taken_for_a_person(
    silent: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Silent(Servers):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            if silent in request.url.path:
                await trio.sleep_forever()
            return await super().__call__(request)

    with pytest.raises(SignInFailed, match="did not answer within 30 s") as caught:
        await sign_in("guarded", Silent().exchange(tmp_path, **ELSEWHERE), pasted)
    assert caught.value.reason == "unreachable"
    assert trio.current_time() <= 31


async def test_an_mcp_server_that_is_silent_delays_a_sign_in_by_seconds(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Silent(Servers):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/mcp":
                await trio.sleep_forever()
            return await super().__call__(request)

    assert (await sign_in("guarded", Silent().exchange(tmp_path, **ELSEWHERE), pasted)).renewable is False
    assert trio.current_time() == CHALLENGE_TIMEOUT


async def test_the_timeout_of_a_program_does_not_name_a_person(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def never(*args: str) -> str:
        await trio.sleep_forever()
        raise AssertionError

    robot = {"grant": "client_credentials", "client_id": "robot", "assertion": never, "store": Memory()}
    with pytest.raises(SignInFailed, match=r"\(unreachable\): there are no tokens within 30 s; sign in again later$"):
        await sign_in("guarded", Servers().exchange(tmp_path, **robot), pasted)


async def test_a_redirect_to_this_machine_by_https_is_pasted(tmp_path: Path) -> None:
    """The receiver has no TLS, so a program of the user's receives it."""
    exchange = Servers().exchange(tmp_path, redirect="https://127.0.0.1:8443/callback")
    assert (await sign_in("guarded", exchange, pasted)).tokens.access_token == "new"


@pytest.mark.parametrize("raised", [ValueError("a defect"), UnicodeDecodeError("utf-8", b"x", 0, 1, "a defect")])
async def test_an_exception_of_the_callback_is_raised_as_it_is(tmp_path: Path, raised: Exception) -> None:
    async def show(url: str) -> str:
        await trio.lowlevel.checkpoint()
        raise raised

    with pytest.raises(type(raised)) as caught:
        await sign_in("guarded", Servers().exchange(tmp_path), show)
    assert caught.value is raised
    assert caught.traceback[-1].name == "show"
    assert {frame.name for frame in caught.traceback}.isdisjoint({"_perform_authorization_code_grant", "call_back"})


async def test_an_mcp_server_that_is_down_is_not_called_an_authorization_server(tmp_path: Path) -> None:
    def down(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503)

    exchange = Servers().exchange(tmp_path)
    exchange.client = httpx2.AsyncClient(transport=httpx2.MockTransport(down))
    with pytest.raises(SignInFailed, match=r"\(unreachable\): the MCP server answered 503"):
        await sign_in("guarded", exchange, pasted)


async def number(*args: str) -> Any:
    """Return what is not text."""
    await trio.lowlevel.checkpoint()
    return 5


async def none(*args: str) -> Any:
    """Return None."""
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        (number, "the sign-in callback returned int; return a str, or None to wait for the redirect"),
    ],
)
async def test_a_callback_of_a_wrong_type_is_named(tmp_path: Path, callback: Any, problem: str) -> None:
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", Servers().exchange(tmp_path), callback)
    assert str(caught.value) == f"server 'guarded': sign-in failed (invalid_callback): {problem}"


@pytest.mark.parametrize(
    ("assertion", "problem"),
    [
        (number, "assertion returned int; return a str"),
        (none, "assertion returned NoneType; return a str"),
    ],
)
async def test_an_assertion_of_a_wrong_type_is_named(tmp_path: Path, assertion: Any, problem: str) -> None:
    exchange = Servers().exchange(tmp_path, grant="client_credentials", client_id="robot", assertion=assertion)
    with pytest.raises(SignInFailed, match=problem) as caught:
        await sign_in("guarded", exchange, pasted)
    assert caught.value.reason == "invalid_callback"


SECRETS: Final = ("new access token", "new refresh token", "secret of the client", "code of the redirect")


def shown_by(error: BaseException | None) -> str:
    """Return all that an error, its causes and its contexts show, with the locals of the library."""
    if error is None:
        return ""
    frames = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)
    of_library = [frame for frame in frames.stack if "/tests/" not in frame.filename]
    text = "".join([str(error), repr(error), *(str(frame.locals) for frame in of_library)])
    return text + shown_by(error.__cause__) + shown_by(error.__context__)


def full(path: Path, data: bytes, *, durable: bool) -> None:
    """Fail as a disk does on which there is room for the trial, and none for tokens."""
    if data.strip():
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "failure",
    ["store", "state", "issuer", "token", "quoted", "client", "callback", "named", "redirect", "pkce"],
)
async def test_no_failure_of_a_sign_in_shows_a_secret(
    tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    access, renewal, secret, code = (each.replace(" ", "-") for each in SECRETS)
    granted = {"access_token": access, "refresh_token": renewal, "token_type": "Bearer", "expires_in": 60}
    quoted = {"error": "invalid_grant", "error_description": f"not good: {code}"}
    unusable = granted | {"expires_in": "soon"}
    named = {"error": code}
    answers = {"token": (200, unusable), "quoted": (400, quoted), "client": (401, quoted), "named": (400, named)}
    answer = answers.get(failure, (200, granted))
    client: dict[str, object] = {
        "client_id": "me",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "client_secret": secret,
    }
    servers = Servers(token=answer, registered=client | {"token_endpoint_auth_method": "client_secret_post"})
    # The second sign-in, after a first one.
    former = {"access_token": "former-access-token", "refresh_token": "former-refresh-token", "token_type": "Bearer"}
    await FileTokenStore(tmp_path).save(
        key_of(URL, servers.exchange(tmp_path).oauth), json.dumps(STORED | {"tokens": former})
    )
    exchange, known = servers.exchange(tmp_path), list[str]()
    if failure == "pkce":
        servers.metadata["code_challenge_methods_supported"] = [former["refresh_token"]]
    exchange.learn = known.append
    exchange.mask = lambda text: reduce(lambda shown, each: shown.replace(each, "<token>"), known, text)

    async def show(url: str) -> str:
        if failure == "callback":
            raise ValueError("a defect")
        state = "another" if failure == "state" else parse_qs(urlsplit(url).query)["state"][0]
        if failure == "redirect":
            return f"http://127.0.0.1/callback?error={former['refresh_token']}&state={state}"
        return f"http://127.0.0.1/callback?code={code}&state={state}" + ("&iss=x" if failure == "issuer" else "")

    if failure == "store":
        monkeypatch.setattr(_stores, "replace_file", full)
    with pytest.raises((SignInFailed, ConfigError, ValueError)) as caught:
        await sign_in("guarded", exchange, show)
    text = shown_by(caught.value) + caplog.text + str(getattr(caught.value, "reason", ""))
    assert [
        each
        for each in (access, renewal, secret, code, former["access_token"], former["refresh_token"])
        if each in text
    ] == []
