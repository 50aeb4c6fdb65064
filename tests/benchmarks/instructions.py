"""Count the instructions of a tool call: figures that no other load changes.

Each client runs under Valgrind's callgrind, which counts from the moment the client is connected. A figure is the
difference of two rounds of different lengths, so that whatever a round does besides its calls cancels out.

`floors` counts the minimal clients, one for each way to a server. `gateways` counts the process of a gateway, which has
a minimal client over stdio or HTTP, or a group with a `Socket`, whose process is counted then, too.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from attrs import frozen

from . import gateway, gateway_http
from .figures import Figure
from .peers import BY_HAND, CALLERS, OURS
from .peers.contest import Contestant, enter

BOUNDS: Final = (1.5, 1.6, 1.6)
"""For each number of callers, our instructions compared with those of the minimal client."""

MOST: Final = {
    "plain": (298, 220, 220),
    "progress": (585, 445, 440),
    "middleware": (385, 316, 312),
    "json": (1_380, 1_350, 1_640),
}
"""For each number of callers, the thousands of instructions of a call over stdio, by its kind, and of a plain call over
HTTP with JSON answers. They may grow by 1 %."""

SDK: Final = "mcp.Client"

TRANSPORTS: Final = {
    "stdio": "",
    "json": ", HTTP",
    "events": ", HTTP, events",
    "modern": ", in process",
    "legacy": ", in process, legacy",
}
"""The ends of the names of peers."""


@frozen
class Kind:
    """A kind of calls.

    Attributes:
        call: how they are made.
        configured: how ours is configured, by the end of its name.
        peer: what it is compared with, doing the same unless it cannot.
        over_stdio: the bounds of the ratio over stdio, for each number of callers.
        elsewhere: those over other transports.
    """

    call: str
    configured: str = ""
    peer: str = SDK
    over_stdio: tuple[float, ...] = (1.0, 1.0, 1.0)
    elsewhere: tuple[float, ...] = (1.0, 1.0, 1.0)


KINDS: Final = {
    "progress": Kind("progress", over_stdio=(0.6, 0.6, 0.6)),
    "_meta": Kind("_meta", over_stdio=(0.5, 0.5, 0.5)),
    "span": Kind("span", over_stdio=(0.7, 0.7, 0.7)),
    "schema": Kind("plain", ", schema"),
    # Each call has a cancel scope, so 1.15 is not reachable.
    "middleware": Kind("plain", ", middleware", OURS, (1.3, 1.45, 1.45), (1.3, 1.45, 1.45)),
}

FEW: Final = (128, 384)
"""The calls of the two rounds of these."""

MANY: Final = (256, 2304)
"""Likewise, of a figure that is the small difference of two others."""

OBSERVED: Final = f"{OURS}, metrics"

ADDED: Final = 9.0
"""The thousands of instructions that metrics may add; 2 µs with one caller, and 1.5 µs with 16."""

PEERS: Final = (BY_HAND, OURS, "mcp.Client")

SHORT: Final = 256
LONG: Final = 1024
"""The calls of the two rounds, for any number of callers."""

VALGRIND: Final = (
    *("env", "PYTHONHASHSEED=0"),
    *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"),
)


def control(pid: int, option: str) -> str:
    """Tell the callgrind of a process something, and return its answer."""
    arguments = ["callgrind_control", option, str(pid)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def counted(pid: int) -> int:
    """Return the instructions so far, of all threads.

    Raises:
        RuntimeError: callgrind does not answer.
    """
    answer = control(pid, "-e")
    threads = re.findall(r"Th \d+ +([\d,]+)", answer)
    if not threads:
        raise RuntimeError(f"callgrind_control does not tell the instructions: {answer!r}")
    return sum(int(each.replace(",", "")) for each in threads)


@contextmanager
def enter_counted(peer: str) -> Iterator[Contestant]:
    """Start the process of a peer under callgrind, which counts once the peer is connected."""
    with enter("counted", peer, under=VALGRIND) as contestant:
        control(contestant.pid, "--instr=on")
        contestant.play(1, 1, "plain")  # without it there is no counter to read
        yield contestant


def instructions(
    contestant: Contestant, callers: int, call: str = "plain", rounds: tuple[int, int] = (SHORT, LONG)
) -> float:
    """Return the instructions of a call of a peer."""
    return per_call(lambda calls: contestant.play(callers, calls, call), [contestant.pid], rounds)


def per_call(play: Callable[[int], object], pids: Sequence[int], rounds: tuple[int, int] = (SHORT, LONG)) -> float:
    """Return the instructions of a call in some processes together; `play` makes so many calls."""
    play(CALLERS[-1])  # so that no round pays for what happens only once
    counts = [sum(map(counted, pids))]
    for calls in rounds:
        play(calls)
        counts.append(sum(map(counted, pids)))
    before, between, after = counts
    return ((after - between) - (between - before)) / (rounds[1] - rounds[0])


def figures_of(kinds: Sequence[str], transports: Sequence[str]) -> Iterator[Figure]:
    """Count calls of some kinds over some transports; each peer is started once for each transport."""
    for transport in transports:
        found: dict[tuple[str, str], list[float]] = {}
        pairs = {(f"{OURS}{TRANSPORTS[transport]}{KINDS[kind].configured}", KINDS[kind].call) for kind in kinds}
        pairs |= {(f"{KINDS[kind].peer}{TRANSPORTS[transport]}", KINDS[kind].call) for kind in kinds}
        for peer in sorted({peer for peer, _ in pairs}):
            with enter_counted(peer) as contestant:
                for call in sorted(call for each, call in pairs if each == peer):
                    found[peer, call] = [instructions(contestant, callers, call, FEW) for callers in CALLERS]
        for kind in kinds:
            yield from compare(kind, transport, found)


def compare(kind: str, transport: str, found: dict[tuple[str, str], list[float]]) -> Iterator[Figure]:
    """Compare ours with the peer of a kind."""
    row, end = KINDS[kind], TRANSPORTS[transport]
    ours, theirs = found[f"{OURS}{end}{row.configured}", row.call], found[f"{row.peer}{end}", row.call]
    bounds = row.over_stdio if transport == "stdio" else row.elsewhere
    if transport == "stdio" and kind in MOST:
        yield from absolute(f"instructions of a tool call, {kind}", ours, MOST[kind])
    for callers, our, their, bound in zip(CALLERS, ours, theirs, bounds, strict=True):
        remark = f"{our / 1000:.0f} to {their / 1000:.0f} thousand"
        label = f"instructions, {kind}, {transport}, to {row.peer}; callers: {callers}"
        yield Figure(label, our / their, "", bound=bound, remark=remark)


def absolute(label: str, counts: Sequence[float], most: Sequence[int] | None = None) -> Iterator[Figure]:
    """Show the instructions of a call for each number of callers, which may exceed what is allowed by 1 %."""
    for number, (callers, count) in enumerate(zip(CALLERS, counts, strict=True)):
        bound = None if most is None else most[number] * 1.01
        yield Figure(f"{label}; callers: {callers}", count / 1000, "thousand", bound=bound)


def plain() -> list[Figure]:
    """Count for ours, the minimal client, and the client of the SDK, over stdio."""
    found: dict[str, list[float]] = {}
    for peer in PEERS:
        with enter_counted(peer) as contestant:
            found[peer] = [instructions(contestant, callers) for callers in CALLERS]
    return [
        *(
            figure
            for peer in PEERS
            for figure in absolute(
                f"instructions of a tool call, {peer}", found[peer], MOST["plain"] if peer == OURS else None
            )
        ),
        *(
            Figure(
                f"instructions of a tool call, to {peer}; callers: {callers}",
                ours / theirs,
                "",
                bound=bound if peer == BY_HAND else None,
            )
            for peer in (BY_HAND, SDK)
            for callers, ours, theirs, bound in zip(CALLERS, found[OURS], found[peer], BOUNDS, strict=True)
        ),
    ]


def metrics() -> list[Figure]:
    """Count what metrics add to a plain call over stdio."""
    found: dict[str, list[float]] = {}
    for peer in (OURS, OBSERVED):
        with enter_counted(peer) as contestant:
            found[peer] = [instructions(contestant, callers, "plain", MANY) for callers in CALLERS]
    label = "instructions that metrics add to a tool call; callers: {}"
    return [
        Figure(label.format(callers), (one - other) / 1000, "thousand", bound=ADDED)
        for callers, one, other in zip(CALLERS, found[OBSERVED], found[OURS], strict=True)
    ]


# --- The floors, and gateways -----------------------------------------------------------------------------------------

FLOORS: Final = {**TRANSPORTS, "socket": ", Socket"}
"""The ends of the names of the minimal clients, and of ours on the same way."""

GATEWAY_BOUNDS: Final = {"stdio": 2.0, "HTTP": 2.5, "socket": 3.0}
"""With one caller, how many times the instructions of our direct call over stdio the process of a gateway may take, by
the way of its client; over the socket, together with the process of the group that is its client."""

UNCOLLECTED: Final = "import gc, runpy; gc.disable(); runpy.run_module('mcp_actors', run_name='__main__')"
"""The command line without the garbage collector, which would run by chance."""


def counted_command(command: Sequence[str]) -> list[str]:
    """Return the command line of a gateway under callgrind, given that of a gateway: ``python -m mcp_actors …``."""
    python, _, _, *words = command
    return [*VALGRIND, python, "-c", UNCOLLECTED, *words]


def floors(ways: Sequence[str] = tuple(FLOORS)) -> list[Figure]:
    """Count for a minimal client and for ours, for each way."""
    found: list[Figure] = []
    for way in ways:
        counts: dict[str, list[float]] = {}
        with ExitStack() as stack:
            if way == "socket":
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                _, path = stack.enter_context(gateway.daemon(folder))
                stack.enter_context(gateway.at_socket(path))
            for peer in (BY_HAND, OURS):
                with enter_counted(peer + FLOORS[way]) as contestant:
                    counts[peer] = [instructions(contestant, callers, rounds=FEW) for callers in CALLERS]
        found += compare_with_floor(way, counts)
    return found


def compare_with_floor(way: str, counts: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    """Compare ours with the minimal client on a way; over HTTP there is a bound."""
    for peer, each in counts.items():
        yield from absolute(
            f"instructions of a tool call, {way}, {peer}", each, MOST.get(way) if peer == OURS else None
        )
    for callers, ours, floor in zip(CALLERS, counts[OURS], counts[BY_HAND], strict=True):
        yield Figure(f"instructions, {way}, to {BY_HAND}; callers: {callers}", ours / floor, "")


def gateways(ways: Sequence[str] = tuple(GATEWAY_BOUNDS)) -> list[Figure]:
    """Count the processes of gateways, and of a group that is the client of one; compare with our direct call."""
    with enter_counted(OURS) as contestant:
        direct = [instructions(contestant, callers) for callers in CALLERS]
    found = [*absolute(f"instructions of a tool call, {gateway.DIRECT}", direct)]
    for way in ways:
        with tempfile.TemporaryDirectory() as folder, GATEWAYS[way](Path(folder)) as (play, pids):
            for pid in pids:
                control(pid, "--instr=on")
            play(1, 1)
            counts = [per_call(partial(play, callers), pids) for callers in CALLERS]
        found += compare_gateway(way, counts, direct)
    return found


def compare_gateway(way: str, counts: Sequence[float], direct: Sequence[float]) -> Iterator[Figure]:
    """Compare a gateway with our direct call; with one caller there is a bound."""
    yield from absolute(f"instructions of a tool call, gateway, {way}", counts)
    for callers, count, one in zip(CALLERS, counts, direct, strict=True):
        label = f"instructions, gateway, {way}, to {gateway.DIRECT}; callers: {callers}"
        yield Figure(label, count / one, "", bound=GATEWAY_BOUNDS[way] if callers == 1 else None)


Counted = tuple[Callable[[int, int], object], Sequence[int]]
"""A function that makes calls by so many callers, and the processes whose instructions count."""


@contextmanager
def over_stdio(folder: Path) -> Iterator[Counted]:
    """Run a gateway for one client over stdio."""
    command = counted_command(gateway.installed(folder)[gateway.OURS])
    with gateway.running(gateway.OURS, command) as player:
        yield player.play, [player.pid]


@contextmanager
def over_http(folder: Path) -> Iterator[Counted]:
    """Run a gateway over HTTP."""
    with gateway_http.running(gateway.OURS, folder, counted_command) as player:
        yield player.play, [player.pid]


@contextmanager
def over_socket(folder: Path) -> Iterator[Counted]:
    """Run a gateway at a socket, and a group in another process."""
    with (
        gateway.daemon(folder, counted_command) as (pid, path),
        gateway.at_socket(path),
        enter("counted", f"{OURS}, Socket", under=VALGRIND) as contestant,
    ):
        yield lambda callers, calls: contestant.play(callers, calls, "plain"), [pid, contestant.pid]


GATEWAYS: Final = {"stdio": over_stdio, "HTTP": over_http, "socket": over_socket}


# --- The parts --------------------------------------------------------------------------------------------------------


def part(kinds: Sequence[str], transports: Sequence[str]) -> list[Figure]:
    """Count a part."""
    return list(figures_of(kinds, transports))


PARTS: Final[dict[str, Callable[[], list[Figure]]]] = {
    "plain": plain,
    "metrics": metrics,
    "floors": floors,
    "gateway": gateways,
    **{f"floors:{way}": partial(floors, (way,)) for way in FLOORS},
    **{f"gateway:{way}": partial(gateways, (way,)) for way in GATEWAY_BOUNDS},
    **{kind: partial(part, (kind,), tuple(TRANSPORTS)) for kind in KINDS},
    **{transport: partial(part, tuple(KINDS), (transport,)) for transport in TRANSPORTS},
    **{f"{kind}:{each}": partial(part, (kind,), (each,)) for kind in KINDS for each in TRANSPORTS},
}
"""What can be counted on its own, which takes minutes."""


def figures() -> list[Figure]:
    """Count all of it."""
    return [*plain(), *metrics(), *part(tuple(KINDS), tuple(TRANSPORTS)), *floors(), *gateways()]
