"""One sign-in, as a store keeps it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import Attribute, evolve, field, frozen
from attrs.validators import instance_of, optional
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import resource_url_from_server_url

if TYPE_CHECKING:
    from ..config import OAuth

VERSION: Final = 1

EARLY: Final = 60.0
"""Seconds before its expiry at which a token is refreshed; a tenth of its life if that is less."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")  # RFC 6749, A.12

_KEPT: Final = {
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "token_endpoint_auth_methods_supported",
    "revocation_endpoint",
    "scopes_supported",
}
"""Metadata that a refresh or a revocation needs. Keyrings limit the size of a value."""


def key_of(url: str, oauth: OAuth) -> str:
    """Return the key of a sign-in: it is valid for one resource, one client, one issuer and one account."""
    client = oauth.client_id or oauth.client_metadata_url
    named = [resource_url_from_server_url(url), oauth.issuer, client, oauth.grant]
    if oauth.account is not None:
        named.append(oauth.account)
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]


def _check_tokens(instance: SignedIn, attribute: Attribute[OAuthToken], value: OAuthToken) -> None:
    instance_of(OAuthToken)(instance, attribute, value)
    if not _TOKEN.fullmatch(value.access_token):
        raise ValueError("the access token has characters that a header cannot have")  # a library would quote it


@frozen(kw_only=True)
class SignedIn:
    """One sign-in.

    Attributes:
        resource: the URL of the server, for people who read the file.
        client: the client that has signed in.
        tokens: its tokens.
        expires_at: when the access token expires, in seconds since 1970; None if that is unknown.
        since: when the tokens were issued, in seconds since 1970.
        metadata: the metadata of the authorization server.
        protected: the metadata of the resource.
        challenge: where the server says that the latter is.
        asked: the scopes that were asked for; the authorization server may have granted others.

    Raises:
        TypeError: an attribute has another type.
        ValueError: the access token cannot be sent.
    """

    resource: str = field(validator=instance_of(str))
    client: OAuthClientInformationFull = field(repr=False, validator=instance_of(OAuthClientInformationFull))
    tokens: OAuthToken = field(repr=False, validator=_check_tokens)
    expires_at: float | None = field(validator=optional(instance_of((int, float))))
    since: float = field(validator=instance_of((int, float)))
    metadata: OAuthMetadata | None = field(default=None, repr=False)
    protected: ProtectedResourceMetadata | None = field(default=None, repr=False)
    challenge: str | None = field(default=None, validator=optional(instance_of(str)))
    asked: str | None = field(default=None, validator=optional(instance_of(str)))

    @property
    def issuer(self) -> str | None:
        """The issuer of the tokens; None if the authorization server has no metadata."""
        return None if self.metadata is None else str(self.metadata.issuer)

    @property
    def renewable(self) -> bool:
        """True if there is a refresh token."""
        return bool(self.tokens.refresh_token)  # some authorization servers send an empty one

    def expired(self, now: float) -> bool:
        """Return True if the access token has expired."""
        return self.expires_at is not None and now >= self.expires_at

    def due(self, now: float) -> bool:
        """Return True if the access token should be refreshed."""
        if self.expires_at is None:
            return False
        return now >= self.expires_at - min(EARLY, max(self.expires_at - self.since, 0.0) / 10)

    def has_asked_for(self, scope: str) -> bool:
        """Return True if these scopes were granted, or asked for in vain."""
        return set(scope.split()) <= {*(self.asked or "").split(), *(self.tokens.scope or "").split()}

    def without_refresh_token(self) -> SignedIn:
        """Return the same with a refresh token that is no longer used."""
        return evolve(self, tokens=self.tokens.model_copy(update={"refresh_token": None}))

    def to_text(self, key: str | None = None) -> str:
        """Return it as JSON, with the key that it is stored under."""
        models = {"client": self.client, "tokens": self.tokens, "protected": self.protected}
        content: dict[str, Any] = {
            "version": VERSION,
            "key": key,
            "resource": self.resource,
            "expires_at": self.expires_at,
            "since": self.since,
            "challenge": self.challenge,
            "asked": self.asked,
            **{name: _plain(model) for name, model in models.items()},
            "metadata": self.metadata and self.metadata.model_dump(mode="json", exclude_none=True, include=_KEPT),
        }
        return json.dumps(content)

    @classmethod
    def from_text(cls, text: str | None, url: str, key: str | None = None) -> Self | None:
        """Return the sign-in in a text; None if that is damaged, from a later version, or of another server or key.

        A text without a key, as earlier versions wrote it, is of any.
        """
        try:
            content = json.loads(text or "null")
            if not isinstance(content, dict) or content.pop("version", None) != VERSION:
                return None
            stored = content.pop("key", None)
            for name, model in _MODELS.items():
                content[name] = content[name] and model.model_validate(content[name])
            found = cls(**content)
            # A file that was copied or renamed must not give the token of one server or account to another one.
            same = stored in (None, key) and resource_url_from_server_url(
                found.resource
            ) == resource_url_from_server_url(url)
            return found if same else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


_MODELS: Final[dict[str, Any]] = {
    "client": OAuthClientInformationFull,
    "tokens": OAuthToken,
    "protected": ProtectedResourceMetadata,
    "metadata": OAuthMetadata,
}


def _plain(model: Any) -> Any:
    return model and model.model_dump(mode="json", exclude_none=True)
