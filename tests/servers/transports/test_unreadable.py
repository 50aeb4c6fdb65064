"""Responses that cannot be parsed, and the search for their request."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st
from mcp import MCPError
from mcp.types import PARSE_ERROR

from mcp_actors import ConnectFailed, ConnectionLost, open_servers
from mcp_actors.transports._messages import HEAD_BYTES, LineSplitter, LongLine, answer_over_limit, unreadable_answer
from mcp_actors.transports._request_table import comparable_id

from ...messages import Said
from ...processor_time import least_time
from ..groups import BOUND, NEVER, server

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[]:,\n é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('id"\\:,{', max_size=3), inner, max_size=3),
    max_leaves=12,
)


def id_of(text: str) -> int | str | None:
    found = unreadable_answer(text.encode())
    return None if found is None else found.id


def in_pieces(text: str, limit: int, cut: int) -> int | str | None:
    """Return the id of an answer over a limit that arrives in two pieces."""
    splitter = LineSplitter(max_line_bytes=limit, max_values=1000)
    splitter.feed(text[:cut].encode())
    splitter.feed(text[cut:].encode() + b"\n")
    line = splitter.pop()
    assert isinstance(line, LongLine)
    found = answer_over_limit(line, "it is too long")
    return None if found is None else found.id


@given(
    st.integers(0, 10**9) | st.text(max_size=4),
    st.dictionaries(st.sampled_from(["jsonrpc", "extra", "x"]), values, max_size=3),
    values,
    st.sampled_from(["result", "error"]),
    st.randoms(),
    st.booleans(),
)
def test_the_id_of_a_response_is_found_wherever_it_is(
    request_id: int | str, more: dict[str, Any], result: Any, kind: str, rng: Any, compact: bool
) -> None:
    """C-08."""
    members = [*more.items(), ("id", request_id), (kind, result)]
    rng.shuffle(members)
    text = json.dumps(dict(members), separators=(",", ":") if compact else None)
    assert id_of(text) == comparable_id(request_id)
    parsed = unreadable_answer(text.encode(), json.loads(text))
    assert parsed is not None
    assert parsed.id == comparable_id(request_id)


@pytest.mark.parametrize(
    "text",
    [
        "starting up …",
        "[1, 2]",
        '{"level": "info", "id": 3}',
        '{"jsonrpc": "2.0", "id": 3, "params": {}}',
        '{"jsonrpc": "2.0", "id": 3',
        '{"jsonrpc": "2.0", "id": 3{"jsonrpc": "2.0", "id": 4, "result": {}}',
        '{"jsonrpc": "2.0", "id": 3 4, "result": {}}',
        '{"jsonrpc": "2.0", "more": {"id": 3}, "result": [}',
        '{"id": 3, "method": "ping", "result": {}}',
        '{"id": 3, "result": {}, "method": "ping"}',
        '{"result": {"id": 3}}',
        '{"id": null, "error": {}}',
        '{"id": true, "result": {}}',
        '{"id": 3.5, "result": {}}',
        '{"id": [3], "result": {}}',
        '{"id": 3x, "result": {}}',
        '{"id": "3, "result": {}}',
        '{"id"',
        "",
    ],
)
def test_text_that_is_not_a_response_has_no_id(text: str) -> None:
    assert id_of(text) is None


def test_the_id_of_a_deeply_nested_response_is_found() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    found = unreadable_answer(f'{{"result":{deep},"id":"x-7","jsonrpc":"2.0"}}'.encode())
    assert found is not None
    assert (found.id, found.error.code) == ("x-7", PARSE_ERROR)


@pytest.mark.parametrize(
    "members",
    [
        '"id":7,"deep":DEEP,"result":{"id":8}',
        '"deep":DEEP,"id":7,"result":{"id":8,"a":"\\\\\\""}',
        '"deep":DEEP,"result":[{"id":8},8],"id":7.0',
        '"deep":DEEP,"id":"7"',
    ],
)
def test_an_id_before_or_after_a_deep_member_is_found(members: str) -> None:
    """C-08: the member may come before the result, and the id of another object does not count."""
    deep = '{"id":8,"a":[' * 100_000 + "1" + "]}" * 100_000
    assert id_of('{"jsonrpc":"2.0",' + members.replace("DEEP", deep) + "}") == 7


@pytest.mark.parametrize("request_id", ["123456789", '"123456789"', "123456789.0"])
def test_an_id_that_the_limit_of_the_search_cuts_is_not_read(request_id: str) -> None:
    """C-08."""
    found = set()
    for size in range(HEAD_BYTES - 60, HEAD_BYTES):
        begin = '{"result":1,"jsonrpc":"2.0","more":"'
        text = begin + "x" * (size - len(begin)) + f'","id":{request_id},"last":"' + "x" * 10_000
        found.add(id_of(text + '"}'))
    assert found == {None, 123456789}


@pytest.mark.parametrize("request_id", ["123456789", '"123456789"'])
def test_an_id_that_is_cut_between_two_pieces_is_read_whole_or_not_at_all(request_id: str) -> None:
    """C-08."""
    begin = '{"jsonrpc":"2.0","id":'
    text = f'{begin}{request_id},"result":{{"text":"{"x" * 10_000}"}}}}'
    found = {in_pieces(text, len(begin), cut) for cut in range(len(begin) + 1, len(begin) + 30)}
    assert found == {None, 123456789}


@pytest.mark.parametrize("begin", ['{"jsonrpc":"2.0","id":7,"result":', '{"id" : "7" , "error":{"code":1,"message":"'])
@pytest.mark.parametrize("part", ['"', '\\"', "{", '"a":', '{"a', "\\", "[]", ",", '{"id":8},', "1\n", "é"])
def test_an_id_before_a_long_value_is_found(begin: str, part: str) -> None:
    """B-14."""
    assert id_of(begin + part * 10_000) in (7, "7")


@pytest.mark.parametrize(
    "end",
    [',"id":7}', ',"id":7,"more":{"id":[8]}}', ', "id" : "x", "jsonrpc" : "2.0" } ', ',"jsonrpc":"2.0","id":"é"}\r'],
)
@pytest.mark.parametrize(
    "result",
    [[["x"]] * 2000, {"id": 8, "text": '","id":9}' * 2000}, "\\" * 5000],
    ids=["nested", "another id", "escapes"],
)
def test_an_id_after_a_long_value_is_found(result: Any, end: str) -> None:
    """B-14."""
    assert id_of(f'{{"result":{json.dumps(result)}{end}') in (7, "x", "é")


@pytest.mark.parametrize(
    "text",
    [
        f'{{"method":"x","params":"{"x" * 5000}","id":7,"result":{{}}}}',
        f'{{"params":"{"x" * 5000}","method":"x","id":7}}',
        f'{{"result":"{"x" * 9000}"}} {{"id":7,"more":{{}}}}',
        f'{{"result":"{"x" * 9000}","id":7}} 1',
        f'{{"result":"{"x" * 5000}\\","id":7}}"',
        f'{{"result":"{"x" * 5000}","id":7',
        f'["result",{"1," * 5000}"id":7}}',
    ],
)
def test_an_ambiguous_id_is_not_used(text: str) -> None:
    assert id_of(text) is None


@pytest.mark.parametrize("part", ['"', '\\"', "{", '"a":', '{"a', "\\", "[]", ",", '"a":1,', "x", " "])
def test_the_search_for_an_id_is_fast_in_any_text(part: str) -> None:
    """B-13."""
    text = ('{"id":1,"result":' + part * 1_000_000).encode()
    assert least_time(lambda: unreadable_answer(text)) < 0.02


async def test_a_list_that_is_nested_too_deeply_fails_at_once_and_says_so() -> None:
    """Not only when connect_timeout expires."""
    with trio.fail_after(BOUND):
        async with open_servers(server("deep", "--deep-list", "300", restarts=NEVER, connect_timeout=60)) as group:
            error = group.errors["deep"]
    assert isinstance(error, ConnectFailed)
    assert error.phase == "list_tools"
    assert "the response is not a valid MCP message, or is nested too deeply" in str(error)
    cause = error.__cause__
    assert isinstance(cause, MCPError)
    assert type(cause.data) is str, "the text of the response would be kept with the error"


async def test_an_unreadable_response_loses_its_request_and_no_other(said: Said) -> None:
    config = server("deep", "--deep-list", "300", restarts=NEVER, static_tools=[{"name": "echo", "inputSchema": {}}])
    with trio.fail_after(BOUND):
        async with open_servers(config) as group:
            with pytest.raises(ConnectionLost) as caught:
                await group["deep"].list_tools()
            size = str(caught.value).partition("(")[2].partition(" bytes")[0]
            said("response cannot be parsed", str(caught.value), size=size)
            assert caught.value.outcome == "unknown"
            cause = caught.value.__cause__
            assert isinstance(cause, MCPError)
            assert type(cause.data) is str, "the text of the response would be kept with the error"
            await group["deep"].call_tool("echo", {"text": "hello"})
            assert group.status()["deep"].restarts == 0
