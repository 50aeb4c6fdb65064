"""Requests to authorization servers."""

from __future__ import annotations

from base64 import b64encode

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from mcp_actors.auth import AuthorizationClient, OAuth
from mcp_actors.auth._exchange import MAX_BODY, MAX_CREDENTIAL, AuthorizationRefused, Unreachable


def exchange(url: str, answer: httpx2.Response) -> AuthorizationClient:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: answer))
    return AuthorizationClient(client, url, OAuth(), None, str, lambda secret: None)


@pytest.mark.parametrize(
    ("server", "endpoint"),
    [
        ("https://mcp.example.com/mcp", "http://issuer.example/token"),
        ("https://mcp.example.com/mcp", "http://127.0.0.1/token"),  # a port of this machine, named by a stranger
        ("http://127.0.0.1/mcp", "http://issuer.example/token"),
        ("https://mcp.example.com/mcp", "ftp://issuer.example/token"),
    ],
)
async def test_a_url_without_https_is_refused_by_name(server: str, endpoint: str) -> None:
    asked = exchange(server, httpx2.Response(200))
    with pytest.raises(AuthorizationRefused, match="which is not https") as caught:
        await asked.send(httpx2.Request("POST", endpoint))
    assert caught.value.reason == "insecure_url"
    with pytest.raises(AuthorizationRefused):
        asked.check_page(endpoint)


PRIVATE = (
    *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "017700000001", "%31%32%37.0.0.1", "127.0.0.1.", "0", "0.0.0.0"),
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain", "ip6-localhost"),
    *("10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255"),
    *("[::1]", "[::]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[fd12::1]", "[fec0::1]", "[ff02::1]"),
    *("[::ffff:127.0.0.1]", "[::ffff:a00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
)
PUBLIC = (
    *("issuer.example", "8.8.8.8", "134744072", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[2002:808:808::]"),
    *("localhost.example.com", "notlocalhost", "router", "127.0.0.1.example.com"),
)


@pytest.mark.parametrize("host", PRIVATE)
def test_a_public_server_cannot_name_an_address_that_is_not_public(host: str) -> None:
    """C-19: in any form that a resolver takes."""
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    with pytest.raises(
        AuthorizationRefused, match=r"an address that is not public, for a server that is; .* set issuer"
    ) as caught:
        asked.check_url(httpx2.URL(f"https://{host}/token"))
    assert caught.value.reason == "private_address"
    for server in ("https://10.0.0.1/mcp", "http://localhost:8000/mcp"):
        exchange(server, httpx2.Response(200)).check_url(httpx2.URL(f"https://{host}/token"))
    if "%" not in host:
        asked.oauth = OAuth(issuer=f"https://{host}")
        asked.check_url(httpx2.URL(f"https://{host}/token"))


@pytest.mark.parametrize("host", PUBLIC)
def test_names_are_not_resolved_and_other_addresses_are_public(host: str) -> None:
    exchange("https://mcp.example.com/mcp", httpx2.Response(200)).check_url(httpx2.URL(f"https://{host}/token"))


@pytest.mark.parametrize("server", ["https://mcp.example.com/mcp", "https://127.0.0.1/mcp"])
@pytest.mark.parametrize("user", ["bank.example", "bank.example:443", ":x"])
async def test_a_url_with_a_user_in_front_of_its_host_is_refused_and_not_shown(server: str, user: str) -> None:
    """C-19: people take it for the host."""
    asked = exchange(server, httpx2.Response(200))
    url = f"https://{user}@issuer.example/authorize"
    with pytest.raises(
        AuthorizationRefused, match=r"https://issuer\.example/authorize with a user in front of the host"
    ) as caught:
        await asked.send(httpx2.Request("GET", url))
    assert caught.value.reason == "invalid_metadata"
    with pytest.raises(AuthorizationRefused):
        asked.check_page(url)


def test_the_configured_issuer_may_be_on_this_machine_without_https() -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    asked.oauth = OAuth(issuer="http://127.0.0.1:8080")
    asked.check_url(httpx2.URL("http://127.0.0.1:8080/token"))
    with pytest.raises(AuthorizationRefused):
        asked.check_url(httpx2.URL("http://localhost:8080/token"))


async def test_both_servers_may_be_on_this_machine() -> None:
    asked = exchange("http://127.0.0.1/mcp", httpx2.Response(200, content=b"{}"))
    assert (await asked.send(httpx2.Request("POST", "http://localhost:1234/token"))).content == b"{}"


async def test_an_endless_answer_is_cut_off() -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200, content=b"x" * (MAX_BODY + 1)))
    with pytest.raises(AuthorizationRefused, match="exceeds"):
        await asked.send(httpx2.Request("GET", "https://issuer.example/metadata"))


@pytest.mark.parametrize("name", ["access_token", "client_secret", "refresh_token", "registration_access_token"])
async def test_a_credential_that_no_request_can_send_is_refused_and_not_shown(name: str) -> None:
    """A longer one would also take long to mask."""
    learned = list[str]()
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200, json={name: "x" * MAX_CREDENTIAL}))
    asked.learn = learned.append
    await asked.send(httpx2.Request("POST", "https://issuer.example/token"))
    assert learned == ["x" * MAX_CREDENTIAL]
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200, json={name: "x" * (MAX_CREDENTIAL + 1)}))
    with pytest.raises(AuthorizationRefused, match=f"issued a {name} of more than 16384 characters; report") as caught:
        await asked.send(httpx2.Request("POST", "https://issuer.example/token"))
    assert caught.value.reason == "token_refused"


def test_a_client_secret_is_masked_alone_and_as_a_header_has_it() -> None:
    """C-17: the configured one, and that of a client which has registered itself."""
    learned = set[str]()
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    asked.oauth, asked.secret, asked.learn = OAuth(client_id="me"), "a/secret", learned.add
    registered = OAuthClientInformationFull(client_id="it", client_secret="issued")
    asked.learn_credentials(OAuthToken(access_token="access", refresh_token="refresh"), registered)
    pairs = {f"Basic {b64encode(pair).decode()}" for pair in (b"me:a%2Fsecret", b"it:issued")}
    assert learned == {"access", "refresh", "issued", "a/secret", *pairs}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_authorization_server_may_be_asked_again(status: int) -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(status, content=b'{"error": "busy"}'))
    with pytest.raises(Unreachable, match=f"answered {status} busy"):
        await asked.send(httpx2.Request("POST", "https://issuer.example/token"))


async def test_an_authorization_server_that_is_gone_is_named_without_the_path() -> None:
    def fails(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route", request=request)

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(fails))
    asked = AuthorizationClient(client, "https://mcp.example.com/mcp", OAuth(), None, str, lambda secret: None)
    with pytest.raises(Unreachable) as caught:
        await asked.send(httpx2.Request("POST", "https://issuer.example/token?a=b"))
    where = "the authorization server https://issuer.example"
    assert str(caught.value) == f"{where} cannot be reached (ConnectError)"


async def test_an_error_code_that_is_a_credential_is_masked() -> None:
    """B-18: the characters of its syntax are those of tokens."""
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(503, content=b'{"error": "a-refresh-token"}'))
    asked.mask = lambda text: text.replace("a-refresh-token", "<token>")
    with pytest.raises(Unreachable, match=r"answered 503 <token>$"):
        await asked.send(httpx2.Request("POST", "https://issuer.example/token"))


async def test_json_is_asked_for() -> None:
    """GitHub sends a form otherwise."""
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    answer = await asked.send(httpx2.Request("POST", "https://issuer.example/token"))
    assert answer.request.headers["accept"] == "application/json"
    answer = await asked.send(httpx2.Request("POST", "https://mcp.example.com/mcp", headers={"accept": "text/x"}))
    assert answer.request.headers["accept"] == "text/x"


@pytest.mark.parametrize(
    "name", ["assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token"]
)
async def test_what_a_form_has_that_an_answer_may_quote_is_masked(name: str) -> None:
    learned = list[str]()
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    asked.learn = learned.append
    await asked.send(httpx2.Request("POST", "https://issuer.example/token", data={name: "secret", "scope": "read"}))
    assert learned == ["secret"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(({name: 4711}, {name: "4711"}) for name in ("client_id", "client_secret")),
        *(
            ({name: value}, {name: 3600})
            for name in ("client_id_issued_at", "client_secret_expires_at", "expires_in")
            for value in ("3600", 3600.5)
        ),
        *(
            ({name: "a b"}, {name: ["a", "b"]})
            for name in (
                *("authorization_servers", "grant_types", "grant_types_supported", "redirect_uris", "response_types"),
                *("response_types_supported", "scopes_supported", "token_endpoint_auth_methods_supported"),
            )
        ),
        ({"scope": ["a", "b"]}, {"scope": "a b"}),
        ({"scope": ["a", 1]}, {"scope": ["a", 1]}),
        *(({f"any{end}": ""}, {}) for end in ("_at", "_documentation", "_endpoint", "_in", "_uri")),
        ({"other": ""}, {"other": ""}),
        ({"expires_in": "soon"}, {"expires_in": "soon"}),
    ],
)
async def test_what_has_one_meaning_is_read_as_the_specification_writes_it(
    written: dict[str, object], meant: dict[str, object]
) -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200, json=written))
    assert (await asked.send(httpx2.Request("GET", "https://issuer.example/metadata"))).json() == meant


async def test_an_answer_keeps_the_headers_that_a_sign_in_reads() -> None:
    kept = {"content-type": "application/json", "location": "/next", "www-authenticate": "Bearer"}
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(201, headers={**kept, "set-cookie": "a=b"}))
    answer = await asked.send(httpx2.Request("GET", "https://issuer.example/metadata"))
    assert {name: value for name, value in answer.headers.items() if name != "content-length"} == kept
