"""Read the counters of callgrind; the figures themselves are for ``nox -s instructions``."""

from __future__ import annotations

import pytest

from . import instructions
from .instructions import compare, compare_gateway, compare_with_floor, counted
from .peers import BY_HAND, CALLERS, OURS
from .peers.contest import Contestant

TOLD = "PID 7: python -m x\n\n  Totals:         Ir \n   Th 1  346,828,084 \n   Th 2          916 \n\n"


@pytest.fixture
def contestant() -> Contestant:
    contestant = Contestant.__new__(Contestant)
    contestant.pid = 7
    return contestant


def test_the_instructions_of_all_threads_are_added(contestant: Contestant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "control", lambda pid, option: TOLD)
    assert counted(contestant.pid) == 346_829_000


def test_an_answer_without_a_counter_is_an_error(contestant: Contestant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "control", lambda pid, option: "Totals:  Ir \n")
    with pytest.raises(RuntimeError, match="callgrind_control does not tell the instructions: 'Totals:  Ir "):
        counted(contestant.pid)


def test_what_a_round_costs_besides_its_calls_cancels_out(
    contestant: Contestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = 0

    def play(self: Contestant, callers: int, calls: int, kind: str) -> None:
        nonlocal played
        played += 90_000 + 1000 * calls

    monkeypatch.setattr(Contestant, "play", play)
    monkeypatch.setattr(instructions, "counted", lambda pid: played)
    assert instructions.instructions(contestant, 16) == 1000


@pytest.mark.parametrize(("kind", "bound"), [("progress", 0.6), ("_meta", 0.5), ("span", 0.7)])
def test_a_call_that_takes_more_instructions_than_its_bound_is_a_failure(kind: str, bound: float) -> None:
    """C-66."""
    theirs = [1_000_000.0 * callers for callers in CALLERS]
    for ours, verdict in ((bound, "PASS"), (bound * 1.01, "FAIL")):
        found = {(OURS, kind): [ours * each for each in theirs], ("mcp.Client", kind): theirs}
        verdicts = [each.verdict for each in compare(kind, "stdio", found) if ", to " in each.name]
        assert verdicts == [verdict] * len(CALLERS)


def test_a_call_over_http_that_takes_more_instructions_than_its_bound_is_a_failure() -> None:
    for factor, verdict in ((1.0, "PASS"), (1.02, "FAIL")):
        ours = [1000 * factor * each for each in (1_380, 1_350, 1_640)]
        figures = compare_with_floor("json", {BY_HAND: [300_000.0] * 3, OURS: ours})
        assert [each.verdict for each in figures] == [*[""] * 3, *[verdict] * 3, *[""] * 3]


@pytest.mark.parametrize(("way", "bound"), [("stdio", 2.0), ("HTTP", 2.5), ("socket", 3.0)])
def test_a_gateway_that_takes_more_instructions_than_its_bound_is_a_failure(way: str, bound: float) -> None:
    direct = [300_000.0, 220_000.0, 220_000.0]
    for factor, verdict in ((bound, "PASS"), (bound * 1.01, "FAIL")):
        figures = compare_gateway(way, [factor * each for each in direct], direct)
        assert [each.verdict for each in figures if ", to " in each.name] == [verdict, "", ""]
