"""The contests work, at least for those whose library is always there; the figures are for ``nox -s bench``."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from . import bars, noise
from .measuring import in_turns
from .peers import BRIDGED_BOUNDS, BY_HAND, OTHER_TRANSPORTS, process, quick_server
from .peers.clients import CallTool, Client, together_in_trio
from .peers.contest import TYPESCRIPT, enter, enter_all, play_rounds
from .servers import Pipe

pytestmark = pytest.mark.usefixtures("programs_in_forks")


def test_contestants_play_in_turns() -> None:
    with enter_all("calls", ["ServerRef", "mcp.Client", BY_HAND]) as contestants:
        seconds = play_rounds(contestants, 2, 2, 4)
    assert [len(rounds) for rounds in seconds.values()] == [2, 2, 2]
    assert all(0 < each < 60 for rounds in seconds.values() for each in rounds)


@pytest.mark.usefixtures("npm_packages")
def test_a_program_on_node_plays_too() -> None:
    with enter("calls", TYPESCRIPT) as contestant:
        assert 0 < contestant.play(2, 4) < 60


@pytest.mark.parametrize("own_session", [False, True])
def test_the_server_of_every_client_has_a_session_of_its_own(own_session: bool) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(quick_server.command(), stdin=pipe, stdout=pipe, start_new_session=own_session) as server:
        Pipe(server)  # it has answered, so its `main` runs
        session = os.getsid(server.pid)
        server.communicate(timeout=60)
    assert session == server.pid


def test_the_calls_of_a_quiet_server_are_timed_next_to_noise() -> None:
    peace, half, most, ratio = noise.figures(2, 1, 5)
    assert most.value >= half.value > 0
    assert ratio.value == pytest.approx(most.value / peace.value)


def test_programs_on_asyncio_play_too() -> None:
    with enter_all("calls", list(BRIDGED_BOUNDS)) as contestants:
        seconds = play_rounds(contestants, 1, 2, 4)
    assert all(0 < rounds[0] < 60 for rounds in seconds.values())


@pytest.mark.parametrize("transport", OTHER_TRANSPORTS)
def test_other_transports_have_contests_and_minimal_clients_too(transport: str) -> None:
    peers = [f"{each}, {transport}" for each in ("ServerRef", BY_HAND, "mcp.Client")]
    with enter_all("calls", peers) as contestants:
        seconds = play_rounds(contestants, 1, 2, 4)
    assert all(0 < rounds[0] < 60 for rounds in seconds.values())


def test_the_page_about_speed_gets_the_times_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bars.WAYS, "over HTTP", (", in process", 128, bars.FEW))
    found = bars.measured("over HTTP", rounds=1)
    assert [*found] == ["mcp_actors", "a minimal client", "`mcp.Client`"]
    page = bars.PAGE.read_text()
    tables = bars.tables_of(bars.written(page, {**bars.tables_of(page), "over HTTP": found}))
    assert tables["over HTTP"] == {name: [round(each) for each in times] for name, times in found.items()}
    assert tables["over stdio"] == bars.tables_of(page)["over stdio"]


def test_a_round_pays_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-40: it is on, looks at everything, and nothing is collected just before."""
    seen: list[tuple[bool, tuple[int, int, int]]] = []

    @asynccontextmanager
    async def connect(command: Sequence[str]) -> AsyncIterator[CallTool]:
        async def call_tool(name: str, arguments: dict[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            seen.append((gc.isenabled(), gc.get_threshold()))

        yield call_tool

    monkeypatch.setattr(sys, "stdin", io.StringIO("[1, 2]\n[2, 2]\n"))
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("garbage was collected before a round"))
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("garbage is not looked for everywhere"))
    trio.run(process.calls, Client(trio.run, together_in_trio, connect))
    assert seen == [(True, gc.get_threshold())] * 4


async def test_what_is_measured_in_turns_pays_for_the_garbage_collector() -> None:
    """B-40."""
    seen: list[bool] = []

    async def run() -> None:
        await trio.lowlevel.checkpoint()
        seen.append(gc.isenabled())

    await in_turns({"one": run}, rounds=2)
    assert seen == [True] * 3


def test_the_longest_steps_of_a_long_answer_are_reported() -> None:
    with enter("long_line", "ServerRef") as contestant:
        seconds, steps = contestant.play(100_000)
    assert seconds > steps[0] > steps[1] > 0


@pytest.mark.parametrize(("contest", "arguments"), [("starts", (2, 0.0)), ("recovery", ())])
def test_a_round_gives_its_seconds(contest: str, arguments: tuple[float, ...]) -> None:
    with enter(contest, "ServerRef") as contestant:
        assert 0 < contestant.play(*arguments) < 60


def test_a_minimal_client_connects_to_many_servers() -> None:
    with enter("starts", BY_HAND) as contestant:
        assert 0 < contestant.play(2, 0.0) < 60


def test_a_peer_that_cannot_play_raises_an_error_with_its_traceback() -> None:
    words = r"nobody ended; is the extra `bench` installed\? (.|\n)*KeyError: 'nobody'"
    with pytest.raises(RuntimeError, match=words), enter("calls", "nobody"):
        pass
