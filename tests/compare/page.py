"""Write the page of the field from the results."""

from __future__ import annotations

import re
from typing import Any, Final

from .tables import CLIENTS, FAULTS, HERE, VERDICTS, mark

PAGE: Final = HERE.parents[1] / "docs" / "design" / "field.md"
OURS: Final = "mcp_actors_trio"
SHOWN: Final = 140
"""Characters of an error that are kept."""

HEAD: Final = """\
---
nosearch: true
---

% Written by tests/compare/page.py from the files next to it: `nox -s field` runs the cells and writes this page.

# The field: how clients behave when something fails

Read this page to compare clients of MCP servers. Each cell of the table was run: one client, with its defaults and as
its documentation uses it, in an environment of its own; and one fault, committed by a [scripted
server](../howto/testing.md) over stdio or HTTP. The expectations were written down first. These were corrected after
trial runs, for all clients: a client that is closed in a call may let the call finish for as long as its
documentation says (mcp_actors does); a call to a frozen server may succeed (llama-index starts another process); an
error that says "input required" is clear; a flood has 5,000 notifications instead of 20,000, which took the server
itself too long. The cells were run on a busy machine, so their seconds are rough.

The authors of mcp_actors chose the faults, and mcp_actors is made for them, so a count of marks is not a ranking. Most
of the others are frameworks for agents, in which the connection is a small part.

`nox -s field` repeats all of it. If a cell is unfair to a client, the files to change are `tests/compare/faults.toml`
and the client's module in `tests/compare/drivers/`.
"""


def write(results: dict[str, Any]) -> None:
    """Write the page."""
    PAGE.write_text(render(results))


def render(results: dict[str, Any]) -> str:
    """Return the page."""
    parts = [HEAD, clients(results), matrix(results), better(results), "## The faults\n"]
    parts += [fault(name, results["cells"].get(name, {})) for name in FAULTS]
    return "\n".join(parts)


def clients(results: dict[str, Any]) -> str:
    """Return the table of the clients."""
    rows = [
        f"| {letter} | {title(name)} | {installed(row, results['versions'].get(name, {}))} | {row['limit']} |"
        for letter, (name, row) in zip(letters(), CLIENTS.items(), strict=True)
    ]
    return (
        f"## The clients\n\nRun on {results['date']} with Python {results['python']} on Linux."
        " The last column is how long a call waits for its\nanswer by default.\n\n"
        "| | client | versions | limit of a call |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def installed(client: dict[str, Any], versions: dict[str, str]) -> str:
    """Return the versions of a client's packages."""
    return ", ".join(f"{name} {versions[name]}" for name in client["versions"] if name in versions)


def title(name: str) -> str:
    """Return the name of a client, with its documentation if that is elsewhere."""
    row = CLIENTS[name]
    return f"[{row['title']}]({row['page']})" if row["page"].startswith("http") else str(row["title"])


def letters() -> str:
    """Return the letters that stand for the clients in the table."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(CLIENTS)]


def matrix(results: dict[str, Any]) -> str:
    """Return the table of all cells."""
    rows = []
    for name, row in FAULTS.items():
        found = results["cells"].get(name, {})
        marks = [mark(name, found[client]["verdict"]) if client in found else "?" for client in CLIENTS]
        rows.append(f"| {row['title']} | {' | '.join(marks)} |")
    cells = results["cells"]
    met = [
        str(sum(mark(name, row[client]["verdict"]) == "✓" for name, row in cells.items() if client in row))
        for client in CLIENTS
    ]
    return (
        "## The table\n\n✓ meets the expectation, ~ meets it in part, ✗ does not, · is not offered.\n\n"
        f"| fault | {' | '.join(letters())} |\n|---|{'---|' * len(CLIENTS)}\n"
        + "\n".join(rows)
        + f"\n| **✓ of {len(FAULTS)}** | {' | '.join(met)} |\n"
    )


def better(results: dict[str, Any]) -> str:
    """Return the faults of which others make more than this project does."""
    lines = []
    for name, row in FAULTS.items():
        marks = {client: mark(name, cell["verdict"]) for client, cell in results["cells"].get(name, {}).items()}
        others = [CLIENTS[client]["title"] for client in CLIENTS if marks.get(client) == "✓"]
        if others and marks.get(OURS) != "✓":
            lines.append(f"- {row['title']}: {', '.join(others)}")
    return "## Where others do better than mcp_actors\n\n" + "\n".join(lines or ["- Nowhere."]) + "\n"


def fault(name: str, cells: dict[str, Any]) -> str:
    """Return the section of a fault: what may be expected, and who did what."""
    row = FAULTS[name]
    lines = [
        f"### {row['title']}\n",
        f"{row['fault']}\n",
        f"A user may expect: {row['expect']}\n",
        f"Observed: {row['observe']}\n",
    ]
    for word in dict.fromkeys(cells[client]["verdict"] for client in CLIENTS if client in cells):
        same = [client for client in CLIENTS if client in cells and cells[client]["verdict"] == word]
        found = "; ".join(who(each, name, cells[each]) for each in same)
        lines.append(f"- {mark(name, word)} *{word}* ({VERDICTS[word]}): {found}")
    return "\n".join(lines) + "\n"


def who(client: str, name: str, cell: dict[str, Any]) -> str:
    """Return a client, its seconds, the error that it showed, and what else there is to say."""
    seconds = "" if cell["seconds"] is None else f" {cell['seconds']:g} s"
    detail = f" `{cell['detail']}`" if cell["detail"] else ""
    note = CLIENTS[client].get("notes", {}).get(name)
    return f"{CLIENTS[client]['title']}{seconds}{detail}" + (f" ({note})" if note else "")


def shorten(text: str) -> str:
    """Return the beginning of an error as one line of code, without what changes from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", " ".join(text.split()).replace("`", "'"))
    text = re.sub(r"(/[\w.+-]+){3,}/|\b[0-9a-f]{10,}\b", "...", text)
    return text if len(text) <= SHOWN else text[: SHOWN - 3].rstrip() + "..."
