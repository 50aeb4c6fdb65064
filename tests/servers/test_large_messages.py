"""Validate large invalid messages up to their first bad item, in the SDK too."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.types import DiscoverResult, ErrorData, JSONRPCNotification, methods
from pydantic_core import ValidationError

from mcp_actors import Callbacks, ConnectFailed, ConnectionLost, Http, ServerConfig, open_servers
from mcp_actors.servers._dialects import read_result
from mcp_actors.servers._dispatcher import MISFIT, LinkDispatcher
from mcp_actors.servers._eras import bounded, has_many, parse_result
from mcp_actors.servers._session import ConnectionSession
from mcp_actors.servers.connection._negotiation import OWN_CLIENT
from mcp_actors.transports import Link, Masker
from mcp_actors.transports._credentials import Masked
from mcp_actors.transports._link import Lifeline

from ..calls import calls_in
from .faults.http_faults import Raw, faulty_server, response
from .groups import NEVER, server
from .hostile import STEP, LongestStep, hostile
from .links import never_lost, text_of

FEW_ERRORS: Final = 40
"""More than one bad item has, and a small part of what is in these messages."""

MANY: Final = 20_000

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"

SAMPLING: Final = '{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":%s}'
MESSAGES: Final = '{"maxTokens":3,"messages":[{"role":"user","content":[$items]}]}'

CACHED: Final = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

ZEROS: Final = [0] * MANY
LINK: Final = {"type": "resource_link", "name": "a", "uri": "x:y"}
BLOCKS: Final[list[Any]] = [
    ZEROS,
    [{"type": "text"}] * MANY,
    [{**LINK, "icons": ZEROS}],
    [{**LINK, "annotations": {"audience": ZEROS}}],
]


def counted(error: BaseException) -> int:
    """Return the number of errors that the text of an error tells of."""
    found = re.search(r"and (\d+) more", str(error))
    return 1 if found is None else int(found[1]) + 1


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("content", BLOCKS)
def test_a_list_ends_at_its_first_bad_item(content: Any, version: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_result("tools/call", version, {"content": content, "resultType": "complete"})
    assert caught.value.error_count() <= FEW_ERRORS
    with pytest.raises(ValidationError) as caught:
        bounded(methods.MONOLITH_RESULTS["tools/call"]).validate_python({"content": content})
    assert caught.value.error_count() <= FEW_ERRORS


def test_an_object_ends_at_its_first_bad_member() -> None:
    questions = {f"k{number}": 0 for number in range(MANY)}
    with pytest.raises(ValidationError) as caught:
        parse_result(
            "tools/call", MODERN, {"resultType": "input_required", "inputRequests": questions, "requestState": "s"}
        )
    assert caught.value.error_count() <= FEW_ERRORS


def test_a_large_valid_result_is_what_the_sdk_returns() -> None:
    """Its blocks, too, are objects of the SDK's own classes."""
    content = [{"type": "text", "text": str(number)} for number in range(1000)] + [LINK]
    for version in (LEGACY, MODERN):
        result = {"content": content, "structuredContent": {"a": ZEROS}, "resultType": "complete"}
        assert parse_result("tools/call", version, result) == methods.parse_server_result("tools/call", version, result)


def test_values_are_counted_up_to_the_limit() -> None:
    assert not has_many(None)
    assert not has_many({"a": [1, {"b": "x" * 10_000}]})
    assert not has_many([[0] * 128] + [0] * 127)
    assert has_many([[0] * 128] + [0] * 128)
    assert has_many({"a": {"b": ZEROS}})


@pytest.mark.parametrize(("method", "version"), sorted(methods.SERVER_NOTIFICATIONS))
def test_no_notification_has_the_params_that_replace_large_invalid_ones(method: str, version: str) -> None:
    with pytest.raises(ValidationError) as caught:
        methods.parse_server_notification(method, version, MISFIT)
    assert caught.value.error_count() <= FEW_ERRORS


@pytest.mark.parametrize(("item", "number"), [("0", 240_000), ('{"type":"text"}', 80_000)])
async def test_an_invalid_answer_delays_no_task(item: str, number: int) -> None:
    """B-13: one of half a megabyte."""
    line = '{"jsonrpc":"2.0","id":$id,"result":{"content":[$items]}}'
    async with open_servers(hostile(), server("good")) as group:
        with LongestStep() as longest, pytest.raises(ConnectionLost, match="invalid response") as caught:
            await group["evil"].call_tool("repeat", {"line": line, "item": item, "number": number})
        assert counted(caught.value) <= FEW_ERRORS
        cause = caught.value.__cause__
        assert isinstance(cause, Masked)  # which keeps nothing of the answer
        assert re.fullmatch(
            r"ValidationError: \d+ for CallToolResult, first at content\.0\.\w+(\.\w+)?: .*", str(cause)
        )
        assert longest.seconds < STEP, longest.task
        assert text_of(await group["evil"].call_tool("echo", {"text": "still"})) == "still"


@pytest.mark.parametrize("item", [0, {"type": "text"}, {"type": "unknown"}])
def test_reading_what_can_be_kept_takes_few_calls_for_each_part(item: object) -> None:
    """B-13: calls are counted, as the same number takes twice as long at a slow moment."""

    def read() -> None:
        with suppress(ValidationError):
            read_result("tools/call", LEGACY, {"content": [item] * 4000}, lambda _: None)

    read()  # which keeps the validators
    calls, _ = calls_in(read)
    assert 4000 < calls < 20 * 4000


@pytest.mark.parametrize("callbacks", [False, True])
async def test_invalid_requests_of_a_server_delay_no_task(callbacks: bool) -> None:
    """B-13: six of half a megabyte; the callback is not called."""
    asked: list[object] = []

    async def sample(context: Any, params: Any) -> ErrorData:
        asked.append(params)
        await trio.lowlevel.checkpoint()
        return ErrorData(code=1, message="no")

    options: dict[str, Any] = {"callbacks": Callbacks(sampling=sample)} if callbacks else {}
    arguments = {"line": SAMPLING % MESSAGES, "item": "0", "number": 240_000, "times": 6}
    async with open_servers(hostile(**options), server("good")) as group:
        with LongestStep() as longest:
            await group["evil"].call_tool("repeat", arguments)
            for _ in range(20):
                await group["evil"].call_tool("echo", {"text": "still"})
        assert longest.seconds < STEP, longest.task
        assert not asked


async def test_a_large_valid_request_of_a_server_reaches_its_callback() -> None:
    asked = trio.Event()

    async def sample(context: Any, params: Any) -> ErrorData:
        assert len(params.messages[0].content) == 300
        asked.set()
        await trio.lowlevel.checkpoint()
        return ErrorData(code=1, message="no")

    arguments = {"line": SAMPLING % MESSAGES, "item": '{"type":"text","text":"a"}', "number": 300}
    async with open_servers(hostile(callbacks=Callbacks(sampling=sample))) as group:
        await group["evil"].call_tool("repeat", arguments)
        with trio.fail_after(30):
            await asked.wait()


async def test_a_large_request_without_a_callback_is_refused_before_it_is_validated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validated, pinged = list[str](), trio.Event()

    def note(method: str, version: str, params: object) -> None:
        validated.append(method)
        if method == "ping":
            pinged.set()

    monkeypatch.setattr("mcp_actors.servers._dispatcher.check_request", note)
    ping = '{"jsonrpc":"2.0","id":2,"method":"ping"}'
    async with open_servers(hostile()) as group:
        for line in (SAMPLING % MESSAGES, ping):
            await group["evil"].call_tool("repeat", {"line": line, "item": '{"type":"text","text":"a"}', "number": 300})
        with trio.fail_after(30):
            await pinged.wait()  # which came later
    assert validated == ["ping"]


async def test_an_invalid_notification_with_a_list_ends_at_its_first_bad_item(caplog: pytest.LogCaptureFixture) -> None:
    session = ConnectionSession(
        LinkDispatcher(Link(Lifeline(never_lost)), "a", lambda _: {}, lambda: None), OWN_CLIENT, {}
    )
    session.adopt(DiscoverResult.model_validate({"supportedVersions": [MODERN], "capabilities": {}, **CACHED}))
    method = "notifications/subscriptions/acknowledged"
    params = {"notifications": {"resourceSubscriptions": ZEROS}}
    passed: list[object] = []

    def intercept(*message: object) -> bool:
        passed.append(message)
        return False

    dispatcher = session.dispatcher
    dispatcher._on_notify, dispatcher._intercept = session.listener._on_notify, intercept
    await dispatcher.receive(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))
    assert passed == []
    (record,) = caplog.records
    assert record.exc_info is not None
    error = record.exc_info[1]
    assert isinstance(error, ValidationError)
    assert error.error_count() <= FEW_ERRORS


async def test_each_kind_of_invalid_notifications_is_logged_once_and_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B-13: large ones too."""
    large = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":[$items],"data":1}}'
    async with open_servers(hostile()) as group:
        for number in (1, 100_000):
            arguments = {"line": large, "item": "0", "number": number, "times": 15 if number == 1 else 2}
            with LongestStep() as longest:
                await group["evil"].call_tool("repeat", arguments)
                await group["evil"].call_tool("echo", {"text": "still"})
            assert longest.seconds < STEP, longest.task
    logged = [record for record in caplog.records if "Failed to validate notification" in record.getMessage()]
    assert len(logged) == 2
    assert all(record.exc_info is None and "\n" not in record.getMessage() for record in logged)
    assert logged[0].levelno == logging.WARNING
    assert "notifications/message (" in logged[0].getMessage()
    assert all(record.getMessage().endswith("; further ones are not logged") for record in logged)


def test_a_long_message_of_an_error_is_cut_before_it_is_cleaned() -> None:
    masker = Masker()
    masker.add("<auth>", "abcdefgh")
    error = MCPError(1, "x" * (64 * 1024 - 4) + "abcdefgh" + "\n\u001b" * 1_000_000)
    masker.clean(error)
    assert error.message == "x" * (64 * 1024 - 4) + "…"
    assert len(str(error)) < 70_000


def answer(result: str) -> str:
    """Write an answer over HTTP with many zeros at ``$items``."""
    zeros = ",".join(["0"] * MANY)
    return response(200, f'{{"jsonrpc":"2.0","id":{{id______}},"result":{result}}}'.replace("$items", zeros))


@pytest.mark.parametrize("by_session", [False, True])
async def test_an_invalid_answer_over_http_ends_at_its_first_bad_item(by_session: bool) -> None:
    """B-13: in requests that the SDK's session makes, too."""
    raw = Raw(answer('{"content":[$items],"resultType":"complete"}'), "keep")
    options: dict[str, Any] = {"progress": print} if by_session else {}
    with faulty_server("modern") as web:
        async with open_servers(ServerConfig("web", Http(web.url())), strict=True) as servers:
            with pytest.raises(ConnectionLost, match="invalid response") as caught:
                await servers["web"].call_tool("raw", raw._asdict(), **options)
    assert counted(caught.value) <= FEW_ERRORS


async def test_an_invalid_answer_to_initialize_ends_at_its_first_bad_item() -> None:
    """B-13: before the session is offered to anyone."""
    info = '{"name":"a","version":"1","icons":[$items]}'
    result = f'{{"protocolVersion":"{LEGACY}","capabilities":{{}},"serverInfo":{info}}}'
    with faulty_server("legacy") as web:
        web.scripts["initialize"] = Raw(answer(result), "keep")
        config = ServerConfig("web", Http(web.url()), protocol="legacy", restarts=NEVER)
        async with open_servers(config) as servers:
            error = servers["web"].statistics().last_error
    assert isinstance(error, ConnectFailed)
    assert "invalid response" in str(error)
    assert counted(error) <= FEW_ERRORS
