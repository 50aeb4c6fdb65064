"""The lines before MCP begins: who proves what, and what a wrong line is refused with."""

from __future__ import annotations

import pytest

from mcp_actors.transports.socket._handshake import (
    MAX_LINE,
    MAX_NAMED,
    OK,
    REFUSED,
    Challenge,
    NotProven,
    Proof,
    _proof,
    answer_line,
    is_ours,
    names_of,
    server_in,
    unknown,
)

SECRET = b"a secret of both sides"


def test_both_sides_prove_the_secret_and_the_client_names_a_server() -> None:
    gateway, client = Challenge(SECRET), Proof("docs", SECRET)
    challenge = gateway.line[:-1]
    proven = gateway.check(client.line(challenge)[:-1])
    assert proven.server == "docs"
    assert client.check(proven.answer(OK)[:-1], challenge) == OK


def test_the_line_of_a_client_fits_into_what_a_gateway_reads() -> None:
    longest = Proof("n" * 64, SECRET).line(Challenge(SECRET).line[:-1])
    assert len(longest) <= MAX_LINE


@pytest.mark.parametrize("secret", [b"another secret of 16", b"", SECRET + b" "])
def test_a_client_with_another_secret_is_refused(secret: bytes) -> None:
    gateway = Challenge(SECRET)
    with pytest.raises(NotProven, match="it has another secret"):
        gateway.check(Proof("docs", secret).line(gateway.line[:-1])[:-1])


def test_a_line_of_another_connection_is_refused() -> None:
    recorded = Challenge(SECRET)
    line = Proof("docs", SECRET).line(recorded.line[:-1])[:-1]
    assert recorded.check(line).server == "docs"
    with pytest.raises(NotProven, match="another secret"):
        Challenge(SECRET).check(line)


def test_a_client_cannot_name_another_server_in_a_line_that_it_has_seen() -> None:
    gateway = Challenge(SECRET)
    line = Proof("docs", SECRET).line(gateway.line[:-1])[:-1]
    with pytest.raises(NotProven, match="another secret"):
        gateway.check(line.replace(b" docs ", b" mail "))


def test_a_gateway_that_sends_the_proof_of_the_client_back_has_proven_nothing() -> None:
    gateway, client = Challenge(SECRET), Proof("docs", SECRET)
    challenge = gateway.line[:-1]
    proof = client.line(challenge)[:-1].split()[-1]
    with pytest.raises(NotProven, match="has not proven the secret"):
        client.check(answer_line(OK, proof)[:-1], challenge)


def test_the_proofs_of_the_two_roles_differ_for_the_same_parts() -> None:
    assert _proof(SECRET, b"client", b"nonce") != _proof(SECRET, b"server", b"nonce")


def test_an_answer_that_was_changed_on_the_way_is_not_believed() -> None:
    gateway, client = Challenge(SECRET), Proof("docs", SECRET)
    challenge = gateway.line[:-1]
    answer = gateway.check(client.line(challenge)[:-1]).answer(unknown(["mail"]))[:-1]
    assert names_of(client.check(answer, challenge)) == ["mail"]
    with pytest.raises(NotProven, match="has not proven the secret"):
        client.check(answer.replace(b"unknown mail", b"ok"), challenge)


def test_a_gateway_without_the_secret_cannot_answer_ok() -> None:
    client = Proof("docs", SECRET)
    challenge = Challenge(b"another").line[:-1]
    with pytest.raises(NotProven, match="refused the secret"):
        client.check(answer_line(OK)[:-1], challenge)
    with pytest.raises(NotProven, match="refused the secret"):
        client.check(answer_line(REFUSED)[:-1], challenge)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "closed the connection"),
        (b"mcp-actors/2 " + b"0" * 64, "another version of the handshake"),
        (b"mcp-actors/1 " + b"0" * 63, "another version of the handshake"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', "is not a gateway of mcp-actors"),
        (b"HTTP/1.1 400 Bad Request", "is not a gateway of mcp-actors"),
    ],
)
def test_a_stranger_in_the_place_of_a_gateway_is_named(line: bytes, said: str) -> None:
    with pytest.raises(NotProven, match=said):
        Proof("docs", SECRET).line(line)
    with pytest.raises(NotProven, match=said):
        Proof("docs").check(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"mcp-actors/1 docs",
        b"mcp-actors/1 docs " + b"0" * 64,
        b"mcp-actors/1 docs " + b"0" * 64 + b" " + b"0" * 65,
        b"mcp-actors/1 do/cs " + b"0" * 64 + b" " + b"0" * 64,
        b"mcp-actors/2 docs " + b"0" * 64 + b" " + b"0" * 64,
        b'{"jsonrpc":"2.0"}',
    ],
)
def test_any_other_line_of_a_client_is_refused(line: bytes) -> None:
    with pytest.raises(NotProven, match="did not begin as a client"):
        Challenge(SECRET).check(line)


def test_over_a_unix_socket_a_client_only_names_a_server() -> None:
    client = Proof("docs")
    line = client.line()[:-1]
    assert is_ours(line)
    assert server_in(line) == "docs"
    assert client.check(answer_line(OK)[:-1]) == OK
    assert names_of(client.check(answer_line(unknown(["a", "b"]))[:-1])) == ["a", "b"]


def test_the_lines_of_version_1_stay_as_they_are() -> None:
    """A gateway and its clients may be of different releases."""
    assert Proof("docs").line() == b"mcp-actors/1 docs\n"
    assert answer_line(OK) == b"mcp-actors/1 - ok\n"
    assert answer_line(REFUSED) == b"mcp-actors/1 - refused\n"
    assert answer_line(unknown(["a", "b"])) == b"mcp-actors/1 - unknown a,b\n"


@pytest.mark.parametrize(
    "line", [b"mcp-actors/1", b"mcp-actors/1 a b", b"mcp-actors/2 docs", b"mcp-actors/1 " + b"n" * 65]
)
def test_a_line_of_another_version_names_no_server(line: bytes) -> None:
    assert server_in(line) is None


def test_only_some_of_many_names_are_listed() -> None:
    names = [f"server{number}" for number in range(100)]
    listed = names_of(Proof("docs").check(answer_line(unknown(names))[:-1]))
    assert listed == [*names[:MAX_NAMED], "..."]


def test_no_repr_has_the_secret() -> None:
    gateway, client = Challenge(SECRET), Proof("docs", SECRET)
    proven = gateway.check(client.line(gateway.line[:-1])[:-1])
    for each in (gateway, client, proven):
        assert "a secret" not in repr(each)
