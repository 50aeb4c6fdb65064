"""Forms that type checkers accept run, forms that they refuse are refused, and ``nox -s typing`` runs four checkers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.source import ROOT, parse

from .__main__ import CHECKERS, EXAMPLES, wrong_lines
from .right import forms
from .wrong import configurations

RUNNABLE = ("transports", "servers", "policies")


@pytest.mark.parametrize("form", [forms.collections, forms.transports, forms.words_and_numbers])
def test_each_form_that_the_documentation_allows_is_accepted_when_it_runs(form: Callable[[], list[object]]) -> None:
    """D-91: ``python -m tests.typing`` says that each checker accepts them too."""
    assert len(form()) >= 15


def wrong_configurations() -> Iterator[str]:
    """Yield the wrong lines that make a configuration."""
    for function in parse(ROOT / "tests" / "typing" / "wrong" / "configurations.py").body:
        if isinstance(function, ast.FunctionDef) and function.name in RUNNABLE:
            yield from map(ast.unparse, function.body)


@pytest.mark.parametrize("line", [*wrong_configurations()])
def test_what_checkers_refuse_is_refused_when_it_runs(line: str) -> None:
    """D-91: the type that is written is the one that is checked."""
    with pytest.raises((TypeError, ValueError, AttributeError, OSError)):
        exec(line, vars(configurations).copy())


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_checker_must_refuse_nearly_all_wrong_lines(checker: str) -> None:
    """D-92: ``nox -s typing`` runs all four, and they check all examples too."""
    lines = dict(wrong_lines(checker))
    assert len(lines) >= 150
    assert sum(lines.values()) >= (0.93 if checker == "ty" else 0.98) * len(lines)
    assert len(EXAMPLES) >= 85
    assert 'session.run("python", "-m", "tests.typing")' in (ROOT / "noxfile.py").read_text()
