"""Count the instructions of a tool call over stdio: figures that no other load changes.

Each client runs under Valgrind's callgrind, which counts from the moment the client is connected. A figure is the
difference of two rounds of different lengths, so that whatever a round does besides its calls cancels out.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .figures import Figure
from .peers import BY_HAND, CALLERS, OURS
from .peers.contest import Contestant, enter

BOUNDS: Final = (1.5, 1.6, 1.6)
"""For each number of callers, our instructions compared with those of the minimal client."""

PEERS: Final = (BY_HAND, OURS, "mcp.Client")

SHORT: Final = 256
LONG: Final = 1024
"""The calls of the two rounds, for any number of callers."""

VALGRIND: Final = (
    *("env", "PYTHONHASHSEED=0"),
    *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"),
)


def control(contestant: Contestant, option: str) -> str:
    """Tell callgrind something, and return its answer."""
    arguments = ["callgrind_control", option, str(contestant.pid)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def counted(contestant: Contestant) -> int:
    """Return the instructions so far, of all threads.

    Raises:
        RuntimeError: callgrind does not answer.
    """
    answer = control(contestant, "-e")
    threads = re.findall(r"Th \d+ +([\d,]+)", answer)
    if not threads:
        raise RuntimeError(f"callgrind_control does not tell the instructions: {answer!r}")
    return sum(int(each.replace(",", "")) for each in threads)


@contextmanager
def enter_counted(peer: str) -> Iterator[Contestant]:
    """Start the process of a peer under callgrind, which counts once the peer is connected and warm."""
    with enter("calls", peer, under=VALGRIND) as contestant:
        for callers in CALLERS:
            contestant.play(callers, SHORT)
        control(contestant, "--instr=on")
        contestant.play(1, 1)  # without it there is no counter to read
        yield contestant


def instructions(contestant: Contestant, callers: int) -> float:
    """Return the instructions of a call."""
    counts = [counted(contestant)]
    for calls in (SHORT, LONG):
        contestant.play(callers, calls)
        counts.append(counted(contestant))
    before, between, after = counts
    return ((after - between) - (between - before)) / (LONG - SHORT)


def figures() -> list[Figure]:
    """Count for ours, the minimal client, and the client of the SDK."""
    found: dict[str, list[float]] = {}
    for peer in PEERS:
        with enter_counted(peer) as contestant:
            found[peer] = [instructions(contestant, callers) for callers in CALLERS]
    return [
        *(
            Figure(f"instructions of a tool call, {peer}; callers: {callers}", count / 1000, "thousand")
            for peer in PEERS
            for callers, count in zip(CALLERS, found[peer], strict=True)
        ),
        *(
            Figure(
                f"instructions of a tool call, to {peer}; callers: {callers}",
                ours / theirs,
                "",
                bound=bound if peer == BY_HAND else None,
            )
            for peer in (BY_HAND, "mcp.Client")
            for callers, ours, theirs, bound in zip(CALLERS, found[OURS], found[peer], BOUNDS, strict=True)
        ),
    ]
