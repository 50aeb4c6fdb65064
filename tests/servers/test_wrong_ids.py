"""Answers over HTTP to another request than the one that was sent."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from mcp import MCPError
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectFailed, ConnectionLost, Http, ServerConfig, ServerRef, Sse, open_servers

from .answers import BY_SESSION
from .faults.http_faults import Era, FaultyServer, Raw, answer, faulty_server, response, stream
from .fleet import calls
from .groups import BOUND, NEVER
from .links import text_of
from .processes import eventually
from .test_dispatch import PROTOCOLS
from .transports.test_http_client import self_signed

pytestmark = pytest.mark.own_way

ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
WAYS: Final[dict[str, dict[str, int] | None]] = {"own": None, "session": BY_SESSION}
OTHER: Final = 424242
"""An id that no request of these tests has."""

ERROR: Final = '{"jsonrpc": "2.0", "id": {id______}, "error": {"code": -32000, "message": "SECRET"}}'
NOTICE: Final = 'data: {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}\n\n'


def in_event(message: str, *, before: str = "") -> str:
    """Return a whole response that is a stream of one event, which ends by its length."""
    return response(200, f"{before}data: {message}\n\n", kind="text/event-stream")


def with_id(message: str, request_id: object) -> str:
    """Return a message with an id."""
    return message.replace("{id______}", json.dumps(request_id))


def without_id(message: str) -> str:
    """Return a message without an id."""
    return message.replace('"id": {id______}, ', "")


SECRET: Final = answer("SECRET of caller A")

REFUSED: Final = {
    "body": response(200, with_id(SECRET, OTHER)),
    "body without an id": response(200, without_id(SECRET)),
    "body with null": response(200, with_id(SECRET, None)),
    "body with a long id": response(200, with_id(SECRET, "x" * 100_000)),
    "error in a body": response(200, with_id(ERROR, OTHER)),
    "error with a status": response(400, with_id(ERROR, OTHER)),
    "event": in_event(with_id(SECRET, OTHER)),
    "event after another": in_event(with_id(SECRET, OTHER), before=NOTICE),
    "event without an id": in_event(without_id(SECRET)),
    "event with null": in_event(with_id(SECRET, None)),
    "error in an event": in_event(with_id(ERROR, OTHER)),
    "error in an event with null": in_event(with_id(ERROR, None)),
    "error in an event with null, after another": in_event(with_id(ERROR, None), before=NOTICE),
}

ACCEPTED: Final = {
    "body with a text": response(200, answer().replace("{id______}", '"{id______}"')),
    "body with a float": response(200, answer().replace("{id______}", "{float_id__}")),
    "event with a text": in_event(answer().replace("{id______}", '"{id______}"')),
    "event with a float": in_event(answer().replace("{id______}", "{float_id__}")),
    "later event with a float": in_event(answer().replace("{id______}", "{float_id__}"), before=NOTICE),
    "event after an answer to another request": stream(f"data: {with_id(SECRET, OTHER)}\n\ndata: {answer()}\n\n"),
}

ERRORS: Final = {
    "null": response(200, with_id(ERROR, None)),
    "no id": response(200, without_id(ERROR)),
    "status with null": response(400, with_id(ERROR, None)),
    "status with no id": response(400, without_id(ERROR)),
    "status with a text": response(400, with_id(ERROR, "server-error")),
}


def one_era_each(cases: Iterable[str]) -> list[tuple[str, Era]]:
    """Return cases with one era each in turn: the same lines read the responses of both."""
    return [(case, ERAS[number % len(ERAS)]) for number, case in enumerate(cases)]


@asynccontextmanager
async def faulty(
    era: Era, certificate: Path | None = None, **options: Any
) -> AsyncIterator[tuple[FaultyServer, ServerRef]]:
    """Connect to a faulty server."""
    with faulty_server(era, certificate=certificate) as server:
        config = ServerConfig("web", Http(server.url(), **options), protocol=PROTOCOLS[era])
        async with open_servers(config) as servers:
            yield server, servers["web"]


async def call(ref: ServerRef, way: str, name: str = "sleep", arguments: dict[str, Any] | None = None) -> str:
    """Call a tool by the package's own way, or by that of the SDK's session."""
    with trio.fail_after(BOUND):
        return text_of(await ref.call_tool(name, arguments or {}, meta=WAYS[way]))


async def refuse(ref: ServerRef, way: str, name: str = "sleep", arguments: dict[str, Any] | None = None) -> str:
    """Make a call that is refused because of its answer, and return the text of the error."""
    with pytest.raises(ConnectionLost) as caught:
        await call(ref, way, name, arguments)
    text = str(caught.value)
    assert "SECRET" not in text
    assert text.startswith("server 'web': http://127.0.0.1:")
    assert "may have taken effect" in text
    assert len(text) < 500
    assert (caught.value.outcome, ref.state) == ("unknown", "ready")
    return text


@pytest.mark.parametrize(("case", "era"), one_era_each(REFUSED))
async def test_an_answer_to_another_request_is_refused(era: Era, case: str) -> None:
    """C-02: by both ways, and the connection goes on."""
    async with faulty(era) as (server, ref):
        for way in WAYS:
            text = await refuse(ref, way, "raw", Raw(REFUSED[case], "keep")._asdict())
            missing = case in ("event without an id", "event with null")  # which are not messages
            assert ("ended before the response" if missing else "not") in text
            assert await call(ref, way) == "slept None"
        assert ref.statistics().incarnation == 1
        assert server.methods().count("tools/call") == 2 * len(WAYS)


DEEP: Final = "[" * 1000 + "]" * 1000
PAGE: Final = f'{{"jsonrpc": "2.0", "id": {{id______}}, "result": {{"tools": [{{"name": "SECRET", "x": {DEEP}}}]}}}}'
"""A page that cannot be parsed. Its other items are shown, so it must be a page of this request."""


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("form", [response, lambda status, body: in_event(body)], ids=["body", "event"])
async def test_a_page_that_cannot_be_parsed_needs_the_id_of_its_request_too(era: Era, form: Any) -> None:
    """C-02."""
    async with faulty(era) as (server, ref):
        server.scripts["tools/list"] = Raw(form(200, with_id(PAGE, OTHER)), "keep")
        with pytest.raises(ConnectionLost, match=f"is to request {OTHER}") as caught, trio.fail_after(BOUND):
            await ref.list_tools()
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("case", "era"), one_era_each(ACCEPTED))
async def test_an_id_may_come_back_as_a_text_or_a_float(era: Era, case: str) -> None:
    """C-02: ids are compared as numbers."""
    async with faulty(era) as (_, ref):
        for way in WAYS:
            assert await call(ref, way, "raw", Raw(ACCEPTED[case], "keep")._asdict()) == "fine"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("case", ERRORS)
async def test_an_error_in_a_body_needs_no_id(era: Era, case: str) -> None:
    """C-02, B-03."""
    async with faulty(era) as (_, ref):
        for way in WAYS:
            with pytest.raises(MCPError, match="SECRET"):
                await call(ref, way, "raw", Raw(ERRORS[case], "keep")._asdict())


SURPLUS: Final = {
    "body": response(200, SECRET),
    "body with a guessed id": response(200, with_id(SECRET, 7)),
    "event": in_event(SECRET),
    "redirect": response(307, "", "Location: /mcp"),
    "challenge": response(401),
    "refusal": response(404),
    "outage": response(503),
}


@pytest.mark.parametrize(("case", "era"), one_era_each(SURPLUS))
@pytest.mark.parametrize("form", [response, lambda status, body: in_event(body)], ids=["body", "event"])
async def test_a_second_response_on_a_kept_connection_is_refused(era: Era, case: str, form: Any) -> None:
    """C-02: the call that reads it fails, is carried out once, and no later one uses that connection."""
    async with faulty(era, http_client=httpx2.AsyncClient) as (server, ref):
        for way in WAYS:
            # By the other way, the SDK closes the connection of a stream of events after the answer.
            assert await call(ref, "own", "raw", Raw(form(200, answer()) + SURPLUS[case], "keep")._asdict()) == "fine"
            await wait_all_tasks_blocked()
            text = await refuse(ref, way, "sleep", {"seconds": 1 / 8})
            assert "a response came before the request was sent" in text
            for _ in range(3):
                assert await call(ref, way, "sleep", {"seconds": 0}) == "slept 0"
        # Not in this order: the refused call is carried out on another connection than those after it.
        assert sorted(each["seconds"] for each in server.used) == sorted([1 / 8, 0, 0, 0] * len(WAYS))
        assert ref.statistics().incarnation == 1


@pytest.mark.skipif(os.environ.get("HTTP") == "httpx2", reason="httpx2's own transport keeps such a connection")
@pytest.mark.parametrize(("case", "era"), one_era_each(SURPLUS))
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_no_call_reads_a_second_response(era: Era, case: str, secure: bool, tmp_path: Path) -> None:
    """C-02: our own transport drops the connection with it, so that no call fails or is carried out twice."""
    certificate = self_signed(tmp_path) if secure else None
    async with faulty(era, certificate, verify=certificate) as (server, ref):
        for form in (response, lambda status, body: in_event(body)):
            assert await call(ref, "own", "raw", Raw(form(200, answer()) + SURPLUS[case], "keep")._asdict()) == "fine"
            await wait_all_tasks_blocked()
            for _ in range(3):
                assert await call(ref, "own", "sleep", {"seconds": 0}) == "slept 0"
        assert server.used == [{"seconds": 0}] * 6
        assert ref.statistics().incarnation == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("form", [response, lambda status, body: in_event(body)], ids=["body", "event"])
async def test_an_answer_to_another_request_connects_nothing(era: Era, form: Any) -> None:
    """C-02: the handshake and the list of tools go the SDK's way."""
    for method in ("server/discover" if era == "modern" else "initialize", "tools/list"):
        with faulty_server(era) as server:
            server.scripts[method] = Raw(form(200, with_id(SECRET, OTHER)))
            config = ServerConfig("web", Http(server.url()), protocol=PROTOCOLS[era], restarts=NEVER, required=True)
            with pytest.raises(ConnectFailed, match=f"the response is to request {OTHER}, not to"):
                async with open_servers(config):
                    pass


def asked_again(server: FaultyServer, before: int) -> bool:
    """Return True if more requests have come than there were before."""
    return len(server.requests) > before


async def test_events_answer_the_request_whose_id_they_have() -> None:
    """C-02: over HTTP with SSE, where all answers share one stream."""
    with faulty_server("legacy") as server:
        async with open_servers(ServerConfig("web", Sse(server.url("/sse")))) as servers:
            ref = servers["web"]
            async with calls(1, ref.call_tool, "hold") as [held]:
                await server.held()
                for stray in (SECRET, ERROR):
                    for request_id in (OTHER, None, "x" * 1000):
                        server.emit(with_id(stray, request_id))
                    server.emit(without_id(stray))
                server.release()
            assert text_of(await held.result()) == "released"
            server.mute.add("tools/call")
            for form in (str, float):
                before = len(server.requests)
                async with calls(1, ref.call_tool, "sleep") as [asking]:
                    await eventually(partial(asked_again, server, before))
                    server.emit(with_id(answer(), form(server.requests[-1].message["id"])))
                assert text_of(await asking.result()) == "fine"
