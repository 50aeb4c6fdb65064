"""The states of a server as pure data: the allowed transitions, and the meaning of each event."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from mcp_actors.kernel import (
    Crashed,
    DeadLetter,
    Event,
    GaveUp,
    Overdue,
    RequestFinished,
    RequestStarted,
    Restarting,
    Started,
    StartFailed,
    Starting,
    StopFailed,
    Stopped,
    Stopping,
)
from mcp_actors.servers import ServerState
from mcp_actors.servers.record._states import (
    ACTIVE,
    CONNECTED,
    FAILED,
    LISTED_STATES,
    TRANSITIONS,
    Draining,
    HealthChanged,
    Recovered,
    next_state,
)

STATES: Final[tuple[ServerState, ...]] = get_args(ServerState)

MAPPING: Final[dict[str, ServerState]] = {
    "pending": "pending",
    "running": "connecting",
    "healthy": "ready",
    "unhealthy": "unhealthy",
    "reconnecting": "backoff",
    "stopped": "stopped",
    "failed": "failed",
}
"""The states that manager guides speak of, and ours."""

DOCS: Final = Path(__file__).parents[2] / "docs"

MEANING: Final[list[tuple[type[Event], dict[str, Any], ServerState]]] = [
    (Starting, {}, "connecting"),
    (Started, {}, "ready"),
    (Crashed, {"error": None}, "backoff"),
    (Restarting, {"attempt": 1, "delay": 0.0}, "backoff"),
    (GaveUp, {"error": None}, "failed"),
    (Stopping, {"reason": "shutdown"}, "stopping"),
    (Stopped, {}, "stopped"),
]

WITHOUT_MEANING: Final[list[tuple[type[Event], dict[str, Any]]]] = [
    (StartFailed, {"error": OSError()}),
    (StopFailed, {"error": OSError()}),
    (RequestStarted, {"message": "CallTool"}),
    (RequestFinished, {"message": "CallTool", "seconds": 0.1, "error": None}),
    (DeadLetter, {"message": "CallTool"}),
    (Overdue, {"seconds": 1.0}),
    (Draining, {"requests": 1, "seconds": 30.0}),
]


def rows(page: str, header: str) -> list[list[str]]:
    """Return the states in each row of the table with this text in its header."""
    table = next(part for part in (DOCS / page).read_text().split("\n\n") if header in part.splitlines()[0])
    return [re.findall(r"`([a-z_]+)`", line) for line in table.splitlines()[2:]]


def make(kind: type[Event], fields: dict[str, Any]) -> Event:
    return kind(actor="a", incarnation=1, time=0.0, **fields)


def life(*kinds: type[Event]) -> list[ServerState]:
    """Return the states that a server goes through, by the events of its actor."""
    fields = {kind: its for kind, its, _ in MEANING}
    states: list[ServerState] = ["pending"]
    for kind in kinds:
        new = next_state(states[-1], make(kind, fields[kind]))
        if new != states[-1]:
            states.append(new)
    return states


def test_the_states_of_the_guides_have_their_counterparts_here() -> None:
    """S2-02: every state there is one here; others are the time a stop takes, half a connect, and no sign-in."""
    assert {*MAPPING.values()} | {"stopping", "degraded", "needs_auth"} == {*STATES} == {*TRANSITIONS}


def test_the_page_has_the_table_of_transitions() -> None:
    """S2-03: exactly these."""
    written = {state: frozenset(others) for state, *others in rows("design/index.md", "may be followed by")}
    assert written == TRANSITIONS


def test_the_table_of_views_has_every_state() -> None:
    named = {word for line in rows("howto/states.md", "`connected`") for word in line}
    assert named >= {*STATES}


def test_every_state_can_be_reached_and_left() -> None:
    """S2-03: a server is never in a state from which it cannot come back."""
    for state in STATES:
        reached: set[ServerState] = {state}
        while more := {after for before in reached for after in TRANSITIONS[before]} - reached:
            reached |= more
        assert "ready" in reached


@pytest.mark.parametrize(("kind", "fields", "new"), MEANING)
def test_an_event_leads_to_its_state_or_is_refused(kind: type[Event], fields: dict[str, Any], new: ServerState) -> None:
    """S2-03: the table is checked at every event."""
    event = make(kind, fields)
    for state in STATES:
        if new == state or new in TRANSITIONS[state]:
            assert next_state(state, event) == new
        else:
            words = f"server 'a': cannot go from '{state}' to '{new}' by {kind.__name__}"
            with pytest.raises(RuntimeError, match=words):
                next_state(state, event)


def test_a_connection_that_does_not_bring_all_is_degraded_until_it_does() -> None:
    """S2-03, S2-23: it never was ready before."""
    assert next_state("connecting", make(Started, {}), serving="degraded") == "degraded"
    assert next_state("degraded", make(Recovered, {})) == "ready"
    assert next_state("degraded", make(Crashed, {"error": None})) == "backoff"


def test_a_server_that_is_given_up_may_need_a_sign_in() -> None:
    gave_up = make(GaveUp, {"error": None})
    assert next_state("connecting", gave_up, parked="needs_auth", stopped="pending") == "needs_auth"
    assert next_state("needs_auth", make(Starting, {}), parked="needs_auth") == "connecting"


def test_an_idle_server_waits_for_its_next_use_after_its_stop() -> None:
    stopped = make(Stopped, {})
    assert next_state("stopping", stopped, parked="needs_auth", stopped="pending") == "pending"


def test_a_connected_server_goes_up_and_down_with_its_health() -> None:
    """S2-03: every way between ready, degraded and unhealthy."""
    worse = make(HealthChanged, {})
    for before in CONNECTED:
        for after in CONNECTED:
            assert next_state(before, worse, serving=after) == after
        assert next_state(before, make(Crashed, {"error": None}), serving=before) == "backoff"


def test_other_events_change_nothing() -> None:
    for kind, fields in WITHOUT_MEANING:
        for state in STATES:
            assert next_state(state, make(kind, fields)) == state


def test_the_life_of_a_server_that_dies_comes_back_and_is_given_up() -> None:
    """S2-03: pending, running, healthy, reconnecting, running, healthy, reconnecting, running, failed."""
    states = life(Starting, Started, Crashed, Restarting, Starting, Started, Crashed, Restarting, Starting, GaveUp)
    words = ["pending", "running", "healthy", "reconnecting", "running", "healthy", "reconnecting", "running", "failed"]
    assert states == [MAPPING[word] for word in words]


def test_the_views_are_made_of_states() -> None:
    """S2-02: what is connected, active, failed and listed, state by state."""
    views = {state: [view for view in (CONNECTED, ACTIVE, FAILED, LISTED_STATES) if state in view] for state in STATES}
    assert views == {
        "pending": [LISTED_STATES],
        "connecting": [LISTED_STATES],
        "ready": [CONNECTED, ACTIVE, LISTED_STATES],
        "degraded": [CONNECTED, ACTIVE, LISTED_STATES],
        "unhealthy": [CONNECTED, FAILED, LISTED_STATES],
        "backoff": [FAILED, LISTED_STATES],
        "failed": [FAILED],
        "needs_auth": [FAILED],
        "stopping": [],
        "stopped": [],
    }
