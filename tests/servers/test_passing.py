"""Requests that are passed on for another client: its ``_meta``, its capabilities, and its answers to questions."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

import outcome
import pytest
import trio
from attrs import define
from mcp.server import Server
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CallToolResult,
    CompleteResult,
    Completion,
    GetPromptResult,
    InputRequiredResult,
    ListRootsResult,
    PromptReference,
    ReadResourceResult,
    Root,
)
from trio.testing import MockClock

from mcp_actors import (
    Backoff,
    Callbacks,
    Http,
    InProcess,
    InvalidArguments,
    LimitExceeded,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ServerRef,
    open_servers,
)
from mcp_actors.config import CallNext, Middleware, ToolRequest
from mcp_actors.servers import NotSupported, PendingRequest
from mcp_actors.servers.connection._direct import DirectRequests
from mcp_actors.servers.requests import Passing, given_passing
from tests.messages import Said

from . import wire_server
from .answers import BY_SESSION
from .fleet import kill
from .groups import BOUND
from .library import Library
from .processes import eventually
from .test_direct import config, messages
from .test_dispatch import PROTOCOLS

pytestmark = pytest.mark.own_way

Json = dict[str, Any]

ERAS: Final = ("legacy", "modern")
WAYS: Final = ("direct", "exchanged", "http", "in process")
ASKING: Final = {
    "tools/call": ("tool_call", "call_tool"),
    "prompts/get": ("get_prompt", "get_prompt"),
    "resources/read": ("read_resource", "read_resource"),
}
EVERY: Final = {**ASKING, "completion/complete": ("complete", "complete")}
PARTS: Final = ("responses", "state", "capabilities")
"""The parts of a request that belong to the client for which it is passed on."""
ANSWERS: Final[Json] = {"roots": {"roots": [{"uri": "file:///there", "odd": None}], "more": [1.5, None]}}
CAPABILITIES: Final[Json] = {"roots": {"listChanged": True}, "elicitation": {}, "extensions": {"a.example/b": {"c": 1}}}

each_kind = pytest.mark.parametrize("method", ASKING)
each_way = pytest.mark.parametrize("way", WAYS)


@define
class Peer:
    """A server, and the params of the requests that it was sent."""

    ref: ServerRef
    options: Json
    sent: Callable[[str], list[Json]]

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Send a request."""
        return await getattr(self.ref, EVERY[method][1])(*args, **self.given(options))

    def send(self, method: str, *args: Any, **options: Any) -> Pending:
        """Send a request whose result goes to a function."""
        return Pending(getattr(self.ref, f"send_{EVERY[method][0]}")(*args, **self.given(options)))

    def pass_on(self, method: str, *args: Any, **options: Any) -> Pending:
        """Send such a request for another client, with some of the `PARTS`."""
        passing = passing_of(method, **{name: options.pop(name) for name in PARTS if name in options})
        pending = self.send(method, *args, **options)
        pending.pending.pass_on(passing)
        return pending

    def given(self, options: Json) -> Json:
        """Return the options that send a request the way of this peer."""
        return options | ({"meta": options.get("meta", {}) | self.options["meta"]} if self.options else {})


class Pending:
    """A request whose result goes to a function."""

    def __init__(self, pending: PendingRequest[Any]) -> None:
        self.pending = pending
        self.told = trio.Event()
        self.answer: outcome.Value[Any] | None = None

    async def result(self) -> Any:
        """Send it, and return its result."""
        self.pending.send(self._take)
        with trio.fail_after(BOUND):
            await self.told.wait()
        return await self.pending.finish() if self.answer is None else self.answer.value

    def _take(self, answer: outcome.Value[Any] | None) -> None:
        self.answer = answer
        self.told.set()


def passing_of(method: str, responses: Any = None, state: Any = None, capabilities: Any = None) -> Passing:
    """Return the parts of a request to server ``a`` that is passed on."""
    return given_passing("a", method, responses, state, capabilities)


class Web(BaseHTTPRequestHandler):
    """The scripted server over HTTP."""

    protocol_version = "HTTP/1.1"
    wire: ClassVar[wire_server.Server]
    read: ClassVar[list[Json]]

    def do_POST(self) -> None:
        """Answer one message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.read.append(message)
        written: list[bytes] = []
        self.wire.put = written.append
        self.wire.take(message)
        body = b"".join(b"data: %b\n\n" % line for line in b"".join(written).splitlines())
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Offer no stream of notifications."""
        self.send_error(405)

    def do_DELETE(self) -> None:
        """Keep no session."""
        self.send_error(405)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextmanager
def web_server(era: str, read: list[Json]) -> Iterator[str]:
    """Serve over HTTP on loopback during a block, and yield the URL."""
    handler = type("Handler", (Web,), {"wire": wire_server.Server(era, list[bytes]().append), "read": read})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


def in_process(era: str, read: list[Json]) -> Server[Any]:
    """Return a server object that answers as the scripted server does."""

    async def answer(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        if ctx.method not in (*EVERY, "tools/list"):
            return await call_next(ctx)
        written = list[bytes]()
        message = {"id": 1, "method": ctx.method, "params": json.loads(json.dumps(ctx.params or {}))}
        read.append(message)
        wire_server.Server(era, written.append).take(message)
        *progress, answer = map(json.loads, b"".join(written).splitlines())
        for report in progress:
            await ctx.session.report_progress(report["params"]["progress"])
        return answer["result"]

    async def unused(ctx: Any, params: Any) -> Any:
        raise AssertionError

    names = ("list_tools", "call_tool", "get_prompt", "list_prompts", "read_resource", "list_resources", "completion")
    handlers: Json = {f"on_{name}": unused for name in names}
    server: Server[Any] = Server("a", **handlers)
    server.middleware.append(answer)
    return server


@asynccontextmanager
async def peer(way: str, era: str, tmp_path: Path, **options: Any) -> AsyncIterator[Peer]:
    """Connect to the scripted server in one of the `WAYS`."""
    read, log = list[Json](), tmp_path / "log"

    def sent(method: str) -> list[Json]:
        if way in ("direct", "exchanged"):
            return [each["params"] for each in messages(log, method)]
        return [each["params"] for each in read if each["method"] == method]

    more = {"meta": BY_SESSION} if way == "exchanged" else {}
    with web_server(era, read) as url:
        match way:
            case "http":
                made = ServerConfig("a", Http(url, allow_insecure=True), protocol=PROTOCOLS[era], **options)
            case "in process":
                made = ServerConfig("a", InProcess(in_process(era, read)), protocol=PROTOCOLS[era], **options)
            case _:
                made = config(era, log, protocol=PROTOCOLS[era], **options)
        async with open_servers(made, strict=True) as servers:
            yield Peer(servers["a"], more, sent)


def text_in(result: Any) -> Any:
    """Return what the result of any request says."""
    match result:
        case CallToolResult():
            block: Any = result.content[0]
            return json.loads(block.text)
    return json.loads((getattr(result, "contents", None) or [each.content for each in result.messages])[0].text)


def capabilities(params: Json) -> Any:
    """Return the capabilities that a request names."""
    return params["_meta"][CLIENT_CAPABILITIES_META_KEY]


async def roots(_: object) -> ListRootsResult:
    """Answer the server's question."""
    await trio.lowlevel.checkpoint()
    return ListRootsResult(roots=[Root(uri="file:///here")])  # type: ignore[arg-type]  # a URL


# --- questions --------------------------------------------------------------------------------------------------------


@each_kind
@each_way
async def test_a_question_is_returned_and_answered_by_another_request(way: str, method: str, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path, callbacks=Callbacks(roots=roots)) as a:
        passed: Json = {"capabilities": CAPABILITIES, "meta": {"trace": "x"}}
        asked = await a.pass_on(method, "ask", **passed).result()
        assert type(asked) is InputRequiredResult
        assert asked.request_state == "halfway"
        assert asked.input_requests is not None
        assert asked.input_requests["roots"].method == "roots/list"
        answered = a.pass_on(method, "ask", responses=ANSWERS, state=asked.request_state, **passed)
        said = text_in(await answered.result())
        assert (said if method == "tools/call" else [said["requestState"], said["inputResponses"]]) == [
            "halfway",
            ANSWERS,
        ]
        first, second = a.sent(method)
        assert not first.keys() & {"inputResponses", "requestState"}
        assert [capabilities(each) for each in (first, second)] == [CAPABILITIES] * 2
        assert [each["_meta"]["trace"] for each in (first, second)] == ["x"] * 2
        assert a.ref.statistics().latency.done == 2


@each_kind
@each_way
async def test_a_null_and_an_empty_state_are_passed_on_too(way: str, method: str, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path) as a:
        given = ({"text": "x"},) if method == "tools/call" else ()  # written before it is passed on
        pending = a.pass_on(method, "ask", *given)
        assert type(await pending.result()) is InputRequiredResult
        answered = a.pass_on(method, "ask", *given, responses={"q": None}, state="")
        assert "halfway" not in json.dumps(text_in(await answered.result()))
        assert (a.sent(method)[1]["inputResponses"], a.sent(method)[1]["requestState"]) == ({"q": None}, "")
        assert not a.ref._record.calls.deadlines._requests


async def test_a_question_that_is_returned_takes_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = list[object]()
    monkeypatch.setattr(DirectRequests, "carry_on", lambda self, *args: carried.append(args))
    async with peer("direct", "modern", tmp_path) as a:
        pending = a.pass_on("tools/call", "ask", capabilities=CAPABILITIES)
        assert type(await pending.result()) is InputRequiredResult
        assert pending.answer is not None
    assert carried == []


@each_kind
@each_way
async def test_without_capabilities_those_of_the_callbacks_are_named(way: str, method: str, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path, callbacks=Callbacks(roots=roots)) as a:
        assert type(await a.pass_on(method, "ask").result()) is InputRequiredResult
        assert capabilities(a.sent(method)[0]) == {"roots": {"listChanged": True}}
        assert type(await a.ask(method, "ask")) is not InputRequiredResult
        assert len(a.sent(method)) == 3


@each_kind
@each_way
async def test_the_callbacks_answer_what_is_asked_of_this_program(way: str, method: str, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path, callbacks=Callbacks(roots=roots)) as a:
        await a.ask(method, "ask")
        first, second = a.sent(method)
        assert not first.keys() & {"inputResponses", "requestState"}
        assert second["requestState"] == "halfway"
        assert second["inputResponses"] == {"roots": {"roots": [{"uri": "file:///here"}]}}


@each_way
async def test_answers_are_not_sent_again_in_the_next_round(way: str, tmp_path: Path) -> None:
    line = '{"jsonrpc":"2.0","id":$id,"result":{"resultType":"input_required","requestState":"next"}}'
    async with peer(way, "modern", tmp_path) as a:
        with pytest.raises(LimitExceeded):
            await a.ask("tools/call", "say", {"lines": [line]})
        _, *others = a.sent("tools/call")
        assert [each["requestState"] for each in others] == ["next"] * 10
        assert not any("inputResponses" in each for each in others)


@each_kind
@each_way
async def test_a_legacy_server_is_sent_no_answers_and_asks_as_before(
    way: str, method: str, tmp_path: Path, said: Said
) -> None:
    async with peer(way, "legacy", tmp_path) as a:
        errors = list[NotSupported]()
        for given in ({"responses": ANSWERS}, {"state": "halfway"}):
            with pytest.raises(NotSupported) as caught:
                await a.pass_on(method, "echo", **given).result()
            errors.append(caught.value)
        assert a.sent(method) == []
        result = await a.pass_on(method, "echo", capabilities=CAPABILITIES).result()
        assert type(result) is not InputRequiredResult
        assert CAPABILITIES not in (a.sent(method)[0].get("_meta") or {}).values()
        assert a.ref.statistics().in_flight == 0
    assert {each.capability for each in errors} == {"input_required"}
    for error in errors:
        said("answers for a legacy server", str(error), operation=f"{method} 'echo'")


@pytest.mark.parametrize("way", ["direct", "exchanged"])
async def test_a_returned_question_is_not_checked_against_the_output_schema(way: str, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path, validate="schema") as a:
        assert type(await a.pass_on("tools/call", "ask").result()) is InputRequiredResult


INVALID: Final[dict[str, Json]] = {
    "input_responses is an array; expected an object": {"responses": []},
    "input_responses cannot be written as JSON": {"responses": {"q": object()}},
    "request_state is an integer; expected a string": {"state": 7},
    "client_capabilities is a string; expected an object": {"capabilities": "x"},
}


@pytest.mark.parametrize("problem", INVALID)
def test_a_part_that_cannot_be_sent_is_refused(problem: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        passing_of("tools/call", **INVALID[problem])
    assert str(caught.value) == f"server 'a': tools/call: {problem}; nothing was sent; correct the argument"


@each_kind
async def test_a_program_cannot_pass_a_request_on(method: str, tmp_path: Path) -> None:
    async with peer("direct", "modern", tmp_path) as a:
        sends: tuple[Any, ...] = (a.ask, a.send)
        for word in ("input_required", "input_responses", "request_state", "client_capabilities"):
            for send in sends:
                with pytest.raises(TypeError, match=rf"^\w+\(\): unknown argument '{word}'; "):
                    await send(method, "echo", **{word: None})
        assert a.sent(method) == []
        assert not a.ref._record.calls.deadlines._requests


# --- what belongs to every request --------------------------------------------------------------------------------


ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "prompts/get": ("p",),
    "resources/read": ("file:///p",),
    "completion/complete": (PromptReference(name="p"), {"name": "a", "value": "v"}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", ARGUMENTS)
@each_way
async def test_every_request_has_a_meta_and_progress(way: str, method: str, era: str, tmp_path: Path) -> None:
    reports = list[float]()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        await trio.lowlevel.checkpoint()
        reports.append(done)

    async with peer(way, era, tmp_path) as a:
        await a.ask(method, *ARGUMENTS[method], meta={"trace": [1, None]}, progress=progress)
        await a.send(method, *ARGUMENTS[method], meta={"trace": [1, None]}, progress=progress).result()
        assert reports == [1, 1]
        for params in a.sent(method):
            assert params["_meta"]["trace"] == [1, None]
            assert "progressToken" in params["_meta"]
        await a.ask(method, *ARGUMENTS[method])
        assert "progressToken" not in (a.sent(method)[2].get("_meta") or {})


@pytest.mark.parametrize("method", ARGUMENTS)
async def test_a_meta_that_cannot_be_sent_is_refused(method: str, tmp_path: Path) -> None:
    async with peer("direct", "modern", tmp_path) as a:
        with pytest.raises(InvalidArguments, match=f"{method}: meta is an array; expected an object; nothing was sent"):
            await a.ask(method, *ARGUMENTS[method], meta=[1])
        with pytest.raises(TypeError, match=r"^\w+\(\): unknown argument 'mete'; did you mean meta\?( |$)"):
            await a.ask(method, *ARGUMENTS[method], mete={})


# --- the result as it was sent ----------------------------------------------------------------------------------------


RAW: Final[Json] = {
    "content": [{"type": "text", "text": "hi", "odd": None, "annotations": None}],
    "structuredContent": {"a": None, "b": [1.50, {"c": 2**60}]},
    "isError": False,
    "_meta": {"k": None},
    "unknown": {"deep": [None]},
    "resultType": "complete",
}

QUESTION: Final[Json] = {
    "resultType": "input_required",
    "inputRequests": {"roots": {"method": "roots/list", "odd": None}},
    "requestState": "halfway",
    "unknown": [None],
}


def lines(*results: Json) -> Json:
    """Return the arguments of a call that is answered with a result."""
    return {
        "lines": [json.dumps({"jsonrpc": "2.0", "id": "$", "result": each}).replace('"$"', "$id") for each in results]
    }


@each_way
@pytest.mark.parametrize("result", [RAW, QUESTION], ids=["result", "question"])
async def test_a_result_is_passed_on_as_the_server_has_sent_it(way: str, result: Json, tmp_path: Path) -> None:
    async with peer(way, "modern", tmp_path) as a:
        call = a.pass_on("tools/call", "say", lines(result))
        value = await call.result()
        if way != "in process":  # the SDK's server drops what it does not know
            assert call.pending.result_of(value) == result
        raw = call.pending.result_of(value)
        assert CallToolResult.model_validate(raw) == value if result is RAW else raw["requestState"] == "halfway"


@pytest.mark.parametrize("way", ["direct", "exchanged", "http"])
async def test_fields_of_later_versions_stay_removed(way: str, tmp_path: Path) -> None:
    async with peer(way, "legacy", tmp_path) as a:
        call = a.send("tools/call", "say", lines(RAW))
        call.pending.pass_on(None)
        expected = {name: value for name, value in RAW.items() if name != "resultType"}
        assert call.pending.result_of(await call.result()) == expected


@each_kind
async def test_the_answer_counts_that_followed_a_question(method: str, tmp_path: Path) -> None:
    async with peer("direct", "modern", tmp_path, callbacks=Callbacks(roots=roots)) as a:
        call = a.send(method, "ask")
        call.pending.pass_on(None)
        value = await call.result()
        assert call.pending.result_of(value)["resultType"] == "complete"
        assert call.pending.result_of(value).keys() & {"content", "messages", "contents"}


async def test_without_a_wish_for_it_the_value_is_written(tmp_path: Path) -> None:
    async with peer("direct", "modern", tmp_path) as a:
        call = a.send("tools/call", "say", lines(RAW))
        assert call.pending.result_of(await call.result()) == {
            **{name: RAW[name] for name in ("structuredContent", "isError", "_meta", "resultType")},
            "content": [{"type": "text", "text": "hi"}],
        }


async def test_the_last_answer_counts_after_a_retry(tmp_path: Path) -> None:
    async with peer("direct", "modern", tmp_path, retry=RetryPolicy(backoff=Backoff())) as a:
        call = a.send("tools/call", "mute", idempotent=True)
        call.pending.pass_on(None)

        async def answer_the_second() -> None:
            await eventually(lambda: len(a.sent("tools/call")) == 1)
            kill(a.ref)
            await eventually(lambda: len(a.sent("tools/call")) == 2)
            number = messages(tmp_path / "log", "tools/call")[1]["id"]
            answer = lines(RAW)["lines"][0].replace("$id", str(number))
            await a.ref.call_tool("say", {"lines": [answer, *lines({"content": []})["lines"]]})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_the_second)
            value = await call.result()
        assert call.pending.result_of(value) == RAW


def change(kind: str) -> Middleware:
    """Return a middleware that does something with the result."""

    async def middleware(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        result = await call_next(request)
        match kind:
            case "replaces":
                return result.model_copy(update={"is_error": True})
            case "changes":
                result.is_error = True
            case "changes inside":
                assert isinstance(result.structured_content, dict)
                result.structured_content["b"][1]["c"] = "changed"
            case "removes":
                result.content.clear()
            case "calls twice":
                await call_next(request)
        return result

    return middleware


@pytest.mark.parametrize("kind", ["reads", "replaces", "changes", "changes inside", "removes", "calls twice"])
async def test_a_result_that_middleware_has_changed_is_passed_on_as_it_is_now(kind: str, tmp_path: Path) -> None:
    async with peer("exchanged", "modern", tmp_path, middleware=(change(kind),)) as a:
        call = a.send("tools/call", "say", lines(RAW))
        call.pending.pass_on(None)
        value = await call.result()
        raw = call.pending.result_of(value)
        assert CallToolResult.model_validate(raw) == value
        assert (raw == RAW) == (kind == "reads")


async def test_middleware_is_given_a_question_that_is_returned(tmp_path: Path) -> None:
    seen = list[object]()

    async def middleware(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        seen.append(result := await call_next(request))
        return result

    async with peer("exchanged", "modern", tmp_path, middleware=(middleware,)) as a:
        asked = await a.pass_on("tools/call", "ask").result()
        answered = await a.pass_on("tools/call", "ask", responses=ANSWERS, state="given").result()
        assert seen == [asked, answered]
        assert text_in(answered) == ["given", ANSWERS]
    assert type(asked) is InputRequiredResult


# --- the time without progress ----------------------------------------------------------------------------------------


OTHERS: Final[dict[str, Callable[[ServerRef], Any]]] = {
    "prompts/get": lambda ref: ref.get_prompt("prompt_1"),
    "resources/read": lambda ref: ref.read_resource("file:///a"),
    "completion/complete": lambda ref: ref.complete(PromptReference(name="p"), {"name": "a", "value": "v"}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("reports", [True, False])
async def test_progress_renews_the_time_without_it_of_every_request(
    reports: bool, method: str, era: str, autojump_clock: MockClock
) -> None:
    results = {
        "prompts/get": GetPromptResult(messages=[]),
        "resources/read": ReadResourceResult(contents=[]),
        "completion/complete": CompleteResult(completion=Completion(values=[])),
    }

    async def slowly(ctx: Any, params: Any) -> Any:
        for step in range(4):
            await trio.sleep(0.8)
            if reports:
                await ctx.session.report_progress(step)
        return results[method]

    library = Library(on_get_prompt=slowly, on_read_resource=slowly, on_completion=slowly)
    async with open_servers(library.config("a", protocol=PROTOCOLS[era], progress_timeout=1)) as servers:
        if reports:
            await OTHERS[method](servers["a"])
            assert trio.current_time() == pytest.approx(3.2)
        else:
            with pytest.raises(RequestTimedOut, match="after 1 s without progress"):
                await OTHERS[method](servers["a"])
