"""The requests of clients of a gateway, and their answers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.types import Completion, ListToolsResult, PaginatedRequestParams
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerConfig, Stdio
from mcp_actors.gateway import _front

from ..servers.groups import NEVER, server
from ..servers.library import Library
from ..servers.processes import eventually
from ..servers.test_asked_back import QUESTION, ServerRequests, modern
from .hosts import BOUND, LEGACY, MODERN, Host, gateway, in_process, notes, outcome_of

ERAS = [LEGACY, MODERN]


@asynccontextmanager
async def host_of(path: Path, *configs: ServerConfig, version: str = LEGACY, **options: Any) -> AsyncIterator[Host]:
    """Connect one client to these servers."""
    async with gateway(path, *configs, **options) as door:
        yield await door.connect(version)


@pytest.mark.parametrize("version", ERAS)
async def test_everything_of_a_server_is_seen_and_answered_by_either_era(version: str, tmp_path: Path) -> None:
    """Tools have their title, `_meta` and schema; resources keep their URIs, prompts get a public name."""
    async with gateway(tmp_path, in_process("notes", notes())) as door:
        host = await door.connect(version, begin=False)
        said = await host.begin()
        assert said["instructions"] == "Use notes for notes."
        assert set(said["capabilities"]) == {"tools", "prompts", "resources", "completions", "logging"}
        [tool] = (await host.result("tools/list"))["tools"]
        assert (tool["name"], tool["title"], tool["_meta"]) == ("notes_echo", "Echo", {"note": 1})
        assert tool["inputSchema"]["required"] == ["text"]
        assert await host.call("notes_echo", text="hi") == "hi"
        [resource] = (await host.result("resources/list"))["resources"]
        assert resource["uri"] == "note:///shopping"
        [template] = (await host.result("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "note:///{page}/lines"
        read = await host.result("resources/read", {"uri": "note:///shopping"})
        assert read["contents"][0]["text"] == "milk"
        read = await host.result("resources/read", {"uri": "note:///mine/lines"})
        assert read["contents"][0]["text"] == "mine: 3"
        [prompt] = (await host.result("prompts/list"))["prompts"]
        assert prompt["name"] == "notes_plan"
        got = await host.result("prompts/get", {"name": "notes_plan", "arguments": {"meal": "lunch"}})
        assert got["messages"][0]["content"]["text"] == "Plan lunch."


@pytest.mark.parametrize("version", ERAS)
async def test_a_result_says_what_its_era_wants_and_no_more(version: str, tmp_path: Path) -> None:
    async with host_of(tmp_path, in_process("notes", notes()), version=version) as host:
        called = await host.result("tools/call", {"name": "notes_echo", "arguments": {"text": "x"}})
        listed = await host.result("tools/list")
        read = await host.result("resources/read", {"uri": "note:///shopping"})
    if version == MODERN:
        assert called["resultType"] == listed["resultType"] == read["resultType"] == "complete"
        assert called["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcp-actors"
        assert [each["cacheScope"] for each in (listed, read)] == ["private", "private"]
        assert "ttlMs" not in called
    else:
        hop = {"resultType", "ttlMs", "cacheScope", "_meta"}
        assert [hop.isdisjoint(each) for each in (called, listed, read)] == [True, True, True]


def lasting(seconds: int, **others: int) -> MCPServer:
    """Make a server that says for how many seconds its answers hold, those to some methods longer or shorter."""
    methods: Any = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    hints = {
        method: CacheHint(ttl_ms=1000 * others.get(method.split("/")[1], seconds), scope="public") for method in methods
    }
    server = MCPServer("lasting", cache_hints=hints)

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.resource(f"note:///{seconds}")
    def note() -> str:
        return "milk"

    return server


LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


async def test_a_list_holds_as_long_as_that_of_each_server_and_a_resource_as_its_server_says(tmp_path: Path) -> None:
    modern = {"protocol": MODERN}
    long, short = in_process("long", lasting(9, read=4), **modern), in_process("short", lasting(5), **modern)
    async with gateway(tmp_path, long, short) as door:
        host = await door.connect(MODERN)
        lists = [await host.result(method) for method in LISTS]
        assert [(each["ttlMs"], each["cacheScope"]) for each in lists] == [(5000, "private")] * 4
        reads = [await host.result("resources/read", {"uri": f"note:///{seconds}"}) for seconds in (9, 5)]
        assert [(each["ttlMs"], each["cacheScope"]) for each in reads] == [(4000, "private"), (5000, "private")]
        await door.group.remove("short")
        await host.result("ping")
        assert [(await host.result(method))["ttlMs"] for method in LISTS] == [9000] * 4


@pytest.mark.parametrize("kind", ["legacy", "silent", "failed"])
async def test_a_list_holds_no_time_if_a_server_does_not_say_how_long(kind: str, tmp_path: Path) -> None:
    others = {
        "legacy": in_process("other", lasting(9), protocol="legacy"),
        "silent": in_process("other", notes(), protocol=MODERN),
        "failed": ServerConfig("other", Stdio("/does/not/exist")),
    }
    async with gateway(tmp_path, in_process("long", lasting(9), protocol=MODERN), others[kind]) as door:
        host = await door.connect(MODERN)
        assert [(await host.result(method))["ttlMs"] for method in LISTS] == [0] * 4


async def test_a_server_without_lists_does_not_say_how_long_they_hold(tmp_path: Path) -> None:
    empty: Any = Server("empty")
    async with gateway(tmp_path, in_process("empty", empty, protocol=MODERN)) as door:
        host = await door.connect(MODERN)
        assert [(await host.result(method))["ttlMs"] for method in LISTS] == [0] * 4
        await door.group.add(in_process("long", lasting(9), protocol=MODERN))
        with trio.fail_after(BOUND):  # its prompts and resources are listed after that
            while [(await host.result(method))["ttlMs"] for method in LISTS] != [9000] * 4:
                pass


async def test_the_lists_of_a_client_with_a_server_of_its_own_hold_as_long_as_those_of_all(tmp_path: Path) -> None:
    own, shared = (in_process(name, lasting(seconds), protocol=MODERN) for name, seconds in (("own", 3), ("shared", 5)))
    async with gateway(tmp_path, shared, per_session=[own]) as door:
        host = await door.connect(MODERN)
        assert [(await host.result(method))["ttlMs"] for method in LISTS] == [3000] * 4


@pytest.mark.parametrize("version", ERAS)
async def test_a_completion_is_passed_on_for_a_client_with_capabilities(version: str, tmp_path: Path) -> None:
    server = notes()

    @server.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the SDK's has no types
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[f"{ref.name}: {argument.value}!"])

    async with gateway(tmp_path, in_process("notes", server)) as door:
        host = await door.connect(version, elicitation={})
        await host.result("prompts/list")
        given = {"ref": {"type": "ref/prompt", "name": "notes_plan"}, "argument": {"name": "meal", "value": "te"}}
        assert (await host.result("completion/complete", given))["completion"]["values"] == ["plan: te!"]
        refused = await host.error("completion/complete", {**given, "requestState": "1"})
        assert refused["message"] == "a completion asks nothing; remove inputResponses and requestState"


VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        {VERSION: MODERN},
        {CAPABILITIES: {}},
        {VERSION: "2099-01-01", CAPABILITIES: {}},
        {VERSION: LEGACY, CAPABILITIES: {}},
        {VERSION: 2026, CAPABILITIES: {}},
        {VERSION: [MODERN], CAPABILITIES: {}},
        {VERSION: None, CAPABILITIES: {}},
        {VERSION: MODERN, CAPABILITIES: {}},
    ],
)
async def test_a_modern_request_needs_the_members_of_meta_that_the_sdk_wants(meta: Any, tmp_path: Path) -> None:
    async with host_of(tmp_path, in_process("notes", notes()), version=MODERN) as host:
        params = {"name": "notes_echo", "arguments": {"text": "x"}, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": "r", "method": "tools/call", "params": params}
        await host.send(request)
        answer = await host.answer_to(request)
        refusal = classify_inbound_request(request)
    if isinstance(refusal, InboundLadderRejection):
        assert (answer["error"]["code"], answer["error"]["message"]) == (refusal.code, refusal.message)
    else:
        assert answer["result"]["content"][0]["text"] == "x"


async def test_a_client_of_one_era_cannot_speak_the_other_on_the_same_connection(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("notes", notes())) as door:
        modern, legacy = await door.connect(MODERN), await door.connect(LEGACY)
        error = await modern.error("initialize", {"protocolVersion": LEGACY, "capabilities": {}})
        assert error["data"]["supported"] == [MODERN]
        assert (await legacy.error("server/discover"))["code"] == -32601
        modern.version = LEGACY
        assert (await modern.error("tools/list"))["code"] == -32602


async def test_the_capabilities_of_a_modern_client_are_an_object(tmp_path: Path) -> None:
    async with host_of(tmp_path, in_process("notes", notes()), version=MODERN) as host:
        meta = {"io.modelcontextprotocol/clientCapabilities": ["elicitation"]}
        error = await host.error("tools/call", {"name": "notes_echo", "arguments": {"text": "x"}, "_meta": meta})
        assert error["code"] == -32602
        assert "clientCapabilities is not an object" in error["message"]
        assert await host.call("notes_echo", text="fine") == "fine"


async def test_what_no_gateway_has_is_refused(tmp_path: Path) -> None:
    """Cursors, tasks, unknown methods, tools, prompts and resources."""
    async with host_of(tmp_path, in_process("notes", notes())) as host:
        assert (await host.error("tools/list", {"cursor": "2"}))["code"] == -32602
        assert (await host.error("tasks/list"))["code"] == -32601
        error = await host.error("tools/call", {"name": "notes_ehco", "arguments": {}})
        assert (error["code"], outcome_of(error)) == (-32602, ("not_sent", "ToolNotFound"))
        assert "did you mean 'notes_echo'" in error["message"]
        error = await host.error("tools/call", {"name": "notes_echo", "arguments": {}})
        assert outcome_of(error) == ("not_sent", "InvalidArguments")
        assert (await host.error("prompts/get", {"name": "plan"}))["code"] == -32602
        assert (await host.error("resources/read", {"uri": "note:///none"}))["data"] == {"uri": "note:///none"}
        assert (await host.error("tools/call"))["message"] == "params.name is not a string"


async def test_what_is_not_a_message_is_answered_and_disturbs_nothing(tmp_path: Path) -> None:
    async with host_of(tmp_path, in_process("notes", notes())) as host:
        await host.stream.send_all(b'\n  \n{"jsonrpc"\n[]\n')
        await host.send({"id": 77, "method": "ping"}, {"jsonrpc": "2.0", "id": None, "method": "ping"})
        await host.send({"jsonrpc": "2.0", "id": 8.5, "method": "ping"}, {"jsonrpc": "2.0", "id": True, "method": "x"})
        await host.send({"jsonrpc": "2.0", "id": 9, "method": "ping", "params": []}, {"jsonrpc": "2.0", "id": 55})
        assert (await host.answer_to({"id": 9}))["error"]["code"] == -32602
        assert (await host.answer_to({"id": None}))["error"]["code"] == -32600
        assert await host.call("notes_echo", text="still") == "still"


@pytest.mark.parametrize("method", [7, None, ["ping"], {}])
async def test_a_method_that_is_not_a_string_is_refused(method: Any, tmp_path: Path) -> None:
    async with host_of(tmp_path, in_process("slow", slow(gate := trio.Event()))) as host:
        wrong = {"jsonrpc": "2.0", "id": "w", "method": method}
        await host.send(wrong)
        assert (await host.answer_to(wrong))["error"] == {"code": -32600, "message": "the method is not a string"}
        request = host.request("tools/call", {"name": "slow_wait", "arguments": {}})
        await host.send(request, {**wrong, "id": request["id"]}, {"jsonrpc": "2.0", "method": method})
        assert (await host.answer_to({"id": None}))["error"]["code"] == -32600
        gate.set()
        assert "result" in await host.answer_to(request)


async def test_an_id_in_flight_cannot_be_used_again(tmp_path: Path) -> None:
    """The answer of the first request keeps its place."""
    async with host_of(tmp_path, in_process("slow", slow(gate := trio.Event()))) as host:
        request = host.request("tools/call", {"name": "slow_wait", "arguments": {}})
        await host.send(request, request)
        assert "in flight" in (await host.answer_to({"id": None}))["error"]["message"]
        gate.set()
        assert (await host.answer_to(request))["result"]["content"][0]["text"] == "done"


def slow(gate: trio.Event, begun: list[str] | None = None, ended: list[str] | None = None) -> MCPServer:
    """Make a server whose tool waits for an event, and notes what happens to it."""
    server = MCPServer("slow")

    @server.tool()
    async def wait(name: str = "") -> str:
        if begun is not None:
            begun.append(name)
        try:
            await gate.wait()
        except anyio.get_cancelled_exc_class():
            if ended is not None:
                ended.append(name)
            raise
        return "done"

    return server


async def test_a_cancelled_call_is_cancelled_at_its_server_and_gets_no_answer(tmp_path: Path) -> None:
    begun: list[str] = []
    ended: list[str] = []
    async with host_of(tmp_path, in_process("slow", slow(trio.Event(), begun, ended))) as host:
        request = host.request("tools/call", {"name": "slow_wait", "arguments": {"name": "a"}})
        await host.send(request)
        await eventually(lambda: begun == ["a"])
        await host.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request["id"]}})
        await eventually(lambda: ended == ["a"])
        assert await host.result("ping") == {}
        assert request["id"] not in host.answers


async def test_the_calls_of_a_client_that_leaves_are_cancelled(tmp_path: Path) -> None:
    begun: list[str] = []
    ended: list[str] = []
    async with gateway(tmp_path, in_process("slow", slow(trio.Event(), begun, ended))) as door:
        host = await door.connect()
        await host.send(host.request("tools/call", {"name": "slow_wait", "arguments": {"name": "a"}}))
        await eventually(lambda: begun == ["a"])
        await host.stream.aclose()
        await eventually(lambda: ended == ["a"])


async def test_a_request_whose_cancellation_has_arrived_with_it_is_never_begun(tmp_path: Path) -> None:
    begun: list[str] = []
    async with host_of(tmp_path, in_process("slow", slow(trio.Event(), begun))) as host:
        first = host.request("tools/call", {"name": "slow_wait", "arguments": {"name": "given up"}})
        second = host.request("tools/call", {"name": "slow_wait", "arguments": {"name": "wanted"}})
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first["id"]}}
        await host.send(first, second, cancelled)
        await eventually(lambda: "wanted" in begun)
        assert begun == ["wanted"]


async def test_cancellations_that_arrive_together_are_all_taken(tmp_path: Path) -> None:
    begun: list[str] = []
    ended: list[str] = []
    async with host_of(tmp_path, in_process("slow", slow(trio.Event(), begun, ended))) as host:
        requests = [host.request("tools/call", {"name": "slow_wait", "arguments": {"name": name}}) for name in "ab"]
        await host.send(*requests)
        await eventually(lambda: sorted(begun) == ["a", "b"])
        cancelled = [{"requestId": request["id"]} for request in requests]
        await host.send(
            *({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params} for params in cancelled)
        )
        await eventually(lambda: sorted(ended) == ["a", "b"])


async def test_answers_to_questions_that_arrive_together_are_all_taken(tmp_path: Path) -> None:
    async with gateway(tmp_path, modern(ServerRequests(2, who=QUESTION))) as door:
        host = await door.connect(LEGACY, elicitation={})
        calls = [host.request("tools/call", {"name": "library_search", "arguments": {}}) for _ in range(2)]
        await host.send(*calls)
        await eventually(lambda: len(host.asked) == 2)
        result = {"action": "accept", "content": {"name": "you"}}
        await host.send(*({"jsonrpc": "2.0", "id": asked["id"], "result": result} for asked in host.asked))
        await eventually(lambda: len(host.asked) == 4)
        await host.send(*({"jsonrpc": "2.0", "id": asked["id"], "result": result} for asked in host.asked[2:]))
        for each in calls:
            assert "result" in await host.answer_to(each)


@pytest.mark.parametrize("version", ERAS)
async def test_progress_reaches_the_client_that_asked_for_it_with_its_token(version: str, tmp_path: Path) -> None:
    server = MCPServer("worker")

    @server.tool()
    async def work(ctx: Context[Any, Any]) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    async with gateway(tmp_path, in_process("w", server)) as door:
        host, other = await door.connect(version), await door.connect(version)
        params = {"name": "w_work", "arguments": {}, "_meta": {"progressToken": "mine"}}
        await host.result("tools/call", params)
        assert await host.notice("notifications/progress") == {
            "progressToken": "mine",
            "progress": 1,
            "total": 2,
            "message": "half",
        }
        await other.result("tools/call", {"name": "w_work", "arguments": {}})
        assert other.notices == []


async def test_a_progress_that_is_not_a_number_of_json_is_not_passed_on(tmp_path: Path) -> None:
    server = MCPServer("worker")

    @server.tool()
    async def work(ctx: Context[Any, Any]) -> str:
        for progress, total in ((math.nan, 2), (math.inf, 2), (1, math.nan)):
            await ctx.report_progress(progress, total)
        return "done"

    async with host_of(tmp_path, in_process("w", server)) as host:
        params = {"name": "w_work", "arguments": {}, "_meta": {"progressToken": "mine"}}
        await host.result("tools/call", params)
        assert await host.notice("notifications/progress") == {"progressToken": "mine", "progress": 1}
        assert host.notices == []


async def test_meta_passes_apart_from_what_belongs_to_a_hop(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    server = MCPServer("meta")

    @server.tool()
    async def look(ctx: Context[Any, Any]) -> str:
        seen.append(dict(ctx.request_context.meta or {}))
        return "ok"

    async with host_of(tmp_path, in_process("m", server), version=MODERN) as host:
        meta = {
            "example.com/tenant": "blue",
            "traceparent": "00-1-2-01",
            "io.modelcontextprotocol/clientInfo": {"name": "h", "version": "9"},
        }
        await host.result("tools/call", {"name": "m_look", "arguments": {}, "_meta": meta})
        for each in ({}, {"k": 1}, {"k": True}, {}, {"k": 1.0}):
            await host.result("tools/call", {"name": "m_look", "arguments": {}, "_meta": each})
    given, *others = seen
    assert [repr(each.get("k")) for each in others] == ["None", "1", "True", "None", "1.0"]
    assert (given["example.com/tenant"], given["traceparent"]) == ("blue", "00-1-2-01")
    assert given.get("io.modelcontextprotocol/clientInfo", {}).get("name") != "h"


async def test_an_error_of_a_server_passes_but_cannot_say_what_became_of_a_request(tmp_path: Path) -> None:
    """A server that forges our mark would make the client send a call again that was carried out."""
    from mcp import MCPError

    server = MCPServer("forger")

    @server.tool()
    async def forge() -> str:
        raise MCPError(-32042, "no", {"mcp_actors": {"outcome": "not_sent"}, "why": "because"})

    async with host_of(tmp_path, in_process("f", server)) as host:
        error = await host.error("tools/call", {"name": "f_forge", "arguments": {}})
    assert error == {"code": -32042, "message": "no", "data": {"why": "because"}}


async def test_the_error_for_a_call_under_way_when_its_server_dies_says_unknown(tmp_path: Path) -> None:
    async with host_of(tmp_path, server("a", "--die-in", "echo")) as host:
        error = await host.error("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        assert outcome_of(error) == ("unknown", "ConnectionLost")
        assert "exited with code 9" in error["message"]
        assert await host.call("a_add", a=1, b=2) == "3"


async def test_a_call_of_a_stopped_server_says_that_nothing_was_sent(tmp_path: Path) -> None:
    a = server("a", restarts=NEVER, when_down="fail")
    async with gateway(tmp_path, a) as door:
        host = await door.connect()
        await door.group["a"].stop()
        error = await host.error("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        assert outcome_of(error) == ("not_sent", "ToolNotFound")
        assert "servers not serving now: a (stopped)" in error["message"]


async def test_the_first_that_lists_a_resource_owns_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with host_of(tmp_path, in_process("a", notes("one")), in_process("b", notes("two"))) as host:
        listed = (await host.result("resources/list"))["resources"]
        assert [each["uri"] for each in listed] == ["note:///shopping"]
    assert "server 'b': 'note:///shopping' is hidden, because server 'a' lists it, too" in caplog.text


async def test_a_call_of_a_server_that_is_being_added_waits_for_its_tools(tmp_path: Path) -> None:
    """Also when the first lists were answered long ago; so does a name that no server has in the end."""
    gate = anyio.Event()

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        await gate.wait()
        return await library.list_tools(ctx, params)

    library = Library(on_list_tools=list_tools)
    async with gateway(tmp_path, in_process("a", notes())) as door, trio.open_nursery() as nursery:
        host = await door.connect()
        await host.result("tools/list")
        refused = {"name": "library_nothing"}
        assert "library_nothing" in (await host.error("tools/call", refused))["message"]
        nursery.start_soon(door.group.add, library.config())
        await eventually(lambda: "library" in door.group)
        call, unknown = host.request("tools/call", {"name": "library_search"}), host.request("tools/call", refused)
        await host.send(call, unknown)
        await wait_all_tasks_blocked()
        assert host.answers == {}
        gate.set()
        assert "result" in await host.answer_to(call)
        assert "library_nothing" in (await host.answer_to(unknown))["error"]["message"]


async def test_a_call_waits_seconds_for_a_server_that_is_being_connected_and_is_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_front, "FIRST_LIST", 0.2)

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with gateway(tmp_path, in_process("a", notes())) as door, trio.open_nursery() as nursery:
        host = await door.connect()
        await host.result("tools/list")
        nursery.start_soon(door.group.add, Library(on_list_tools=list_tools).config())
        await eventually(lambda: "library" in door.group)
        assert (await host.error("tools/call", {"name": "library_search"}))["code"] == -32602
        nursery.cancel_scope.cancel()


async def test_instructions_name_their_servers_if_there_are_several(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("a", notes("one")), in_process("b", notes("two"))) as door:
        host = await door.connect(begin=False)
        said = await host.begin()
    assert said["instructions"] == "# a\n\nUse one for notes.\n\n# b\n\nUse two for notes."


@pytest.mark.parametrize("version", ERAS)
async def test_a_client_hears_that_a_list_has_changed_if_it_wants_to(version: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("a", notes())) as door:
        host, deaf = await door.connect(version), await door.connect(MODERN)
        await host.result("tools/list")  # from then on changes are notified
        wishes = {"toolsListChanged": True, "resourceSubscriptions": []}
        listening = host.request("subscriptions/listen", {"notifications": wishes})
        if version == MODERN:
            await host.send(listening)
            acknowledged = await host.notice("notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == {"toolsListChanged": True}
        await door.group.add(in_process("b", notes()))
        params = await host.notice("notifications/tools/list_changed")
        if version == MODERN:
            assert params["_meta"] == {"io.modelcontextprotocol/subscriptionId": listening["id"]}
        names = {tool["name"] for tool in (await host.result("tools/list"))["tools"]}
        assert names == {"a_echo", "b_echo"}
        assert await deaf.result("ping") is not None
        assert deaf.notices == []
        await door.group.remove("b")
        await host.notice("notifications/tools/list_changed")


async def test_the_updates_of_a_resource_reach_all_its_subscribers_and_no_other_client(tmp_path: Path) -> None:
    server = notes()

    @server.tool()
    async def touch(ctx: Context[Any, Any]) -> str:
        await ctx.notify_resource_updated("note:///shopping")
        return "ok"

    uri = {"uri": "note:///shopping"}
    async with gateway(tmp_path, in_process("n", server)) as door:
        first, second, third = [await door.connect() for _ in range(3)]
        assert await first.result("resources/subscribe", uri) == {}
        assert await second.result("resources/subscribe", uri) == {}
        await third.call("n_touch")
        assert await first.notice("notifications/resources/updated") == uri
        assert await second.notice("notifications/resources/updated") == uri
        assert await first.result("resources/unsubscribe", uri) == {}
        await third.call("n_touch")
        await second.notice("notifications/resources/updated")
        assert await first.result("ping") == {}
        assert [first.notices, third.notices] == [[], []]


async def test_a_legacy_client_is_asked_what_a_modern_server_wants_to_know(tmp_path: Path) -> None:
    asking = ServerRequests(1, who=QUESTION)
    async with gateway(tmp_path, modern(asking)) as door:
        host = await door.connect(LEGACY, elicitation={})
        host.questions["elicitation/create"] = lambda asked: {
            "result": {"action": "accept", "content": {"asked": asked["params"]["message"]}}
        }
        assert await host.call("library_search") == "done"
        assert asking.answers[0]["who"].content == {"asked": "Which one?"}
        silent = await door.connect(LEGACY)
        error = await silent.error("tools/call", {"name": "library_search", "arguments": {}})
        assert error["message"] == "this client does not answer elicitation/create"


async def test_a_question_that_a_client_refuses_fails_its_call(tmp_path: Path) -> None:
    async with gateway(tmp_path, modern(ServerRequests(1, who=QUESTION))) as door:
        host = await door.connect(LEGACY, elicitation={})
        host.questions["elicitation/create"] = lambda _: {"error": {"code": -1, "message": "the user is away"}}
        error = await host.error("tools/call", {"name": "library_search", "arguments": {}})
        assert (error["code"], error["message"]) == (-1, "the user is away")


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": "no", "message": ["no"]}},
        {"error": {"code": 1.5}},
        {"error": "no"},
        {"result": [1]},
        {},
    ],
)
async def test_an_answer_of_a_client_that_is_not_valid_fails_the_call_that_asked(
    answer: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(tmp_path, modern(ServerRequests(1, who=QUESTION))) as door:
        host = await door.connect(LEGACY, elicitation={})
        host.questions["elicitation/create"] = lambda _: answer
        error = await host.error("tools/call", {"name": "library_search", "arguments": {}})
        assert (error["code"], error["message"]) == (-32603, "the client's answer is not valid")
        assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "library_search", "arguments": {}}),
        ("prompts/get", {"name": "library_prompt_1"}),
        ("resources/read", {"uri": "file:///a"}),
    ],
)
async def test_a_modern_client_gets_the_question_and_its_state_is_passed_back(
    method: str, params: dict[str, Any], tmp_path: Path
) -> None:
    asking = ServerRequests(1, who=QUESTION)
    async with gateway(tmp_path, modern(asking)) as door:
        host = await door.connect(MODERN, elicitation={"form": {}})
        asked = await host.result(method, params)
        assert (asked["resultType"], asked["requestState"]) == ("input_required", "1")
        assert asked["inputRequests"]["who"]["params"]["message"] == "Which one?"
        answer = {"action": "accept", "content": {"name": "you"}}
        refused = await host.error(method, {**params, "inputResponses": []})
        assert f"{method}: input_responses is an array; expected an object; nothing was sent" in refused["message"]
        more = {"inputResponses": {"who": answer}, "requestState": "1"}
        assert (await host.result(method, {**params, **more}))["resultType"] == "complete"
        assert asking.answers[0]["who"].content == {"name": "you"}


async def test_a_server_gets_the_capabilities_of_a_client_that_are_for_questions(tmp_path: Path) -> None:
    server = MCPServer("curious", version="1")

    @server.tool()
    async def look(ctx: Context[Any, Any]) -> str:
        known = ctx.client_capabilities
        assert known is not None
        return " ".join(sorted(known.model_dump(exclude_none=True)))

    async with gateway(tmp_path, in_process("curious", server, protocol=MODERN)) as door:
        several: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "experimental": {"x": {}}}
        for capabilities in ({}, several):
            host = await door.connect(MODERN, **capabilities)
            assert await host.call("curious_look") == " ".join(sorted(capabilities.keys() - {"experimental"}))


async def test_more_requests_than_a_session_may_have_are_refused_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_actors.gateway import _session

    monkeypatch.setattr(_session, "MAX_CALLS", 2)
    gate = trio.Event()
    async with host_of(tmp_path, in_process("slow", slow(gate))) as host:
        requests = [host.request("tools/call", {"name": "slow_wait", "arguments": {}}) for _ in range(3)]
        await host.send(*requests)
        assert outcome_of((await host.answer_to(requests[2]))["error"]) == ("not_sent", "LimitExceeded")
        gate.set()
        for each in requests[:2]:
            assert "result" in await host.answer_to(each)
