"""Sign in to servers over HTTP by OAuth 2.1.

Give `OAuth()` to `mcp_actors.Http` as ``auth``. `sign_in` and ``mcp-actors login`` ask a person; tokens are kept in a
store, by default in files that the processes of a user share, and are refreshed by one process at a time. `sign_out`
removes them, and revokes them where the authorization server offers that.
"""

# The SDK does most of the protocol. This folder checks what the SDK discovers, lets a person sign in or gets tokens
# without one, keeps them in a store (by default files that the processes of a user share), refreshes a token in one
# process at a time, and signs out: it removes the tokens, and revokes them where the authorization server offers that.
# For a person to sign in, it listens on a loopback port for the redirect, and by default opens a browser in a thread.
#
# It uses `config` and single files of the ground floor. `transports` uses `OAuthTokens`, `Exchange` and
# `SignInRequired`; `servers` and `cli` use `sign_in`, `sign_out`, `signed_in` and `open_browser`, `servers` also the
# failures, and `cli` the types `Exchange` and `SignedIn`. Of its files, only ``_exchange`` is imported with the folder;
# the others are imported at the first use of a name that needs them.

from __future__ import annotations

from typing import TYPE_CHECKING

from .._exports import fetch_later, publish
from ..config import OAuth, SignInCallback, TokenStore
from ._exchange import NoBrowser, SignInFailed, SignInRequired

if TYPE_CHECKING:
    from ._exchange import Exchange as Exchange
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

# The sign-in itself. Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__ = fetch_later(
        globals(),
        {
            "Exchange": "._exchange",
            "FileTokenStore": "._stores",
            "KeyringTokenStore": "._stores",
            "OAuthTokens": "._tokens",
            "SignedIn": "._stores",
            "open_browser": "._receiver",
            "sign_in": "._sign_in",
            "sign_out": "._sign_in",
            "signed_in": "._sign_in",
        },
    )
