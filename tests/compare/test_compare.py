"""The comparison works with our own client, its tables are complete, and its page is the one of its results.

All cells are for ``nox -s field``.
"""

from __future__ import annotations

import ast

import pytest

from ..forkserver import interpreter
from ..test_examples import expected_output
from . import page, side_by_side
from .scenarios import SCENARIOS, play
from .tables import CLIENTS, FAULTS, VERDICTS, mark, read_results


@pytest.mark.parametrize(("fault", "verdict"), [("print-in-a-tool", "works"), ("dies-idle", "recovers")])
def test_our_client_meets_the_expectation(fault: str, verdict: str) -> None:
    assert play(fault, interpreter(), "mcp_actors_trio").word == verdict
    assert mark(fault, verdict) == "✓"


def test_every_fault_has_a_scenario_and_every_scenario_a_fault() -> None:
    assert set(SCENARIOS) == set(FAULTS)


def test_every_verdict_is_explained() -> None:
    words = {word for row in FAULTS.values() for word in (*row["passes"], *row["partly"])}
    assert words <= set(VERDICTS)


def test_every_cell_was_run() -> None:
    cells = read_results()["cells"]
    assert {name: set(row) for name, row in cells.items()} == {name: set(CLIENTS) for name in FAULTS}
    assert {cell["verdict"] for row in cells.values() for cell in row.values()} <= set(VERDICTS)


def test_the_page_is_the_one_of_the_results() -> None:
    assert page.PAGE.read_text() == page.render(read_results())


def test_an_error_becomes_one_line_of_code() -> None:
    assert page.shorten("cannot\nread `x` at 127.0.0.1:4711") == "cannot read 'x' at 127.0.0.1:8000"
    assert len(page.shorten("x" * 1000)) == page.SHOWN


def test_our_program_has_the_outcomes_of_the_page() -> None:
    """Of four clients whose server dies in a call, ours; all of them are for ``nox -s compare``."""
    committed = side_by_side.read()["outcomes"]["mcp_actors"]
    assert side_by_side.differences("mcp_actors", committed, side_by_side.play("mcp_actors", interpreter())) == []


def test_the_programs_side_by_side_are_those_on_the_page() -> None:
    page_now = side_by_side.PAGE.read_text()
    assert page_now == side_by_side.render(page_now, side_by_side.read())


def test_the_outcomes_in_the_programs_are_those_on_the_page() -> None:
    outcomes = side_by_side.read()["outcomes"]
    assert list(outcomes) == list(side_by_side.PROGRAMS)
    for client, found in outcomes.items():
        source = (side_by_side.EXAMPLES / "pages" / side_by_side.PROGRAMS[client]).read_text()
        expected = expected_output(ast.get_docstring(ast.parse(source)))
        assert expected is not None
        assert expected.splitlines() == side_by_side.without_times(found["printed"])


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ("next call: 3, after 9.1 s", []),
        ("next call: MCPError: Connection closed, after 0.0 s", ["-next call: 3, after ... s"]),
    ],
)
def test_another_outcome_is_a_difference_and_another_time_is_not(now: str, changed: list[str]) -> None:
    before = {"printed": ["next call: 3, after 0.7 s"], "seen": []}
    found = side_by_side.differences("fastmcp", before, {"printed": [now], "seen": []})
    assert [line for line in found if line.startswith("-next")] == changed


def test_the_table_shows_errors_without_their_messages() -> None:
    assert side_by_side.short("in flight: MCPError: closed: at once, after 0.5 s") == "in flight: MCPError, after 0.5 s"
    assert side_by_side.short("next call: 3, after 0.7 s") == "next call: 3, after 0.7 s"


def test_the_fewest_seconds_of_several_runs_count_for_each_line() -> None:
    slow = {"printed": ["a: 3, after 12.0 s", "b: 3, after 0.5 s"], "seen": ["process left: no"]}
    quick = {"printed": ["a: 3, after 9.1 s", "b: 3, after 0.7 s"], "seen": ["process left: no"]}
    assert side_by_side.fastest("fastmcp", [slow, quick]) == {
        "printed": ["a: 3, after 9.1 s", "b: 3, after 0.5 s"],
        "seen": ["process left: no"],
    }


def test_runs_with_different_outcomes_are_not_written() -> None:
    runs = [{"printed": [f"a: {value}, after 1.0 s"], "seen": []} for value in (3, 4)]
    with pytest.raises(RuntimeError, match="two runs have different outcomes"):
        side_by_side.fastest("fastmcp", runs)
