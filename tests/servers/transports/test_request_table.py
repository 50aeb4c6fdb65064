"""The table of pending requests: whose an answer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from mcp_actors.servers.transports.wire import RequestTable, comparable_id
from mcp_actors.servers.transports.wire._request_table import FIRST_ID, LAST_ID

RESULT: dict[str, object] = {"content": []}
ERROR = {"code": -32000, "message": "no"}


class Asked:
    """A request that notes how it was answered."""

    def __init__(self, *, sent: bool | None = True) -> None:
        self.sent = sent
        self.answers: list[object] = []

    def succeeded(self, result: dict[str, Any]) -> None:
        self.answers.append(result)

    def refused(self, error: ErrorData) -> None:
        self.answers.append(error.message)


@pytest.fixture
def table() -> RequestTable:
    return RequestTable()


def answer(request_id: object, **members: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, **members}


def test_an_answer_goes_to_its_request_only(table: RequestTable) -> None:
    first, second = Asked(), Asked()
    ids = [table.add(first), table.add(second)]
    assert ids == [FIRST_ID, FIRST_ID + 1]
    assert table.settle(answer(ids[1], result=RESULT)) is True
    assert (first.answers, second.answers, len(table)) == ([], [RESULT], 1)
    assert table.settle(answer(ids[0], error=ERROR)) is True
    assert (first.answers, second.answers, len(table)) == (["no"], [RESULT], 0)


@pytest.mark.parametrize("members", [{"result": RESULT}, {"error": ERROR}])
def test_a_second_answer_is_dropped(table: RequestTable, members: dict[str, object]) -> None:
    request = Asked()
    message = answer(table.add(request), **members)
    assert [table.settle(message), table.settle(message)] == [True, True]
    assert len(request.answers) == 1


@pytest.mark.parametrize(
    ("sent", "compared"),
    [
        (7, 7),
        ("7", 7),
        (7.0, 7),
        (1e3, 1000),
        ("seven", "seven"),
        ("7.0", "7.0"),
        (7.5, None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ([7], None),
    ],
)
def test_ids_are_compared_as_numbers_where_they_are_numbers(sent: object, compared: object) -> None:
    """C-02: one function for all transports."""
    assert comparable_id(sent) == compared
    assert type(comparable_id(sent)) is type(compared)


@pytest.mark.parametrize("members", [{"result": RESULT}, {"error": ERROR}])
def test_an_answer_to_a_request_that_is_not_sent_yet_is_dropped(
    table: RequestTable, members: dict[str, object]
) -> None:
    """C-07: the request goes on waiting for its own answer."""
    request = Asked(sent=False)
    message = answer(table.add(request), **members)
    assert table.settle(message) is True
    assert (request.answers, len(table)) == ([], 1)
    request.sent = True
    assert table.settle(message) is True
    assert (len(request.answers), len(table)) == (1, 0)


def test_an_answer_to_the_session_counts_once_and_after_its_request_was_sent(table: RequestTable) -> None:
    """C-07."""
    message = JSONRPCResponse(jsonrpc="2.0", id="7", result=RESULT)
    assert table.answers_session(message) is False
    table.sent_by_session(7)
    assert [table.answers_session(message), table.answers_session(message)] == [True, False]
    table.sent_by_session(7)
    table.forget("7")
    table.forget(None)
    assert table.answers_session(message) is False
    assert table.answers_session(JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=1, message="?"))) is True


def test_an_answer_to_a_request_that_was_removed_is_dropped(table: RequestTable) -> None:
    request = Asked()
    request_id = table.add(request)
    table.remove(request_id)
    table.remove(request_id)
    assert table.settle(answer(request_id, result=RESULT)) is True
    assert (request.answers, len(table)) == ([], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "ping"},
        {"jsonrpc": "1.0"},
        {"jsonrpc": None},
        {"id": None},
        {"id": 7},
        {"id": True},
        {"id": FIRST_ID + 0.5},
        {"id": FIRST_ID - 1},
        {"id": LAST_ID + 1},
        {"id": "seven"},
        {"result": []},
        {"result": None},
        {"error": "no"},
        {"error": {"code": "x", "message": "no"}},
    ],
)
def test_any_other_message_is_for_the_session(table: RequestTable, change: dict[str, object]) -> None:
    request = Asked()
    message = answer(table.add(request), **({} if "error" in change else {"result": RESULT})) | change
    assert table.settle(message) is False
    assert (request.answers, len(table)) == ([], 1)


@pytest.mark.parametrize("message", [[], None, "text", 1])
def test_a_message_that_is_not_an_object_is_for_the_session(table: RequestTable, message: object) -> None:
    assert table.settle(message) is False


@pytest.mark.parametrize("form", [str, float])
def test_an_id_may_come_back_as_text_or_as_a_float(table: RequestTable, form: Callable[[int], object]) -> None:
    """C-08."""
    request = Asked()
    assert table.settle(answer(form(table.add(request)), result=RESULT)) is True
    assert request.answers == [RESULT]


def test_an_error_in_place_of_an_unreadable_answer_goes_to_its_request(table: RequestTable) -> None:
    request = Asked()
    error = JSONRPCError(jsonrpc="2.0", id=table.add(request), error=ErrorData(code=-32000, message="unreadable"))
    foreign = JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=-32000, message="unreadable"))
    assert table.settle_message(foreign) is False
    assert [table.settle_message(error), table.settle_message(error)] == [True, True]
    assert request.answers == ["unreadable"]


def test_an_answer_that_never_was_text_goes_to_its_request(table: RequestTable) -> None:
    request = Asked()
    result = JSONRPCResponse(jsonrpc="2.0", id=table.add(request), result=RESULT)
    foreign = JSONRPCResponse(jsonrpc="2.0", id=1, result=RESULT)
    assert table.settle_message(foreign) is False
    assert table.settle_message(JSONRPCNotification(jsonrpc="2.0", method="x")) is False
    assert [table.settle_message(result), table.settle_message(result)] == [True, True]
    assert request.answers == [RESULT]


def test_ids_begin_again_after_the_last_and_skip_those_that_wait(table: RequestTable) -> None:
    waiting = [Asked(), Asked()]
    ids = [table.add(request) for request in waiting]
    table._last = LAST_ID - 1
    assert [table.add(Asked()) for _ in range(2)] == [LAST_ID, FIRST_ID + 2]
    ids.append(LAST_ID)
    assert [table.settle(answer(request_id, result=RESULT)) for request_id in ids] == [True] * 3
    assert [request.answers for request in waiting] == [[RESULT], [RESULT]]


def test_ids_begin_again_while_the_last_one_waits(table: RequestTable) -> None:
    table._last = LAST_ID - 2
    assert [table.add(Asked()) for _ in range(2)] == [LAST_ID - 1, LAST_ID]
    table._last = LAST_ID - 2
    assert table.add(Asked()) == FIRST_ID
