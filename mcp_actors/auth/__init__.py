"""Sign in to servers over HTTP by OAuth 2.1.

This file only gathers names. Give `OAuth()` to `mcp_actors.Http` as ``auth``. `ServerRef.sign_in` and ``mcp-actors
login`` ask a person to sign in. A token store keeps the tokens, by default in files that a user's processes share. One
process at a time refreshes a token. `ServerRef.sign_out` removes tokens, and revokes them if the authorization server
can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._exports import fetch_later, publish
from ..config import OAuth, SignInCallback, TokenStore
from ._exchange import NoBrowser, SignInFailed, SignInRequired

if TYPE_CHECKING:
    from ._exchange import AuthorizationClient as AuthorizationClient
    from ._receiver import open_browser
    from ._sign_in import sign_in as sign_in, sign_out as sign_out, signed_in as signed_in
    from ._stores import FileTokenStore, KeyringTokenStore, SignedIn as SignedIn
    from ._tokens import OAuthTokens as OAuthTokens

__all__ = [
    "FileTokenStore",
    "KeyringTokenStore",
    "NoBrowser",
    "OAuth",
    "SignInCallback",
    "SignInFailed",
    "SignInRequired",
    "TokenStore",
    "open_browser",
]

publish(__name__, globals())

# Hidden from type checkers, which would accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__ = fetch_later(
        globals(),
        {
            "._exchange": "AuthorizationClient",
            "._receiver": "open_browser",
            "._sign_in": "sign_in sign_out signed_in",
            "._stores": "FileTokenStore KeyringTokenStore SignedIn",
            "._tokens": "OAuthTokens",
        },
    )
