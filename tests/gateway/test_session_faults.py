"""Servers, middleware and clients of a gateway that do what they should not, and what others see of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import EmptyResult
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.gateway import _front, serve
from mcp_actors.gateway._calls import error_of
from mcp_actors.gateway._front import Front
from mcp_actors.gateway._session import Gateway as Shared, GatewaySession
from mcp_actors.servers import NotSupported, _session
from mcp_actors.servers._session import MAX_ROUNDS

from ..servers.library import Library
from ..servers.processes import eventually
from ..servers.test_asked_back import QUESTION, ServerRequests, modern
from .hosts import BOUND, LEGACY, MODERN, Gateway, Host, gateway, in_process, notes, outcome_of
from .http.doors import open_house


class Lines(list[bytes]):
    """The lines for a client."""

    def answer(self, line: bytes, request_id: object, code: int) -> None:
        self.append(line)

    def tell(self, line: bytes, about: object) -> None:
        self.append(line)

    def methods(self) -> list[str]:
        """Return the methods of all notifications."""
        return [message["method"] for each in self if "method" in (message := json.loads(each))]

    def answered(self) -> list[object]:
        """Return the ids of all answers."""
        return [message["id"] for each in self if "id" in (message := json.loads(each))]


ERAS = [LEGACY, MODERN]

SURROGATE = "bad \udcff"


def unwritable() -> MCPServer:
    """Make a server whose texts have lone surrogates, which UTF-8 cannot encode."""
    server = MCPServer("bad")

    @server.tool(structured_output=False, description=SURROGATE)
    def small() -> str:
        return SURROGATE

    @server.tool(structured_output=False)
    def large() -> str:
        return "x" * 300_000 + SURROGATE

    @server.tool()
    async def fail() -> str:
        raise MCPError(-5, SURROGATE)

    @server.tool()
    async def fail_with_data() -> str:
        raise MCPError(-5, "no", data={"why": SURROGATE})

    return server


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@pytest.mark.parametrize("tool", ["small", "large"])
async def test_a_result_that_cannot_be_written_is_answered_with_an_error(
    tool: str, protocol: str, tmp_path: Path
) -> None:
    waiting, gate = notes(), trio.Event()

    @waiting.tool()
    async def wait() -> str:
        await gate.wait()
        return "done"

    bad = in_process("bad", unwritable(), protocol=protocol)
    async with gateway(tmp_path, bad, in_process("notes", waiting)) as door:
        host = await door.connect()
        other = host.request("tools/call", {"name": "notes_wait", "arguments": {}})
        await host.send(other)
        error = await host.error("tools/call", {"name": f"bad_{tool}", "arguments": {}})
        assert outcome_of(error) == ("unknown", "PydanticSerializationError")
        assert "the result cannot be passed on" in error["message"]
        gate.set()
        assert (await host.answer_to(other))["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("tool", ["fail", "fail_with_data"])
async def test_an_error_with_a_surrogate_is_passed_on(tool: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("bad", unwritable())) as door:
        host = await door.connect()
        error = await host.error("tools/call", {"name": f"bad_{tool}", "arguments": {}})
        assert (error["code"], "bad \ufffd" in str(error)) == (-5, True), error


@pytest.mark.parametrize("version", ERAS)
async def test_a_description_with_a_surrogate_hides_no_tools(version: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("bad", unwritable()), in_process("notes", notes())) as door:
        host = await door.connect(version)
        tools = {each["name"]: each for each in (await host.result("tools/list"))["tools"]}
        assert (tools["bad_small"]["description"], "notes_echo" in tools) == ("bad \ufffd", True)


async def test_over_http_a_result_that_cannot_be_written_is_answered_with_an_error() -> None:
    async with open_house(in_process("bad", unwritable())) as house:
        peer = await house.connect()
        reply = await peer.ask("tools/call", {"name": "bad_small", "arguments": {}})
        assert outcome_of(reply.json["error"]) == ("unknown", "PydanticSerializationError")
        tools = (await peer.ask("tools/list")).json["result"]["tools"]
        assert "bad \ufffd" in {each.get("description") for each in tools}
        session = await house.begin()
        reply = await session.ask("tools/call", {"name": "bad_large", "arguments": {}})
        assert outcome_of(reply.json["error"]) == ("unknown", "PydanticSerializationError")


class Bad(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def dictionary(request: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    return {"content": [{"type": "text", "text": "cached"}]}


async def nothing(request: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    return None


async def bad_error(request: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    raise Bad


async def data_of_any_kind(request: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    raise MCPError(-5, "no", data={"why": Bad()})


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [(dictionary, "TypeError"), (nothing, "TypeError"), (bad_error, "Bad"), (data_of_any_kind, None)],
)
async def test_whatever_middleware_returns_or_raises_is_answered(
    middleware: Any, expected: str | None, tmp_path: Path
) -> None:
    async with gateway(tmp_path, in_process("notes", notes(), middleware=(middleware,))) as door:
        host = await door.connect()
        error = await host.error("tools/call", {"name": "notes_echo", "arguments": {"text": "x"}})
        if expected is None:
            assert error == {"code": -5, "message": "no"}
        else:
            assert outcome_of(error) == ("unknown", expected)
        assert await host.result("ping") == {}


@pytest.mark.parametrize("questions", [{}, {"q": QUESTION}])
async def test_endless_requests_for_input_are_ended_for_a_legacy_client(
    questions: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "LAST_DELAY", 0.05)
    library = ServerRequests(MAX_ROUNDS + 1, **questions)
    async with gateway(tmp_path, modern(library)) as door:
        host = await door.connect(elicitation={})
        host.questions["elicitation/create"] = lambda _: {"result": {"action": "accept", "content": {}}}
        error = await host.error("tools/call", {"name": "library_search", "arguments": {}})
        assert outcome_of(error) == ("unknown", "LimitExceeded")
        assert f"tools/call 'search' asked for input {MAX_ROUNDS} times" in error["message"]
        assert len(host.asked) == (MAX_ROUNDS if questions else 0)


def touching() -> MCPServer:
    """Make a server with a tool that reports a changed resource."""
    server = notes()

    @server.tool()
    async def touch(ctx: Context[Any, Any]) -> str:
        await ctx.notify_resource_updated("note:///shopping")
        return "ok"

    return server


UPDATED = "notifications/resources/updated"


async def subscribe(host: Host) -> None:
    """Subscribe to a resource, as the era of the client has it."""
    if host.version == LEGACY:
        await host.result("resources/subscribe", {"uri": "note:///shopping"})
    else:
        await host.result("resources/list")
        wishes = {"resourceSubscriptions": ["note:///shopping"]}
        await host.send(host.request("subscriptions/listen", {"notifications": wishes}))
        await host.notice("notifications/subscriptions/acknowledged")


@pytest.mark.parametrize("version", ERAS)
async def test_a_subscription_outlasts_a_stop_and_a_start_of_its_server(version: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("notes", touching())) as door:
        host, ref = await door.connect(version), door.group["notes"]
        await subscribe(host)
        for _ in range(2):
            await wait_all_tasks_blocked()
            await ref.stop()
            await wait_all_tasks_blocked()
            await ref.start()
            assert (await host.notice(UPDATED))["uri"] == "note:///shopping"  # it may have changed meanwhile
            await wait_all_tasks_blocked()
            host.notices.clear()
            await host.call("notes_touch")
            assert (await host.notice(UPDATED))["uri"] == "note:///shopping"


async def test_a_subscription_ends_when_its_server_is_removed(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("notes", touching())) as door:
        host = await door.connect()
        await subscribe(host)
        await door.group.remove("notes")
        await door.group.add(in_process("notes", touching()))
        await wait_all_tasks_blocked()
        await subscribe(host)
        await host.call("notes_touch")
        assert (await host.notice(UPDATED))["uri"] == "note:///shopping"


async def test_changed_roots_of_a_client_whose_server_was_removed_are_ignored(tmp_path: Path) -> None:
    shared = [in_process(name, notes()) for name in ("a", "b")]
    async with gateway(tmp_path, *shared, per_session=[in_process("own", notes())]) as door:
        host = await door.connect(only="b")
        await host.result("tools/list")
        await door.group.remove("b")
        await host.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await wait_all_tasks_blocked()
        assert await host.result("ping") == {}


async def test_the_age_of_a_request_to_a_removed_server_can_be_judged(tmp_path: Path) -> None:
    async with open_servers(in_process("a", notes())) as group:
        session = GatewaySession(Shared(Front(group, "{tool}")), Lines(), lambda _: None)
        session.only = "a"
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
        session.take(call)
        await group.remove("a")
        assert [session.is_too_late(call, seconds) for seconds in (59.0, 61.0)] == [False, True]


@pytest.mark.parametrize("kind", ["per_session", "per_identity"])
async def test_a_client_may_have_many_servers_for_itself(kind: Any) -> None:
    given: Any = {kind: [in_process(f"s{number}", notes(), connect="lazy") for number in range(51)]}
    async with open_house(in_process("notes", notes()), tokens={"a": "x" * 20, "b": "y" * 20}, **given) as house:
        session = await house.begin("x" * 20)
        reply = await session.ask("tools/call", {"name": "notes_echo", "arguments": {"text": "x"}})
        assert reply.json["result"]["content"][0]["text"] == "x"


async def test_a_client_that_has_named_a_server_hears_of_changes_while_another_one_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_front, "FIRST_LIST", BOUND)
    growing = notes()

    @growing.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        growing.add_tool(lambda: "2", name="second", description="The second.")
        await ctx.session.send_tool_list_changed()
        return "grown"

    never = ServerConfig("never", Stdio("sleep", ("100",)), connect="lazy", connect_timeout=BOUND)
    given = in_process("a", growing, protocol="legacy"), never
    async with open_servers(*given, naming="{server}_{tool}") as group, trio.open_nursery() as nursery:
        nursery.start_soon(group["never"].start)
        await eventually(lambda: group["never"].state == "connecting")
        await nursery.start(partial(serve, group, path=str(tmp_path / "g.sock")))
        door = Gateway(group, str(tmp_path / "g.sock"), nursery)
        host, other = await door.connect(only="a"), await door.connect()
        assert [each["name"] for each in (await host.result("tools/list"))["tools"]] == ["echo", "grow"]
        await wait_all_tasks_blocked()
        assert host.notices == []
        assert await host.call("grow") == "grown"
        await host.notice("notifications/tools/list_changed")
        assert len((await host.result("tools/list"))["tools"]) == 3
        assert other.notices == []
        for each in door.hosts:
            await each.stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["stop", "remove"])
async def test_the_outcome_of_a_call_whose_second_round_is_not_sent_is_unknown(how: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, modern(ServerRequests(1, q=QUESTION), when_down="fail")) as door:
        host = await door.connect(elicitation={})
        call = host.request("tools/call", {"name": "library_search", "arguments": {}})
        await host.send(call)
        await eventually(lambda: bool(host.asked))
        if how == "stop":
            await door.group["library"].stop()
        else:
            await door.group.remove("library")
        accepted = {"action": "accept", "content": {}}
        await host.send({"jsonrpc": "2.0", "id": host.asked[0]["id"], "result": accepted})
        error = (await host.answer_to(call))["error"]
        assert outcome_of(error) == ("unknown", "ServerUnavailable")
        assert error["message"].endswith("an earlier round of it was sent and may have taken effect")
        error = await host.error("tools/call", {"name": "library_search", "arguments": {}})
        assert outcome_of(error) == ("not_sent", "ToolNotFound")


async def test_a_feature_that_is_not_supported_was_not_sent(tmp_path: Path) -> None:
    plain: Any = Server("plain")
    async with gateway(tmp_path, in_process("plain", plain), in_process("notes", notes())) as door:
        host = await door.connect(only="plain")
        for method in ("prompts/get", "completion/complete", "resources/read", "resources/subscribe"):
            named = {"name": "p", "uri": "a:b", "ref": {"type": "ref/prompt", "name": "p"}}
            error = await host.error(method, {**named, "argument": {"name": "a", "value": "b"}})
            assert outcome_of(error) == ("not_sent", "NotSupported"), method


def test_a_question_without_a_callback_leaves_the_outcome_unknown() -> None:
    asked = [NotSupported("x", server="s", capability=name) for name in ("sampling", "tasks")]
    assert [outcome_of(error_of(each))[0] for each in asked] == ["unknown", "not_sent"]


META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
WISHES = {"toolsListChanged": True, "resourceSubscriptions": ["note:///shopping"]}
LISTENING = {"_meta": META, "notifications": WISHES}
LISTEN = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": LISTENING}
CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


@asynccontextmanager
async def modern_session() -> AsyncIterator[tuple[GatewaySession, Lines]]:
    """Make a session of a modern client with an open stream."""
    async with open_servers(in_process("notes", notes())) as group, trio.open_nursery() as nursery:
        shared, lines = Shared(Front(group, "{server}_{tool}")), Lines()
        assert shared.front is not None
        session = GatewaySession(shared, lines, nursery.start_soon)
        shared.sessions.add(session)
        nursery.start_soon(shared.front.follow, shared.changed)
        await shared.front.wait_listed()
        session.take(LISTEN)
        await wait_all_tasks_blocked()
        assert lines.methods() == ["notifications/subscriptions/acknowledged"]
        lines.clear()
        yield session, lines
        nursery.cancel_scope.cancel()


async def test_a_stream_is_answered_once_when_the_gateway_stops() -> None:
    async with modern_session() as (session, lines):
        session.take({**LISTEN, "id": 2})
        session._gateway.stopping.set()
        session.end_streams()
        await wait_all_tasks_blocked()
        session.end_streams()
        assert lines.answered() in ([1, 2], [2, 1])


async def test_a_stream_that_was_cancelled_is_not_answered() -> None:
    async with modern_session() as (session, lines):
        session.take(CANCEL)
        session._gateway.changed("tools")
        session._gateway.stopping.set()
        session.end_streams()
        await wait_all_tasks_blocked()
        assert lines == []


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_the_id_of_a_stream_may_be_used_again_at_once(turns: int) -> None:
    async with modern_session() as (session, lines):
        session.take(CANCEL)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        session.take(LISTEN)
        await wait_all_tasks_blocked()
        session._gateway.changed("tools")
        assert lines.methods() == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
        session._gateway.stopping.set()
        session.end_streams()
        await wait_all_tasks_blocked()
        assert (lines.answered(), session.calls) == ([1], {})


async def test_a_stream_that_is_cancelled_at_once_is_not_acknowledged() -> None:
    async with modern_session() as (session, lines):
        session.take({**LISTEN, "id": 2})
        session.take({**CANCEL, "params": {"requestId": 2}})
        await wait_all_tasks_blocked()
        assert lines == []


async def test_a_stream_waits_for_the_server_of_a_resource(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("notes", notes())) as door:
        host = await door.connect(MODERN, begin=False)
        listen = host.request("subscriptions/listen", {"notifications": WISHES})
        unknown = host.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:b"]}})
        await host.send(listen, unknown)
        said = await host.notice("notifications/subscriptions/acknowledged")
        assert said["notifications"] == WISHES
        assert (await host.answer_to(unknown))["error"]["code"] == -32602
        assert listen["id"] not in host.answers


def searching(name: str) -> MCPServer:
    """Make a server with a tool and a prompt of a name."""
    server = MCPServer(name)

    @server.tool(name=name)
    def search() -> str:
        return f"tool {name}"

    @server.prompt(name=name)
    def ask() -> str:
        return f"prompt {name}"

    return server


async def test_an_own_tool_or_prompt_hides_a_shared_one_of_its_public_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = in_process("git_hub", searching("search"))
    async with gateway(tmp_path, in_process("git", searching("hub_search")), per_session=[own]) as door:
        host = await door.connect()
        for _ in range(2):
            for kind in ("tools", "prompts"):
                listed = (await host.result(f"{kind}/list"))[kind]
                assert [each["name"] for each in listed] == ["git_hub_search"]
        assert await host.call("git_hub_search") == "tool search"
        got = await host.result("prompts/get", {"name": "git_hub_search"})
        assert got["messages"][0]["content"]["text"] == "prompt search"
        said = [each.message for each in caplog.records if "is hidden" in each.message]
        assert said == [
            "server 'git': 'git_hub_search' is hidden, because a server that the client has for itself lists it, too"
        ]


async def test_the_list_with_own_tools_is_the_same_object_while_nothing_changes() -> None:
    async with (
        open_servers(in_process("a", notes())) as shared,
        open_servers(in_process("b", notes())) as own,
        trio.open_nursery() as nursery,
    ):
        first = Front(shared, "{server}_{tool}")
        front = Front(own, "{server}_{tool}", first)
        for each in (first, front):
            nursery.start_soon(each.follow, lambda _: None)
        await front.wait_listed()
        before = front.tools()
        assert front.tools() is before
        await own.remove("b")
        assert [each["name"] for each in front.tools()] == ["mcp__a__echo"]
        nursery.cancel_scope.cancel()


async def test_a_subscription_that_is_cancelled_while_it_is_made_ends(tmp_path: Path) -> None:
    gate, unsubscribed = trio.Event(), trio.Event()

    async def subscribe_late(ctx: Any, params: Any) -> EmptyResult:
        await gate.wait()
        return EmptyResult()

    async def unsubscribe(ctx: Any, params: Any) -> EmptyResult:
        unsubscribed.set()
        return EmptyResult()

    library = Library(on_subscribe_resource=subscribe_late, on_unsubscribe_resource=unsubscribe)
    async with gateway(tmp_path, library.config(protocol="legacy", request_timeout=None)) as door:
        host = await door.connect()
        await host.result("resources/list")
        first, second = (host.request("resources/subscribe", {"uri": "file:///a"}) for _ in range(2))
        await host.send(first, second)
        for each in (first, second):
            await wait_all_tasks_blocked()
            assert door.group["library"]._record.subscriptions.wants("file:///a")
            await host.send({**CANCEL, "params": {"requestId": each["id"]}})
        await host.result("ping")
        await eventually(lambda: not door.group["library"]._record.subscriptions.wants("file:///a"))
        gate.set()
        with trio.fail_after(BOUND):
            await unsubscribed.wait()
        assert host.answers == {}
        again = host.request("resources/subscribe", {"uri": "file:///a"})
        await host.send(again)
        assert "result" in await host.answer_to(again)


@pytest.mark.filterwarnings("ignore:The roots capability:mcp.MCPDeprecationWarning")
async def test_a_question_of_an_own_server_waits_until_the_client_is_initialized(tmp_path: Path) -> None:
    server, asks = MCPServer("own"), trio.Event()

    @server.tool()
    async def count_roots(ctx: Context[Any, Any]) -> str:
        asks.set()
        return str(len((await ctx.session.list_roots()).roots))

    own = in_process("own", server, protocol="legacy")
    async with gateway(tmp_path, in_process("notes", notes()), per_session=[own]) as door:
        host = await door.connect(begin=False, roots={})
        host.questions["roots/list"] = lambda _: {"result": {"roots": []}}
        params = {"protocolVersion": LEGACY, "capabilities": {"roots": {}}, "clientInfo": {"name": "h", "version": "1"}}
        await host.result("initialize", params)
        call = host.request("tools/call", {"name": "own_count_roots", "arguments": {}})
        await host.send(call)
        with trio.fail_after(BOUND):
            await asks.wait()
        await wait_all_tasks_blocked()
        assert host.asked == []
        await host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await host.answer_to(call))["result"]["content"][0]["text"] == "0"


def levels_of(name: str, levels: list[tuple[str, str]], **options: Any) -> ServerConfig:
    """Configure a server that notes the log levels that it is asked for."""

    async def set_level(ctx: Any, params: Any) -> EmptyResult:
        levels.append((name, params.level))
        return EmptyResult()

    library = Library(on_set_logging_level=set_level)
    return library.config(name, protocol="legacy", **options)


async def test_servers_that_come_later_are_asked_for_the_log_level(tmp_path: Path) -> None:
    levels: list[tuple[str, str]] = []
    given = levels_of("a", levels), levels_of("lazy", levels, connect="lazy")
    async with gateway(tmp_path, *given) as door:
        host, group = await door.connect(), door.group
        await host.result("logging/setLevel", {"level": "debug"})
        await eventually(lambda: levels == [("a", "debug")])
        await group.add(levels_of("new", levels))
        await eventually(lambda: levels[1:] == [("new", "debug")])
        assert group["lazy"].state == "pending"
        await group["lazy"].list_tools()
        await eventually(lambda: levels[2:] == [("lazy", "debug")])
        levels.clear()
        await group.remove("a")
        await group.add(levels_of("a", levels))
        await eventually(lambda: levels == [("a", "debug")])
        await host.result("logging/setLevel", {"level": "error"})
        await eventually(lambda: {("a", "error"), ("new", "error")} <= set(levels))
        await group.replace(levels_of("a", levels, connect="lazy"))
        await eventually(lambda: group["a"].state == "pending")
        await host.result("logging/setLevel", {"level": "info"})
        await group["a"].list_tools()
        await eventually(lambda: ("a", "info") in levels)
