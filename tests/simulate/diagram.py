"""Draw a run as a sequence diagram in text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .trace import Entry

WIDTH = 30


def drawn(entries: Iterable[Entry], places: Sequence[str]) -> str:
    """Return a diagram: a column for each place, a line for each entry, and its text on it.

    Entries of other places are left out.
    """
    columns = {place: number * WIDTH for number, place in enumerate(places)}
    total = (len(places) - 1) * WIDTH + 1
    head = "".join(place.ljust(WIDTH) for place in places)
    lines = [f"{'':10}{head.rstrip()}"]
    last = None
    for entry in entries:
        if entry.place not in columns or (entry.to is not None and entry.to not in columns):
            continue
        time = "" if entry.time == last else f"{entry.time:9.3f}"
        last = entry.time
        lines.append(f"{time:10}{row(entry, columns, total).rstrip()}")
    return "\n".join(lines)


def row(entry: Entry, columns: dict[str, int], total: int) -> str:
    """Return the line of one entry."""
    cells = [" "] * (total + len(entry.text) + WIDTH)
    for column in columns.values():
        cells[column] = "│"
    begin = columns[entry.place]
    if entry.to is None:
        write(cells, begin, f"● {entry.text}")
    else:
        end = columns[entry.to]
        low, high = min(begin, end), max(begin, end)
        write(cells, low + 1, "─" * (high - low - 1))
        write(cells, *((end - 1, ">") if end > begin else (end + 1, "<")))
        write(cells, low + 3, f" {entry.text[: high - low - 8]} ")
    return "".join(cells)


def write(cells: list[str], at: int, text: str) -> None:
    """Write a text into a line."""
    cells[at : at + len(text)] = text
