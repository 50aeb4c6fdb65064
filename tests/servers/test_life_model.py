"""Wishes about a server are carried out in any order of events, and their callers learn the truth."""

from __future__ import annotations

import pytest

from mcp_actors.servers.record import SERVER_STATES, Wanted, due
from mcp_actors.servers.record._wanted import Seen

from ..programs import FULL_SIZE
from .life_model import Explored, configuration, explore

SIZES = [(1, 2, 1)] if not FULL_SIZE else [(1, 3, 2), (1, 4, 2), (2, 2, 1), (2, 3, 1)]
"""Replicas, operations and accidents. A second accident finds no change of the decisions that one does not find."""


@pytest.fixture(scope="module", params=SIZES, ids=str)
def explored(request: pytest.FixtureRequest) -> Explored:
    return explore(*request.param)


def test_every_order_of_operations_accidents_and_steps_ends_well(explored: Explored) -> None:
    """C-62, C-65: callers learn what is true, no request is forgotten, and the latest wish wins."""
    assert explored.problems == {}
    assert explored.stuck == 0
    assert explored.states > 10_000


def test_nothing_is_done_about_a_server_that_its_supervisor_restarts() -> None:
    """A restart after a failure is the supervisor's, and so is the next attempt of one that was given up."""
    wanted = Wanted(configuration(0, "eager"), "run", generation=3, fresh=2)
    for state in SERVER_STATES:
        if state not in ("pending", "stopped"):
            seen = [Seen(state, began=2, broke=3)]
            assert due(wanted, seen, current=True, kept=False) is None
