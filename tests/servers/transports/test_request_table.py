"""The table of pending requests: whose an answer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from mcp_actors.transports._request_table import LAST_ID, RequestTable, RequestUnderWay, comparable_id

RESULT: dict[str, object] = {"content": []}
ERROR = {"code": -32000, "message": "no"}


class Asked(RequestUnderWay):
    """A request that notes how it was answered."""

    def __init__(self, *, sent: bool | None = True, wants_reports: bool = False) -> None:
        self.answers: list[object] = []
        self.reports: list[tuple[float, float | None, str | None]] = []
        super().__init__("m", {}, report=(lambda *report: self.reports.append(report)) if wants_reports else None)
        self.sent = sent

    def settle(self, outcome: Any) -> None:
        self.answers.append(outcome if isinstance(outcome, dict) else outcome.message)


@pytest.fixture
def table() -> RequestTable:
    return RequestTable()


def answer(request_id: object, **members: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, **members}


def test_an_answer_goes_to_its_request_only(table: RequestTable) -> None:
    first, second = Asked(), Asked()
    ids = [table.add(first), table.add(second)]
    assert ids == [1, 2]
    assert table.settle(answer(ids[1], result=RESULT)) is True
    assert (first.answers, second.answers, len(table)) == ([], [RESULT], 1)
    assert table.settle(answer(ids[0], error=ERROR)) is True
    assert (first.answers, second.answers, len(table)) == (["no"], [RESULT], 0)


@pytest.mark.parametrize("request_id", ["", -1, 0])
@pytest.mark.parametrize(("members", "heard"), [({"result": RESULT}, RESULT), ({"error": ERROR}, "no")])
def test_an_answer_to_a_request_with_an_id_of_its_sender_is_handled_once(
    table: RequestTable, request_id: int | str, members: dict[str, object], heard: object
) -> None:
    """Elsewhere such an id means an error without one, which would fail the other request."""
    chosen, other = Asked(), Asked()
    table.add(chosen, request_id)
    table.add(other)
    assert table.settle(answer(request_id, **members)) is True
    assert (chosen.answers, other.answers) == ([heard], [])


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
        {"id": True},
        {"id": 1.5},
        {"result": []},
        {"result": None},
    ],
)
def test_any_other_message_is_not_an_answer(table: RequestTable, change: dict[str, object]) -> None:
    request = Asked()
    message = answer(table.add(request), **({} if "error" in change else {"result": RESULT})) | change
    assert table.settle(message) is False
    assert (request.answers, len(table)) == ([], 1)


@pytest.mark.parametrize("request_id", [2, LAST_ID, LAST_ID + 1, 2**70, "seven", 2.0])
@pytest.mark.parametrize("members", [{"result": RESULT}, {"error": ERROR}])
def test_an_answer_with_an_id_that_no_request_has_is_dropped(
    table: RequestTable, members: dict[str, object], request_id: object
) -> None:
    """C-02."""
    request = Asked()
    assert table.add(request) == 1
    assert table.settle(answer(request_id, **members)) is True
    assert (request.answers, len(table)) == ([], 1)


@pytest.mark.parametrize("request_id", [None, "", -1, -1.0, 0])
@pytest.mark.parametrize("members", [{"result": RESULT}, {"error": ERROR}, {"error": "no"}])
def test_an_answer_without_an_id_settles_nothing(
    table: RequestTable, members: dict[str, object], request_id: object
) -> None:
    """C-02: what it is about is decided elsewhere."""
    request = Asked()
    table.add(request)
    assert table.settle(answer(request_id, **members)) is False
    assert (request.answers, len(table)) == ([], 1)


def test_an_error_without_an_id_is_that_of_a_request_that_alone_can_have_caused_it(table: RequestTable) -> None:
    error = ErrorData(code=1, message="no", data="why")
    assert not table.refuse_only(error)
    first, second = Asked(), Asked(sent=None)
    table.add(first)
    waiting = table.add(second)
    assert not table.refuse_only(error), "two wait"
    table.remove(waiting)
    assert table.refuse_only(error), "the other one was not sent"
    assert first.answers == ["no"]
    only = table.add(third := Asked(sent=False))
    assert not table.refuse_only(error), "it was not sent"
    third.sent = True
    cancelled = table.add(Asked())
    table.remove(cancelled)
    assert not table.refuse_only(error), "it may be about the one that was cancelled"
    assert table.settle(answer(only, result=RESULT))
    table.add(fourth := Asked())
    table.disturbed = True
    assert not table.refuse_only(error), "something else was sent"
    assert fourth.answers == []


@pytest.mark.parametrize("message", [[], None, "text", 1])
def test_a_message_that_is_not_an_object_is_not_an_answer(table: RequestTable, message: object) -> None:
    assert table.settle(message) is False


@pytest.mark.parametrize("form", [str, float])
def test_an_id_may_come_back_as_text_or_as_a_float(table: RequestTable, form: Callable[[Any], object]) -> None:
    """C-08."""
    request = Asked()
    assert table.settle(answer(form(table.add(request)), result=RESULT)) is True
    assert request.answers == [RESULT]


def test_a_given_id_is_kept_and_may_wait_only_once(table: RequestTable) -> None:
    request, text = Asked(), Asked()
    assert (table.add(request, 1), table.add(text, "listen")) == (1, "listen")
    twice: tuple[int | str, ...] = (1, "1")
    for request_id in twice:  # which are compared as one
        with pytest.raises(ValueError, match="waits already"):
            table.add(Asked(), request_id)
    assert table.add(Asked()) == 2
    for known in (1, "listen"):
        table.settle(answer(known, result=RESULT))
    assert (request.answers, text.answers, len(table)) == ([RESULT], [RESULT], 1)


def test_a_given_id_that_is_a_number_in_text_is_removed_as_it_was_added(table: RequestTable) -> None:
    assert table.add(Asked(), "7") == "7"
    table.remove("7")
    assert len(table) == 0


def test_an_error_in_place_of_an_unreadable_answer_goes_to_its_request(table: RequestTable) -> None:
    request = Asked()
    error = JSONRPCError(jsonrpc="2.0", id=table.add(request), error=ErrorData(code=-32000, message="unreadable"))
    for request_id in (2, None):
        of_none = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=-32000, message="unreadable"))
        assert table.settle_message(of_none) is True
    assert request.answers == []
    assert [table.settle_message(error), table.settle_message(error)] == [True, True]
    assert request.answers == ["unreadable"]


def test_an_answer_that_never_was_text_goes_to_its_request(table: RequestTable) -> None:
    """C-07: once the request was sent."""
    request = Asked(sent=False)
    result = JSONRPCResponse(jsonrpc="2.0", id=table.add(request), result=RESULT)
    assert table.settle_message(JSONRPCResponse(jsonrpc="2.0", id=2, result=RESULT)) is True
    assert table.settle_message(JSONRPCNotification(jsonrpc="2.0", method="x")) is False
    assert table.settle_message(result) is True
    assert request.answers == []
    request.sent = True
    assert [table.settle_message(result), table.settle_message(result)] == [True, True]
    assert request.answers == [RESULT]


def test_ids_begin_again_after_the_last_and_skip_those_that_wait(table: RequestTable) -> None:
    waiting = [Asked(), Asked()]
    ids = [table.add(request) for request in waiting]
    table._last = LAST_ID - 1
    assert [table.add(Asked()) for _ in range(2)] == [LAST_ID, 3]
    ids.append(LAST_ID)
    assert [table.settle(answer(request_id, result=RESULT)) for request_id in ids] == [True] * 3
    assert [request.answers for request in waiting] == [[RESULT], [RESULT]]


def test_ids_begin_again_while_the_last_one_waits(table: RequestTable) -> None:
    table._last = LAST_ID - 2
    assert [table.add(Asked()) for _ in range(2)] == [LAST_ID - 1, LAST_ID]
    table._last = LAST_ID - 2
    assert table.add(Asked()) == 1


@pytest.mark.parametrize("token", [1, "1", 1.0])
def test_a_report_goes_to_its_request_only(table: RequestTable, token: object) -> None:
    asked, other, silent = Asked(wants_reports=True), Asked(wants_reports=True), Asked()
    assert [table.add(request) for request in (asked, other, silent)] == [1, 2, 3]
    table.report({"progressToken": token, "progress": 1, "total": 2.5, "message": "half"})
    table.report({"progressToken": token, "progress": 2, "total": "x", "message": 7})
    table.report({"progressToken": 3, "progress": 1})
    assert asked.reports == [(1.0, 2.5, "half"), (2.0, None, None)]
    assert other.reports == []


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"progressToken": 1},
        {"progressToken": 1, "progress": "1"},
        {"progressToken": 1, "progress": True},
        {"progressToken": True, "progress": 1},
        {"progressToken": None, "progress": 1},
        {"progressToken": [1], "progress": 1},
        {"progressToken": 2, "progress": 1},
    ],
)
def test_any_other_report_is_dropped(table: RequestTable, params: dict[str, object] | None) -> None:
    request = Asked(wants_reports=True)
    assert table.add(request) == 1
    table.report(params)
    assert request.reports == []


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_or_too_large_for_a_float_is_not_a_number(
    number: float, table: RequestTable
) -> None:
    request = Asked(wants_reports=True)
    table.add(request)
    table.report({"progressToken": 1, "progress": number})
    table.report({"progressToken": 1, "progress": 1, "total": number})
    assert request.reports == [(1.0, None, None)]


def test_a_report_after_the_answer_is_dropped(table: RequestTable) -> None:
    request = Asked(wants_reports=True)
    table.settle(answer(table.add(request), result=RESULT))
    table.report({"progressToken": 1, "progress": 1})
    assert request.reports == []


def test_a_table_that_is_closed_tells_each_request_once(table: RequestTable) -> None:
    sent, unsent = Asked(), Asked(sent=None)
    for request in (sent, unsent):
        table.add(request)
    table.close()
    table.close()
    assert (sent.answers, unsent.answers, len(table)) == (["Connection closed"], ["Connection closed"], 0)
