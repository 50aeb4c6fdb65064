"""Measure the microseconds of a call with each client, and write them into the docs: ``nox -s bench -- bars``.

It plays a contest for each way to a server, and writes the tables of ``docs/design/speed.md``, the part of the README
about costs, and the picture of both. ``python -m tests.benchmarks.bars`` measures nothing, and writes the README and
the picture from the tables on the page. Figures of a machine that does other things as well are worth nothing.
"""

from __future__ import annotations

import platform
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import Final

from ..source import ROOT, docs_module
from . import gateway
from .figures import Figure
from .peers import BY_HAND, CALL_ROUNDS, CALLERS, CALLS, OURS
from .peers.contest import TYPESCRIPT, enter_all, play_rounds

PAGE: Final = ROOT / "docs" / "design" / "speed.md"
README: Final = ROOT / "README.md"

MCP_CLIENT: Final = "mcp.Client"

OTHERS: Final = {
    BY_HAND: "a minimal client",
    TYPESCRIPT: "the TypeScript SDK on Node",
    MCP_CLIENT: "`mcp.Client`",
    "ClientSessionGroup": "`ClientSessionGroup` of the SDK",
    "openai-agents": "openai-agents",
    "fastmcp": "fastmcp",
    "pydantic-ai": "pydantic-ai",
}
"""The peers over stdio, and what the page calls them."""

FEW: Final = (BY_HAND, MCP_CLIENT)
"""Those on other ways."""

WAYS: Final[dict[str, tuple[str, int, Sequence[str]]]] = {
    "over stdio": ("", CALLS, tuple(OTHERS)),
    "over HTTP": (", HTTP", 256, FEW),
    "over HTTP, each answer a stream of events": (", HTTP, events", 256, FEW),
    "to a server in the same process": (", in process", CALLS, FEW),
    "to a server of the legacy era in the same process": (", in process, legacy", CALLS, FEW),
    "through a gateway at a unix socket": (", Socket", CALLS, (BY_HAND,)),
}
"""The title of each table: the end of the names of the peers, the calls of a round, and the others."""

Table = Mapping[str, Sequence[float]]
"""For each client, the microseconds of a call by the number of callers."""


def measured(way: str, rounds: int = CALL_ROUNDS) -> Table:
    """Play a contest."""
    end, calls, others = WAYS[way]
    names = {peer + end: name for peer, name in {OURS: "mcp_actors", **OTHERS}.items() if peer in (OURS, *others)}
    found: dict[str, list[float]] = {name: [] for name in names.values()}
    with ExitStack() as stack:
        if end == ", Socket":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _, path = stack.enter_context(gateway.daemon(folder))
            stack.enter_context(gateway.at_socket(path))
        contestants = stack.enter_context(enter_all("calls", [*names]))
        for callers in CALLERS:
            play_rounds(contestants, 1, callers, calls)  # so that no round pays for what happens only once
            for peer, seconds in play_rounds(contestants, rounds, callers, calls).items():
                found[names[peer]].append(statistics.median(seconds) / calls * 1e6)
    return found


def table(way: str, found: Table) -> str:
    """Return a table for the page."""
    rows = [f"| {name} | {' | '.join(f'{each:.0f}' for each in times)} |" for name, times in found.items()]
    return "\n".join([f"| {way}, µs a call | 1 caller | 16 callers | 128 callers |", "|---|---|---|---|", *rows])


def quicker(found: Table) -> dict[str, str]:
    """Return the clients that need less time with any number of callers, and how many times as long ours takes."""
    ours, *_ = found.values()
    ratios = {name: [one / other for one, other in zip(ours, times, strict=True)] for name, times in found.items()}
    return {
        name: ", ".join(f"{each:.{int(each < 10)}f}" for each in found)
        for name, found in ratios.items()
        if max(found) > 1
    }


def readme_part(tables: Mapping[str, Table], when: str) -> str:
    """Return the part of the README about costs."""
    stdio = tables["over stdio"]
    ours = stdio["mcp_actors"]
    others = [stdio[OTHERS[peer]] for peer in OTHERS if peer not in (BY_HAND, TYPESCRIPT)]
    (one, _, many), ones, manies = ours, [each[0] for each in others], [each[2] for each in others]
    alt = (
        f"With 1 caller and over stdio a call takes {one:.0f} µs, with other Python clients {min(ones):.0f} to "
        f"{max(ones):.0f}; with 128 callers {many:.0f}, with those {min(manies):.0f} to {max(manies):.0f}"
    )
    faster = "; ".join(
        f"{short} {' and '.join(f'{name} ({times})' for name, times in found.items())}"
        for way, short in DRAWN.items()
        if (found := quicker(tables[way]))
    )
    return "\n\n".join(
        [
            f"Microseconds of a tool call, all clients in the same run ({when}). Short is good:",
            '<picture><source media="(max-width: 700px)" srcset="docs/pictures/costs-narrow.svg">\n'
            f'<img src="docs/pictures/costs.svg" alt="{alt}"></picture>',
            wrapped(
                f"Quicker with 1, 16 and 128 callers, and how many times: {faster}. `nox -s bench -- bars` repeats it; "
                "see [Speed](docs/design/speed.md)."
            ),
        ]
    )


def wrapped(text: str) -> str:
    """Return a paragraph of the README, which has few lines."""
    return fill(text, 128, break_on_hyphens=False, break_long_words=False)


DRAWN: Final = {
    "over stdio": "over stdio",
    "over HTTP": "over HTTP",
    "to a server in the same process": "in process",
}
"""The tables that the picture shows, and what the README calls them."""


def tables_of(page: str) -> dict[str, Table]:
    """Return the tables of the page."""
    return {way: dict(rows) for way, _, rows in docs_module("_pictures").cost_tables(page)}


def written(page: str, tables: Mapping[str, Table]) -> str:
    """Return the page with these tables in place of its own ones."""
    whole = "\n\n".join(table(way, found) for way, found in tables.items())
    pattern = r"\| over stdio, µs a call \|.*?\n(?=\n[^|])"
    new, number = re.subn(pattern, lambda _: f"{whole}\n", page, count=1, flags=re.DOTALL)
    assert number == 1, "the page has no such tables"
    return new


def machine() -> str:
    """Return when and where it was measured."""
    return f"{datetime.now(UTC):%B %Y}, {platform.system()}, two shared cores, Python {platform.python_version()[:4]}"


def figures() -> list[Figure]:
    """Measure all ways, and write what was found."""
    tables = {way: measured(way) for way in WAYS}
    PAGE.write_text(written(PAGE.read_text(), tables))
    write_others()
    return [
        Figure(f"a call {way}, {name}; callers: {callers}", each, "µs")
        for way, found in tables.items()
        for name, times in found.items()
        for callers, each in zip(CALLERS, times, strict=True)
    ]


def write_others() -> None:
    """Write the part of the README and the picture from the tables on the page."""
    before, title, after = README.read_text().partition("## What it costs\n\n")
    _, end, rest = after.partition("\n\n## Documentation")
    README.write_text(f"{before}{title}{readme_part(tables_of(PAGE.read_text()), machine())}{end}{rest}")
    docs_module("_pictures").main()


if __name__ == "__main__":
    write_others()
