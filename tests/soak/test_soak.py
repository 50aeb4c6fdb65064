"""A short soak of few servers; ``nox -s soak`` runs a long one of many."""

from __future__ import annotations

from collections.abc import Callable

from ..programs import SEED
from .soak import Size, Soak

FEW = Size(seconds=2.5, warm_up=0.0, stdio=3, replicated=1, http=1, guarded=0, callers=8, check=0.5, rest=0.2)


async def test_whatever_happens_each_call_has_one_outcome_and_nothing_is_left(
    record_property: Callable[[str, object], None],
) -> None:
    """S2-39: killed, suspended, reloaded, added, removed, idle and old servers."""
    report = await Soak(FEW, SEED).run()
    record_property("note", f"soak, PROGRAMS_SEED={SEED}: {report}".replace("\n", "; "))
    assert report.defects == []
    assert report.outcomes["answered"] > 0
