"""Servers that write the same thing without end: no step is long, and another server goes on to answer."""

from __future__ import annotations

import logging
from typing import Any, Final

import pytest
import trio

from mcp_actors import open_servers
from mcp_actors.transports._messages import ReadingPace
from mcp_actors.transports.stdio._pipes import READ_BURST, PipeReader
from mcp_actors.transports.stdio._process import StderrReader

from .groups import AT_ONCE, BOUND, server
from .hostile import STEP, LongestStep, MostInAStep, hostile
from .links import text_of
from .processes import eventually

CALLS = 10


def notice(method: str, params: str = "{}") -> str:
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


STORMS: Final[dict[str, dict[str, Any]]] = {
    "malformed lines of 1 MB": {"part": "x", "times": 1_000_000},
    "lines of 1 MB that are almost an answer": {"part": '{"id":1,"result":[[[[],"', "times": 40_000},
    "lines of 1 MB that are JSON and no message": {"part": " " * 999_990 + '{"id":7}'},
    "malformed lines": {"part": "no"},
    "invalid UTF-8": {"part": '{"id":1,"result":"\xff\xfe'},
    "whitespace": {"part": " \t", "end": "\r\n"},
    "empty lines": {"part": ""},
    "messages that end in CRLF": {"part": notice("x"), "end": "\r\n"},
    "log messages": {"part": notice("notifications/message", '{"level":"info","data":"x"}')},
    "changes of lists": {"part": notice("notifications/tools/list_changed")},
    "progress": {"part": notice("notifications/progress", '{"progressToken":ID,"progress":1}'), "answers": False},
    "cancellations": {"part": notice("notifications/cancelled", '{"requestId":ID}')},
    "answers to nobody": {"part": '{"jsonrpc":"2.0","id":ID,"result":{}}'},
    "answers to nobody, each another": {"part": '{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}'},
    "notifications of 10 MB": {
        "part": notice("notifications/message", '{"level":"info","data":"FILL"}'),
        "fill": 10**7,
    },
    "lines on stderr": {"part": "error: no", "stream": 2},
    "stderr without line ends": {"part": "x", "times": 60_000, "end": "", "stream": 2},
}


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
async def test_in_a_storm_of_one_server_another_goes_on(
    storm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B-13: no step is long, takes more than a few of its messages, or logs more than one of its lines."""
    caplog.set_level(logging.INFO, "mcp_actors.servers.stderr")

    async def rage() -> None:
        await group["evil"].call_tool("storm", storm)

    async with open_servers(hostile(restarts=AT_ONCE, stop_timeout=0.1), server("good")) as group:
        taken = MostInAStep(monkeypatch, (PipeReader, "_parse"), (StderrReader, "_log"))
        with LongestStep() as longest, taken, trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rage)
                for _ in range(CALLS):
                    assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel("that is enough")
        assert longest.seconds < STEP, longest.task
        assert taken.most["_parse"] <= READ_BURST
        assert taken.most["_log"] <= 1


@pytest.mark.parametrize(
    ("kind", "method"),
    [("malformed lines", "wasted"), ("log messages", "unasked"), ("notifications of 10 MB", "unasked_part")],
)
async def test_a_reader_of_stdout_pauses_in_a_storm(kind: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-13: here for an hour, in which it reads nothing more."""
    pauses: list[object] = []

    async def rage() -> None:
        await group["evil"].call_tool("storm", STORMS[kind])

    def pause(*args: object, **options: object) -> float:
        pauses.append(args)
        return 3600.0

    async with open_servers(hostile(restarts=AT_ONCE, stop_timeout=0.1), server("good")) as group:
        monkeypatch.setattr(ReadingPace, method, pause)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rage)
            await eventually(lambda: bool(pauses))
            for _ in range(CALLS):
                assert text_of(await group["good"].call_tool("echo", {"text": "here"})) == "here"
            nursery.cancel_scope.cancel("that is enough")
    assert len(pauses) == 1
