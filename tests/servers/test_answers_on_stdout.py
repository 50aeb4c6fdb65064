"""Answers of a server on stdout, byte for byte, and the calls that they end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp.types import CallToolResult
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Callbacks,
    ConnectionLost,
    HealthPolicy,
    ServerConfig,
    ServerRef,
    Stdio,
    open_servers,
)
from mcp_actors.transports.stdio._link import INPUT_INTERVAL
from tests.idle_clock import IdleClock

from . import wire_server
from .answers import BY_SESSION
from .fleet import PROMPT, calls
from .groups import BOUND, NEVER
from .links import text_of
from .processes import eventually

pytestmark = pytest.mark.own_way

RESULT: Final = '"result":{"content":[{"type":"text","text":"answered"}]}'
ANSWER: Final = f'{{"jsonrpc":"2.0","id":$id,{RESULT}}}'
DEEP: Final = '{"id":1,"a":[' * 1000 + "]}" * 1000

ANSWERED: Final = {
    "text": ANSWER.replace("$id", "$text") + "\n",
    "float": ANSWER.replace("$id", "$id.0") + "\n",
    "byte order mark": "\ufeff" + ANSWER + "\n",
    "batch of one": f"[{ANSWER}]\n",
    "carriage return": ANSWER + "\r",
    "carriage returns": '{"jsonrpc":"2.0","id":"x","result":{}}\r' + ANSWER + '\r{"jsonrpc":"2.0","method":"x"}\r',
    "line feed after a carriage return": ANSWER + "\r\n",
    "spaces": " \t" + ANSWER.replace(",", " ,\r") + "\t \n",
}
"""Answers with the result that they have."""

REFUSED: Final = {
    "no result": '{"jsonrpc":"2.0","id":$id}\n',
    "no result and more": '{"jsonrpc":"2.0","more":{"id":1},"id":$id.0}\n',
    "list": '{"jsonrpc":"2.0","result":[{"id":1}],"id":$text}\n',
    "batch": '[{"jsonrpc":"2.0","id":$id,"result":5}]\n',
    "no version": f'{{"id":$id,{RESULT}}}\n',
    "carriage return in a text": '\ufeff{"jsonrpc":"2.0","id":$id,"result":{"a":"\r"}}\n',
    "deep member before the result": f'{{"jsonrpc":"2.0","id":$id,"deep":{DEEP},{RESULT}}}\n',
    "deep member before the id": f'{{"jsonrpc":"2.0","deep":{DEEP},"id":$id,{RESULT}}}\n',
    "deep result": f'{{"jsonrpc":"2.0","result":{DEEP},"id":$id}}\n',
}
"""Answers that break the protocol, and whose id can be read."""


def config(log: Path, **options: Any) -> ServerConfig:
    """Configure the server of these tests, whose calls have no time-out."""
    program, arguments = wire_server.command("legacy", str(log))
    return ServerConfig("a", Stdio(program, arguments), request_timeout=None, **options)


async def raw(ref: ServerRef, text: str, meta: dict[str, Any] | None, **more: Any) -> CallToolResult:
    """Call a tool that writes a text."""
    with trio.fail_after(PROMPT):
        return await ref.call_tool("raw", {"text": text, **more}, meta=meta)


WAYS: Final = pytest.mark.parametrize("meta", [None, BY_SESSION], ids=["direct", "session"])


@WAYS
async def test_an_answer_whose_id_can_be_read_reaches_its_caller(meta: dict[str, Any] | None, tmp_path: Path) -> None:
    """C-08."""
    async with open_servers(config(tmp_path / "log")) as servers:
        for what, text in ANSWERED.items():
            assert text_of(await raw(servers["a"], text, meta)) == "answered", what
        assert servers.status()["a"].restarts == 0


@WAYS
async def test_an_invalid_answer_whose_id_can_be_read_fails_its_call_at_once(
    meta: dict[str, Any] | None, tmp_path: Path
) -> None:
    """C-08."""
    async with open_servers(config(tmp_path / "log")) as servers:
        for what, text in REFUSED.items():
            with pytest.raises(ConnectionLost) as caught:
                await raw(servers["a"], text, meta)
            assert caught.value.outcome == "unknown", what
        assert text_of(await raw(servers["a"], ANSWER + "\n", meta)) == "answered"
        assert servers.status()["a"].restarts == 0


@WAYS
async def test_an_id_that_is_cut_or_within_another_object_ends_no_call(
    meta: dict[str, Any] | None, tmp_path: Path
) -> None:
    """C-08: the limits of the search are 4096 bytes."""
    log = tmp_path / "log"
    async with open_servers(config(log)) as servers:
        async with calls(1, lambda: servers["a"].call_tool("mute", meta=meta)) as outcomes:
            await eventually(lambda: b'"mute"' in log.read_bytes())
            waiting = json.loads(log.read_bytes().splitlines()[-1])["id"]
            long = "x" * 10_000
            texts = [
                f'{{"jsonrpc":"2.0","result":[{{"id":{waiting}}}]}}',
                f'{{"jsonrpc":"2.0","result":[{long}"],"more":{{"id":{waiting}}}}}',
                f'{{"jsonrpc":"2.0","id":{waiting}',
            ]
            for size in range(4060, 4110):
                begin = f'{{"jsonrpc":"2.0","more":"{"y" * size}"'[: size - 1] + '"'
                texts.append(f'{begin},"id":{waiting}00,"result":[' + f'"{long}"')
            await raw(servers["a"], "\n".join([*texts, ANSWER, ""]), meta)
            assert not outcomes[0].over
            answer = ANSWER.replace("$id", str(waiting)) + "\n"
            await raw(servers["a"], answer + ANSWER + "\n", meta)
        assert text_of(outcomes[0].value) == "answered"


@WAYS
async def test_an_answer_that_was_written_before_its_request_is_dropped(
    meta: dict[str, Any] | None, tmp_path: Path
) -> None:
    """C-07: while a part of the request lies in the pipe, and while it waits behind another one."""
    noticed = trio.Event()

    async def notice(context: object, params: object) -> None:
        noticed.set()

    async with open_servers(config(tmp_path / "log", callbacks=Callbacks(logging=notice))) as servers:
        files = {"asked": str(tmp_path / "asked"), "noticed": str(tmp_path / "noticed")}
        assert text_of(await servers["a"].call_tool("guess", files)) == "guessed"
        long = {"text": "x" * 300_000}  # more than a pipe holds
        async with calls(3, lambda: servers["a"].call_tool("echo", long, meta=meta)) as outcomes:
            await wait_all_tasks_blocked()
            (tmp_path / "asked").touch()
            with trio.fail_after(BOUND):
                await noticed.wait()
            (tmp_path / "noticed").touch()
        assert all(text_of(each.value).startswith("[") for each in outcomes)


@WAYS
async def test_calls_that_lie_unread_end_when_the_server_closes_its_stdin(
    meta: dict[str, Any] | None, tmp_path: Path
) -> None:
    """C-05: nothing is sent meanwhile."""
    gate = tmp_path / "gate"
    quiet = config(tmp_path / "log", health=HealthPolicy(interval=None), restarts=NEVER, stop_timeout=0.1)
    async with open_servers(quiet) as servers:
        await servers["a"].call_tool("stall", {"until": str(gate)})
        with trio.fail_after(PROMPT):
            async with calls(3, lambda: servers["a"].call_tool("echo", meta=meta)) as outcomes:
                await wait_all_tasks_blocked()
                gate.touch()
        for outcome in outcomes:
            assert isinstance(outcome.error, ConnectionLost)
            assert "its process closed its stdin" in str(outcome.error)
            assert outcome.error.outcome == "unknown"


async def test_a_call_that_was_read_is_answered_after_the_server_has_closed_its_stdin(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """C-05: only what it has not read can never be answered."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with open_servers(config(tmp_path / "log", stop_timeout=0.1)) as servers:
        async with calls(1, servers["a"].call_tool, "finish", {"when": str(fifo)}) as outcomes:
            await trio.sleep(10 * INPUT_INTERVAL)
            assert not outcomes[0].over
            os.close(os.open(fifo, os.O_WRONLY))
        assert text_of(outcomes[0].value) == "finished"


@pytest.mark.parametrize("line", ["\n", "\r\n", " \n", "\t \r\n"])
async def test_a_megabyte_of_blank_lines_takes_a_few_steps(line: str, tmp_path: Path) -> None:
    """C-04: no step for each line, and no pause after it."""
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    async with open_servers(config(tmp_path / "log")) as servers:
        trio.lowlevel.add_instrument(counted := Steps())
        times = 1_000_000 // len(line)
        assert text_of(await raw(servers["a"], ANSWER + "\n", None, before=line, times=times)) == "answered"
        trio.lowlevel.remove_instrument(counted)
    assert steps < 5_000  # a read has 64 KiB at most, and as few as the server has written by then
