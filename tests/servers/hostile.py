"""Configure hostile servers, and measure how long they block the event loop."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from time import thread_time
from typing import Any, Self

import pytest
import trio

from mcp_actors import ServerConfig, Stdio, _tasks

from ..processor_time import freeze

SCRIPT = Path(__file__).with_name("hostile_server.py")

STEP = 0.25
"""Seconds of processor time that one step of a task may take: several times of what is aimed at, for slow machines, and
a small part of what it takes to do all of the work of these tests at once."""


def hostile(*flags: str, name: str = "evil", max_line_bytes: int = 64 * 1024 * 1024, **options: Any) -> ServerConfig:
    """Configure a hostile server; `options` are those of `ServerConfig`."""
    transport = Stdio(sys.executable, ("-S", "-E", str(SCRIPT), *flags), max_line_bytes=max_line_bytes)
    return ServerConfig(name, transport, protocol="legacy", **options)


class LongestStep(trio.abc.Instrument):
    """Measures how long tasks keep all others from running, in processor time: whatever else the machine does.

    In its block, which is in a Trio task, only what was made there is searched for garbage. To search what all the
    tests before have left would take longer than any step.

    Attributes:
        seconds: the longest step so far.
        task: of which task it was.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.task = ""
        self._began = 0.0

    def __enter__(self) -> Self:
        freeze()
        self._began = thread_time()
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task goes on."""
        self._began = thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It waits."""
        took = thread_time() - self._began
        if took > self.seconds:
            self.seconds, self.task = took, task.name


class MostInAStep(trio.abc.Instrument):
    """Counts how often something is done in one step of a task, if each piece of work takes longer than a step may.

    So a checkpoint that is missing between two pieces is seen, however fast the machine is.

    Args:
        methods: an owner and the name of its function, each counted when it is called.

    Attributes:
        most: how often in a step at most, by name.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: tuple[Any, str]) -> None:
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        monkeypatch.setattr(_tasks, "STEP_SECONDS", -1.0)
        for owner, name in methods:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name), name))

    def _counted(self, function: Any, name: str) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            self.note(name)
            return function(*args, **options)

        return counted

    def note(self, name: str, number: int = 1) -> None:
        """Count so many more."""
        self._now[name] += number
        self.most[name] = max(self.most[name], self._now[name])

    def __enter__(self) -> Self:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task goes on."""
        self._now.clear()
