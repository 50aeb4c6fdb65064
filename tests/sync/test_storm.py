"""Sixteen threads call a server that is killed again and again: each call has one outcome, and one effect at most."""

from __future__ import annotations

import os
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcp_actors import ConnectionLost, ServerConfig, Stdio
from mcp_actors.sync import open_servers
from tests.load import counting_server
from tests.load.storm import AT_ONCE
from tests.programs import FULL_SIZE, SEED

THREADS: Final = 16
CALLS: Final = 1000 if FULL_SIZE else 150
EVERY: Final = 200
"""Calls from one kill to the next."""


def test_in_a_storm_of_kills_each_call_of_a_thread_has_one_outcome(tmp_path: Path) -> None:
    """A-09: answered ⊆ carried out ⊆ answered or unknown, by the file that the server itself writes."""
    ledger = tmp_path / "ledger"
    draw = random.Random(SEED)
    config = ServerConfig(
        "counting",
        Stdio(sys.executable, (counting_server.__file__, str(ledger))),
        protocol="legacy",
        restarts=AT_ONCE,
        request_timeout=None,
    )

    def call(id: int) -> tuple[int, str]:
        if id % EVERY == EVERY // 2 and (pid := ref.statistics().pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        dies = id == EVERY  # a SIGKILL may find no call in flight; this call takes its server along
        try:
            result = ref.call_tool("run", {"id": id, "die": dies}, meta=draw.choice((None, {"k": 1})))
        except ConnectionLost as error:
            return id, error.outcome
        assert result.content[0].text == str(id)  # type: ignore[union-attr]  # text
        return id, "answered"

    with open_servers(config) as servers, ThreadPoolExecutor(THREADS) as threads:
        ref = servers["counting"]
        outcomes = list(threads.map(call, range(THREADS * CALLS)))
        incarnations = ref.statistics().incarnation
        assert (ref.statistics().in_flight, ref.statistics().queued) == (0, 0)
    answered = {id for id, outcome in outcomes if outcome == "answered"}
    unknown = {id for id, outcome in outcomes if outcome == "unknown"}
    carried_out = [int(line) for line in ledger.read_bytes().splitlines()]
    assert len(outcomes) == len(answered) + len(unknown) == THREADS * CALLS
    assert len(carried_out) == len({*carried_out})
    assert answered <= {*carried_out} <= answered | unknown
    assert unknown
    assert incarnations > 2
