"""Challenges of servers, and what the SDK makes of them."""

from __future__ import annotations

from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import given, strategies
from mcp.client.auth.utils import extract_field_from_www_auth

from mcp_actors.auth._exchange import Challenge, Refused, read_challenge

URL = "https://mcp.example/metadata"


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        (None, Challenge()),
        ("Bearer", Challenge()),
        ('Bearer scope=""', Challenge()),
        (f'bearer Resource_Metadata = "{URL}" ,SCOPE="a b"', Challenge(resource_metadata=URL, scope="a b")),
        (f'Bearer realm="x" resource_metadata={URL} scope=a', Challenge(resource_metadata=URL, scope="a")),
        (f'resource_metadata="{URL}"', Challenge(resource_metadata=URL)),
        ('Bearer error_description="scope=a, error=b", error=c', Challenge(error="c")),
        ('Bearer scope="a", scope="b"', Challenge(scope="a")),
        ('Bearer realm="a\\"b\\\\", scope="c"', Challenge(scope="c")),
        ('DPoP algs="ES256", scope="a", Bearer scope="b"', Challenge(scope="b")),
        (f'Bearer realm="x", DPoP resource_metadata="{URL}"', Challenge(resource_metadata=URL)),
        ("Negotiate a/b+c==, Bearer scope=a", Challenge(scope="a")),
        ('"junk", Bearer scope="a é \x7f"', Challenge(scope="a")),
        ('Bearer scope="a', Challenge()),
    ],
)
def test_a_challenge_is_read_as_the_specification_of_http_has_it(header: str | None, challenge: Challenge) -> None:
    assert read_challenge(header) == challenge


@given(strategies.lists(strategies.sampled_from([*'=",\\ x', "scope", "error=", "resource_metadata", "Bearer"])))
def test_no_field_of_the_rebuilt_challenge_can_be_taken_for_another(words: list[str]) -> None:
    """C-10: the SDK finds in it what was read, and scopes only where some are to be asked for."""
    challenge = read_challenge("".join(["Bearer resource_metadata=", *words]))
    for scope in (None, "files:read"):
        try:
            answer = challenge.refusal(httpx2.Request("POST", URL), scope)
        except Refused:
            continue
        error = "insufficient_scope" if challenge.wants_more_scopes else None
        assert extract_field_from_www_auth(answer, "scope") == scope
        assert extract_field_from_www_auth(answer, "error") == error
        found = extract_field_from_www_auth(answer, "resource_metadata")
        assert (found and unquote(found)) == challenge.resource_metadata


def test_a_url_that_looks_like_fields_means_the_same() -> None:
    url = f"{URL}?scope=a&error=b&resource_metadata=c"
    answer = Challenge(resource_metadata=url).refusal(httpx2.Request("POST", URL), None)
    found = extract_field_from_www_auth(answer, "resource_metadata")
    assert found == f"{URL}?%73cope=a&%65rror=b&%72esource_metadata=c"
    assert httpx2.URL(found).params == httpx2.URL(url).params


def test_a_challenge_of_any_length_is_read_in_linear_time() -> None:
    for header in ("," * 100_000, 'a="\\' * 50_000, '"' * 100_000, "a " * 50_000, "a" + " " * 100_000, "a = " * 50_000):
        assert read_challenge(header) == Challenge()
