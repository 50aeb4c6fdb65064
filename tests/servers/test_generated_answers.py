"""Answers mean the same to a line without a task and to an exchange in a task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

import pytest
import trio
from mcp import MCPError
from mcp.types import PromptReference, ResourceTemplateReference
from pydantic import BaseModel
from trio.testing import MockClock

from mcp_actors import Callbacks, HealthPolicy, McpActorsError, RetryPolicy, ServerRef, open_servers
from mcp_actors.servers import NotSupported
from mcp_actors.servers._eras import parse_result
from mcp_actors.servers.connection._direct import DirectRequests
from mcp_actors.servers.requests import _lists
from mcp_actors.servers.requests._lists import ITEMS_A_STEP
from tests.programs import FULL_SIZE, SEED

from . import wire_server
from .answers import PAGE, Answers, written
from .hostile import MostInAStep
from .test_direct import roots
from .wire_pipes import Machine

pytestmark = pytest.mark.own_way

ANSWERS: Final = 2000 if FULL_SIZE else 100

FOUND: Final = [
    (method, written({"result": result}))
    for method, result in (
        ("tools/call", {"content": [{"text": "x"}]}),
        ("prompts/get", {"messages": [{"role": "user", "content": {"text": "x"}}]}),
        ("resources/read", {"contents": [], "ttlMs": -1, "cacheScope": "public"}),
        ("resources/read", {"contents": [], "inputRequests": 5}),
        ("tools/call", {"content": [], "resultType": "input_required"}),
        ("tools/call", {"content": [], "structuredContent": 5}),
        ("tools/call", {"content": [], "ttlMs": "x", "requestState": 5}),
        ("completion/complete", {"completion": {"values": ["x"] * 101}}),
        ("tools/list", {"tools": 5}),
        ("tools/list", PAGE | {"tools": [{"name": "x", "inputSchema": {"type": "object", "x-mcp-header": "a"}}]}),
        ("prompts/list", PAGE | {"prompts": [{"name": "x"}] * 40, "nextCursor": "x"}),
        ("prompts/list", PAGE | {"prompts": [{"name": "x"}] * 35 + [{}]}),
        ("prompts/list", {"prompts": [], "ttlMs": -1}),
        ("resources/list", PAGE | {"resources": []}),
        ("completion/complete", {"completion": {"values": []}, "resultType": "input_required"}),
    )
]
"""Answers in which the ways have differed."""

CALLS: Final[dict[str, Callable[[ServerRef], Awaitable[BaseModel | tuple[BaseModel, ...]]]]] = {
    "tools/call": lambda ref: ref.call_tool("echo"),
    "resources/read": lambda ref: ref.read_resource("file:///x"),
    "prompts/get": lambda ref: ref.get_prompt("x"),
    "completion/complete": lambda ref: ref.complete(PromptReference(name="x"), {"name": "a", "value": "v"}),
    "tools/list": lambda ref: ref.list_tools(),
    "prompts/list": lambda ref: ref.list_prompts(),
    "resources/list": lambda ref: ref.list_resources(),
    "resources/templates/list": lambda ref: ref.list_resource_templates(),
}


@contextmanager
def exchanged() -> Iterator[None]:
    """Take no request without a task."""
    with patch.object(DirectRequests, "take", lambda *_: False):
        yield


WAYS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {"lines": nullcontext, "exchanges": exchanged}


async def outcome_of(ref: ServerRef, method: str, way: str) -> tuple[str, Any]:
    """Return a result; or the type of an error, and what it says."""
    try:
        with trio.fail_after(5), WAYS[way]():
            result = await CALLS[method](ref)
            models = result if isinstance(result, tuple) else (result,)
            return type(result).__name__, repr([(each.model_dump(), sorted(each.model_fields_set)) for each in models])
    except trio.TooSlowError:
        return "no answer", None
    except MCPError as exc:
        return "MCPError", exc.error.model_dump()
    except McpActorsError as exc:
        # The number of bytes includes those of the id.
        return type(exc).__name__, re.sub(r"invalid response \(.*\);|\(\d+ bytes\)", "…;", str(exc))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_all_ways_send_the_same_request(era: str) -> None:
    machine = Machine(era)
    with machine.installed():
        async with open_servers(machine.config()) as servers:
            machine.now.server.script = '{"jsonrpc":"2.0","id":$id,"error":{"code":0,"message":"no"}}'
            for call in (*CALLS.values(), complete_more):
                before = len(machine.now.read)
                for way in WAYS.values():
                    with way(), pytest.raises(MCPError):
                        await call(servers["a"])
                direct, *others = [each.get("params") for each in machine.now.read[before:]]
                assert others == [direct]


@pytest.mark.parametrize("method", ["resources/read", "prompts/get", "completion/complete"])
async def test_no_way_sends_what_the_server_does_not_support(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("legacy")
    monkeypatch.setattr(wire_server, "CAPABILITIES", {"tools": {}})
    with machine.installed():
        async with open_servers(machine.config()) as servers:
            before = len(machine.now.read)
            for way in WAYS.values():
                with way(), pytest.raises(NotSupported):
                    await CALLS[method](servers["a"])
            assert len(machine.now.read) == before


async def test_a_long_page_is_validated_a_few_items_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, validated = Machine("modern"), list[int]()

    def note(method: str, version: str, result: dict[str, Any]) -> Any:
        validated.append(len(result.get("prompts", ())))
        return parse_result(method, version, result)

    monkeypatch.setattr("mcp_actors.servers.requests._lists.parse_result", note)
    prompts = [{"name": f"prompt-{number}"} for number in range(2 * ITEMS_A_STEP + 1)]
    with machine.installed():
        async with open_servers(machine.config()) as servers:
            machine.now.server.script = written({"result": PAGE | {"prompts": prompts}})
            assert [each.name for each in await servers["a"].list_prompts()] == [each["name"] for each in prompts]
    assert validated[1:] == [ITEMS_A_STEP, ITEMS_A_STEP, 1]  # the first were the tools


async def test_a_long_page_of_broken_items_is_refused_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("modern")
    with machine.installed(), MostInAStep(monkeypatch, (_lists._ListPages, "_valid")) as steps:
        async with open_servers(machine.config()) as servers:
            machine.now.server.script = written({"result": PAGE | {"prompts": [{}] * 3 * ITEMS_A_STEP}})
            assert await servers["a"].list_prompts() == ()
    assert steps.most == {"_valid": 1}


async def test_a_broken_item_of_a_page_is_left_out_by_all_ways(caplog: pytest.LogCaptureFixture) -> None:
    """C-09."""
    machine = Machine("modern")
    prompts = [{"name": "x"}] * ITEMS_A_STEP + [{}]
    with machine.installed():
        async with open_servers(machine.config(retry=RetryPolicy(attempts=1))) as servers:
            machine.now.server.script = written({"result": PAGE | {"prompts": prompts}})
            for way in WAYS.values():
                with way():
                    assert len(await servers["a"].list_prompts()) == ITEMS_A_STEP
    assert caplog.text.count("prompt without a name is left out: at name: field required") == 1


async def complete_more(ref: ServerRef) -> BaseModel:
    """Complete an argument of a template, with another one known."""
    return await ref.complete(ResourceTemplateReference(uri="x:{a}"), {"name": "a", "value": "é"}, {"b": ""})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_generated_answers_mean_the_same_by_all_ways(
    era: str, autojump_clock: MockClock, record_property: Callable[[str, object], None]
) -> None:
    answers, machine, kinds = Answers(SEED), Machine(era), Counter[str]()
    record_property("note", f"{ANSWERS} answers, PROGRAMS_SEED={SEED}")
    options = {"retry": RetryPolicy(attempts=1), "health": HealthPolicy(interval=None), "request_timeout": 5.0}
    with machine.installed():
        async with open_servers(machine.config(callbacks=Callbacks(roots=roots), **options)) as servers:
            for number in range(len(FOUND) + ANSWERS):
                method, line = FOUND[number] if number < len(FOUND) else answers.answer()
                machine.now.server.script = line
                outcomes = [await outcome_of(servers["a"], method, way) for way in WAYS]
                assert outcomes == outcomes[:1] * len(WAYS), (method, line)
                kinds[outcomes[0][0]] += 1
    assert len(machine.processes) == 1
    record_property("note", f"{dict(kinds)}")
