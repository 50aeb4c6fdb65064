"""Plain requests over HTTP and in process: the same outcomes as by the SDK's session, without its models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, NoReturn

import httpx2
import pytest
import trio
from attrs import define, field
from mcp import ClientSession, MCPError
from mcp.server import Server
from mcp.types import (
    HEADER_MISMATCH,
    CallToolResult,
    ListRootsResult,
    ListToolsResult,
    Root,
    Tool,
)
from pydantic import FileUrl, ValidationError

from mcp_actors import Callbacks, Http, InProcess, McpActorsError, ServerConfig, ServerRef, open_servers

from .answers import BY_SESSION
from .links import text_of
from .processes import BOUND

pytestmark = pytest.mark.own_way

URL: Final = "https://answers.example/mcp"
ERAS: Final = ("legacy", "modern")
PROTOCOLS: Final[dict[str, Literal["legacy", "2026-07-28"]]] = {"legacy": "legacy", "modern": "2026-07-28"}
REGION: Final = {"type": "string", "x-mcp-header": "Region"}

HEADERS: Final = [("X-Two", "a"), ("X-Two", "b"), ("Accept", "text/plain"), ("Host", "other.example")]

Json = dict[str, Any]


def broken() -> ValidationError:
    """Return an error of a handler that has validated what it got."""
    try:
        Tool.model_validate({})
    except ValidationError as exc:
        return exc
    raise AssertionError


BROKEN: Final = broken()


@define(slots=False)
class WebServer:
    """Answers HTTP requests in this process: with the argument ``answer`` of a call, in which ``$id`` is its id."""

    era: str
    kind: str = "application/json"
    calls: list[tuple[httpx2.Headers, Json]] = field(factory=list)
    refused: int = 0

    @property
    def config(self) -> ServerConfig:
        """Its configuration."""
        return ServerConfig("a", Http(URL, http_client=self.client))

    def client(self) -> httpx2.AsyncClient:
        """Return a client that reaches it."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.handle))

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one HTTP request."""
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx2.Response(202)
        if message["method"] != "tools/call":
            return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], **self.answer(message)})
        self.calls.append((request.headers, message))
        answer = self.answer_to_call(message).replace("$id", json.dumps(message["id"]))
        if self.kind == "text/event-stream":
            answer = f"event: message\ndata: {answer}\n\n"
        return httpx2.Response(200, headers={"content-type": self.kind}, content=answer.encode())

    def answer(self, message: Json) -> Json:
        """Return the answer to anything but a call."""
        match self.era, message["method"]:
            case "modern", "server/discover":
                more = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
                return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **more}}
            case "legacy", "initialize":
                info = {"name": "web", "version": "1"}
                return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
            case _, "tools/list":
                tool = {"name": "say", "inputSchema": {"type": "object", "properties": {"region": REGION}}}
                return {"result": {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}}
        return {"error": {"code": -32601, "message": "not found"}}

    def answer_to_call(self, message: Json) -> str:
        """Return the answer to a call."""
        if self.refused:
            self.refused -= 1
            return answer_with("error", {"code": HEADER_MISMATCH, "message": "wrong header"})
        return str(message["params"].get("arguments", {}).get("answer", ANSWER))


def answer_with(member: str, value: Json) -> str:
    """Return an answer in which ``$id`` is to be replaced."""
    return '{"jsonrpc":"2.0","id":$id,' + json.dumps({member: value})[1:]


ANSWER: Final = answer_with("result", {"content": [{"type": "text", "text": "answered"}]})


@asynccontextmanager
async def over_http(era: str, kind: str = "application/json") -> AsyncIterator[ServerRef]:
    """Connect to a server over HTTP."""
    async with open_servers(WebServer(era, kind).config) as servers:
        yield servers["a"]


def in_process_server(on_call: Callable[[Json], Any]) -> Server[Any]:
    """Return a server whose tool does what a function says."""

    async def list_tools(context: object, params: object) -> ListToolsResult:
        await trio.lowlevel.checkpoint()
        return ListToolsResult(tools=[Tool(name="say", input_schema={"type": "object"})])

    async def call(context: object, params: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return on_call(params.arguments or {})

    return Server("answers", on_list_tools=list_tools, on_call_tool=call)


def in_process_config(on_call: Callable[[Json], Any], era: str = "modern") -> ServerConfig:
    """Configure such a server."""
    return ServerConfig("a", InProcess(in_process_server(on_call)), protocol=PROTOCOLS[era])


@asynccontextmanager
async def in_process(era: str) -> AsyncIterator[ServerRef]:
    """Connect to a server in this process that answers as its caller says."""

    def answer(arguments: Json) -> Any:
        message = json.loads(arguments["answer"].replace("$id", "1"))
        if "error" in message:
            raise MCPError(**message["error"])
        result = message["result"]
        return {"resultType": "complete", **result} if isinstance(result, dict) else result

    async with open_servers(in_process_config(answer, era)) as servers:
        yield servers["a"]


Opener = Callable[[str], AbstractAsyncContextManager[ServerRef]]
WAYS: Final[dict[str, Opener]] = {
    "json": over_http,
    "events": lambda era: over_http(era, "text/event-stream"),
    "in process": in_process,
}


@pytest.fixture
def by_session(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the requests that the session has sent."""
    methods, send = list[str](), ClientSession.send_request

    async def note(session: ClientSession, request: Any, *args: Any, **options: Any) -> Any:
        methods.append(request.method)
        return await send(session, request, *args, **options)

    monkeypatch.setattr(ClientSession, "send_request", note)
    return methods


async def outcome_of(ref: ServerRef, answer: str, meta: Json | None) -> Any:
    """Return a result; or the type of an error, and what the server has said."""
    try:
        with trio.fail_after(BOUND):
            return (await ref.call_tool("say", {"answer": answer}, meta=meta)).model_dump()
    except (McpActorsError, MCPError) as exc:
        return type(exc), getattr(exc, "error", None)  # the text names the place a little differently


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_plain_call_passes_no_model_of_the_session(era: str, way: str, by_session: list[str]) -> None:
    """It fails if a version of the SDK has another name for what is looked up in its session."""
    async with WAYS[way](era) as ref:
        assert text_of(await ref.call_tool("say", {"answer": ANSWER})) == "answered"
        assert "tools/call" not in by_session


def without(missing: str) -> Callable[..., Any]:
    """Return a `getattr` that does not find one name."""
    return lambda found, name, default: default if name == missing else getattr(found, name, default)


async def test_the_handler_of_a_server_in_this_process_is_called_in_the_task_of_the_request() -> None:
    """In a nursery of the SDK it would not have the cancellation, and not the context variables, of its caller."""
    tasks = list[object]()

    async def call(context: Any, params: Any) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        tasks.append(trio.lowlevel.current_task().name)
        return CallToolResult(content=[])

    config = ServerConfig("a", InProcess(Server("a", on_call_tool=call)), validate="off")
    async with open_servers(config) as servers:
        await servers["a"].call_tool("say")
    assert tasks == ["a:CallTool"]


@pytest.mark.parametrize("error", [ValueError("secret"), httpx2.ReadError("secret"), BROKEN, MCPError(7, "no", [1])])
async def test_a_handler_that_raises_fails_its_call_as_by_the_session(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(arguments: Json) -> Any:
        raise error

    raised: list[MCPError] = []
    async with open_servers(in_process_config(fail)) as servers:
        for meta in (None, BY_SESSION):
            with pytest.raises(MCPError) as caught:
                await servers["a"].call_tool("say", meta=meta)
            raised.append(caught.value)
    assert raised[0].error == raised[1].error
    assert "secret" not in str(raised[0])
    unexpected = not isinstance(error, MCPError | ValidationError)
    assert ("server 'a': its handler of tools/call raised" in caplog.text) == unexpected


async def test_calls_in_process_have_different_ids_and_a_stamp_of_their_own() -> None:
    ids, stamps = list[object](), list[Json]()

    async def call(context: Any, params: Any) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        ids.append(context.request_id)
        stamps.append(dict(context.params["_meta"]))
        context.params["_meta"].clear()
        return CallToolResult(content=[])

    async with open_servers(ServerConfig("a", InProcess(Server("a", on_call_tool=call)))) as servers:
        for meta in (None, None, BY_SESSION):
            await servers["a"].call_tool("say", meta=meta)
    assert len(set(ids)) == 3
    assert stamps[2].pop("k") == 1
    assert stamps[0] == stamps[1] == stamps[2]


@pytest.mark.parametrize("era", ERAS)
async def test_a_handler_in_process_is_cancelled_with_its_caller(era: str) -> None:
    began, cancelled = trio.Event(), trio.Event()

    async def call(context: Any, params: Any) -> NoReturn:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    config = ServerConfig("a", InProcess(Server("a", on_call_tool=call)), protocol=PROTOCOLS[era])
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(servers["a"].call_tool, "say")
        await began.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(BOUND):
            await cancelled.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_both_ways_send_the_same_request(era: str) -> None:
    arguments = {"a": None, "b": [None, {"c": "é\u2028"}], "d": 1.5, "e": 2**60, "f": True, "region": "eu"}
    server = WebServer(era)
    async with open_servers(server.config) as servers:
        for given in (arguments, {}, None):
            await servers["a"].call_tool("say", given)
            await servers["a"].call_tool("say", given, meta=BY_SESSION)
    for (headers, sent), (expected_headers, expected) in zip(server.calls[::2], server.calls[1::2], strict=True):
        assert expected["params"]["_meta"].pop("k") == 1
        expected["params"] = {
            name: value for name, value in expected["params"].items() if value != {} or name != "_meta"
        }
        assert sent["params"] == expected["params"]
        assert sent["method"] == expected["method"]
        names = headers.keys() - {"content-length"}
        assert names == expected_headers.keys() - {"content-length"}
        assert [headers[name] for name in names] == [expected_headers[name] for name in names]
    assert ("mcp-param-region" in server.calls[0][0]) == (era == "modern")


@pytest.mark.parametrize("options", [{"headers": HEADERS}, {"cookies": {"c": "1"}}, {"params": {"k": "v"}}])
async def test_the_headers_cookies_and_parameters_of_the_client_are_sent(options: Json) -> None:
    server, requests = WebServer("legacy"), list[httpx2.Request]()

    def note(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return server.handle(request)

    make = partial(httpx2.AsyncClient, transport=httpx2.MockTransport(note), timeout=7.0, **options)
    async with open_servers(ServerConfig("a", Http(URL, http_client=make))) as servers:
        await servers["a"].call_tool("say", {"text": "é"})
    sent = next(each for each in requests if b"tools/call" in each.content)
    assert sent.headers["accept"] == "application/json, text/event-stream"
    own = {name: sent.headers[name] for name in sent.headers if name.startswith(("mcp-", "accept", "content-type"))}
    async with make() as client:
        own["accept-encoding"] = client.headers["accept-encoding"]
        expected = client.build_request("POST", URL, headers=own, json=json.loads(sent.content))
    assert sent.url == expected.url
    assert sent.extensions["timeout"] == expected.extensions["timeout"]
    assert sent.content == expected.content
    assert sorted(sent.headers.multi_items()) == sorted(expected.headers.multi_items())


async def test_a_refused_header_is_corrected_as_by_the_session() -> None:
    server = WebServer("modern", refused=1)
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
    assert len(server.calls) == 2


async def roots(_: object) -> ListRootsResult:
    """Answer the server's question."""
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///here"))])


async def test_a_call_whose_answer_requires_input_is_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = {"r": {"method": "roots/list"}}
    required = {"resultType": "input_required", "inputRequests": questions, "requestState": "halfway"}
    server, answers = WebServer("modern"), [answer_with("result", required), ANSWER]
    monkeypatch.setattr(server, "answer_to_call", lambda _: answers.pop(0))
    async with open_servers(server.config, callbacks=Callbacks(roots=roots)) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
    first, second = (message["params"] for _, message in server.calls)
    assert "requestState" not in first
    assert second["requestState"] == "halfway"
    assert second["inputResponses"] == {"r": {"roots": [{"uri": "file:///here"}]}}


@pytest.mark.parametrize("era", ERAS)
async def test_a_list_that_a_server_in_this_process_keeps_is_not_changed(era: str) -> None:
    kept: dict[str, Any] = {}

    async def keep(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        if ctx.method not in kept:
            kept[ctx.method] = await call_next(ctx)
        return kept[ctx.method]

    server = in_process_server(lambda _: CallToolResult(content=[]))
    server.middleware.append(keep)
    async with open_servers(ServerConfig("a", InProcess(server), protocol=PROTOCOLS[era])) as servers:
        for _ in range(2):
            assert [tool.name for tool in await servers["a"].list_tools()] == ["say"]
    assert [tool["name"] for tool in kept["tools/list"]["tools"]] == ["say"]
