"""Results that are not as the protocol has them are read as far as possible, in both eras and by every way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from pydantic_core import ValidationError

from mcp_actors import ConnectionLost, RetryPolicy, ServerRef, open_servers
from mcp_actors._json import read_json
from mcp_actors.servers._dialects import read_result

from . import wire_server
from .answers import written
from .test_generated_answers import WAYS
from .wire_pipes import Machine

pytestmark = pytest.mark.own_way

Json = dict[str, Any]

HI: Final = {"type": "text", "text": "hi"}
VIDEO: Final = {"type": "video", "data": "AA==", "mimeType": "video/mp4"}
UNKNOWN: Final = {"type": "text", "text": "[part 1 of this result is of the unknown type 'video']"}
SECOND: Final = {"type": "text", "text": "[part 2 of this result is of the unknown type 'video']"}
UNTYPED: Final = {"type": "text", "text": "[part 1 of this result has no type]\nhi"}
BROKEN: Final = {"type": "text", "text": "[part 1 of this result is not a valid part of the type 'image']"}
NOTE: Final[Json] = {"type": "resource", "resource": {"uri": "x:1", "text": "a"}}

RESULTS: Final[tuple[tuple[Json, Json], ...]] = (
    ({"structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
    ({"content": None, "structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
    ({"content": [HI], "structuredContent": None, "isError": None}, {"content": [HI]}),
    ({"content": [HI], "isError": "false"}, {"content": [HI], "isError": True}),
    ({"content": [HI], "isError": 0}, {"content": [HI], "isError": True}),
    ({"isError": True}, {"content": [], "isError": True}),
    ({"content": [VIDEO, HI]}, {"content": [UNKNOWN, HI]}),
    ({"content": [VIDEO]}, {"content": [UNKNOWN]}),
    ({"content": [{"type": "image", "data": 5}, HI]}, {"content": [BROKEN, HI]}),
    ({"content": [{"text": "hi"}, VIDEO]}, {"content": [UNTYPED, SECOND]}),
    ({"content": "hi"}, {"content": [UNTYPED]}),
    ({"content": HI}, {"content": [HI]}),
    ({"content": [HI], "_meta": []}, {"content": [HI], "_meta": {}}),
    ({"content": [HI], "_meta": "x"}, {"content": [HI]}),
    ({"content": [{**HI, "_meta": [], "annotations": []}]}, {"content": [{**HI, "_meta": {}, "annotations": {}}]}),
    (
        {"content": [{**HI, "annotations": {"priority": "high", "audience": ["user"], "lastModified": None}}]},
        {"content": [{**HI, "annotations": {"audience": ["user"]}}]},
    ),
    ({"content": [{**HI, "annotations": 5}]}, {"content": [HI]}),
    ({"content": [{"type": "resource", "resource": {**NOTE["resource"], "_meta": []}}]}, {"content": [
        {"type": "resource", "resource": {**NOTE["resource"], "_meta": {}}}
    ]}),
    ({"content": [NOTE, VIDEO]}, {"content": [NOTE, SECOND]}),
    ({"content": [HI], "resultType": None}, {"content": [HI]}),
)  # fmt: skip
"""What a server returns, and how it is read."""

LOST: Final[tuple[Json, ...]] = (
    {},
    {"isError": False},
    {"content": None},
    {"content": 5},
    {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}, "requestState": 5},
)
"""Results of which nothing is left, or that ask for something."""


def read(result: Any) -> Json:
    """Return a result of a tool as it was read, without defaults."""
    found = result.model_dump(by_alias=True, exclude_none=True)
    assert isinstance(found["isError"], bool)
    return {name: each for name, each in found.items() if each not in (False, "complete")}


async def call(ref: ServerRef) -> Json:
    return read(await ref.call_tool("echo"))


async def passed_on(ref: ServerRef) -> Json:
    """Return what a gateway passes on."""
    pending = ref.send_tool_call("echo")
    pending.pass_on(None)
    value = await pending.finish()
    raw = {name: each for name, each in pending.result_of(value).items() if name not in ("resultType", "ttlMs")}
    assert {name: each for name, each in raw.items() if name != "isError" or each} == read(value)
    return read(value)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_result_is_read_as_far_as_possible(era: str) -> None:
    """D-12: also by a gateway, which passes on what was read."""
    machine, ways = Machine(era), [(way, do) for way in WAYS.values() for do in (call, passed_on)]
    with machine.installed():
        async with open_servers(machine.config(retry=RetryPolicy(attempts=1))) as servers:
            for given, expected in RESULTS:
                machine.now.server.script = written({"result": given})
                for way, do in ways:
                    with way():
                        assert await do(servers["a"]) == expected, given
            for given in LOST:
                machine.now.server.script = written({"result": given})
                for way, do in ways:
                    with way(), pytest.raises(ConnectionLost, match="invalid response"):
                        await do(servers["a"])
            assert servers["a"].statistics().incarnation == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_empty_array_is_structured_content_of_an_object(era: str) -> None:
    """D-12: where the tool returns objects, as all do in the legacy era."""
    machine = Machine(era)
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
    page = {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
    with machine.installed():
        async with open_servers(machine.config(validate="schema")) as servers:
            machine.now.server.script = written({"result": page})
            await servers["a"].list_tools()
            machine.now.server.script = written({"result": {"content": [], "structuredContent": []}})
            assert await servers["a"].call("echo") == {}
            assert await servers["a"].call("say") == ({} if era == "legacy" else [])


OTHERS: Final[dict[str, tuple[Callable[[ServerRef], Awaitable[Any]], Json]]] = {
    "a prompt": (lambda ref: ref.get_prompt("x"), {"messages": [{"role": "user", "content": VIDEO}], "_meta": []}),
    "a resource": (lambda ref: ref.read_resource("x:1"), {"contents": [{**NOTE["resource"], "_meta": []}]}),
    "prompts": (lambda ref: ref.list_prompts(), {"prompts": [{"name": "x", "_meta": []}], "_meta": []}),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_other_results_are_read_as_far_as_possible(name: str) -> None:
    """D-12."""
    (ask, given), machine = OTHERS[name], Machine("modern")
    with machine.installed():
        async with open_servers(machine.config(retry=RetryPolicy(attempts=1))) as servers:
            machine.now.server.script = written({"result": given})
            assert "[this part is of the unknown type 'video']" in str(await ask(servers["a"])) or name != "a prompt"


SCHEMA: Final = {"type": "object", "properties": {"a": [], "b": {"type": "object", "properties": [], "required": []}}}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_is_listed_with_what_can_be_read_of_it(era: str) -> None:
    """D-12: PHP writes an empty object as an empty array."""
    machine = Machine(era)
    tools = [
        {"name": "none", "inputSchema": {"type": "object", "properties": []}, "_meta": [], "description": None},
        {"name": "bare", "inputSchema": []},
        {"name": "deep", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": "perhaps", "title": "T"}},
    ]
    with machine.installed():
        async with open_servers(machine.config(retry=RetryPolicy(attempts=1))) as servers:
            machine.now.server.script = written({"result": {"tools": tools, "_meta": []}})
            none, bare, deep = await servers["a"].list_tools()
            assert none.input_schema == {"type": "object", "properties": {}}
            assert bare.input_schema == {"type": "object"}
            assert deep.input_schema["properties"] == {
                "a": {},
                "b": {"type": "object", "properties": {}, "required": []},
            }
            assert deep.annotations is not None
            assert deep.annotations.model_dump(exclude_none=True) == {"title": "T"}
            assert [each.input_schema for each in servers.tools] == [each.input_schema for each in (none, bare, deep)]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("capabilities", [{"tools": [], "prompts": [], "experimental": []}, []], ids=str)
async def test_capabilities_that_are_empty_arrays_are_empty_objects(
    capabilities: Any, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-12."""
    monkeypatch.setattr(wire_server, "CAPABILITIES", capabilities)
    machine = Machine(era)
    with machine.installed():
        async with open_servers(machine.config(), strict=True) as servers:
            info = servers["a"].info
            assert info is not None
            assert (info.capabilities.tools is not None) == bool(capabilities)


async def test_each_kind_of_invalid_result_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """D-12: the others are counted when the connection ends."""
    machine = Machine("legacy")
    with machine.installed():
        async with open_servers(machine.config()) as servers:
            for part in (VIDEO, VIDEO, {"type": "x\n\x1b[31m"}):
                machine.now.server.script = written({"result": {"content": [HI, part]}})
                await servers["a"].call_tool("echo")
            machine.now.server.script = written({"result": {"content": [HI], "isError": None}})
            for _ in range(2):
                await servers["a"].call_tool("echo")
    first, second, rest = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert first.startswith("server 'a': a result of tools/call is not valid (at content.1")
    assert first.endswith("), and was read as far as possible; fix the server")
    assert "isError: input should be a valid boolean" in second
    assert rest == "server 'a': 3 more messages were not as the protocol has them"
    assert "\x1b" not in caplog.text


async def test_a_result_of_an_empty_array_is_one_of_nothing() -> None:
    """D-12: as PHP answers a ping."""
    machine = Machine("legacy")
    with machine.installed():
        async with open_servers(machine.config(retry=RetryPolicy(attempts=1))) as servers:
            machine.now.server.script = json.dumps({"jsonrpc": "2.0", "id": 0, "result": []}).replace(
                '"id": 0', '"id":$id'
            )
            with pytest.raises(ConnectionLost, match="at content: field required"):
                await servers["a"].call_tool("echo")


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_a_part_that_is_not_unicode_becomes_a_text_that_says_so(version: str) -> None:
    """Its URI would be another one, so it is not read as U+FFFD."""
    text = rb'{"id":1,"result":{"content":[{"type":"text","text":"\ud800"},{"type":"resource_link","uri":"x:\ud800"}]}}'
    problems = list[ValidationError]()
    result = read_result("tools/call", version, read_json(text)["result"], problems.append)
    said = "[part 2 of this result cannot be read: a name, URI or schema in its JSON has half of a surrogate pair"
    assert result.content[0].text == "\ufffd"
    assert result.content[1].text.startswith(said)
    assert len(problems) == 1
