"""What holds for every test of servers: no event finds a server in a state in which it could not happen."""

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
