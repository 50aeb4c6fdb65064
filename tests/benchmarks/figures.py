"""The figures of a benchmark, and their table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from attrs import frozen

Verdict = Literal["PASS", "FAIL", ""]


@frozen
class Figure:
    """One number, in its unit; with a bound it must not exceed that."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    remark: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the bound is kept; empty for a figure without a bound."""
        if self.bound is None:
            return ""
        return "PASS" if self.value <= self.bound else "FAIL"

    def row(self) -> str:
        """Return the figure as a row of the table."""
        value = f"{self.value:.3g}" if abs(self.value) < 100 else f"{self.value:.0f}"
        bound = "" if self.bound is None else f"<= {self.bound:g}"
        return f"  {self.name:58} {value:>8} {self.unit:11} {bound:8} {self.verdict:5} {self.remark}".rstrip()


def all_pass(figures: Iterable[Figure]) -> bool:
    """Return True if no bound is missed."""
    return all(figure.verdict != "FAIL" for figure in figures)
