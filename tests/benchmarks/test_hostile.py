"""The table of attacks works, for ours and for the SDK's client; its figures are for ``nox -s bench``."""

from __future__ import annotations

import pytest

from . import hostile
from .hostile import HEAD, PEERS, judged, measured, parsing, row

pytestmark = pytest.mark.usefixtures("programs_in_forks")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("attack", ["stderr, lines", "HTTP: comments"])
def test_an_attack_is_a_row_of_the_table(attack: str, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "PATIENCE", 300.0)
    found = measured(peer, attack, quiet=0.1, loud=0.2)
    assert found is not None
    assert found["step"] > 0
    assert len(row(attack, peer, found)) == len(HEAD)
    assert [figure.bound for figure in judged(attack, found)] == [20, 3, 100]


def test_a_process_that_ends_early_misses_its_bound() -> None:
    found = measured(PEERS[0], "no such attack")
    assert found is None
    assert [figure.verdict for figure in judged("x", found)] == ["FAIL"]
    assert "stood still" in row("x", PEERS[0], found)


def test_parsing_has_a_figure_of_its_own() -> None:
    assert all(0 < figure.value < 1000 for figure in parsing())
