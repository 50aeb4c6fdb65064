"""Random plans: whatever happens to servers and callers, the promises hold; one number repeats a run.

`nox -s simulate` runs ten thousand seeds. A defect that a seed has found is fixed, and joins those that are put in on
purpose: so it stays proven that it would be found, also after a change of the plans, which gives its seed another plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
import trio
from attrs import evolve

from mcp_actors import Backoff, RestartPolicy, ServerRef
from mcp_actors.kernel._envelope import Envelope
from mcp_actors.kernel._pool import Crew
from mcp_actors.servers import StateChanged

from ..forkserver import run_python
from ..programs import FULL_SIZE, SEED
from ..servers.life_model import explore
from ..source import ROOT
from .__main__ import main
from .defects import DEFECTS
from .diagram import drawn
from .plan import WAYS, Deed, Plan, SimulatedServer
from .run import report, run
from .trace import Entry
from .world import BUSY, BUSY_SECONDS, World, busy_call, last_call

SEEDS: Final = 2_000 if FULL_SIZE else 24

FIRST: Final = SEED if FULL_SIZE else 0
"""The first seed. The ordinary suite takes the same ones each time, and the nightly sessions draw others."""

PARTS: Final = 2

FOUND: Final[dict[str, int]] = {
    "a lost wake-up: a sender who waits for room stays outside": 9,
    "a doubled send: a line is written twice": 0,
    "a second attempt of a call that was sent": 11,
    "an answer to the wrong caller": 2,
    "a stale catalogue": 2,
    "a budget that is not reset": 101,
    "a budget without an end": 6,
    "a leaked slot: of a caller who has left": 2,
    "a deadline that does not wake the timer": 2,
    "a call that is forgotten in a crash": 3,
    "a call that is forgotten in a stop": 12,
    "a call of a caller who has left": 2,
    "a queue without a bound": 2,
    "a drain that does not wait": 6,
    "a credential that is not renewed": 54,
    "a gap in the notifications that is not reported": 77,
    "an idle stop with a request in flight": 37,
    "a sign-in elsewhere that is not noticed": 396,
    "an old connection that is kept": 3,
    "an old replica that is kept": 20,
    "credentials that are resolved only once": 36,
    "a call of two rounds that begins again": 12,
    "a subscription that is not renewed": 5,
    "a crash of a replica that ends the others": 11,
    "the tools of a server that comes to rest vanish": 0,
    "a server that stays at rest although it is used": 0,
    "a start that succeeds although a stop was faster": 4,
    "a restart that leaves the connection": 5,
    "a wish that an older one overrides": 11,
    "a catalogue that stays old as its stream has fallen silent": 27,
    "a stream that is requested from a session that has ended": 29,
    "a pool whose events are hidden": 4,
    "a refused stream that nobody notices": 341,
    "a gap that subscriptions do not hear of": 77,
    "a new connection that is not asked for what the lost one has refused": 2131143062,
    "the tools of a server that is connected anew vanish": 0,
    "a session that was lost before its stream opened": 466172499,
}
"""The defects that are put in, and a seed that finds each."""


@pytest.mark.parametrize("part", range(PARTS))
def test_the_promises_hold_whatever_happens(part: int, record_property: Callable[[str, object], None]) -> None:
    """No server changes its state as the model cannot, either (``tests/servers/life_model.py``)."""
    possible = modelled()
    first = FIRST + part * SEEDS // PARTS
    record_property("note", f"{SEEDS // PARTS} simulated groups from seed {first}")
    for seed in range(first, first + SEEDS // PARTS):
        world, problems = run(seed)
        problems += [f"the model has no change like {change}" for change in changes(world) - possible]
        if problems:
            pytest.fail(report(seed, world, problems), pytrace=False)


@cache
def modelled() -> frozenset[tuple[str, str]]:
    """Return the changes of states that the model has."""
    return explore(1, 1, 2).changes


def changes(world: World) -> set[tuple[str, str]]:
    """Return the changes of states of the servers without replicas, as the model names them."""
    single = {server.name for server in world.plan.servers if server.options["replicas"] == 1}
    events = (event for event in world.trace.events if isinstance(event, StateChanged) and event.actor in single)
    changed = {(LIKE.get(event.old, event.old), LIKE.get(event.new, event.new)) for event in events}
    return {(old, new) for old, new in changed if old != new}


LIKE: Final = {"degraded": "ready", "unhealthy": "ready", "needs_auth": "failed"}
"""States that the model does not distinguish."""


@pytest.mark.parametrize("name", FOUND)
def test_a_defect_that_is_put_in_is_found(name: str) -> None:
    seed = FOUND[name]
    with DEFECTS[name]():
        assert run(seed)[1] != []
    if seed not in range(FIRST, FIRST + SEEDS):  # else it is one of the seeds above
        assert run(seed)[1] == []


def test_a_server_that_is_used_as_it_comes_to_rest_says_why_it_is_as_it_is() -> None:
    """Its reason was looked for in itself, for ever."""
    assert run(569587600)[1] == []


def busy_replicas(world: type[World]) -> World:
    """Run a world in which two replicas are busy at the end, and requests are not finished before a renewal."""
    options = {
        "breaker": None,
        "idle_timeout": None,
        "mailbox_size": 256,
        "max_lifetime": 3600.0,
        "max_in_flight": 64,
        "replicas": 2,
        "request_timeout": 20.0,
        "restarts": RestartPolicy(),
    }
    ran = world(Plan(1, (SimulatedServer("a", "pipe", "legacy", options),), (), 0.0, ("leave",)))
    ran.run()
    return ran


class RenewedWhileBusy(World):
    """A world in which a replica becomes old after its server has become busy."""

    def _begin_call(self, deed: Deed, ref: ServerRef, callers: trio.Nursery) -> int:
        if deed == busy_call("a") and all(end.deed != deed for end in self.ends.values()):
            callers.start_soon(self._renew)
        return super()._begin_call(deed, ref, callers)

    async def _renew(self) -> None:
        await trio.sleep(BUSY_SECONDS / 4)
        self._servers._roster.records["a"].connections[0].retire("old")


def test_a_replica_that_was_renewed_while_its_server_was_busy_has_no_part_in_the_calls() -> None:
    world = busy_replicas(RenewedWhileBusy)
    lost = [end for end in world.ends.values() if end.outcome == "ConnectionLost"]
    assert (world.problems, len(lost)) == ([], BUSY // 2)
    assert run(8378)[1] == []  # was taken for a defect


def test_a_call_waits_for_each_question_of_a_call_that_is_sent_again() -> None:
    assert run(1391749808)[1] == []  # was taken for a defect


def test_calls_that_one_replica_has_alone_are_found() -> None:
    def free_of_the_first(crew: Crew) -> int:
        taker = next(iter(crew._rank), None)
        return 0 if taker is None else max(taker.free, 0)

    def take_by_the_first(crew: Crew, envelope: Envelope) -> None:
        next(iter(crew._rank)).take(envelope)

    with patch.object(Crew, "free", property(free_of_the_first)), patch.object(Crew, "take", take_by_the_first):
        world = busy_replicas(World)
    [problem] = world.problems
    assert problem in ("a divides its calls into [4, 0]", "a divides its calls into [0, 4]")


def test_a_defect_has_a_seed_that_finds_it() -> None:
    assert {"none", *FOUND} == {*DEFECTS}


def test_the_command_runs_seeds_on_all_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.simulate", "--seeds", "2", "--first", "0"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 seeds from 0 in ")
    assert printed.endswith(": 0 failed\n")


REPEATED: Final = (2, 5, 6)
"""Seeds with servers of all kinds."""


def test_a_seed_gives_the_same_entries_in_this_process_and_in_another() -> None:
    code = f"from tests.simulate.run import run\nfor seed in {REPEATED}: print(*run(seed)[0].trace.lines(), sep='\\n')"
    printed = run_python("-c", code, cwd=ROOT, timeout=120).stdout  # in a fork of an interpreter with other hashes
    worlds = [run(seed)[0] for seed in REPEATED]
    assert {server.way for world in worlds for server in world.plan.servers} == {*WAYS}
    lines = [line for world in worlds for line in world.trace.lines()]
    assert [line for seed in REPEATED for line in run(seed)[0].trace.lines()] == lines == printed.splitlines()
    assert len(lines) > 400


def test_a_run_is_drawn_with_a_column_for_each_place() -> None:
    entries = [
        Entry(0.0, "program", "call 1", "a"),
        Entry(0.0, "a", "carries out call 1"),
        Entry(1.5, "a", "call 1: answered", "program"),
        Entry(2.0, "elsewhere", "is left out"),
    ]
    assert drawn(entries, ["program", "a"]).splitlines() == [
        "          program                       a",
        "    0.000 │── call 1 ──────────────────>│",
        "          │                             ● carries out call 1",
        "    1.500 │<─ call 1: answered ─────────│",
    ]


def test_the_page_about_requests_shows_a_run_as_it_was_drawn() -> None:
    options = {
        "breaker": None,
        "idle_timeout": None,
        "mailbox_size": 256,
        "max_lifetime": None,
        "max_in_flight": 1,
        "replicas": 1,
        "request_timeout": 20.0,
        "restarts": RestartPolicy(backoff=Backoff(first=1.0)),
    }
    call = evolve(last_call("files"), pause=1.0)
    deeds = (call, evolve(call, fate="crash", seconds=0.5, pause=0.1), evolve(call, pause=10.0))
    world = World(Plan(1, (SimulatedServer("files", "pipe", "modern", options),), deeds, 30.0, ()))
    world.run()
    shown = drawn([entry for entry in world.trace.entries if 1.0 <= entry.time < 10.0], ["program", "files"])
    page = Path(__file__).parents[2] / "docs" / "design" / "request.md"
    assert f"```\n{shown}\n```" in page.read_text(), shown
