"""State shared by all requests to one server, on whichever connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._breaker import Breaker
from ._deadlines import Deadlines
from ._latency import LatencyCounts
from ._retry import RetryTokens

if TYPE_CHECKING:
    from ...config import ServerConfig
    from ._deadlines import DeadlineTimer


class Calls:
    """The state of the policies of one server, for all its requests; written by their callers.

    Attributes:
        deadlines: their deadlines, also while the server is down.
        tokens: the rest of the retry budget.
        breaker: the circuit breaker, if one is configured.
        latency: counts of outcomes and durations.
    """

    def __init__(self, config: ServerConfig, timer: DeadlineTimer | None = None) -> None:
        self.deadlines: Deadlines = Deadlines(config.name, config.request_timeout, config.progress_timeout, timer)
        self.latency: LatencyCounts = LatencyCounts()
        self._begin_anew(config)

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration, also for the requests that wait."""
        self.deadlines.set_limits(config.request_timeout, config.progress_timeout)
        self._begin_anew(config)

    def _begin_anew(self, config: ServerConfig) -> None:
        self.tokens: RetryTokens = RetryTokens(config.retry.budget)
        self.breaker: Breaker | None = Breaker(config.name, config.breaker) if config.breaker is not None else None
