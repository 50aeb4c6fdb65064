"""Tokens, names, origins, and what identities see of each other."""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConfigError
from mcp_actors.gateway.http import Access, read_or_make_token, tokens_in
from mcp_actors.gateway.http._access import is_loopback
from mcp_actors.gateway.http._wire import Head, HttpRefused

from ..hosts import in_process, notes
from .doors import TOKEN, open_house

TOKENS = {"ann": "token-of-ann-12345", "bob": "token-of-bob-12345"}


CHECKED: Final[list[tuple[dict[str, str], int, str]]] = [
    ({}, 401, "send the token"),
    ({"authorization": "Bearer wrong-token-of-somebody"}, 401, "send the token"),
    ({"authorization": f"Basic {TOKEN}"}, 401, "send the token"),
    ({"authorization": f"Bearer {TOKEN}x"}, 401, "send the token"),
    ({"authorization": f"bearer  {TOKEN}"}, 200, ""),
    ({"authorization": f"Bearer {TOKEN}", "host": "evil.example"}, 421, "--host-name"),
    ({"authorization": f"Bearer {TOKEN}", "host": "localhost.evil.example:80"}, 421, "--host-name"),
    ({"authorization": f"Bearer {TOKEN}", "host": "gw.example:8443"}, 200, ""),
    ({"authorization": f"Bearer {TOKEN}", "host": "[::1]:80"}, 200, ""),
    ({"authorization": f"Bearer {TOKEN}", "origin": "https://evil.example"}, 403, "--origin"),
    ({"authorization": f"Bearer {TOKEN}", "origin": "null"}, 403, "--origin"),
    ({"authorization": f"Bearer {TOKEN}", "origin": "https://app.example"}, 200, ""),
    ({"authorization": f"Bearer {TOKEN}", "host": "localhost:8", "origin": "http://localhost:8"}, 200, ""),
    ({"authorization": f"Bearer {TOKEN}", "host": "localhost:8", "origin": "http://localhost:9"}, 403, "--origin"),
]
"""Headers → the status of the reply, and words in it."""


@pytest.mark.parametrize("path", ["/status", "/metrics", "/mcp", "/nothing"])
async def test_a_request_needs_a_token_a_name_and_an_origin(path: str) -> None:
    house = open_house(in_process("notes", notes()), host_names=["gw.example"], origins=["https://app.example"])
    async with house as found:
        for headers, status, words in CHECKED:
            reply = await (await found.connect()).fetch("GET", path, headers, token=None)
            if status == 200:
                assert reply.status == {"/mcp": 400, "/nothing": 404}.get(path, 200), headers
            else:
                assert (reply.status, words in reply.text) == (status, True), headers
                assert "access-control-allow-origin" not in reply.headers, headers
            assert reply.headers.get("www-authenticate") == ("Bearer" if status == 401 else None), headers


async def test_probes_need_nothing_and_get_a_status_and_no_body() -> None:
    async with open_house(in_process("notes", notes())) as house:
        await (await house.connect()).ask("tools/list")  # which waits for the lists, as readiness does
        for path in ("/healthz", "/readyz"):
            reply = await (await house.connect()).fetch("GET", path, {"host": "10.0.0.1"}, token=None)
            assert (reply.status, reply.body) == (200, b"")


async def test_status_and_metrics_show_the_servers() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.call("notes_echo", text="x")
        assert (await peer.fetch("GET", "/status")).json["servers"]["notes"]["state"] == "ready"
        reply = await peer.fetch("GET", "/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        assert 'mcp_client_attempts_total{server="notes"' in reply.text


async def test_a_request_with_the_head_of_the_last_one_has_been_checked_too() -> None:
    """The head is parsed once; a request with another token is not taken for one of the same client."""
    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        peer = await house.connect()
        for token, status in [
            (TOKENS["ann"], 200),
            (TOKENS["ann"], 200),
            ("token-of-eve-12345", 401),
            (TOKENS["ann"], 200),
        ]:
            assert (await peer.fetch("GET", "/status", token=token)).status == status


def test_a_made_token_is_in_a_file_that_only_this_user_reads(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    token = read_or_make_token(str(file))
    assert (file.stat().st_mode & 0o777, len(token) >= 40) == (0o600, True)
    assert tokens_in(str(file)) == {identity_of(token): token}
    assert read_or_make_token(str(file)) == token


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o602, 0o644])
def test_a_token_file_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(mode)
    with pytest.raises(ConfigError, match=r"can be read by other users .*; run: chmod 600"):
        tokens_in(str(file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no token; remove the file"),
        ("# nothing\n\n", "has no token; remove the file"),
        ("short\n", "line 1 is not TOKEN or NAME TOKEN"),
        ("a b 0123456789abcdef\n", "line 1 is not TOKEN or NAME TOKEN"),
        ("ann 0123456789abcdeä\n", "line 1 is not TOKEN or NAME TOKEN"),
        ("ann 0123456789abcdef\nann 0123456789abcdeg\n", "line 2 has a name or a token for the second time"),
        ("ann 0123456789abcdef\nbob 0123456789abcdef\n", "line 2 has a name or a token for the second time"),
    ],
)
def test_a_token_file_that_is_not_one_says_where(text: str, words: str, tmp_path: Path) -> None:
    """D-55: nor is one that is half made."""
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=words) as raised:
        tokens_in(str(file))
    assert str(raised.value).startswith(str(file))


def test_a_token_file_has_identities_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("# people\nann 0123456789abcdef # the first\n\n0123456789abcdeg\n")
    file.chmod(0o600)
    assert tokens_in(str(file)) == {"ann": "0123456789abcdef", identity_of("0123456789abcdeg"): "0123456789abcdeg"}


def identity_of(token: str) -> str:
    """Return the identity of a token without a name, which does not depend on its line."""
    return f"token {sha256(token.encode()).hexdigest()[:16]}"


def test_a_token_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        tokens_in(str(tmp_path / "none"))
    long = str(tmp_path / "none" / ("a" * 300))
    with pytest.raises(ConfigError, match=r"cannot be made \(File name too long\); name a file that exists") as raised:
        read_or_make_token(long)
    assert str(raised.value).startswith(long)


# The mode and the group of the file, and the user of the process, which is in group 2000.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away, and become another user")
@pytest.mark.parametrize(
    ("mode", "group", "user", "said"),
    [
        (0o440, 2000, 1000, "read"),
        (0o640, 2000, 1000, "read"),
        (0o440, 0, 1000, "cannot be read (Permission denied); let user 1000 read it"),
        (0o400, 2000, 1000, "cannot be read (Permission denied); let user 1000 read it"),
        (0o644, 2000, 1000, "(-rw-r--r--); give it a group of user 1000, and the mode 0440"),
        (0o444, 0, 1000, "(-r--r--r--); give it a group of user 1000, and the mode 0440"),
        (0o440, 2000, 0, "(-r--r-----); run: chmod 600 {file}"),
        (0o400, 2000, 0, "read"),
    ],
)
def test_a_secret_of_kubernetes_is_read_through_its_links_by_a_group(
    mode: int, group: int, user: int, said: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # the one of pytest is for root only
        version = Path(folder, "..2026_11_27_07_40_00.0123456789")
        version.mkdir()
        (version / "token").write_text(f"{TOKEN}\n")
        (version / "token").chmod(mode)
        Path(folder, "..data").symlink_to(version.name)
        file = Path(folder, "token")
        file.symlink_to("..data/token")
        for each in (Path(folder), version, version / "token"):
            os.chown(each, 0, group)
        Path(folder).chmod(0o755)
        heard, say = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([2000])
                os.setgid(3000)
                os.setuid(user)
                os.write(
                    say, b"read" if tokens_in(str(file)) == {identity_of(TOKEN): TOKEN} else b"read something else"
                )
            except BaseException as exc:
                os.write(say, str(exc).encode())
            finally:
                os._exit(0)
        os.close(say)
        with open(heard) as answer:
            assert answer.read().endswith(said.format(file=file))
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("127.0.0.1", 1), True),
        (("127.8.8.8", 1), True),
        (("::1", 1, 0, 0), True),
        (("0.0.0.0", 1), False),
        (("::", 1, 0, 0), False),
        (("192.0.2.7", 1), False),
        (("fe80::1%eth0", 1, 0, 2), False),
        ("/run/gateway.sock", True),
    ],
)
def test_only_loopback_is_loopback(address: Any, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_address_that_a_client_has_connected_to_is_a_name() -> None:
    access = Access({})
    head = Head(headers={"host": "192.0.2.7:8000"})
    access.check_host_and_origin(head, ("192.0.2.7", 8000))
    for own_address in (("192.0.2.8", 8000), ("127.0.0.1", 8000)):
        with pytest.raises(HttpRefused):
            access.check_host_and_origin(head, own_address)


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
def test_a_port_that_a_container_publishes_on_loopback_needs_no_name(host: str) -> None:
    """The client uses a loopback name, and arrives at the address of the container."""
    check = Access({}).check_host_and_origin
    check(Head(headers={"host": host, "origin": f"http://{host}"}), ("10.88.0.2", 8000))
    with pytest.raises(HttpRefused, match="--origin"):  # a page of another program on the same machine
        check(Head(headers={"host": host, "origin": "http://localhost:9"}), ("10.88.0.2", 8000))
