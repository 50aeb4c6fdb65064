"""Authorization servers that refuse the parameter that names the MCP server (RFC 8707)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
import trio
from attrs import define

from mcp_actors.auth import SignInFailed
from mcp_actors.auth._flow import refresh
from mcp_actors.auth._sign_in import sign_in
from mcp_actors.auth._stores import SignedIn
from mcp_actors.auth._tokens import OAuthTokens

from .test_hostile_answers import ISSUER, STORED, URL, Memory, Servers, pasted

MISMATCH: Final = {
    "error": "invalid_target",
    "error_description": "AADSTS9010010: The resource parameter does not match with the requested scopes.",
}
UNSUPPORTED: Final = {
    "error": "invalid_request",
    "error_description": "AADSTS901002: The 'resource' request parameter is not supported.",
}
REMEDY: Final = "if it refuses the parameter 'resource', as Microsoft Entra ID does, set scopes and send_resource=False"
ENTRA: Final[dict[str, Any]] = {"scopes": "api://app/access", "send_resource": False}


@define
class Entra(Servers):
    """Servers with the token endpoint of Microsoft Entra ID, which refuses a form with a resource."""

    challenge: bytes = b'Bearer scope="https://graph.example/.default"'

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        if request.url.path == "/token" and "resource" in parse_qs(request.content.decode()):
            return httpx2.Response(400, json=MISMATCH)
        return await super().__call__(request)


async def test_without_the_parameter_a_person_signs_in_and_the_token_is_refreshed(tmp_path: Path) -> None:
    exchange, pages = Entra().exchange(tmp_path, **ENTRA), list[str]()

    async def show(url: str) -> str:
        pages.append(url)
        return await pasted(url)

    assert (await sign_in("guarded", exchange, show)).tokens.access_token == "new"
    asked = parse_qs(urlsplit(pages[0]).query)
    assert asked["scope"] == ["api://app/access"]  # not that of the server, which may be for another one
    assert "resource" not in asked
    old = SignedIn.from_text(json.dumps(STORED | {"protected": {"resource": URL, "authorization_servers": [URL]}}), URL)
    assert old is not None
    assert (await refresh(exchange, old)).tokens.access_token == "new"


@pytest.mark.parametrize("secret", ["secret", None])
async def test_a_program_without_a_person_leaves_it_out_too(tmp_path: Path, secret: str | None) -> None:
    async def assertion(issuer: str) -> str:
        return "signed"

    way = {"assertion": assertion} if secret is None else {"client_secret": secret}
    exchange = Entra().exchange(tmp_path, grant="client_credentials", client_id="robot", **way, **ENTRA)
    exchange.secret = secret
    assert (await sign_in("guarded", exchange, pasted)).tokens.access_token == "new"


@pytest.mark.parametrize("answer", [MISMATCH, UNSUPPORTED])
@pytest.mark.parametrize("where", ["page", "token"])
async def test_a_refusal_of_the_parameter_has_a_remedy(tmp_path: Path, answer: dict[str, str], where: str) -> None:
    servers = Servers(token=(400, answer))

    async def show(url: str) -> str:
        redirect = await pasted(url)
        return redirect.replace("code=c", urlencode(answer)) if where == "page" else redirect

    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", servers.exchange(tmp_path), show)
    assert str(caught.value).endswith(f"{answer['error']} ({answer['error_description']}); {REMEDY}")
    with pytest.raises(SignInFailed) as caught:
        await sign_in("guarded", servers.exchange(tmp_path, **ENTRA), show)
    assert REMEDY not in str(caught.value)


async def test_a_403_that_asks_for_other_scopes_than_the_configured_ones_is_the_outcome_of_its_call() -> None:
    """C-10: also before there is a token."""

    def refuse(request: httpx2.Request) -> httpx2.Response:
        challenge = 'Bearer error="insufficient_scope", scope="https://graph.example/.default"'
        return httpx2.Response(403, headers={"www-authenticate": challenge})

    exchange = Servers().exchange(Path(), store=Memory(), on_sign_in=pasted, **ENTRA)
    transport = httpx2.MockTransport(refuse)
    async with httpx2.AsyncClient(transport=transport, auth=OAuthTokens("guarded", exchange)) as client:
        assert (await client.post(URL)).status_code == 403


@pytest.mark.parametrize(
    ("named", "asked_for"), [("https://mcp.example/", "https://mcp.example/"), (f"{URL}/other", None)]
)
async def test_a_server_may_name_a_parent_of_its_url_as_the_resource(
    named: str, asked_for: str | None, tmp_path: Path
) -> None:
    """The specification allows it. Anything else is refused before a page is shown."""

    class Named(Servers):
        async def __call__(self, request: httpx2.Request) -> httpx2.Response:
            if "oauth-protected-resource" in request.url.path:
                await trio.lowlevel.checkpoint()
                return httpx2.Response(200, json={"resource": named, "authorization_servers": [ISSUER]})
            return await super().__call__(request)

    pages: list[str] = []

    async def show(url: str) -> str:
        pages.append(url)
        return await pasted(url)

    with nullcontext() if asked_for else pytest.raises(SignInFailed):
        await sign_in("guarded", Named().exchange(tmp_path), show)
    assert [parse_qs(urlsplit(page).query)["resource"] for page in pages] == ([[asked_for]] if asked_for else [])
