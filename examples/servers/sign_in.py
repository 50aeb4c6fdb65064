"""A small MCP server over HTTP that requires a sign-in, and the authorization server for it, for the examples.

Its page signs in anybody at once, so it is for examples only. It prints its URL, and exits when its standard input is
closed.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
import time

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class Provider(
    OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]
):
    """An authorization server that keeps all in dicts."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Find a client."""
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client."""
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """Send the browser back with a code, without a question."""
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(
            str(params.redirect_uri), code=code.code, state=params.state
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """Find a code."""
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Give a token for a code."""
        del self.codes[authorization_code.code]
        token = AccessToken(
            token=secrets.token_urlsafe(32),
            client_id=authorization_code.client_id,
            scopes=authorization_code.scopes,
            expires_at=int(time.time()) + 3600,
            resource=authorization_code.resource,
        )
        self.tokens[token.token] = token
        return OAuthToken(access_token=token.token, expires_in=3600)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Find a token."""
        return self.tokens.get(token)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> None:
        """Find nothing, as no refresh tokens are given."""

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: RefreshToken,
        scopes: list[str],
    ) -> OAuthToken:
        """Refuse, as no refresh tokens are given."""
        raise TokenError("unsupported_grant_type")

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Forget a token."""
        self.tokens.pop(token.token, None)


def end_with_stdin() -> None:
    """Wait for the end of standard input, then end this process as a polite signal would."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve until the process is asked to stop."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings = {
        "issuer_url": url,
        "resource_server_url": f"{url}/mcp",
        "validate_token_resource": True,
        "client_registration_options": {"enabled": True},
    }
    mail = MCPServer(
        "mail",
        log_level="WARNING",
        auth_server_provider=Provider(),
        auth=AuthSettings.model_validate(settings),
    )

    @mail.tool()
    def read() -> str:
        """Read the mail."""
        return "Dinner at eight?"

    print(f"{url}/mcp", flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    uvicorn.Server(uvicorn.Config(mail.streamable_http_app(), log_level="warning")).run(
        sockets=[listener]
    )


if __name__ == "__main__":
    main()
