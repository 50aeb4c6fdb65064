"""How files say that a server is signed in to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors import Http
from mcp_actors.auth import OAuth

from .writing import load, warned

URL = "https://example.com/mcp"


def auth_of(folder: Path, entry: dict[str, Any]) -> object:
    loaded = load(folder, {"mcpServers": {"docs": {"url": URL, **entry}}})
    assert (loaded.errors, loaded.warnings) == ((), ())
    transport = loaded.servers[0].transport
    assert isinstance(transport, Http)
    return transport.auth


@pytest.mark.parametrize(
    ("entry", "auth"),
    [
        ({"auth": "oauth"}, OAuth()),
        ({"oauth": True}, OAuth()),
        ({"oauth": {"enabled": False}}, None),
        (
            {"oauth": {"clientId": "x", "callbackPort": 3118}},
            OAuth(client_id="x", redirect="http://localhost:3118/callback"),
        ),
        (
            {"auth": {"CLIENT_ID": "x", "CLIENT_SECRET": "${SECRET}", "scopes": ["a", "b"]}},
            OAuth(client_id="x", client_secret="${SECRET}", scopes="a b"),
        ),
        (
            {"oauth": {"clientId": "x", "assumePkce": True}},
            OAuth(client_id="x", assume_pkce=True),
        ),
        (
            {"oauth": {"client_id": "x", "issuer": "https://issuer.example"}},
            OAuth(client_id="x", issuer="https://issuer.example"),
        ),
    ],
)
def test_the_keys_of_other_programs_are_read(tmp_path: Path, entry: dict[str, Any], auth: OAuth | None) -> None:
    assert auth_of(tmp_path, entry) == auth


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    _, warning = warned(tmp_path, {"url": URL, "oauth": {"tokenUrl": "https://example.com/token"}})
    assert "oauth.tokenUrl: this is not supported and has no effect" in warning


def test_an_invalid_value_is_an_error_at_its_place(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"mcpServers": {"docs": {"url": URL, "oauth": {"clientSecret": "s"}}}})
    (error,) = loaded.errors
    assert "mcpServers.docs.oauth: client_secret is given without client_id; give both" in str(error)
