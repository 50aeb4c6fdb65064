"""How files say that a server is signed in to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors import Http
from mcp_actors.auth import OAuth

from .writing import load, one, warned, wrong

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
        ({"auth": "OAuth"}, OAuth()),  # it would be sent as a token otherwise
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
            {"oauth": {"clientId": "x", "assumePkce": True, "scopes": "a", "sendResource": False}},
            OAuth(client_id="x", assume_pkce=True, scopes="a", send_resource=False),
        ),
        (
            {"oauth": {"clientMetadataUrl": "https://me.example/client", "redirectUrl": "http://localhost:3118/"}},
            OAuth(client_metadata_url="https://me.example/client", redirect="http://localhost:3118/"),
        ),
        (
            {"oauth": {"client_id": "x", "issuer": "https://issuer.example", "account": "work"}},
            OAuth(client_id="x", issuer="https://issuer.example", account="work"),
        ),
    ],
)
def test_the_keys_of_other_programs_are_read(tmp_path: Path, entry: dict[str, Any], auth: OAuth | None) -> None:
    assert auth_of(tmp_path, entry) == auth


@pytest.mark.parametrize("word", ["oauht", "oath", "OAuth2", "o-auth", " oauth", "auth"])
@pytest.mark.parametrize("key", ["auth", "oauth"])
def test_a_misspelled_oauth_is_an_error_and_no_token(tmp_path: Path, key: str, word: str) -> None:
    problem = wrong(tmp_path, {"url": URL, key: word})
    remedy = 'write "oauth" to sign in, or a token like this in the headers'
    assert problem == f'mcpServers.docs.{key}: found "{word}"; {remedy}'


@pytest.mark.parametrize("word", ["sk-oauth-2f6c", "gho_16C7e42F292c69", "author", "t0ken"])
def test_any_other_word_under_auth_is_a_token(tmp_path: Path, word: str) -> None:
    assert auth_of(tmp_path, {"auth": word}) == word


def test_a_token_like_oauth_may_be_in_the_headers(tmp_path: Path) -> None:
    server = one(tmp_path, {"url": URL, "headers": {"Authorization": "Bearer oath"}})
    assert server.transport == Http(URL, headers={"Authorization": "Bearer oath"})


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    _, warning = warned(tmp_path, {"url": URL, "oauth": {"tokenUrl": "https://example.com/token"}})
    assert warning == 'mcpServers.docs.oauth: unknown key "tokenUrl" has no effect'


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        ({"clientSecret": "s"}, "clientSecret: client_secret is given without client_id; give both"),
        ({"client-id": 3}, "client_id 3 is not the id of a client; give it as a str"),
        (
            {"callbackPort": "x"},
            "callbackPort: found a str of 1 character; write the number of a port, from 1 to 65535",
        ),
        ({"callbackPort": 65536}, "callbackPort: found an int; write the number of a port, from 1 to 65535"),
        ({"callbackPort": True}, "callbackPort: found a bool; write the number of a port, from 1 to 65535"),
        ({"redirectUri": "http://example.com/"}, "redirectUri: no code may be sent to the redirect"),
    ],
)
def test_an_invalid_value_is_an_error_at_its_place(tmp_path: Path, oauth: dict[str, Any], problem: str) -> None:
    loaded = load(tmp_path, {"mcpServers": {"docs": {"url": URL, "oauth": oauth}}})
    (error,) = loaded.errors
    assert "mcpServers.docs.oauth" in str(error)
    assert problem in str(error)
