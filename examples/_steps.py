"""The steps of the demo as it shows them, and the checks of each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import trio
from _processes import Family
from attrs import define, field

DYING: Final = 1.0
"""Seconds within which a killed process must be gone."""

SCRIPTS: Final = Path(sys.executable).parent
"""The folder of the commands that pip has installed in this environment, regardless of PATH."""

PROGRAMS: Final = {
    "time": "mcp-server-time",
    "git": "mcp-server-git",
    "weather": "weather_http.py",
}
"""Server → what its command line contains."""


class StepFailed(Exception):
    """A step is not as it should be."""


def check(fine: bool, otherwise: str) -> None:
    """Continue if the condition is true."""
    if not fine:
        raise StepFailed(otherwise)


@define
class Show:
    """One run of the demo: how far it is, and which processes belong to it."""

    family: Family = field(factory=Family)
    step: int = 0

    def heading(self, title: str) -> None:
        """Begin the next step."""
        self.step += 1
        print(
            f"\n{self.step}. {title}" if self.step > 1 else f"{self.step}. {title}",
            flush=True,
        )

    def line(self, text: str) -> None:
        """Show what happened."""
        print(f"   {text}", flush=True)

    def process_of(self, server: str) -> int:
        """The process id of a server, from the operating system."""
        found = self.family.running(PROGRAMS[server])
        check(
            len(found) == 1,
            f"{server!r} should have one process, the operating system shows {found}",
        )
        return found[0]

    def check_gone(self, *pids: int) -> None:
        """Some processes are gone, and not even zombies."""
        left = [
            str(process) for process in self.family.members() if process.pid in pids
        ]
        check(not left, f"should be gone: {'; '.join(left)}")

    async def wait_nothing_left(self) -> None:
        """None of our children is left, nor anything in their process groups; what is just dying has a moment."""
        deadline = trio.current_time() + DYING
        while left := [str(process) for process in self.family.members()]:
            check(trio.current_time() < deadline, f"left behind: {'; '.join(left)}")
            await trio.sleep(0.05)
