"""Measure everything that takes no minutes, or what the arguments name; exit with 1 if a bound is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from . import (
    bars,
    bridge,
    calls,
    catalog,
    depth,
    gateway,
    gateway_http,
    hops,
    hostile,
    hosts,
    imports,
    instructions,
    kernel,
    lifecycle,
    memory,
    noise,
    observing,
    peers,
    servers,
    starts,
    ticks,
)
from .figures import Figure, all_pass

BENCHMARKS: Final[dict[str, Callable[[], list[Figure]]]] = {
    "calls": calls.figures,
    "hops": hops.figures,
    "ticks": ticks.figures,
    "memory": memory.figures,
    "imports": imports.figures,
    "catalog": catalog.figures,
    "servers": servers.figures,
    "starts": starts.figures,
    "lifecycle": lifecycle.figures,
    "kernel": kernel.figures,
    "depth": depth.figures,
    "bridge": bridge.figures,
    "peers": peers.figures,
    "hostile": hostile.figures,
    "noise": noise.figures,
    "observing": observing.figures,
    "gateway": gateway.figures,
    "gateway-http": gateway_http.figures,
}

NAMED: Final[dict[str, Callable[[], list[Figure]]]] = {
    "bars": bars.figures,
    "crowds": lifecycle.crowds,
    "instructions": instructions.figures,
    "ray": hosts.figures,
    **{f"instructions:{name}": count for name, count in instructions.PARTS.items()},
}
"""Take minutes, write the docs, or need Valgrind or Ray; so they run only if they are named."""


def known(name: str) -> str:
    """Accept the name of a benchmark."""
    names = [*BENCHMARKS, *NAMED]
    if name not in names:
        raise argparse.ArgumentTypeError(f"there is no benchmark {name!r}; there are {', '.join(names)}")
    return name


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("benchmark", nargs="*", type=known, help=", ".join([*BENCHMARKS, *NAMED]))
    found: list[Figure] = []
    for name in parser.parse_args(arguments).benchmark or BENCHMARKS:
        print(name, flush=True)
        for figure in (BENCHMARKS | NAMED)[name]():
            found.append(figure)
            print(figure.row(), flush=True)
    print("All bounds are kept." if all_pass(found) else "A bound is missed.")
    return 0 if all_pass(found) else 1


if __name__ == "__main__":
    sys.exit(main())
