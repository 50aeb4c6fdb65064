"""How a sign-in is configured: what is refused, and how."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_actors import ConfigError
from mcp_actors.auth import OAuth
from mcp_actors.config import load_config

from ..messages import Said

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("OAuth: redirect is no URL", {"redirect": "http://["}),
    ("OAuth: redirect is a number", {"redirect": 5}),
    ("OAuth: redirect to a port above 65535", {"redirect": "http://127.0.0.1:99999/callback"}),
    ("OAuth: redirect with a fragment", {"redirect": "http://127.0.0.1:0/callback#here"}),
    ("OAuth: redirect with a user", {"redirect": "http://user:hunter2@127.0.0.1/callback"}),
    ("OAuth: redirect to another machine", {"redirect": "http://example.com/callback"}),
    ("OAuth: issuer is no URL", {"issuer": "https://["}),
    ("OAuth: issuer with a user", {"issuer": "https://user:hunter2@issuer.example"}),
    ("OAuth: issuer without TLS", {"issuer": "http://issuer.example"}),
    ("OAuth: document is no URL", {"client_metadata_url": "https://["}),
    ("OAuth: document with a user", {"client_metadata_url": "https://user:hunter2@example.com/client"}),
    ("OAuth: document without a path", {"client_metadata_url": "https://example.com/"}),
    ("OAuth: two clients", {"client_metadata_url": "https://example.com/client", "client_id": "me"}),
    ("OAuth: client is a number", {"client_id": 5}),
    ("OAuth: client is empty", {"client_id": ""}),
    ("OAuth: client has a line break", {"client_id": "a\nb"}),
    ("OAuth: account is empty", {"account": " "}),
    ("OAuth: scopes are a number", {"scopes": 5}),
    ("OAuth: scopes are a mapping", {"scopes": {"files": "read"}}),
    ("OAuth: a scope with a space", {"scopes": ["files read"]}),
    ("OAuth: a flag is a word", {"assume_pkce": "yes"}),
    ("OAuth: no resource and no scopes", {"send_resource": False}),
    ("OAuth: credentials without a client and a secret", {"grant": "client_credentials"}),
    ("OAuth: credentials without a secret", {"grant": "client_credentials", "client_id": "me"}),
    ("OAuth: an assertion without all", {"grant": "identity_assertion"}),
    ("OAuth: an assertion for a person", {"assertion": lambda issuer: "x"}),
    ("OAuth: no resource in an assertion", {"send_resource": False, "scopes": "a", "grant": "identity_assertion"}),
]


@pytest.mark.parametrize(("row", "options"), REFUSED, ids=[row for row, _ in REFUSED])
def test_values_that_no_sign_in_can_use_are_refused_by_name(said: Said, row: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        OAuth(**options)
    said(row, str(caught.value))
    assert "hunter2" not in str(caught.value)


def test_a_sign_in_that_is_not_valid_leaves_the_other_servers_of_a_file_alone() -> None:
    entries = {"bad": {"url": "https://a.example", "oauth": {"scopes": 5}}, "good": {"url": "https://b.example"}}
    loaded = load_config({"mcpServers": entries})
    assert [server.name for server in loaded.servers] == ["good"]
    assert [error.path for error in loaded.errors] == ["mcpServers.bad.oauth.scopes"]
