"""Challenges of servers, and what the SDK makes of them."""

from __future__ import annotations

from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import given, strategies
from mcp.client.auth.utils import extract_field_from_www_auth

from mcp_actors.auth._exchange import AuthorizationRefused, BearerChallenge, read_challenge

URL = "https://mcp.example/metadata"


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        (None, BearerChallenge()),
        ("Bearer", BearerChallenge()),
        ('Bearer scope=""', BearerChallenge()),
        (f'bearer Resource_Metadata = "{URL}" ,SCOPE="a b"', BearerChallenge(resource_metadata=URL, scope="a b")),
        (f'Bearer realm="x" resource_metadata={URL} scope=a', BearerChallenge(resource_metadata=URL, scope="a")),
        (f'resource_metadata="{URL}"', BearerChallenge(resource_metadata=URL)),
        ('Bearer error_description="scope=a, error=b", error=c', BearerChallenge(error="c")),
        ('Bearer scope="a", scope="b"', BearerChallenge(scope="a")),
        ('Bearer realm="a\\"b\\\\", scope="c"', BearerChallenge(scope="c")),
        ('DPoP algs="ES256", scope="a", Bearer scope="b"', BearerChallenge(scope="b")),
        (f'Bearer realm="x", DPoP resource_metadata="{URL}"', BearerChallenge(resource_metadata=URL)),
        ("Negotiate a/b+c==, Bearer scope=a", BearerChallenge(scope="a")),
        ('"junk", Bearer scope="a é \x7f"', BearerChallenge(scope="a")),
        ('Bearer scope="a', BearerChallenge()),
    ],
)
def test_a_challenge_is_read_as_the_specification_of_http_has_it(
    header: str | None, challenge: BearerChallenge
) -> None:
    assert read_challenge(header) == challenge


@given(strategies.lists(strategies.sampled_from([*'=",\\ x', "scope", "error=", "resource_metadata", "Bearer"])))
def test_no_field_of_the_rebuilt_challenge_can_be_taken_for_another(words: list[str]) -> None:
    """C-10: the SDK finds in it what was read, and scopes only where some are to be asked for."""
    challenge = read_challenge("".join(["Bearer resource_metadata=", *words]))
    for scope in (None, "files:read"):
        try:
            answer = challenge.refusal(httpx2.Request("POST", URL), scope)
        except AuthorizationRefused:
            continue
        error = "insufficient_scope" if challenge.wants_more_scopes else None
        assert extract_field_from_www_auth(answer, "scope") == scope
        assert extract_field_from_www_auth(answer, "error") == error
        found = extract_field_from_www_auth(answer, "resource_metadata")
        assert (found and unquote(found)) == challenge.resource_metadata


def test_a_url_that_looks_like_fields_means_the_same() -> None:
    url = f"{URL}?scope=a&error=b&resource_metadata=c"
    answer = BearerChallenge(resource_metadata=url).refusal(httpx2.Request("POST", URL), None)
    found = extract_field_from_www_auth(answer, "resource_metadata")
    assert found == f"{URL}?%73cope=a&%65rror=b&%72esource_metadata=c"
    assert httpx2.URL(found).params == httpx2.URL(url).params


def test_a_challenge_of_any_length_is_read_in_linear_time() -> None:
    for header in ("," * 100_000, 'a="\\' * 50_000, '"' * 100_000, "a " * 50_000, "a" + " " * 100_000, "a = " * 50_000):
        assert read_challenge(header) == BearerChallenge()
