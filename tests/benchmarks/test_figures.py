"""A bound that is missed fails the run; the figures themselves are for ``nox -s bench``."""

from __future__ import annotations

import pytest

from . import __main__ as benchmarks
from .figures import Figure, all_pass

FINE = Figure("a call", 4.04, "checkpoints", bound=6)
MISSED = Figure("a call", 6.04, "checkpoints", bound=6)
KNOWN = Figure("a start", 376.2, "ms")


def test_a_figure_with_a_bound_passes_or_fails() -> None:
    assert [figure.verdict for figure in (FINE, MISSED, KNOWN)] == ["PASS", "FAIL", ""]
    assert all_pass([FINE, KNOWN])
    assert not all_pass([FINE, MISSED])


@pytest.mark.parametrize(
    ("figure", "row"), [(FINE, "a call 4.04 checkpoints <= 6 PASS"), (KNOWN, "a start 376 ms")], ids=["bound", "none"]
)
def test_a_row_says_what_was_measured_and_whether_it_is_good_enough(figure: Figure, row: str) -> None:
    assert " ".join(figure.row().split()) == row


@pytest.mark.parametrize(("figure", "code"), [(FINE, 0), (MISSED, 1)])
def test_the_exit_code_says_whether_all_bounds_are_kept(
    figure: Figure, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benchmarks.BENCHMARKS, "calls", lambda: [figure])
    assert benchmarks.main(["calls"]) == code
    assert figure.row() in capsys.readouterr().out


def test_a_benchmark_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks.main(["speed"])
    assert "there is no benchmark 'speed'; there are calls, hops, ticks" in capsys.readouterr().err
