"""A sign-in as a user of the library has it, with a person who agrees to everything at once."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any, Final

import httpx2
from mcp.client.auth.extensions.client_credentials import SignedJWTParameters

from mcp_actors.auth import FileTokenStore, OAuth

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""What the suite expects as the client's id, from servers that take a URL for one."""

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"


async def agree(url: str) -> str:
    """Open the page of the authorization server, and return where the browser is sent then."""
    async with httpx2.AsyncClient() as client:
        location: str = (await client.get(url)).headers["location"]
    return location


def authorization(url: str, scenario: str, context: Mapping[str, Any]) -> OAuth:
    """Return how to sign in to the server at `url`, with the client that `context` names, if any."""
    store = FileTokenStore(tempfile.mkdtemp())
    if "idp_id_token" in context:
        return OAuth(
            store=store,
            grant="identity_assertion",
            issuer=_issuer(url),
            client_id=context["client_id"],
            client_secret=context["client_secret"],
            assertion=_Enterprise(context).assert_identity,
        )
    if "private_key_pem" in context:
        client = context["client_id"]
        signer = SignedJWTParameters(
            issuer=client,
            subject=client,
            signing_key=context["private_key_pem"],
            signing_algorithm=context["signing_algorithm"],
        )
        assertion = signer.create_assertion_provider()
        return OAuth(store=store, grant="client_credentials", client_id=client, assertion=assertion)
    named = {name: context[name] for name in ("client_id", "client_secret") if name in context}
    if scenario.startswith("auth/client-credentials"):
        return OAuth(store=store, grant="client_credentials", **named)
    document = None if named else DOCUMENT
    return OAuth(store=store, client_metadata_url=document, on_sign_in=agree, **named)


def _issuer(url: str) -> str:
    """Return the authorization server of an MCP server, which an enterprise would have configured."""
    at = httpx2.URL(url)
    with httpx2.Client() as client:
        metadata = client.get(at.copy_with(path=f"/.well-known/oauth-protected-resource{at.path}")).json()
    issuer: str = metadata["authorization_servers"][0]
    return issuer


class _Enterprise:
    """The identity provider of an enterprise, to which the person has signed in."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._context = context

    async def assert_identity(self, audience: str, resource: str) -> str:
        """Exchange the person's ID token for an assertion."""
        form = {
            "grant_type": EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": audience,
            "resource": resource,
            "subject_token": self._context["idp_id_token"],
            "subject_token_type": ID_TOKEN,
            "client_id": self._context["idp_client_id"],
        }
        async with httpx2.AsyncClient() as client:
            answer = await client.post(self._context["idp_token_endpoint"], data=form)
        token: str = answer.json()["access_token"]
        return token
