"""Calls whose arguments are wrong are not sent; results come as they were sent, unless more was asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    ConfigError,
    ConnectionLost,
    InProcess,
    InvalidArguments,
    InvalidResult,
    RestartPolicy,
    ServerConfig,
    open_servers,
    result_value,
)
from mcp_actors.config import CallNext, ToolRequest
from mcp_actors.testing import ScriptedServer

from ..messages import Said
from .fleet import Outcome
from .groups import server
from .links import text_of
from .processes import eventually

ASKS: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "filter": {"properties": {"limit": {"type": "integer"}}}},
    "required": ["query"],
}
PROMISES: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Library:
    """A server that believes everything, and keeps what it was sent."""

    def __init__(self, **returned: Any) -> None:
        self.listings = 0
        self.more: list[Tool] = []
        self.calls: list[CallToolRequestParams] = []
        self._result = CallToolResult(**{"content": [TextContent(text="seven")], **returned})
        self._server = Server("library", on_list_tools=self._list_tools, on_call_tool=self._call_tool)

    def config(self, **options: Any) -> ServerConfig:
        return ServerConfig("library", InProcess(self._server), **options)

    async def _list_tools(self, context: object, params: object) -> ListToolsResult:
        self.listings += 1
        return ListToolsResult(tools=[Tool(name="find", input_schema=ASKS, output_schema=PROMISES), *self.more])

    async def _call_tool(self, context: object, params: CallToolRequestParams) -> CallToolResult:
        self.calls.append(params)
        return self._result


async def test_a_call_without_a_required_argument_is_not_sent() -> None:
    """S1-20: required arguments are checked locally first; and with that the connection has nothing to do."""
    library = Library()
    async with open_servers(library.config()) as servers:
        with pytest.raises(InvalidArguments, match=r"^server 'library': tool 'find': arguments\.query is missing "):
            await servers["library"].call_tool("find", {"filter": {}})
        assert library.calls == []
        await servers["library"].call_tool("find", {"query": "a"})
        assert (servers["library"].statistics().incarnation, len(library.calls)) == (1, 1)


async def test_a_call_that_waited_for_the_first_connection_is_checked_before_it_is_sent(tmp_path: Path) -> None:
    """S1-20: nothing was known about the tool when it was called."""
    soon = RestartPolicy(backoff=Backoff(first=0.1))
    async with open_servers(server("a", "--fail-first", "1", str(tmp_path / "starts"), restarts=soon)) as servers:
        assert servers["a"].state != "ready"
        with pytest.raises(InvalidArguments, match=r"arguments\.b is missing"):
            await servers["a"].call_tool("add", {"a": 1})


async def test_middleware_may_add_what_is_required() -> None:
    async def add(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        return await call_next(attrs.evolve(request, arguments={"query": "a"}))

    library = Library()
    async with open_servers(library.config(middleware=(add,))) as servers:
        await servers["library"].call_tool("find")
    assert [call.arguments for call in library.calls] == [{"query": "a"}]


async def test_arguments_that_middleware_has_changed_are_checked() -> None:
    async def spoil(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        return await call_next(attrs.evolve(request, arguments={}))

    library = Library()
    async with open_servers(library.config(middleware=(spoil,))) as servers:
        with pytest.raises(InvalidArguments):
            await servers["library"].call_tool("find", {"query": "a"})
    assert library.calls == []


async def test_a_process_hears_nothing_of_a_call_without_a_required_argument() -> None:
    """S1-20: over pipes."""
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    schema = {"type": "object", "properties": numbers, "required": ["a", "b"]}
    with ScriptedServer() as scripted:
        scripted.add_tool("add", lambda given: str(given["a"] + given["b"]), input_schema=schema)
        async with open_servers(ServerConfig("scripted", scripted.stdio())) as servers:
            with pytest.raises(InvalidArguments, match=r"arguments\.b is missing \(the tool requires 'a', 'b'\)"):
                await servers["scripted"].call_tool("add", {"a": 1})
            assert result_value(await servers["scripted"].call_tool("add", {"a": 1, "b": 2})) == "3"
        assert [call.arguments for call in scripted.calls] == [{"a": 1, "b": 2}]


async def test_with_schema_the_offending_argument_is_named_and_nothing_is_sent() -> None:
    library = Library(structured_content={"n": 7})
    async with open_servers(library.config(validate="schema")) as servers:
        with pytest.raises(InvalidArguments, match=r"arguments\.filter\.limit is a string; expected an integer"):
            await servers["library"].call_tool("find", {"query": "a", "filter": {"limit": "7"}})
        assert library.calls == []
        assert result_value(await servers["library"].call_tool("find", {"query": "a"})) == {"n": 7}


@pytest.mark.parametrize(("validate", "arguments"), [("required", {"query": 7}), ("off", None), ("off", {"x": 1})])
async def test_without_validation_wrong_arguments_are_sent(validate: Any, arguments: Any) -> None:
    library = Library()
    async with open_servers(library.config(validate=validate)) as servers:
        await servers["library"].call_tool("find", arguments)
    assert [call.arguments for call in library.calls] == [arguments]


@pytest.mark.parametrize("name", ["find", "hidden"])
@pytest.mark.parametrize("validate", ["required", "off"])
async def test_a_result_comes_as_it_was_sent_and_nothing_else_is_asked(name: str, validate: Any) -> None:
    """The SDK would ask for the tools again, or raise."""
    library = Library(structured_content={"n": "seven"})
    async with open_servers(library.config(validate=validate)) as servers:
        result = await servers["library"].call_tool(name, {"query": "a"})
        assert (result.structured_content, library.listings) == ({"n": "seven"}, 1)


async def test_the_first_result_of_a_tool_on_a_connection_is_checked(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """C-56: a breach is one warning, and the result is returned."""
    library = Library(structured_content={"n": "seven"})
    async with open_servers(library.config()) as servers:
        for connections in (1, 2):
            for _ in range(3):
                result = await servers["library"].call_tool("find", {"query": "a"})
                assert result.structured_content == {"n": "seven"}
            assert caplog.text.count("output schema") == connections
            await servers["library"].restart()
    said("a first result that breaks its schema", [each for each in caplog.messages if "output schema" in each][-1])


async def test_a_first_result_that_is_an_error_or_keeps_its_promise_is_not_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-56: and an error does not count; the next result does."""
    library = Library(structured_content={"n": "seven"}, is_error=True)
    async with open_servers(library.config()) as servers:
        await servers["library"].call_tool("find", {"query": "a"})
        assert "output schema" not in caplog.text
        library._result = CallToolResult(content=[], structured_content={"n": "seven"})
        await servers["library"].call_tool("find", {"query": "a"})
        assert caplog.text.count("output schema") == 1


async def test_a_changed_list_leaves_the_samples_that_were_taken(caplog: pytest.LogCaptureFixture) -> None:
    """C-56: the samples are those of a connection."""
    library = Library(structured_content={"n": "seven"})
    async with open_servers(library.config()) as servers:
        for _ in range(3):
            await servers["library"].call_tool("find", {"query": "a"})
            library.more.append(Tool(name=f"new{len(library.more)}", input_schema={"type": "object"}))
            await servers["library"].list_tools()
        assert len(servers.tools) == 4
    assert caplog.text.count("output schema") == 1


async def test_with_schema_a_result_that_breaks_its_promise_is_an_error_that_holds_it() -> None:
    library = Library(structured_content={"n": "seven"})
    async with open_servers(library.config(validate="schema")) as servers:
        with pytest.raises(InvalidResult, match=r"structured_content\.n is a string; expected an integer") as caught:
            await servers["library"].call_tool("find", {"query": "a"})
        assert caught.value.result.structured_content == {"n": "seven"}
        assert servers["library"].state == "ready"
    assert len(library.calls) == 1


async def test_with_schema_a_result_that_is_an_error_is_returned() -> None:
    library = Library(structured_content={"n": "seven"}, is_error=True)
    async with open_servers(library.config(validate="schema")) as servers:
        assert (await servers["library"].call_tool("find", {"query": "a"})).is_error


def test_validate_must_be_one_of_three_words() -> None:
    with pytest.raises(ConfigError, match=r"^server 'library': validate='strict' is not valid; "):
        Library().config(validate="strict")


async def test_half_a_character_is_refused_before_it_is_sent() -> None:
    """``json.loads`` makes it of an escape; nothing of it is sent, and other calls are not affected."""
    async with open_servers(server("a")) as servers:
        for bad in ("\ud800", 10**5000):
            with pytest.raises(InvalidArguments, match=r"arguments\.text"):
                await servers["a"].call_tool("echo", {"text": bad})
        assert text_of(await servers["a"].call_tool("echo", {"text": "ü"})) == "ü"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
async def test_a_number_that_json_does_not_have_is_refused_and_not_sent_as_null(bad: float) -> None:
    async with open_servers(server("a")) as servers:
        with pytest.raises(
            InvalidArguments, match=r"arguments\.b\[1\]\.c is the number (nan|-?inf), which cannot be written as JSON"
        ):
            await servers["a"].call_tool("add", {"a": 1, "b": [0, {"c": bad}]})


@pytest.mark.own_way
async def test_an_invalid_answer_is_an_error_of_its_own_request_only() -> None:
    answer = '{"jsonrpc": "2.0", "id": %d, "result": {"content": 5}}'
    async with open_servers(server("a")) as servers, trio.open_nursery() as nursery:
        outcome = Outcome()
        nursery.start_soon(outcome.of, servers["a"].call_tool, "mute", {})
        await wait_all_tasks_blocked(0.05)
        for number in range(1, 6):
            await servers["a"].call_tool("print_raw", {"text": answer % number})
        await eventually(lambda: outcome.over)
        assert isinstance(outcome.error, ConnectionLost)
        assert str(outcome.error).startswith("server 'a': tools/call 'mute': invalid response (at content: ")
        assert servers["a"].state == "ready"


@pytest.mark.parametrize("validate", ["required", "off"])
async def test_a_name_and_meta_that_cannot_be_written_are_refused_too(validate: str) -> None:
    async with open_servers(server("a", validate=validate)) as servers:
        for name, meta in (("\ud800", None), (None, None), ("echo", {"k": "\ud800"}), ("echo", {"k": object()})):
            with pytest.raises(InvalidArguments, match="nothing was sent"):
                await servers["a"].call_tool(name, {"text": "x"}, meta=meta)  # type: ignore[arg-type]  # a mistake
        assert text_of(await servers["a"].call_tool("echo", {"text": "x"}, meta={"k": 1})) == "x"
