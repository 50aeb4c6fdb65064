"""Sign in to servers over HTTP by OAuth 2.1.

The SDK does the protocol. This folder keeps the tokens for all processes of a user, refreshes them one at a time, and
brings the person in where only a person can help. It imports `config`; `servers` and `cli` import it.
"""

from __future__ import annotations

from .._exports import publish
from ..config import OAuth as OAuth, SignInCallback as SignInCallback, TokenStore as TokenStore
from ._exchange import Exchange as Exchange
from ._failures import SignInFailed as SignInFailed, SignInRequired as SignInRequired
from ._sign_in import (
    open_browser as open_browser,
    sign_in as sign_in,
    sign_out as sign_out,
    signed_in as signed_in,
)
from ._sign_in_record import SignedIn as SignedIn
from ._stores import FileTokenStore as FileTokenStore, KeyringTokenStore as KeyringTokenStore
from ._tokens import OAuthTokens as OAuthTokens, store_of as store_of

__all__ = [
    "FileTokenStore",
    "KeyringTokenStore",
    "OAuth",
    "SignInCallback",
    "SignInFailed",
    "SignInRequired",
    "TokenStore",
    "open_browser",
]

publish(__name__, globals())
