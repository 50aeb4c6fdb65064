"""Failures of a sign-in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

import httpx2
from mcp.shared.auth import OAuthToken
from pydantic_core import ValidationError, from_json

from .._errors import ConnectFailed, ConnectPhase, ServerError, ServerUnavailable
from .._text import plain_text

if TYPE_CHECKING:
    from ..config import OAuth

_CODE: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,60}")  # RFC 6749, 5.2
_EXPLAINED: Final = ("error", "error_description")
_SHOWN: Final = 200
"""Characters of an authorization server's explanation."""


class SignInRequired(ConnectFailed, ServerUnavailable):
    """A person has to sign in to the server, which has the state ``needs_auth``.

    Attributes:
        challenge: the ``WWW-Authenticate`` header of the answer that requires it, if there was one.
    """

    def __init__(self, message: str, *, server: str, challenge: str | None = None) -> None:
        ServerUnavailable.__init__(self, message, server=server, state="needs_auth")
        # Not by its `__init__`, which would call that of ServerUnavailable again.
        self.phase: ConnectPhase = "open"
        self.exit_code: int | None = None
        self.stderr_tail: str = ""
        self.http_status: int | None = None
        self.hopeless: bool = True
        self.challenge = challenge

    @classmethod
    def because(cls, server: str, why: str, challenge: str | None = None) -> Self:
        """Return the error with a remedy."""
        remedy = f"run 'mcp-actors login {server}', or await servers[{server!r}].sign_in()"
        return cls(f"server {server!r} needs_auth: {why}; {remedy}", server=server, challenge=challenge)


class SignInFailed(ServerError):
    """A sign-in has ended without tokens.

    Attributes:
        reason: a name for it: an error code of OAuth such as ``"access_denied"``, or ``"timed_out"``,
            ``"state_mismatch"``, ``"issuer_mismatch"``, ``"issuer_changed"``, ``"invalid_metadata"``,
            ``"insecure_url"``, ``"private_address"``, ``"no_browser"``, ``"port_in_use"``,
            ``"registration_refused"``, ``"token_refused"``, ``"unreachable"``.
    """

    def __init__(self, message: str, *, server: str, reason: str) -> None:
        super().__init__(message, server=server)
        self.reason = reason

    @classmethod
    def because(cls, server: str, reason: str, why: str) -> Self:
        """Return the error with the name of the server."""
        return cls(f"server {server!r}: sign-in failed ({reason}): {why}", server=server, reason=reason)


class SignInNeeded(Exception):
    """Only a person can help. The text says why.

    Attributes:
        challenge: as for `SignInRequired`.
    """

    def __init__(self, message: str, challenge: str | None = None) -> None:
        super().__init__(message)
        self.challenge = challenge


class Refused(Exception):
    """The authorization server, or a check on this side, has refused something. A retry cannot help.

    Attributes:
        reason: a name for it, such as ``"access_denied"``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def again(self) -> Refused:
        """Return the same failure for another task."""
        return Refused(self.reason, str(self))


class Unreachable(Exception):
    """The authorization server does not answer, or answers that it cannot now. A retry may help."""

    def again(self) -> Unreachable:
        """Return the same failure for another task."""
        return Unreachable(str(self))


def said_by(response: httpx2.Response, mask: Callable[[str], str]) -> tuple[str, str]:
    """Return the error code in an answer, or an empty text; and the whole answer, as an error may show it.

    Nothing else of the body is shown: it may contain a code, a token or a secret.
    """
    code, description = "", ""
    try:
        body = from_json(response.content)
    except ValueError:
        body = None
    if isinstance(body, dict):
        code, description = (each if isinstance(each := body.get(name), str) else "" for name in _EXPLAINED)
    # The code may be a credential too. The characters of its syntax are those of tokens.
    code = mask(code) if _CODE.fullmatch(code) else ""
    return code, with_explanation(" ".join(filter(None, [str(response.status_code), code])), mask(description))


def with_explanation(said: str, description: str) -> str:
    """Return an answer with the authorization server's explanation, which is masked, as an error may show it."""
    explained = plain_text(description, limit=_SHOWN)
    return f"{said} ({explained})" if explained else said


def remedy_for(said: str, oauth: OAuth) -> str:
    """Return the remedy for an answer of an authorization server, as the end of a sentence; empty without one."""
    if "invalid_client" in said:
        return "; check client_id and client_secret"
    # RFC 8707; and of Microsoft Entra ID, AADSTS901002: "The 'resource' request parameter is not supported."
    if oauth.send_resource and ("invalid_target" in said or "'resource'" in said):
        problem = "if it refuses the parameter 'resource', as Microsoft Entra ID does"
        return f"; {problem}, set scopes and send_resource=False"
    return ""


def problem_of_tokens(response: httpx2.Response) -> str:
    """Return the problem of an answer that should be tokens, without any of its content."""
    try:
        OAuthToken.model_validate_json(response.content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return f" ({'; '.join(': '.join([*map(str, each['loc']), each['msg']]) for each in problems[:3])})"
    return ""
