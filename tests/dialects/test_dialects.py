"""Each row of the table, over each transport and in each revision that can carry it."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import CallToolResult, LoggingMessageNotificationParams, Tool
from trio.testing import MockClock

from mcp_actors import (
    Callbacks,
    ConnectFailed,
    ConnectionLost,
    Http,
    RequestTimedOut,
    ServerConfig,
    ServerRef,
    Sse,
    Stdio,
    ToolFailed,
    open_servers,
    result_value,
)
from mcp_actors.catalog import pins_of
from tests.forkserver import serve_python

from ..servers.groups import AT_ONCE, NEVER
from ..servers.processes import BOUND, eventually
from . import server
from .server import LEGACY, MODERN

Json = dict[str, Any]

TABLE: Final = Path(__file__).with_name("servers.toml")
ROWS: Final[list[Json]] = tomllib.loads(TABLE.read_text())["input"]

WAYS: Final = ("stdio", "body", "events", "sse")
CELLS: Final = [(way, era) for way in WAYS for era in (LEGACY, MODERN) if (way, era) != ("sse", MODERN)]
LEAST: Final = 100
"""Rows that the table has at least."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Run the server over HTTP once, with a state for each path."""
    with serve_python(server.__file__, TABLE) as (_, port):
        yield port


class Connection:
    """A server that is used for many rows, and what was heard of it.

    Attributes:
        ref: the server.
        heard: the data of its log messages.
    """

    def __init__(self, ref: ServerRef, heard: list[object]) -> None:
        self.ref = ref
        self.heard = heard


@asynccontextmanager
async def connected(way: str, era: str, port: int, row: str = "-", **options: Any) -> AsyncIterator[Connection]:
    """Connect to a server that is about a row from its first message on."""
    heard = list[object]()

    def hear(context: object, params: LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    url = f"http://127.0.0.1:{port}/{way}/{era}/{row}/{len(CONNECTED)}"
    CONNECTED.append(url)
    transport: Any = Sse(url) if way == "sse" else Http(url)
    if way == "stdio":
        command = ("-S", "-E", server.__file__, str(TABLE), era, row)
        transport = Stdio(sys.executable, command)
    protocol: Any = "legacy" if era == LEGACY else MODERN
    options = {"restarts": NEVER, "validate": "off", **options}
    config = ServerConfig("docs", transport, protocol=protocol, **options)
    async with open_servers(config, callbacks=Callbacks(logging=hear), strict=True) as servers:
        yield Connection(servers["docs"], heard)


CONNECTED: Final[list[str]] = []
"""The URLs so far: each connection has its own."""


def rows_of(row: str, way: str, era: str) -> list[tuple[int, Json]]:
    """Return the numbered rows of a guarantee that a transport can carry in a revision."""
    return [
        (number, each)
        for number, each in enumerate(ROWS)
        if each["row"] == row and way in _ways(each) and each.get("era", era) == era
    ]


def _ways(row: Json) -> tuple[str, ...]:
    return tuple(row.get("over", WAYS if row["at"] != "stream" else ("stdio", "events", "sse")))


# --- what a row expects -----------------------------------------------------------------------------------------------


async def outcome(ref: ServerRef, row: Json) -> Json:
    """Do what the row is about, and return what a caller gets, by the names of the table."""
    match row["at"]:
        case "tools":
            tools = await ref.list_tools()
            first = tools[0] if tools else Tool(name="", input_schema={})
            described, schema = first.description, first.input_schema
            return {"items": [each.name for each in tools], "described": described, "schema": schema}
        case "resources":
            return {"items": [each.name for each in await ref.list_resources()]}
        case "prompts":
            return {"items": [each.name for each in await ref.list_prompts()]}
        case "read":
            read: Any = await ref.read_resource("x:a")
            return {"text": "".join(each.text for each in read.contents)}
        case "get":
            got: Any = await ref.get_prompt("p")
            return {"text": "".join(each.content.text for each in got.messages)}
    return result_of(await ref.call_tool("go"))


def result_of(result: CallToolResult) -> Json:
    text = "".join(each.text for each in result.content if each.type == "text")
    try:
        shown = repr(result_value(result))
    except ToolFailed as exc:
        shown = str(exc)
    return {"text": text, "structured": result.structured_content, "is_error": result.is_error, "shown": shown}


async def found_for(ref: ServerRef, row: Json) -> Json:
    """Return the outcome of a row, also if that is an error."""
    try:
        return await outcome(ref, row)
    except MCPError as exc:
        unknown = getattr(exc, "outcome", None) == "unknown"
        return {"error": exc.message, "code": exc.code, "data": exc.data, "unknown": unknown}
    except ConnectionLost as exc:
        return {"lost": str(exc), "unknown": exc.outcome == "unknown"}


CONTAINED: Final = {"error", "lost", "shown"}
"""What must contain the text of the row, and need not be it."""

OF_A_RESULT: Final = (*CONTAINED, "text", "structured", "items", "described", "schema", "code", "data", "unknown")


def differences(row: Json, found: Json) -> Iterator[str]:
    """Yield where an outcome is not what the row expects."""
    for name in {"error", "lost"} & found.keys() - row.keys():
        yield f"{name}: {found[name]}"
    for name in (each for each in (*OF_A_RESULT, "is_error") if each in row):
        expected, got = row[name], found.get(name)
        if got != expected and not (name in CONTAINED and isinstance(got, str) and expected in got):
            yield f"{name}: {got!r} instead of {expected!r}"
    if "text_ends" in row and not found.get("text", "").endswith(row["text_ends"]):
        yield f"{found} instead of a text that ends in {row['text_ends']!r}"


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged about messages of the server, at any level: a connection warns once of each kind."""
    texts = [each.getMessage() for each in caplog.records]
    words = ("skipped", "left out", "ends early", "Failed to validate")
    return [text for text in texts if any(word in text for word in words)]


def differences_of_log(row: Json, lines: list[str]) -> Iterator[str]:
    if "lost" in row:
        return  # a line of stdio that is an answer is logged too
    if [line for line in lines if row.get("logged", "no line") not in line] or len(lines) != ("logged" in row):
        yield f"logged: {lines}"


async def differ(connection: Connection, number: int, row: Json, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Try a row on a connection that serves for many."""
    ref = connection.ref
    await ref.call_tool("use", {"row": number})
    caplog.clear()
    connection.heard.clear()
    found = await found_for(ref, row)
    problems = [*differences(row, found)]
    if "heard" in row:
        await eventually(lambda: bool(connection.heard))
    if ("heard" in row and connection.heard != [row["heard"]]) or ("unheard" in row and connection.heard):
        problems.append(f"heard: {connection.heard}")
    return [*problems, *differences_of_log(row, logged(caplog))]


async def differ_at_connect(connect: Any, number: int, row: Json, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Try a row that is about the connect, on a connection of its own."""
    caplog.clear()
    problems = list[str]()
    try:
        async with connect(str(number)) as connection:
            info = connection.ref.info
            found = result_of(await connection.ref.call_tool("go"))
            problems += [] if found["text"] == "right" else [f"text: {found['text']}"]
            if info.instructions != row.get("instructions"):
                problems.append(f"instructions: {info.instructions!r}")
    except ConnectFailed as exc:
        problems += [] if row.get("fails", "no error") in str(exc) else [str(exc)]
        problems += [] if row.get("hopeless", False) is exc.hopeless else [f"hopeless: {exc.hopeless}"]
    else:
        problems += ["connected"] if "fails" in row else []
    return [*problems, *differences_of_log(row, logged(caplog))]


AT_CONNECT: Final = frozenset({"connect", "initialized", "opened"})


async def every_row(row: str, way: str, era: str, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Try all rows of a guarantee in one cell, and report all that fail."""
    caplog.set_level(logging.DEBUG, "mcp_actors.servers")
    connect = partial(connected, way, era, port)
    rows, failed = rows_of(row, way, era), list[str]()
    for number, each in rows:
        if each["at"] in AT_CONNECT:
            with trio.fail_after(BOUND):
                failed += [f"{number}: {problem}" for problem in await differ_at_connect(connect, number, each, caplog)]
    async with connect() as connection:
        for number, each in rows:
            if each["at"] not in AT_CONNECT:
                with trio.fail_after(BOUND):
                    failed += [f"{number}: {problem}" for problem in await differ(connection, number, each, caplog)]
        assert (connection.ref.state, connection.ref.statistics().incarnation) == ("ready", 1)
    assert not failed, "\n".join([f"{way} {era}", *failed])


each_cell: Final = pytest.mark.parametrize(("way", "era"), CELLS)


@each_cell
async def test_what_is_not_a_message_costs_itself(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-10."""
    await every_row("D-10", way, era, port, caplog)


@pytest.mark.parametrize("event", ["ping", "{}", '{"jsonrpc":"2.0","id":99,"result":{}}', ""])
async def test_what_is_not_a_message_does_not_renew_the_time_without_progress(
    event: str, autojump_clock: MockClock
) -> None:
    """D-10: the answer comes after 8 s, and an event each 2 s."""

    async def events(right: bytes) -> AsyncIterator[bytes]:
        for _ in range(4):
            yield f"data: {event}\n\n".encode()
            await trio.sleep(2)
        yield server.event(right)

    async def answer(request: httpx2.Request) -> httpx2.Response:
        [right] = server.Speaker([], MODERN, "-").answer(request.content)
        call = json.loads(request.content)["method"] == "tools/call"
        content = events(right) if call else right
        kind = "text/event-stream" if call else "application/json"
        return httpx2.Response(200, headers={"Content-Type": kind}, content=content)

    client = partial(httpx2.AsyncClient, transport=httpx2.MockTransport(answer))
    config = ServerConfig("docs", Http("http://127.0.0.1:1/mcp", http_client=client), progress_timeout=5)
    async with open_servers(config, strict=True) as servers:
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match="after 5 s without progress"):
            await servers["docs"].call_tool("go")
        assert trio.current_time() - began == 5


@each_cell
async def test_text_that_is_not_unicode_is_shown_and_never_compared(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-11."""
    await every_row("D-11", way, era, port, caplog)


async def test_a_pin_covers_a_description_as_it_is_shown(port: int) -> None:
    """D-11."""
    number = next(number for number, each in enumerate(ROWS) if "\ufffd" in each.get("described", ""))
    async with connected("body", MODERN, port) as connection:
        await connection.ref.call_tool("use", {"row": number})
        listed = await connection.ref.list_tools()
    shown = Tool(name="t", description=ROWS[number]["described"], input_schema={"type": "object"})
    assert pins_of(listed) == pins_of([shown])


@each_cell
async def test_a_result_of_another_form_keeps_what_can_be_read(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-12."""
    await every_row("D-12", way, era, port, caplog)


@each_cell
async def test_lists_end_where_their_cursors_say(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-13."""
    await every_row("D-13", way, era, port, caplog)


@each_cell
async def test_responses_after_other_output_and_errors_without_an_id(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-14."""
    await every_row("D-14", way, era, port, caplog)


@each_cell
async def test_errors_and_frames_of_other_forms_are_read_or_named(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-15."""
    await every_row("D-15", way, era, port, caplog)


@each_cell
async def test_the_value_of_a_call_is_where_the_server_put_it(
    way: str, era: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D-17."""
    await every_row("D-17", way, era, port, caplog)


@pytest.mark.parametrize("way", ["body", "events"])
async def test_a_forgotten_session_is_noticed_however_the_server_says_so(
    way: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """B-03: by a call that is then served by the next session, or at the latest fails and lets the next one pass."""
    failed = list[str]()
    for number, row in rows_of("B-03", way, LEGACY):
        caplog.clear()
        async with connected(way, LEGACY, port, str(number), restarts=AT_ONCE) as connection:
            with trio.fail_after(BOUND):
                await connection.ref.call_tool("use", {"row": number})
                failed += [f"{number}: {problem}" for problem in differences(row, await found_for(connection.ref, row))]
                assert result_of(await connection.ref.call_tool("go"))["text"] == "right"
                assert connection.ref.statistics().incarnation == 2
    assert not failed, "\n".join([way, *failed])


def test_the_table_has_a_hundred_rows_that_differ_in_what_is_sent() -> None:
    sent = {
        repr(
            [
                each.get(name)
                for name in ("at", "before", "line", "line_hex", "second", "pages", "opened", "kind", "ends")
            ]
        )
        for each in ROWS
    }
    assert len(sent) == len(ROWS) >= LEAST
