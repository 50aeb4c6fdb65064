"""The shown tools never go back to an older list, whatever happens in whatever order.

And when things have calmed down it is the newest. The programs are drawn at random, and run under a mock clock against
a real server in this process, whose list has a version. See `run_programs`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

import trio
from attrs import define, field, frozen
from hypothesis import strategies as st
from mcp import MCPError
from mcp.types import INTERNAL_ERROR
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Backoff, RestartPolicy, ServerConfig, Stdio, ToolsChanged, open_servers

from ..programs import run_programs
from .changing import Changing, shown
from .groups import Events
from .memory_link import Machine

CALM: Final = 1000.0
"""Seconds after which what was to be tried again was."""


@frozen
class Act:
    """One thing that happens, and how long it is until the next."""

    verb: str
    pause: float


@frozen
class Program:
    """The acts, and the delay of each answer in seconds after the server has read its list."""

    slots: int
    answers: list[float | str]
    acts: list[Act]


VERBS: Final = [*["change"] * 4, *["burst"] * 2, "notice", "list", "list", "crash", "restart"]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    act = st.builds(Act, st.sampled_from(VERBS), st.sampled_from([0.0, 0.0, 0.04, 0.1, 0.3, 3.0, 30.0]))
    return Program(
        slots=draw(st.sampled_from([1, 2, 64])),
        answers=draw(st.lists(st.sampled_from([0.0, 0.0, 0.05, 0.2, 2.0, 7.0, "fails"]), max_size=20)),
        acts=draw(st.lists(act, min_size=2, max_size=30)),
    )


@define(eq=False)
class Run:
    """Runs a program and keeps what the checks need."""

    program: Program
    here: Changing = field(factory=Changing)
    events: Events = field(factory=Events)
    machine: Machine = field(init=False)
    newest: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.machine = Machine(self.here.server)
        self.here.before_answer = self.delay

    async def delay(self) -> None:
        answer = self.program.answers.pop(0) if self.program.answers else 0.0
        if isinstance(answer, str):
            raise MCPError(INTERNAL_ERROR, "the list is lost")
        await trio.sleep(answer)

    async def main(self) -> None:
        config = ServerConfig(
            "here",
            Stdio("here"),
            protocol="legacy",
            max_in_flight=self.program.slots,
            restarts=RestartPolicy(max_restarts=1000, backoff=Backoff(first=0.1, initial=0.1)),
        )
        with trio.fail_after(1e6), patch("mcp_actors.servers.connection._actor.open_link", self.machine.open_link):
            async with open_servers(config, observers=[self.events]) as group, trio.open_nursery() as nursery:
                for act in self.program.acts:
                    nursery.start_soon(self.do, act.verb, group["here"])
                    await wait_all_tasks_blocked()
                    await trio.sleep(act.pause)
                await trio.sleep(CALM)
                self.newest = shown(group)
                nursery.cancel_scope.cancel("the program is over")

    async def do(self, verb: str, ref: Any) -> None:
        with suppress(Exception):
            match verb:
                case "change":
                    await self.here.change()
                case "burst":
                    await self.here.change(notices=5)
                case "notice":
                    await self.here.notify()
                case "list":
                    await ref.list_tools()
                case "crash":
                    self.machine.cut()
                case "restart":
                    await ref.restart()

    def check(self) -> None:
        versions = [int(event.tools[0].removeprefix("v")) for event in self.events.of(ToolsChanged)]
        assert versions == sorted(versions)
        assert self.newest == [f"v{self.here.version}", "same"]


def test_the_shown_tools_never_go_back_and_end_with_the_newest(record_property: Callable[[str, object], None]) -> None:
    """A-20, S1-23: through notices, crossing answers, failures and reconnects."""
    run_programs(programs(), Run, record_property, number=25, full=1_000)
