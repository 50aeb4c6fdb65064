"""Some *server* scenarios through the gateway; ``nox -s conformance-gateway`` runs all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .gateway import REVISIONS, compare, lost

FEW = {"2025-11-25": ["tools-call-sampling"], "2026-07-28": ["input-required-result-multi-round"]}
"""In each era one of a tool that asks its user, through all that a plain call goes through, and both ways."""


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_succeeds_directly_succeeds_through_the_gateway(revision: str, tmp_path: Path) -> None:
    directly, passed = compare(revision, tmp_path, FEW[revision])
    assert len(directly) >= 2
    assert lost(directly, passed, set()) == []


def test_a_check_that_is_lost_is_shown() -> None:
    directly = {("a", "1"): Counter(SUCCESS=2), ("a", "2"): Counter(FAILURE=1), ("b", "3"): Counter(SUCCESS=1)}
    passed = {("a", "1"): Counter(SUCCESS=1, FAILURE=1)}
    assert lost(directly, passed, {"b"}) == ["a: 1: {'SUCCESS': 1, 'FAILURE': 1}"]
    assert lost(directly, directly, set()) == []
    assert lost(directly, {**directly, ("c", "4"): Counter(FAILURE=1)}, set()) == ["c: 4: {'FAILURE': 1}"]
