"""The tasks of a connection are repeated with growing delays, and logged once."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import HttpStatusError
from mcp_actors._backoff import Backoff
from mcp_actors._errors import ActorCrashed, ActorStopped
from mcp_actors.servers.connection._upkeep import keep_trying

BACKOFF = Backoff(first=1, initial=2)


def busy(seconds: float) -> HttpStatusError:
    return HttpStatusError("busy", server="a", status=503, retry_after=seconds)


class Attempts:
    """Attempts that fail with each error in turn, and then succeed."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.times: list[float] = []

    async def __call__(self) -> None:
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        if self.errors:
            raise self.errors.pop(0)


def describe(error: Exception, delay: float) -> str | None:
    return None if isinstance(error, KeyError) else f"{error}, again in {delay:g} s"


async def test_delays_grow_and_only_the_first_failure_is_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = Attempts(*[ValueError("no")] * 3)
    with caplog.at_level(logging.DEBUG, "mcp_actors.servers"):
        assert await keep_trying(attempts, BACKOFF, describe)
    assert attempts.times == [0, 1, 3, 7]
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "no, again in 1 s"),
        (logging.DEBUG, "no, again in 2 s"),
        (logging.DEBUG, "no, again in 4 s"),
    ]


async def test_a_longer_retry_after_is_obeyed_and_a_shorter_one_is_not(autojump_clock: MockClock) -> None:
    attempts = Attempts(busy(30), busy(0.5))
    assert await keep_trying(attempts, BACKOFF, describe)
    assert attempts.times == [0, 30, 32]


async def test_earlier_failures_delay_the_first_attempt(autojump_clock: MockClock) -> None:
    attempts = Attempts(ValueError("no"))
    assert await keep_trying(attempts, BACKOFF, describe, failures=2)
    assert attempts.times == [2, 6]


@pytest.mark.parametrize("end", [ActorCrashed("over", actor="a"), ActorStopped("over", actor="a"), KeyError("final")])
async def test_the_end_of_the_connection_and_a_final_failure_end_the_attempts(
    end: Exception, autojump_clock: MockClock
) -> None:
    attempts = Attempts(ValueError("no"), end)
    assert not await keep_trying(attempts, BACKOFF, describe)
    assert attempts.times == [0, 1]
