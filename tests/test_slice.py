"""The slice has a test of every guarantee, and `tests.durations` chooses it by what tests cost."""

from __future__ import annotations

import argparse
import ast
import os
from pathlib import Path

import pytest

from .costs import main as compare
from .durations import FIGURES, LIMIT, WHOLE, choose, lines, read, read_lines
from .slice import FIRST, Chosen, chosen, in_part, pytest_ignore_collect
from .source import ROOT, docs_module, parse
from .unit import main as measure

COSTS = {
    "tests/a.py::test_cheap": 0.25,
    "tests/a.py::test_each[0]": 0.5,
    "tests/a.py::test_each[1]": 0.75,
    "tests/b.py::test_dear": 9.0,
    "tests/b.py::test_dearer": 10.0,
    "tests/soak/c.py::test_of_a_tool": 0.125,
}


def test_each_guarantee_has_a_test_in_the_slice_or_a_figure() -> None:
    """No test is dropped for being dear."""
    listed = {f"{module}::{test.name.partition('[')[0]}" for module, tests in chosen().items() for test in tests}
    proofs = docs_module("_guarantees").proofs()
    assert {row for row, tests in proofs.items() if listed.isdisjoint(tests)} <= FIGURES.keys() <= proofs.keys()


def test_each_figure_has_a_session() -> None:
    sessions = {node.name for node in parse(ROOT / "noxfile.py").body if isinstance(node, ast.FunctionDef)}
    assert set(FIGURES.values()) <= sessions


def test_a_part_of_the_slice_is_the_same_in_each_run() -> None:
    part = [module for module in chosen() if in_part(module, 10)]
    assert {"tests/servers/test_wind_down.py", "tests/test_main_job.py"} <= {*part}
    assert len(part) in range(len(chosen()) // 20, len(chosen()) // 5)


def test_each_test_of_the_slice_exists() -> None:
    defined = docs_module("_guarantees").tests()
    for module, tests in chosen().items():
        assert {test.name.partition("[")[0] for test in tests} <= defined[module].keys(), module


def test_the_slice_is_within_its_limit() -> None:
    """A tenth more is for tests that are added until the list is written anew."""
    assert sum(test.units for tests in chosen().values() for test in tests) <= 1.1 * LIMIT


def test_each_guarantee_brings_its_cheapest_test_and_what_is_left_goes_to_cheap_ones() -> None:
    proofs = {"D-01": ["tests/b.py::test_dear", "tests/b.py::test_dearer"], "D-02": ["tests/a.py::test_each"]}
    assert choose(COSTS, proofs, {}, 9.75) == {
        "tests/b.py::test_dear": {"D-01"},
        "tests/a.py::test_each[0]": {"D-02"},
        "tests/a.py::test_cheap": set(),
    }


def test_the_second_case_of_a_table_is_chosen_after_another_test_that_is_nearly_as_cheap() -> None:
    costs = {"tests/a.py::test_each[0]": 1.0, "tests/a.py::test_each[1]": 1.0, "tests/b.py::test_other": 1.5}
    assert choose(costs, {}, {}, 2.75) == {"tests/a.py::test_each[0]": set(), "tests/b.py::test_other": set()}
    assert len(choose(costs, {}, {}, 3.5)) == 3


def test_a_test_of_new_lines_is_chosen_before_cheaper_ones_without() -> None:
    first, second, cheap = "tests/a.py::test_first", "tests/a.py::test_second", "tests/b.py::test_cheap"
    costs = {first: 2.0, second: 3.5, cheap: 1.0}
    assert choose(costs, {}, {first: 0b11, second: 0b110}, 5.5).keys() == {first, second}
    assert choose(costs, {}, {first: 0b11, second: 0b11}, 5.5).keys() == {first, cheap}


def test_a_second_test_of_a_line_is_worth_more_than_a_third() -> None:
    first, second, cheap = "tests/a.py::test_first", "tests/a.py::test_second", "tests/b.py::test_cheap"
    costs = {first: 2.0, second: 2.5, cheap: 1.0}
    assert choose(costs, {}, {first: 0b111, second: 0b111}, 4.5).keys() == {first, second}
    assert choose(costs, {"D-01": [first]}, {first: 0b111, second: 0b1}, 3.0).keys() == {first, cheap}


def test_a_test_has_the_same_bit_for_a_line_whatever_process_has_run_it(tmp_path: Path) -> None:
    from coverage import CoverageData  # each run of the slice imports this module

    for process, line in (("1", 3), ("2", 4)):
        data = CoverageData(tmp_path / process)
        for test, reached in ((f"tests/a.py::test_{process}", [line]), ("tests/a.py::test_both", [line, 5])):
            data.set_context(test)
            data.add_lines({"module.py": reached})
        data.write()
    found = read_lines(tmp_path)
    first, second, both = (found[f"tests/a.py::test_{name}"] for name in ("1", "2", "both"))
    assert (first.bit_count(), second.bit_count(), both.bit_count()) == (1, 1, 3)
    assert both & (first | second) == first + second


def test_of_the_tests_that_import_frameworks_only_those_are_chosen_that_prove_what_no_other_does() -> None:
    dear, cheap = f"{FIRST[0]}test_a.py::test_a", "tests/b.py::test_b"
    costs = {dear: 0.5, cheap: 1.0}
    assert choose(costs, {"D-01": [dear, cheap]}, {dear: 1}, 9.0) == {cheap: {"D-01"}}
    assert choose(costs, {"D-01": [dear]}, {}, 0.0) == {dear: {"D-01"}}


def test_a_dear_test_that_is_chosen_proves_all_that_it_names() -> None:
    proofs = {"D-01": ["tests/b.py::test_dear"], "D-02": ["tests/b.py::test_dear", "tests/a.py::test_cheap"]}
    assert choose(COSTS, proofs, {}, 0) == {"tests/b.py::test_dear": {"D-01", "D-02"}}


def test_a_function_all_of_whose_tests_were_chosen_is_one_line() -> None:
    whole = {
        "tests/a.py::test_each[0]": {"D-02"},
        "tests/a.py::test_each[1]": set[str](),
        "tests/b.py::test_dear": {"D-01", "D-03"},
    }
    assert [*lines(whole, COSTS)] == [
        "tests/a.py",
        "     1.250 test_each  D-02",
        "tests/b.py",
        "     9.000 test_dear  D-01, D-03",
    ]
    assert [*lines({"tests/a.py::test_each[1]": set()}, COSTS)] == ["tests/a.py", "     0.750 test_each[1]"]


def test_the_list_says_which_tests_are_run_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "slice.txt"
    file.write_text("# about it\ntests/a.py\n     1.250 test_each  D-02\n     0.250 test_one[a  b]\n")
    monkeypatch.setattr("tests.slice.LIST", file)
    expected = {"tests/a.py": [Chosen("test_each", 1.25, ("D-02",)), Chosen("test_one[a  b]", 0.25, ())]}
    assert chosen.__wrapped__() == expected


def test_a_module_of_which_the_slice_has_no_test_is_not_imported() -> None:
    """So no framework is imported for nothing."""
    options = argparse.Namespace(getoption={"slice": True, "rest": False, "one_in": 1}.__getitem__)
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    collected = {each for each in modules if pytest_ignore_collect(ROOT / each, options) is None}  # type: ignore[arg-type]  # it needs no more
    assert collected == set(chosen())
    assert pytest_ignore_collect(ROOT / "tests", options) is None  # type: ignore[arg-type]  # as above


def test_a_run_that_a_test_starts_is_measured_as_a_part_of_the_test() -> None:
    """Seen where costs are measured, as by ``.ci/run``."""
    assert "DURATIONS" not in os.environ


def run_for(seconds: float, run: str, folder: Path) -> None:
    """Write down a run that has cost so much processor time."""
    (folder / run).mkdir(exist_ok=True)
    (folder / run / "1").write_text(f'["{run}.py::test", 3.0]\n["{WHOLE}", {seconds}]\n')


def test_a_run_prints_its_sums_in_units_and_its_dearest_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unit is the mean of what it took before, during and after the runs."""
    monkeypatch.setattr("tests.costs.unit", lambda: 1.0)
    run_for(200.0, "slice", tmp_path)
    run_for(700.0, "rest", tmp_path)
    assert read(tmp_path / "slice") == ({"slice.py::test": 3.0}, 200.0)
    (tmp_path / "units").write_text("3.5\n1.5\n")
    assert compare(tmp_path) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["1.5", "slice.py::test"],
        ["1.5", "rest.py::test"],
        ["100.0", "slice", "(at", "most", "120)"],
        ["450.0", "all", "(at", "most", "600)"],
    ]


@pytest.mark.parametrize(("slice_", "rest", "fails"), [(120, 480, False), (121, 0, True), (0, 601, True)])
def test_a_run_that_costs_too_much_fails(
    slice_: float, rest: float, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slice has a bound, and so have all tests together."""
    monkeypatch.setattr("tests.costs.unit", lambda: 1.0)
    run_for(slice_, "slice", tmp_path)
    run_for(rest, "rest", tmp_path)
    (tmp_path / "units").write_text("1.0\n")
    assert compare(tmp_path) == int(fails)


def test_the_unit_is_measured_until_the_process_that_asked_for_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``.ci/run`` may be killed."""
    slept: list[float] = []
    monkeypatch.setattr("tests.unit.unit", lambda: 1.5)
    monkeypatch.setattr("tests.unit.sleep", slept.append)
    monkeypatch.setattr("os.getppid", lambda: 7 if len(slept) < 2 else 1)
    measure(100.0)
    assert capsys.readouterr().out == "1.500\n" * 3
    assert slept == [100.0, 100.0]
    measure()
    assert slept == [100.0, 100.0]
