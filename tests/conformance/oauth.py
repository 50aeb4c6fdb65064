"""OAuth as a user of the library has it: the SDK's provider, and a user who agrees to everything at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

CALLBACK: Final = AnyUrl("http://localhost:3000/callback")
"""Where the authorization server sends the user's browser afterwards. No server listens there."""

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""What the suite expects as the client's id, from servers that take a URL for one."""


class Memory:
    """Tokens and registrations, kept for the life of the program."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens there are."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep them."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the client was registered as."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it."""
        self._client = client_info


class Browser:
    """A browser in which the user says yes: it opens the page, and sees where it is sent then."""

    def __init__(self) -> None:
        self._sent_to = httpx2.URL("")

    async def open(self, url: str) -> None:
        """Open the page of the authorization server."""
        async with httpx2.AsyncClient() as client:
            self._sent_to = httpx2.URL((await client.get(url)).headers["location"])

    async def wait_redirect(self) -> AuthorizationCodeResult:
        """Return what that page says to the one who has asked for it."""
        said = self._sent_to.params
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))


def authorization(url: str, context: Mapping[str, Any]) -> OAuthClientProvider:
    """Return what authorizes requests to the server at `url`, as a client that is registered if `context` says so."""
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(
            client_name="mcp_actors",
            redirect_uris=[CALLBACK],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        Memory(_registered(context)),
        redirect_handler=browser.open,
        callback_handler=browser.wait_redirect,
        client_metadata_url=DOCUMENT,
    )


def _registered(context: Mapping[str, Any]) -> OAuthClientInformationFull | None:
    if "client_id" not in context:
        return None
    return OAuthClientInformationFull(
        client_id=context["client_id"],
        client_secret=context["client_secret"],
        redirect_uris=[CALLBACK],
        token_endpoint_auth_method="client_secret_basic",
    )
