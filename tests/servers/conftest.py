"""Check in every test of servers that no event arrives in a state in which it cannot happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_observer_has_raised(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which an observer raised: a group's own observer checks every change of state."""
    yield
    raised = [record for record in caplog.get_records("call") if record.getMessage().startswith("observer ")]
    if raised:
        pytest.fail("\n".join(f"{record.getMessage()}: {record.exc_info}" for record in raised), pytrace=False)
