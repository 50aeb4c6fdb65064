"""Counting the requests of a server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, strategies as st
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_actors import LimitExceeded
from mcp_actors.transports._exchange import EARNED, HELD_BYTES, MAX_LATE_ANSWERS, REQUESTS_A_SECOND, IncomingRequests

from ...messages import Said


def asks(request_id: int | str, method: str = "ping") -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method)


def takes_back(request_id: Any) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": request_id})


def answer(request_id: int | str) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result={})


def refusal(request_id: int | str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=1, message="no"))


def test_the_number_of_unanswered_requests_is_limited(said: Said) -> None:
    """B-11."""
    requests = IncomingRequests("a", 2)
    requests.receive(asks(1), 10, 1000.0)
    requests.receive(asks(2), 10, 2000.0)
    with pytest.raises(LimitExceeded) as caught:
        requests.receive(asks(3, "sampling/create\x1b[31m"), 10, 3000.0)
    said("too many unanswered requests", str(caught.value))


def test_a_request_counts_until_its_response_is_sent() -> None:
    requests = IncomingRequests("a", 2)
    requests.receive(asks(1), 10, 1000.0)
    requests.receive(asks(2), 10, 2000.0)
    with requests.sending(answer(1)), requests.sending(refusal(2)):
        requests.receive(takes_back(1), 10, 3000.0)
        with pytest.raises(LimitExceeded):
            requests.receive(asks(3), 10, 3000.0)
    requests.receive(asks(4), 10, 4000.0)


def test_a_cancelled_request_waits_for_no_answer_but_one_may_come() -> None:
    requests = IncomingRequests("a", 1)
    for _ in range(MAX_LATE_ANSWERS + 5):
        with requests.sending(asks(1)), requests.sending(takes_back(1)):
            assert not requests.awaits_answer
    requests.count_cancelled()  # of a request that was answered meanwhile
    assert [requests.count_answered() for _ in range(MAX_LATE_ANSWERS + 1)] == [True] * MAX_LATE_ANSWERS + [False]


def test_a_cancelled_request_does_not_count_and_ids_compare_as_in_the_sdk() -> None:
    requests = IncomingRequests("a", 1)
    for number in range(5):
        requests.receive(asks(number), 10, 1000.0 * number)
        requests.receive(takes_back(str(number)), 10, 1000.0 * number)
    for nonsense in (None, 1.5, [1], {"a": 1}, "never asked"):
        requests.receive(takes_back(nonsense), 10, 9000.0)
    requests.receive(asks("x"), 10, 9000.0)
    with pytest.raises(LimitExceeded):
        requests.receive(asks("y"), 10, 10_000.0)


def test_a_request_is_forgotten_if_its_answer_is_cancelled_and_only_then() -> None:
    """The dispatcher takes 7.0 for 7 too, and True for no id."""
    requests = IncomingRequests("a", 1)
    requests.receive(asks(7), 10, 1000.0)
    requests.receive(takes_back(7.0), 10, 1000.0)
    requests.receive(asks(1), 10, 2000.0)
    requests.receive(takes_back(True), 10, 2000.0)
    with pytest.raises(LimitExceeded):
        requests.receive(asks(2), 10, 3000.0)


def test_a_repeated_id_counts_as_another_request() -> None:
    requests = IncomingRequests("a", 2)
    requests.receive(asks(1), 10, 1000.0)
    requests.receive(asks("1"), 10, 2000.0)
    with pytest.raises(LimitExceeded):
        requests.receive(asks(1), 10, 3000.0)


def test_a_server_may_make_requests_for_each_request_without_end() -> None:
    """B-11: the rate limit is only for unsolicited requests."""
    requests = IncomingRequests("a", 10)
    for number in range(1000):
        with requests.sending(asks(number)):
            pass
        for question in range(EARNED):
            requests.receive(asks(question), 10, 0.0)
            with requests.sending(answer(question)):
                pass
    with pytest.raises(LimitExceeded, match="at once"):
        requests.receive(asks(0), 10, 0.0)


def test_the_rate_of_requests_is_limited_after_a_burst(said: Said) -> None:
    requests = IncomingRequests("a", 1000)
    for second, number in [
        (50.0, 1000),
        (51.0, REQUESTS_A_SECOND),
        (52.0, REQUESTS_A_SECOND),
        (54.0, 2 * REQUESTS_A_SECOND),
    ]:
        for question in range(number):
            requests.receive(asks(question), 10, second)
            with requests.sending(answer(question)):
                pass
    with pytest.raises(LimitExceeded) as caught:
        requests.receive(asks(0), 10, 54.0)
    said("too many requests per second", str(caught.value))


def test_the_total_size_of_unanswered_requests_is_limited_but_a_single_one_may_exceed_it() -> None:
    requests = IncomingRequests("a", 100)
    requests.receive(asks(1), HELD_BYTES * 2, 0.0)
    with pytest.raises(LimitExceeded, match="bytes"):
        requests.receive(asks(2), 1, 0.0)
    with requests.sending(answer(1)):
        pass
    requests.receive(asks(2), HELD_BYTES // 2, 0.0)
    requests.receive(asks(3), HELD_BYTES // 2, 0.0)


@given(st.lists(st.tuples(st.sampled_from(["ask", "take back", "answer", "sent"]), st.integers(0, 3))))
def test_no_request_stays_counted_in_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    requests, sending = IncomingRequests("a", 1000), ExitStack()
    for step, number in steps:
        match step:
            case "ask":
                requests.receive(asks(number), number, 0.0)
            case "take back":
                requests.receive(takes_back(number), 10, 0.0)
            case "answer":
                sending.enter_context(requests.sending(answer(number)))
            case _:
                sending.close()
                sending = ExitStack()
    sending.close()
    for number in range(4):
        for _ in steps:
            requests.receive(takes_back(number), 10, 0.0)
    assert (requests._count, requests._bytes, dict(requests._unanswered)) == (0, 0, {})
