"""Text of servers cannot control a terminal or forge a log line, and programs get results unchanged."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    TextContent,
    Tool,
    ToolListChangedNotification,
)
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, InvalidArguments, McpActorsError, StateChanged, ToolNotFound, open_servers
from mcp_actors.transports import Masker, install_filters
from mcp_actors.transports.http._failures import HttpFailures

from ..source import PACKAGE, python_files
from .asking import ELICIT, ask, asking
from .groups import LATER, NEVER, Events, server
from .library import Library
from .links import text_of

HOSTILE: Final = (
    "\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J\u202eesrever\u2066 zero\u200bwidth\ufeff\x07\x08"
    "\r\nWARNING forged line\u2028and another"
)

SCHEMA: Final = {
    "type": "object",
    "properties": {
        HOSTILE: {"type": "string", "pattern": "\u202e\x07a"},
        "one": {"enum": [HOSTILE]},
    },
    "required": [HOSTILE],
}

Shown = Callable[[], Awaitable[list[str]]]


def texts(*errors: BaseException | None) -> list[str]:
    """Return what people are shown of errors and of what is behind them, as far as it is ours."""
    return [str(each) for each in errors if isinstance(each, McpActorsError)]


async def failing_to_list() -> list[str]:
    """Its tool list is an error at the start, and again after a notification of a change."""
    library, events = Library(), Events()
    library.failing["tools/list"] = [MCPError(INTERNAL_ERROR, HOSTILE)]
    async with open_servers(library.config(restarts=NEVER, protocol="legacy"), observers=[events]) as servers:
        ref = servers["library"]
        shown = texts(ref.statistics().last_error)
        with pytest.raises(McpActorsError) as caught:
            await ref.call_tool("search")
        shown += texts(caught.value)
        await ref.start()
        library.failing["tools/list"] = [MCPError(INTERNAL_ERROR, HOSTILE)]
        ref._record.listeners.tell(ToolListChangedNotification())
        await wait_all_tasks_blocked()
    assert len(shown) == 2
    return [*shown, *(event.reason for event in events.of(StateChanged))]


async def dying_with_words() -> list[str]:
    """It writes to stderr, and exits."""
    config = server("a", "--stderr", HOSTILE, "--exit-at-start", "3", restarts=LATER)
    events = Events()
    async with open_servers(config, observers=[events]) as servers:
        error = servers["a"].statistics().last_error
    assert error is not None
    return [*texts(error), *(event.reason.replace("\n", "?") for event in events.of(StateChanged))]


async def printing_what_is_no_message() -> list[str]:
    async with open_servers(server("a", restarts=NEVER)) as servers:
        await servers["a"].call_tool("print_raw", {"text": "\x1b[31m\x07\x9b2J"})
    return []


async def answering_with_a_status() -> list[str]:
    failures = HttpFailures("a", "https://example.com/mcp")
    moved = httpx2.Response(307, request=httpx2.Request("POST", "https://example.com/mcp"))
    moved.next_request = httpx2.Request("POST", "https://example.org/\u202e/%1b[31m")
    errors = [
        failures.status(httpx2.Response(503), datetime.now(UTC), MCPError(1, HOSTILE)),
        failures.redirected(moved),
        failures.broken(httpx2.RemoteProtocolError(HOSTILE)),
        failures.no_stream(HOSTILE),
        failures.endpoint_elsewhere(httpx2.URL("https://example.org/\u202e")),
    ]
    await trio.lowlevel.checkpoint()
    return texts(*errors)


async def with_odd_tools() -> list[str]:
    """A tool's name, what its schema asks for, and what it returns."""
    library = Library(on_call_tool=odd_result)
    library.tools = [
        Tool(name=HOSTILE, input_schema=SCHEMA, output_schema={**SCHEMA, "properties": {"x": {"const": HOSTILE}}}),
        Tool(name="broken", input_schema={"type": "object", "properties": {"a": {"type": HOSTILE}}}),
    ]
    shown: list[str] = []
    async with open_servers(library.config(validate="schema", protocol="legacy")) as servers:
        ref = servers["library"]
        for arguments in ({}, {HOSTILE: "x"}, {HOSTILE: 1}, {HOSTILE: "\u202e\x07a", "one": 2}):
            with pytest.raises(InvalidArguments) as caught:
                await ref.call_tool(HOSTILE, arguments)
            shown += texts(caught.value)
        with pytest.raises(ToolNotFound) as missing:
            servers.find_tool(HOSTILE)
        shown += texts(missing.value)
        await ref.call_tool("broken")
        return [*shown, repr(servers), repr(ref)]


async def odd_result(context: object, params: object) -> CallToolResult:
    await trio.lowlevel.checkpoint()
    return CallToolResult(content=[TextContent(type="text", text=HOSTILE)], structured_content={"x": HOSTILE})


async def through_a_callback() -> list[str]:
    """Its error comes out of a callback that has called it, so it is in the traceback that is logged."""

    async def calls(context: object, params: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise MCPError(INTERNAL_ERROR, HOSTILE)

    async with open_servers(asking(callbacks=Callbacks(elicitation=calls))) as servers:
        await ask(servers["a"], ELICIT)
    return []


@pytest.mark.parametrize(
    "way",
    [
        failing_to_list,
        dying_with_words,
        printing_what_is_no_message,
        answering_with_a_status,
        with_odd_tools,
        through_a_callback,
    ],
    ids=lambda way: way.__name__,
)
async def test_text_of_a_server_is_shown_as_plain_text(way: Shown, caplog: pytest.LogCaptureFixture) -> None:
    """B-21: in errors, reasons and logs, tracebacks included; and it begins no line."""
    with caplog.at_level(logging.DEBUG, "mcp_actors"):
        shown = await way()
    ours = [record for record in caplog.records if record.name.startswith("mcp_actors")]
    shown += [caplog.handler.format(record) for record in ours]
    assert shown
    for text in shown:
        assert text.replace("\n", "").isprintable(), ascii(text)
        assert "\nWARNING forged" not in text
    for record in ours:
        assert "\nWARNING forged" not in caplog.handler.format(record)


async def test_programs_get_results_definitions_and_the_data_of_errors_unchanged() -> None:
    """S4-01: what is shown of them is for the program to say."""
    library = Library(on_call_tool=odd_result)
    library.tools = [Tool(name="tool", description=HOSTILE, input_schema={"type": "object"})]
    library.failing["resources/list"] = [MCPError(INVALID_PARAMS, "wrong", {"x": HOSTILE})]
    async with open_servers(library.config(protocol="legacy")) as servers:
        ref = servers["library"]
        result = await ref.call_tool("tool")
        assert (text_of(result), result.structured_content) == (HOSTILE, {"x": HOSTILE})
        assert [tool.description for tool in servers.tools] == [HOSTILE]
        with pytest.raises(MCPError) as caught:
            await ref.list_resources()
        assert (caught.value.code, caught.value.message, caught.value.data) == (INVALID_PARAMS, "wrong", {"x": HOSTILE})


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_the_message_of_an_error_is_plain_text(protocol: Literal["legacy", "2026-07-28"]) -> None:
    """C-19: programs print it. It keeps its lines, indented."""
    library = Library()
    library.failing["tools/call"] = [MCPError(INVALID_PARAMS, HOSTILE)]
    async with open_servers(library.config(protocol=protocol)) as servers:
        with pytest.raises(MCPError) as caught:
            await servers["library"].call_tool("search")
    plain = "red esrever zerowidth\n    WARNING forged line\n    and another"
    assert (caught.value.message, str(caught.value), caught.value.args[1]) == (plain, plain, plain)


def test_the_session_gets_the_message_of_an_error_as_plain_text() -> None:
    """C-19: it writes the message into a span."""
    message = JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=INTERNAL_ERROR, message=HOSTILE))
    Masker().mask_error(message)
    assert message.error.message.replace("\n    ", " ").isprintable()


def test_the_lines_of_a_note_cannot_be_taken_for_messages(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("it failed")
    error.add_note("see below\nERROR server 'b': stopped")
    install_filters()
    logging.getLogger("mcp_actors.servers").error("a callback failed", exc_info=error)
    assert "ValueError: it failed\nsee below\n    ERROR server 'b': stopped" in caplog.text


def test_every_logger_of_the_package_is_safe() -> None:
    """A client of a gateway or a model can write what a server can write."""
    install_filters()
    named = re.compile(r'(?:Log|getLogger)\("(mcp_actors[\w.]*)"\)')
    loggers = {name for path in python_files(PACKAGE) for name in named.findall(path.read_text(encoding="utf-8"))}
    assert {"mcp_actors.gateway", "mcp_actors.servers"} < loggers
    assert [name for name in sorted(loggers) if not logging.getLogger(name).filters] == []


def test_a_record_that_is_plain_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    install_filters()
    install_filters()
    logger = logging.getLogger("mcp_actors.servers")
    try:
        raise ValueError("line\nanother")
    except ValueError:
        logger.exception("it says %s, and %d", "this", 3)
    logger.warning("it says %s\n\x1b[31m", "this")
    plain, odd = caplog.records
    assert (plain.msg, plain.args) == ("it says %s, and %d", ("this", 3))
    assert "ValueError: line\n    another" in caplog.text
    assert odd.getMessage() == "it says this"


def test_characters_without_width_are_not_plain_although_they_are_printable(caplog: pytest.LogCaptureFixture) -> None:
    install_filters()
    hidden = "s\ufe0fa\U000e0148\u3164fe\u115f"
    assert hidden.isprintable()
    logger = logging.getLogger("mcp_actors.config")
    try:
        raise ValueError(hidden)
    except ValueError:
        logger.exception("it says %s, très %s", hidden, "bien")
    logger.warning("it says %s", "très bien…")
    odd, plain = caplog.records
    assert odd.getMessage() == "it says safe, très bien"
    assert "ValueError: safe" in caplog.text
    assert "\ufe0f" not in caplog.text
    assert plain.args == ("très bien…",)
