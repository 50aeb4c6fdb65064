"""Compare `ServerRef.call_tool` with other clients of MCP servers, all in one run.

Every peer runs in a process of its own, the way its users run it: with its defaults, on its own event loop. All talk to
the same trivial server over stdio. The rounds that are compared were played one right after the other.
"""

from __future__ import annotations

import statistics
import subprocess
from time import perf_counter
from typing import Final

from ..figures import Figure
from ..measuring import median_ratio
from ..servers import Pipe
from . import quick_server
from .contest import TYPESCRIPT, enter, enter_all, play_rounds

OURS: Final = "ServerRef"

CALLERS: Final = (1, 16, 128)
BY_HAND: Final = "by hand on Trio"
"""A client on Trio's pipes that does what a call needs, validates the result, and nothing else."""

CALL_BOUNDS: Final = {
    BY_HAND: (1.8, 1.4, 1.8),
    "mcp.Client": (0.38, 0.25, 0.25),
    "ClientSessionGroup": (0.65, 0.30, 0.28),
    "openai-agents": (0.40, 0.22, 0.24),
    "fastmcp": (0.50, 0.20, 0.18),
    "pydantic-ai": (0.45, 0.18, 0.16),
    TYPESCRIPT: (1.0, 1.2, 1.4),
}
"""For each number of callers, how long ours may take in comparison. `mcp.Client` is on Trio and on the SDK's own
transport; the other libraries for Python are on asyncio."""

OTHER_TRANSPORTS: Final = {
    "HTTP": (256, (1.05, 1.05, 1.05)),
    "HTTP, events": (256, (1.05, 1.05, 1.05)),
    "in process": (1024, (1.2, 1.1, 1.1)),
    "in process, legacy": (1024, (0.75, 0.7, 0.7)),
}
"""Besides stdio: the calls of a round, and the bounds compared with `mcp.Client`."""

CALL_ROUNDS: Final = 21
CALLS: Final = 1024
"""Per round: some fifth of a second, long enough that each pays its share of the garbage collector."""

BRIDGED_BOUNDS: Final = {"bridge, thread": (0.70, 0.40, 0.35), "bridge, guest": (1.0, 1.0, 1.0)}
"""To openai-agents, by the number of callers."""

LINE_BYTES: Final = 32 * 1024 * 1024
LINE_BOUND: Final = 0.1
LINE_ROUNDS: Final = 3
PARSING_BOUND: Final = 60.0
STALL_BOUND: Final = 10.0
"""Milliseconds. The longest step is the one that parses; no other may be long."""

SERVERS: Final = 16
START_SECONDS: Final = 0.3
START_ROUNDS: Final = 21
START_BOUND: Final = 0.95
"""To openai-agents, which lists the tools too. There is not much to win: nearly all of the time is sixteen processes
that start on the same cores. On two cores even a minimal client exceeds this bound."""

RECOVERY_ROUNDS: Final = 41
RECOVERY_BOUND: Final = 1.2


def calls() -> list[Figure]:
    """Small tool calls."""
    found = []
    with enter_all("calls", [OURS, *CALL_BOUNDS]) as contestants:
        for index, callers in enumerate(CALLERS):
            play_rounds(contestants, 1, callers, CALLS)  # so that no round pays for what happens only once
            seconds = play_rounds(contestants, CALL_ROUNDS, callers, CALLS)
            ours = seconds.pop(OURS)
            label = f"a tool call; callers: {callers}"
            found.append(Figure(label, statistics.median(ours) / CALLS * 1e6, "µs"))
            found += [
                Figure(f"{label}, to {peer}", median_ratio(ours, theirs), "", bound=CALL_BOUNDS[peer][index])
                for peer, theirs in seconds.items()
            ]
    return found


def calls_over_other_transports() -> list[Figure]:
    """Small tool calls over HTTP and in process, compared with `mcp.Client`."""
    found = []
    for transport, (calls, bounds) in OTHER_TRANSPORTS.items():
        ours, theirs = f"{OURS}, {transport}", f"mcp.Client, {transport}"
        with enter_all("calls", [ours, theirs]) as contestants:
            for callers, bound in zip(CALLERS, bounds, strict=True):
                play_rounds(contestants, 1, callers, calls)
                seconds = play_rounds(contestants, CALL_ROUNDS, callers, calls)
                label = f"a tool call, {transport}; callers: {callers}"
                found += [
                    Figure(label, statistics.median(seconds[ours]) / calls * 1e6, "µs"),
                    Figure(f"{label}, to mcp.Client", median_ratio(seconds[ours], seconds[theirs]), "", bound=bound),
                ]
    return found


def bridged_calls() -> list[Figure]:
    """Small tool calls of programs on asyncio."""
    found = []
    with enter_all("calls", [*BRIDGED_BOUNDS, "openai-agents"]) as contestants:
        for index, callers in enumerate(CALLERS):
            play_rounds(contestants, 1, callers, CALLS)
            seconds = play_rounds(contestants, CALL_ROUNDS, callers, CALLS)
            found += [
                Figure(
                    f"a tool call from asyncio, {ours}; callers: {callers}, to openai-agents",
                    median_ratio(seconds[ours], seconds["openai-agents"]),
                    "",
                    bound=bounds[index],
                )
                for ours, bounds in BRIDGED_BOUNDS.items()
            ]
    return found


def long_line() -> list[Figure]:
    """An answer of 32 MB in one line."""
    with enter_all("long_line", [OURS, "mcp.Client"]) as contestants:
        rounds = play_rounds(contestants, LINE_ROUNDS, LINE_BYTES)
    ours, theirs = ([seconds for seconds, _ in rounds[peer]] for peer in (OURS, "mcp.Client"))
    parsing, other = (statistics.median(each) * 1e3 for each in zip(*(steps for _, steps in rounds[OURS]), strict=True))
    return [
        Figure("an answer of 32 MB", statistics.median(ours) * 1e3, "ms"),
        Figure("an answer of 32 MB, to mcp.Client", median_ratio(ours, theirs), "", bound=LINE_BOUND),
        Figure("an answer of 32 MB, the longest step", parsing, "ms", bound=PARSING_BOUND),
        Figure("an answer of 32 MB, the longest step but one", other, "ms", bound=STALL_BOUND),
    ]


def starts() -> list[Figure]:
    """Servers that take their time to start."""
    with enter_all("starts", [OURS, BY_HAND, "openai-agents"]) as contestants:
        play_rounds(contestants, 1, SERVERS, START_SECONDS)
        seconds = play_rounds(contestants, START_ROUNDS, SERVERS, START_SECONDS)
    label = f"connect {SERVERS} servers that take {START_SECONDS} s"
    agents = seconds["openai-agents"]
    return [
        Figure(label, statistics.median(seconds[OURS]) * 1e3, "ms"),
        Figure(f"{label}, to openai-agents", median_ratio(seconds[OURS], agents), "", bound=START_BOUND),
        Figure(f"{label}, by hand, to openai-agents", median_ratio(seconds[BY_HAND], agents), ""),
    ]


def start_by_hand() -> float:
    """Start the server and talk to it without any library; return the seconds until it has listed its tools."""
    began = perf_counter()
    with subprocess.Popen(quick_server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        Pipe(process).ask("tools/list", {})
        return perf_counter() - began


def recovery() -> list[Figure]:
    """Recovery from a killed server, compared with a plain start of it."""
    with enter("recovery", OURS) as contestant:
        contestant.play()
        start_by_hand()
        rounds = [(contestant.play(), start_by_hand()) for _ in range(RECOVERY_ROUNDS)]
    ours, by_hand = (list(each) for each in zip(*rounds, strict=True))
    return [
        Figure("ready again after SIGKILL", statistics.median(ours) * 1e3, "ms"),
        Figure("ready again after SIGKILL, to a start by hand", median_ratio(ours, by_hand), "", bound=RECOVERY_BOUND),
    ]


def figures() -> list[Figure]:
    """Compare ours with the others."""
    return calls() + calls_over_other_transports() + bridged_calls() + long_line() + starts() + recovery()
