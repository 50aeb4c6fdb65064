"""Which cells the matrix has, what became of them, and the table that says so. Nothing here knows pytest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from attrs import define, field

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Phase: TypeAlias = Literal["connect", "call", "idle", "stop"]
Verdict: TypeAlias = Literal["proven", "failed", "skipped", "not run"]

FAULTS: Final[dict[str, tuple[Transport, ...]]] = {
    # --- a process and its pipes ---
    "killed in a call": ("stdio", "http", "sse"),
    "killed while idle": ("stdio", "http", "sse"),
    "killed at start": ("stdio",),
    "exits 0 while idle": ("stdio",),
    "hangs at start": ("stdio", "http", "sse"),
    "never answers": ("stdio",),
    "banner on stdout": ("stdio",),
    "garbage line": ("stdio",),
    "invalid UTF-8": ("stdio",),
    "duplicate and unknown ids": ("stdio",),
    "20 000 notifications before the answer": ("stdio",),
    "64 MiB in one line": ("stdio",),
    "one byte over 64 MiB": ("stdio",),
    "stops reading, full pipe": ("stdio",),
    "floods stderr": ("stdio",),
    "ignores EOF": ("stdio",),
    "ignores SIGTERM": ("stdio",),
    "SIGSTOPped": ("stdio",),
    "leaves a grandchild": ("stdio",),
    "closes stdout but lives": ("stdio",),
    # --- HTTP ---
    "refused at start": ("http", "sse"),
    "refused in a call": ("http", "sse"),
    "restarted, modern": ("http",),
    "restarted, legacy": ("http", "sse"),
    "session forgotten": ("http", "sse"),
    "frozen at close": ("http", "sse"),
    "reset": ("http", "sse"),
    "cut in the headers": ("http", "sse"),
    "cut in the body": ("http",),
    "cut in a stream of events": ("http", "sse"),
    "reset in a stream of events": ("http",),
    "resumed after a cut": ("http",),
    "wrong content type": ("http", "sse"),
    "bad JSON": ("http",),
    "bad JSON in an event": ("http", "sse"),
    "answer to another request": ("http",),
    "error without an id": ("http",),
    "accepted and not answered": ("http",),
    "400": ("http", "sse"),
    "400 with an error of MCP": ("http",),
    "401": ("http", "sse"),
    "403": ("http", "sse"),
    "404": ("http",),
    "405": ("http", "sse"),
    "429 with Retry-After": ("http", "sse"),
    "500": ("http", "sse"),
    "502": ("http", "sse"),
    "503": ("http", "sse"),
    "401 at start": ("http", "sse"),
    "404 at start": ("http", "sse"),
    "503 at start": ("http", "sse"),
    "redirect within the origin": ("http", "sse"),
    "redirect to elsewhere": ("http", "sse"),
    "gzip bomb": ("http",),
    "one byte at a time": ("http",),
    "hanging notice": ("http", "sse"),
    "no endpoint": ("sse",),
    "endpoint elsewhere": ("sse",),
}
"""Every fault, and the transports on which it must be proven: these are the cells that must exist."""


CELL: Final = "cell"
"""The property of a test report that has the row of the cell which the test proves."""


class Key(NamedTuple):
    """The place of a cell in the matrix."""

    fault: str
    transport: Transport

    def __str__(self) -> str:
        return f"{self.fault} ({self.transport})"


@define
class Row:
    """One cell: what was seen of the fault. The texts are empty until it is known.

    Attributes:
        error: the class of the error that came out, and of its cause; ``"none"`` if none had to.
        phase: what the server was in when it failed.
        seconds: from the fault to its outcome.
        bound: how many seconds that may have taken.
        siblings: what became of those who had nothing to do with the fault.
        leftovers: what of it was still there afterwards.
        verdict: what became of its test.
    """

    key: Key
    error: str = ""
    phase: str = ""
    seconds: float = 0.0
    bound: float = 0.0
    siblings: str = ""
    leftovers: str = ""
    verdict: Verdict = "not run"

    def texts(self) -> list[str]:
        """Return all of it as texts, which can be sent to another process."""
        return [*self.key, self.error, self.phase, repr(self.seconds), repr(self.bound), *self._outcome()]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Row:
        """Return the row that has these texts."""
        fault, transport, error, phase, seconds, bound, siblings, leftovers, verdict = texts
        key = Key(fault, cast(Transport, transport))
        outcome = (siblings, leftovers, cast(Verdict, verdict))
        return cls(key, error, phase, float(seconds), float(bound), *outcome)

    def columns(self) -> tuple[str, ...]:
        """Its texts, one for each column of the table."""
        seconds = f"{self.seconds:6.3f} of {self.bound:<4g}" if self.bound else ""
        return (*self.key, self.error, self.phase, seconds, *self._outcome())

    def _outcome(self) -> tuple[str, str, str]:
        return self.siblings, self.leftovers, self.verdict


HEADER: Final = ("fault", "transport", "error", "phase", "seconds", "siblings", "left over", "verdict")


@define
class Matrix:
    """The cells that were run, in the order of `FAULTS`.

    Attributes:
        whole: all cells were to be run, so that one that is missing is missed.
    """

    whole: bool = False
    _rows: dict[Key, Row] = field(factory=dict)

    def put(self, row: Row) -> None:
        """Take a cell in, in place of what was known of it before."""
        self._rows[row.key] = row

    def unproven(self) -> list[str]:
        """Say what keeps the matrix from being whole; if only a part was selected, a part is enough."""
        verdicts = {row.key: str(row.verdict) for row in self._rows.values()}
        expected = (key for key in all_cells() if self.whole or key in verdicts)
        return [f"{key}: {verdict}" for key in expected if (verdict := verdicts.get(key, "no test")) != "proven"]

    def table(self) -> Iterator[str]:
        """Draw it: a headline, then the rows."""
        proven = sum(row.verdict == "proven" for row in self._rows.values())
        part = "" if self.whole else f" ({len(self._rows)} run)"
        yield f"fault matrix: {proven} of {len(list(all_cells()))} cells proven{part}"
        rows = [HEADER, *(self._rows[key].columns() for key in all_cells() if key in self._rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
        for row in rows:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        yield from (f"UNPROVEN  {cell}" for cell in self.unproven())

    def __bool__(self) -> bool:
        return bool(self._rows)


def all_cells() -> Iterator[Key]:
    """List the cells that must exist."""
    return (Key(fault, transport) for fault, transports in FAULTS.items() for transport in transports)


def named(*errors: BaseException | None) -> str:
    """The classes of an error and of what is behind it, for the table."""
    return " ← ".join(type(error).__name__ for error in errors if error is not None) or "none"


def counted(things: Iterable[str]) -> str:
    """Things in one text, for the table."""
    return ", ".join(things) or "nothing"
