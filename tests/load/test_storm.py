"""A-09, under load: whatever happens to the server, each call has one outcome and is carried out at most once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ..programs import FULL_SIZE
from .storm import EVERY, Storm

CALLS: Final = 100_000 if FULL_SIZE else 10_000
ANSWERS: Final = EVERY if FULL_SIZE else EVERY // 4

MAY_GROW: Final = 16 * 2**20
"""Bytes. What is kept per call, however little, would be far more after many calls; an allocator's slack is less."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see how much memory there is")
async def test_in_a_storm_of_kills_each_call_has_one_outcome_and_no_effect_is_doubled(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A-09, A-03: a thousand callers, and a SIGKILL of their server after each thousand answers."""
    report = await Storm(CALLS, ANSWERS).run(tmp_path)
    record_property("note", str(report))
    assert report.kept()
    assert report.kills > 0
    assert report.grown < MAY_GROW


@pytest.mark.usefixtures("programs_in_forks")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the servers behind a host")
async def test_outcomes_come_back_by_name_when_hosts_and_the_servers_behind_them_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Two child processes serve a server each."""
    calls, kills = (CALLS, 6) if FULL_SIZE else (CALLS // 4, 3)
    report = await Storm(calls, calls // kills, hosts=2).run(tmp_path)
    record_property("note", str(report))
    assert report.kept()
    assert report.behind > 0
    assert report.kills > report.behind
