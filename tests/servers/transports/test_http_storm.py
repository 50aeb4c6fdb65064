"""An HTTP server that dies, comes back and forgets sessions during calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
import trio

from mcp_actors import (
    Backoff,
    ConnectionLost,
    Http,
    HttpStatusError,
    RestartPolicy,
    ServerConfig,
    ServerRef,
    Sse,
    open_servers,
)

from ..faults.http_faults import FaultyServer, faulty_server
from ..processes import BOUND

CALLERS = 20
CALLS = 5
"""By each caller, one after the other."""

EVERY = 12
"""So many calls have ended when something happens to the server again."""

STEADY = RestartPolicy(max_restarts=1000, backoff=Backoff(first=0.0, initial=0.01, maximum=0.05))


class Storm:
    """The calls, their outcomes, and the faults of the server meanwhile."""

    def __init__(self, server: FaultyServer, ref: ServerRef, chance: random.Random) -> None:
        self.outcomes: dict[int, str] = {}
        self._server = server
        self._ref = ref
        self._chance = chance
        self._mischief: list[Callable[[], None]] = [self._restart, self._restart_politely, server.forget]

    async def call(self, caller: int) -> None:
        for number in range(caller * CALLS, (caller + 1) * CALLS):
            try:
                await self._ref.call_tool("sleep", {"seconds": self._chance.choice([0, 0.01]), "number": number})
                self.outcomes[number] = "answered"
            except ConnectionLost as error:
                self.outcomes[number] = error.outcome
            except HttpStatusError:
                self.outcomes[number] = "refused"  # the server has forgotten two sessions in a row
            if len(self.outcomes) % EVERY == 0:
                self._chance.choice(self._mischief)()

    def _restart(self) -> None:
        self._server.die()
        self._server.listen()

    def _restart_politely(self) -> None:
        self._server.refuse()
        self._server.listen()


@pytest.mark.parametrize("kind", ["modern", "legacy", "sse"])
async def test_every_call_has_one_outcome_and_none_is_executed_twice(kind: str) -> None:
    """A-06, A-09: an answered call was executed once, a lost one at most once, a refused one not. No other error."""
    seed = random.randrange(2**32)
    with faulty_server("modern" if kind == "modern" else "legacy") as server:
        transport = Sse(server.url("/sse")) if kind == "sse" else Http(server.url())
        async with open_servers(ServerConfig("web", transport, restarts=STEADY)) as servers:
            storm = Storm(server, servers["web"], random.Random(seed))
            with trio.fail_after(6 * BOUND):
                async with trio.open_nursery() as nursery:
                    for caller in range(CALLERS):
                        nursery.start_soon(storm.call, caller)
        carried_out = Counter(arguments["number"] for arguments in server.used)
    answered = {number for number, outcome in storm.outcomes.items() if outcome == "answered"}
    assert len(storm.outcomes) == CALLERS * CALLS, f"seed {seed}"
    assert {number: carried_out[number] for number in answered if carried_out[number] != 1} == {}, f"seed {seed}"
    assert {number: count for number, count in carried_out.items() if count > 1} == {}, f"seed {seed}"
    assert not any(carried_out[number] for number, outcome in storm.outcomes.items() if outcome == "refused")
