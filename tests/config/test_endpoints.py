"""Servers over HTTP: valid options, and the errors for invalid ones."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_actors._errors import ConfigError
from mcp_actors.config import Http, Secret, ServerConfig, Sse

from ..messages import Said

URL = "https://example.com/mcp"


def refusal(transport: type[Any], *args: Any, **options: Any) -> ConfigError:
    """Return the error with which a transport is refused."""
    with pytest.raises(ConfigError) as caught:
        transport(*args, **options)
    assert "hunter2" not in str(caught.value)
    return caught.value


class Flow(httpx2.Auth):
    """An auth flow of the user's."""


@pytest.mark.parametrize("kind", [Http, Sse])
class TestBoth:
    """The common fields of `Http` and `Sse`."""

    def test_a_refusal_names_the_one_that_it_is_about(self, kind: type[Any]) -> None:
        assert str(refusal(kind, "ftp://example.com")).startswith(f"{kind.__name__}: url")
        assert str(refusal(kind, URL, headers={"X": 5})).startswith(f"{kind.__name__}: headers['X']")
        assert str(refusal(kind, URL, headers=5)).startswith(f"{kind.__name__}: headers is an int")
        assert str(refusal(kind, "http://example.com")).startswith(f"{kind.__name__}: url 'http://example.com' would")

    @pytest.mark.parametrize("auth", ["hunter2", "${TOKEN}", Secret("hunter2"), lambda: "hunter2", Flow(), None])
    def test_auth_is_a_bearer_token_or_a_flow_and_is_not_shown(self, kind: type[Any], auth: object) -> None:
        transport = kind(URL, auth=auth)
        assert transport.auth is auth
        shown = "" if auth is None else ", auth=<Flow>" if isinstance(auth, Flow) else ", auth=…"
        assert repr(transport) == f"{kind.__name__}({URL!r}{shown})"

    @pytest.mark.parametrize(
        ("auth", "problem"),
        [
            (
                5,
                "auth is an int",
            ),
            ("", "auth: the token is empty"),
            (
                "Bearer hunter2",
                "auth: the value begins with an auth scheme",
            ),
            ("OAuth", "auth: the name of the sign-in"),
            (
                Secret("hunter2\n"),
                "auth: the value contains a line break",
            ),
        ],
    )
    def test_an_invalid_credential_is_refused(self, kind: type[Any], auth: object, problem: str, said: Said) -> None:
        error = refusal(kind, URL, auth=auth)
        said(problem, str(error).removeprefix(f"{kind.__name__}: "))
        assert error.path == "auth"

    def test_two_credentials_are_refused_naming_both(self, kind: type[Any], said: Said) -> None:
        """S4-26."""
        owner = f"{kind.__name__}: "
        error = refusal(kind, URL, headers={"authorization": "Bearer hunter2"}, auth="hunter2")
        said("auth and a header", str(error).removeprefix(owner))
        error = refusal(kind, "https://me:hunter2@example.com", auth="hunter2")
        said("auth and a url with a password", str(error).removeprefix(owner))


def test_sse_has_no_modern_era(said: Said) -> None:
    """S4-26."""
    with pytest.raises(ConfigError) as caught:
        ServerConfig("docs", Sse(URL), protocol="2026-07-28")
    said("protocol 2026-07-28 over Sse", str(caught.value))


class TestClient:
    """The options of `Http` about the client."""

    def test_the_defaults(self) -> None:
        http = Http(URL)
        assert (http.verify, http.max_connections, http.http_client) == (None, None, None)
        assert (http.keepalive, http.max_body_bytes) == (60, 64 * 1024 * 1024)

    def test_a_path_of_certificates_may_be_a_path(self) -> None:
        assert Http(URL, verify=Path("ca.pem")).verify == "ca.pem"

    def test_a_context_or_true_is_fine(self) -> None:
        context = ssl.create_default_context()
        assert Http(URL, verify=context).verify is context
        assert Http(URL, verify=True).verify is True

    def test_disabling_verification_must_be_allowed_explicitly(self, said: Said) -> None:
        assert Http(URL, verify=False, allow_insecure=True).verify is False
        said("verify=False", str(refusal(Http, URL, verify=False)))

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            (
                {"verify": 1},
                "verify is an int",
            ),
            ({"verify": ""}, "verify is empty"),
            (
                {"max_connections": 1},
                "max_connections=1 is not valid",
            ),
            ({"keepalive": 0}, "keepalive=0 is not valid"),
            ({"max_body_bytes": 0}, "max_body_bytes=0 is not valid"),
            (
                {"http_client": 5},
                "http_client is an int",
            ),
        ],
    )
    def test_an_invalid_option_is_refused(self, options: dict[str, Any], problem: str, said: Said) -> None:
        error = refusal(Http, URL, **options)
        said(problem, str(error))
        assert error.path == next(iter(options))

    @pytest.mark.parametrize("option", [{"verify": True}, {"max_connections": 3}, {"keepalive": 5}])
    def test_an_option_that_a_custom_client_would_ignore_is_refused(self, option: dict[str, Any], said: Said) -> None:
        """S4-26."""
        error = refusal(Http, URL, http_client=httpx2.AsyncClient, **option)
        [name] = option
        said("http_client and an option that it would ignore", str(error), option=name)

    def test_the_arguments_of_a_factory_are_not_shown(self) -> None:
        def make() -> httpx2.AsyncClient:
            raise NotImplementedError

        assert "http_client=<make>" in repr(Http(URL, http_client=make))


class TestHttp:
    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com",
            "https://example.com:8443/mcp?x=1",
            "HTTPS://EXAMPLE.COM/mcp",
            "https://user:pw@example.com/mcp",
            "https://[2001:db8::1]/mcp",
            "http://localhost/mcp",
            "http://LOCALHOST:3000/mcp",
            "http://127.0.0.1:3000/mcp",
            "http://127.8.9.1/mcp",
            "http://[::1]:3000/mcp",
        ],
    )
    def test_https_anywhere_and_http_on_this_machine_are_fine(self, url: str) -> None:
        http = Http(url)
        assert (http.url, dict(http.headers), http.allow_insecure) == (url, {}, False)

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.com/mcp",
            "http://10.0.0.1/mcp",
            "http://localhost.example.com/mcp",
            "http://127.0.0.1.example.com/mcp",
            "http://127.0.0.1@example.com/mcp",
            "http://[::2]/mcp",
            "http://0.0.0.0/mcp",
        ],
    )
    def test_http_to_elsewhere_must_be_allowed_explicitly(self, url: str, said: Said) -> None:
        error = refusal(Http, url)
        said("unencrypted url", str(error), url=Http(url, allow_insecure=True).display_url)
        assert error.path == "url"

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("", "url '' is not an http or https URL"),
            ("example.com/mcp", "url 'example.com/mcp' is not an http or https URL"),
            ("user:hunter2@example.com", "url '…@example.com' is not an http or https URL"),
            ("ftp://example.com/", "url 'ftp://example.com/' is not an http or https URL"),
            ("example.com?key=hunter2", "url 'example.com?…' is not an http or https URL"),
            ("https:///mcp", "url 'https:///mcp' has no host"),
            ("https://:443/mcp", "url 'https://:443/mcp' has no host"),
            ("https://user:hunter2@/", "url 'https:///' has no host"),
            (
                "https://example.com:http/mcp",
                "url 'https://example.com:http/mcp' has an invalid host or port",
            ),
            (
                "https://user:hunter2@[::1/mcp",
                "url '…@[::1/mcp' has an invalid host or port",
            ),
            (
                " https://user:hunter2@example.com",
                "url 'https://example.com' contains whitespace, a control character or a backslash",
            ),
            (
                "https://example.com/a\nb",
                "url 'https://example.com/ab' contains whitespace, a control character or a backslash",
            ),
            (
                "http://evil.example\\@localhost/",
                "url 'http://localhost/' contains whitespace, a control character or a backslash",
            ),
            (
                "https://${HOST}/mcp",
                "url 'https://${HOST}/mcp' contains '${', but variables are expanded in headers only",
            ),
            (None, "url is None"),
            (Path("mcp.json"), "url is a PosixPath"),
        ],
    )
    def test_an_invalid_url_is_refused_without_its_credentials(self, url: object, problem: str, said: Said) -> None:
        error = refusal(Http, url)
        said(problem, str(error))
        assert error.path == "url"

    def test_the_display_url_has_no_user_info_no_query_values_and_no_fragment(self) -> None:
        http = Http("https://user:hunter2@example.com:8443/mcp?key=hunter2&hunter2&a=#hunter2")
        assert http.display_url == "https://example.com:8443/mcp?key=…&…&a=…"
        assert repr(http) == "Http('https://example.com:8443/mcp?key=…&…&a=…')"

    def test_the_display_url_of_a_plain_url_is_that_url(self) -> None:
        assert Http("https://example.com/@scope/mcp").display_url == "https://example.com/@scope/mcp"

    def test_repr_shows_the_names_of_headers_and_no_value(self) -> None:
        http = Http("https://example.com", headers={"Authorization": "Bearer hunter2"})
        assert "headers={'Authorization': …}" in repr(http)
        assert "hunter2" not in repr(http) + repr(http.headers)

    def test_headers_are_a_copy_that_cannot_be_changed(self) -> None:
        given = {"X-A": "1"}
        http = Http("https://example.com", headers=given)
        given["X-A"] = "2"
        assert http.headers == {"X-A": "1"}
        assert http == Http("https://example.com", headers={"X-A": "1"})
        assert hash(http) == hash(Http("https://example.com", headers={"X-A": "1"}))

    @pytest.mark.parametrize(
        ("headers", "problem"),
        [
            (["A: 1"], "headers is a list"),
            ({"X-A": 5}, "headers['X-A'] is an int"),
            (
                {"Authorization: Bearer hunter2": ""},
                "the name of a header is empty or contains an invalid character",
            ),
            (
                {"": "x"},
                "the name of a header is empty or contains an invalid character",
            ),
            (
                {"X-A": Secret("hunter2\n")},
                "headers['X-A']: the value contains a line break",
            ),
            (
                {"X-A": "hunter2 "},
                "headers['X-A']: the value begins or ends with whitespace",
            ),
            (
                {"X-A": "hünter2"},
                "headers['X-A']: the value contains a character that is not printable ASCII",
            ),
            ({"x-a": "1", "X-A": "2"}, "'x-a' and 'X-A' are the same header"),
        ],
    )
    def test_invalid_headers_are_refused_without_their_values(self, headers: object, problem: str, said: Said) -> None:
        error = refusal(Http, "https://example.com", headers=headers)
        said(problem, str(error))
        assert error.path is not None
        assert error.path.startswith("headers")

    def test_two_credentials_are_refused_naming_both_options(self, said: Said) -> None:
        """S4-26: contradictory options are refused, both named."""
        error = refusal(Http, "https://user:hunter2@example.com", headers={"authorization": "Bearer hunter2"})
        said("a header and a url with a password", str(error))

    @pytest.mark.parametrize("value", [1, "yes", None])
    def test_allow_insecure_is_true_or_false(self, value: object) -> None:
        error = refusal(Http, "http://example.com", allow_insecure=value)
        assert f"allow_insecure={value!r} is not valid; give True or False" in str(error)
