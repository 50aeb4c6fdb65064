"""Credentials in command lines and URLs are masked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from mcp_actors import ConfigError, Http, Stdio
from mcp_actors.config._values import mask_args, mask_url

from ..processor_time import takes_less_than


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-y", "package@1.0", "--verbose"], ["-y", "package@1.0", "--verbose"]),
        (["--token", "hunter2", "x"], ["--token", "…", "x"]),
        (["--token", "--verbose", "x"], ["--token", "--verbose", "x"]),
        (["--api-key=hunter2", "x"], ["--api-key=…", "x"]),
        (["-e", "GITHUB_TOKEN=hunter2", "-e", "MODE=fast"], ["-e", "GITHUB_TOKEN=…", "-e", "MODE=fast"]),
        (["-e", "GITHUB_TOKEN"], ["-e", "GITHUB_TOKEN"]),
        (["--header", "Authorization: Bearer hunter2"], ["--header", "…"]),
        (["-H", "Authorization: Bearer hunter2"], ["-H", "…"]),
        (["Authorization: Bearer hunter2"], ["Authorization:…"]),
        (["postgresql://user:hunter2@host/db"], ["postgresql://host/db"]),
        (["--url=https://host/mcp?key=hunter2"], ["--url=https://host/mcp?key=…"]),
        (["--root", "/home/user"], ["--root", "/home/user"]),
        (["--env=API_KEY=hunter2", "--env=MODE=fast"], ["--env=API_KEY=…", "--env=MODE=fast"]),
        (["--arg=--token=hunter2"], ["--arg=--token=…"]),
        (["--url=https://user:hunter2@host/?mode=fast"], ["--url=https://host/?mode=…"]),
    ],
)
def test_credentials_on_a_command_line_are_masked(args: list[str], shown: list[str]) -> None:
    assert f"args={tuple(shown)!r}" in repr(Stdio("server", args))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:hunt/er2@host/mcp", "…@host/mcp"),
        ("https://user:12/hunter2@host/mcp", "…@host/mcp"),
        ("https://user:hunt#er2@host/mcp", "…@host/mcp"),
        ("https://user:12#hunter2@host/mcp", "…@host/mcp"),
        ("https://user:hunt?er2@host/mcp?key=x", "…@host/mcp?…"),
        ("postgres://user:h/unter2@host/db", "…@host/db"),
        ("https://me@user:hunter2/@host/mcp", "…@host/mcp"),
        ("https://me@user:hunter2#@host/mcp", "…@host/mcp"),
        ("https://me@user:hunter2?@host/mcp", "…@host/mcp"),
        ("https://me@host:8443/@scope/mcp", "https://host:8443/@scope/mcp"),
        ("https://me@host:${PORT}/@scope", "https://host:${PORT}/@scope"),
        ("https://host:8443/mcp?mail=a@b", "https://host:8443/mcp?mail=…"),
        ("https://host/@scope/mcp", "https://host/@scope/mcp"),
        ("https://[::1]/@scope/mcp", "https://[::1]/@scope/mcp"),
        ("https://${HOST}:${PORT}/@scope", "https://${HOST}:${PORT}/@scope"),
        ("https://host:http/mcp", "https://host:http/mcp"),
    ],
)
def test_a_password_with_a_character_that_ends_it_is_not_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize("query", ["hunter2", "hunter2&hunter2"])
def test_a_query_without_names_is_masked(query: str) -> None:
    assert mask_url(f"https://host/mcp?{query}") == f"https://host/mcp?{query.replace('hunter2', '…')}"


def test_a_url_that_is_refused_for_its_password_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as caught:
        Http("https://user:hunt/er2@host/mcp")
    assert "'…@host/mcp' has an invalid host or port" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Http("http://user:12/hunter2@host/mcp")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Stdio("x", ["--db", "postgres://user:12/hunter2@host/db"]))


@given(st.text(alphabet="aZ0+.-:/@? _\u00e9", max_size=30))
def test_the_first_url_in_an_argument_is_masked_wherever_it_begins(arg: str) -> None:
    found = re.search(r"[A-Za-z][A-Za-z0-9+.-]*://", arg)
    if found:
        assert mask_args([arg]) == (arg[: found.start()] + mask_url(arg[found.start() :]),)
    else:
        assert mask_args([arg]) == (arg,)


@pytest.mark.parametrize(
    "part", ["a", "0", "a.", "-", "=", ":", "a:", "a:/", "a://", "://", "?a=&", "@", "#", "key", "é "]
)
@pytest.mark.parametrize("begin", ["", "https://", "token", "https://a:b/"])
def test_an_argument_takes_no_longer_than_its_length_allows(begin: str, part: str) -> None:
    """B-15."""
    with takes_less_than(1):  # quadratic, it would be half a minute
        mask_args([begin + part * 100_000])
