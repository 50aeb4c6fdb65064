"""Requests that are refused (−32042) until a person has opened a page."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

from mcp_actors import Callbacks, RetryPolicy, ServerConfig, open_servers
from mcp_actors.config import CallbackContext, Socket
from mcp_actors.servers import ServerRef
from tests.gateway.hosts import LEGACY, MODERN, gateway
from tests.idle_clock import IdleClock

from ..asking import ERAS, Era, asking, call, until
from ..groups import BOUND
from ..links import text_of


def page(id: str, url: str = "https://bank.example/pay?token=s3cret", **more: Any) -> dict[str, Any]:
    """Return what a server says of a page."""
    return {"mode": "url", "message": "Pay first.", "url": url, "elicitationId": id, **more}


def done(id: str) -> dict[str, Any]:
    """Return the notification that a page is done."""
    return {"method": "notifications/elicitation/complete", "params": {"elicitationId": id}}


ONE: Final = {"elicitations": [page("1")]}
TWO: Final = {"elicitations": [page("1"), page("2", "https://bank.example/confirm#x")]}


class Person:
    """A callback: a person who opens the pages, and notes them."""

    def __init__(self, *actions: Any) -> None:
        self.actions = list(actions)
        self.opened: list[Any] = []

    async def __call__(self, context: CallbackContext, params: ElicitRequestParams) -> Any:
        await trio.lowlevel.checkpoint()
        self.opened.append(params)
        answer: Any = self.actions.pop(0) if self.actions else ElicitResult(action="accept")
        return answer


async def enter(ref: ServerRef, data: Any = ONE, refusals: int = 1, done: tuple[str, ...] = ("1",)) -> Any:
    """Call the tool that is refused so often, with these data; the server reports pages as done at once."""
    arguments = {"data": data, "refusals": refusals, "done": done}
    return json.loads(text_of(await ref.call_tool("guarded", arguments, idempotent=True)))


async def refused(ref: ServerRef, *args: Any, **options: Any) -> MCPError:
    """Return the error of such a call."""
    with pytest.raises(MCPError) as caught:
        await enter(ref, *args, **options)
    return caught.value


@pytest.mark.parametrize("how", ["line", "task"])
async def test_a_call_is_sent_again_once_a_person_has_opened_the_page(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D-07: also if the server has reported that before the person was asked."""
    person = Person()
    with caplog.at_level(logging.DEBUG if how == "task" else logging.INFO, "mcp_actors.traffic"):
        async with open_servers(asking(callbacks=Callbacks(elicitation=person, timeout=BOUND))) as servers:
            assert await enter(servers["a"]) == "in"
            assert await call(servers["a"], "times") == 2
    [opened] = person.opened
    assert (opened.mode, opened.url, opened.message) == ("url", "https://bank.example/pay?token=s3cret", "Pay first.")


async def test_a_call_is_sent_again_only_when_all_pages_are_done(idle_clock: IdleClock) -> None:
    """D-07: meanwhile the request does not time out."""
    person = Person()
    config = asking(callbacks=Callbacks(elicitation=person), request_timeout=30, progress_timeout=20)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:

        async def report(id: str) -> None:
            assert await call(servers["a"], "tell", notifications=[done("another"), done(id)]) == "told"

        async def report_slowly() -> None:
            await until(lambda: len(person.opened) == 2)
            await trio.sleep(100)
            await report("2")
            await trio.sleep(100)
            assert await call(servers["a"], "times") == 1
            await report("1")

        nursery.start_soon(report_slowly)
        assert await enter(servers["a"], TWO, done=()) == "in"


WHY: Final[dict[str, tuple[tuple[Any, ...], dict[str, Any], str, int]]] = {
    "declined": ((ElicitResult(action="decline"),), {}, "the answer of the person was 'decline'", 1),
    "one of two declined": (
        (ElicitResult(action="accept"), ElicitResult(action="cancel")),
        {"data": TWO, "done": ("1", "2")},
        "was 'cancel'",
        1,
    ),
    "refused": ((ErrorData(code=1, message="no browser"),), {}, "no browser", 1),
    "not reported": ((), {"done": ()}, "the server has not reported within 300 s that it is done", 1),
    "another reported": ((), {"done": ("2",)}, "has not reported within 300 s", 1),
    "asked for again": ((), {"refusals": 9}, "asks for it again, although it has reported that it is done", 2),
    "without an id": ((), {"data": {"elicitations": [page("1") | {"elicitationId": None}]}}, "cannot report", 1),
}


@pytest.mark.parametrize("case", WHY)
async def test_otherwise_the_error_names_the_page_and_how_to_go_on(case: str, idle_clock: IdleClock) -> None:
    """D-07: it has the code and the data of the server, and the call is not sent a third time, nor retried."""
    actions, options, why, times = WHY[case]
    config = asking(callbacks=Callbacks(elicitation=Person(*actions)), retry=RetryPolicy(attempts=3))
    async with open_servers(config) as servers:
        error = await refused(servers["a"], **options)
        assert error.code == -32042
        assert error.data == options.get("data", ONE)
        assert error.message.startswith("server 'a': tools/call 'guarded' needs a person at https://bank.example/pay")
        assert why in error.message
        assert error.message.endswith("open the URLs in its data, then send the request again")
        assert "s3cret" not in error.message
        assert await call(servers["a"], "times") == times


async def test_a_page_that_was_done_for_an_earlier_request_is_opened_again(idle_clock: IdleClock) -> None:
    """D-07: a server may use an id again."""
    async with open_servers(asking(callbacks=Callbacks(elicitation=Person()))) as servers:
        assert await enter(servers["a"]) == "in"
        await trio.sleep(1)
        assert "has not reported" in (await refused(servers["a"], refusals=3, done=())).message


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_callback_the_error_says_so(era: Era) -> None:
    """D-07."""
    async with open_servers(asking(era)) as servers:
        error = await refused(servers["a"], TWO)
        assert (error.code, error.data) == (-32042, TWO)
        assert "needs a person at https://bank.example/pay and https://bank.example/confirm" in error.message
        assert "configure callbacks=Callbacks(elicitation=…)" in error.message


async def test_a_modern_server_cannot_report_that_a_page_is_done() -> None:
    """D-07: the person is sent there all the same."""
    person = Person()
    async with open_servers(asking("modern", callbacks=Callbacks(elicitation=person))) as servers:
        assert "the server cannot report that it is done" in (await refused(servers["a"])).message
    assert len(person.opened) == 1


async def test_a_callback_that_raises_is_the_cause() -> None:
    """D-07: and its exception stays in this program."""

    async def broken(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        raise ValueError("s3cret")

    async with open_servers(asking(callbacks=Callbacks(elicitation=broken))) as servers:
        error = await refused(servers["a"])
        assert "the client's callback for elicitation failed" in error.message
        assert "s3cret" not in str(error)


@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": [{"url": 1}]}, [1]])
async def test_an_error_that_names_no_page_stays_as_it_is(data: Any) -> None:
    """D-07."""
    person = Person()
    async with open_servers(asking(callbacks=Callbacks(elicitation=person))) as servers:
        error = await refused(servers["a"], data)
        assert (error.message, error.data) == ("not yet", data)
    assert person.opened == []


async def test_a_caller_that_leaves_opens_no_more_pages() -> None:
    """D-07."""
    person = Person()
    async with open_servers(asking(callbacks=Callbacks(elicitation=person))) as servers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, servers["a"], TWO)
            await until(lambda: len(person.opened) == 2)
            nursery.cancel_scope.cancel("the caller leaves")
        await call(servers["a"], "tell", notifications=[done("2"), done("1")])
        assert await call(servers["a"], "times") == 1


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("own", [False, True])
async def test_a_gateway_reports_a_page_only_to_the_client_that_was_sent_there(
    own: bool, version: str, tmp_path: Path
) -> None:
    """D-07: its error is that of the server. Since 2026-07-28 the protocol has no such report."""
    a = asking(name="a")
    servers: dict[str, Any] = {"per_session": [a]} if own else {}
    async with gateway(tmp_path, *([] if own else [a]), **servers) as door:
        host, other = await door.connect(version, elicitation={"url": {}}), await door.connect(version)

        async def enter(who: Any, data: Any, done: tuple[str, ...] = ()) -> dict[str, Any]:
            arguments = {"data": data, "refusals": 9, "done": done}
            error: dict[str, Any] = await who.error("tools/call", {"name": "a_guarded", "arguments": arguments})
            return error

        assert await enter(host, ONE) == {"code": -32042, "message": "not yet", "data": ONE}
        await enter(other, {"elicitations": [page("7")]})
        await host.call("a_tell", notifications=[done("3"), done("1"), done("1")])
        reported = [each["params"] for each in host.notices if each["method"] == done("1")["method"]]
        assert reported == ([{"elicitationId": "1"}] if version == LEGACY else [])
        assert [each for each in other.notices if each["method"] == done("1")["method"]] == []
        await enter(host, {"elicitations": [page("8")]}, ("8",))
        if version == LEGACY:
            await until(lambda: any(each.get("params") == {"elicitationId": "8"} for each in host.notices))


async def test_behind_a_gateway_a_person_of_this_program_is_sent_there(tmp_path: Path) -> None:
    """D-07: by a group whose server is a gateway."""
    person = Person()
    async with gateway(tmp_path, asking()) as door:
        config = ServerConfig("a", Socket(door.path), protocol="legacy", callbacks=Callbacks(elicitation=person))
        async with open_servers(config) as servers:
            assert await enter(servers["a"]) == "in"
    assert len(person.opened) == 1
