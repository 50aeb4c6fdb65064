"""Every request has exactly one outcome, whatever happens in whatever order.

The programs are drawn at random, and run under a mock clock against a real server in this process that counts what it
carries out. See `run_programs`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import strategies as st
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    RequestTimedOut,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerError,
    ServerRef,
    ServerUnavailable,
    Stdio,
    open_servers,
)

from ..programs import run_programs
from .fleet import ask_by_function, kept_of
from .links import text_of
from .memory_link import Machine


@frozen
class Act:
    """One act, by a task that leaves after ``patience`` seconds."""

    verb: str
    seconds: float
    patience: float


@frozen
class Program:
    """A program: acts on one server.

    Attributes:
        options: the server's.
        by_function: True if results go to functions, as for callers outside Trio; False if tasks wait for them.
        connects: what becomes of its first connects.
        acts: what is done, one after the other.
    """

    options: dict[str, Any]
    by_function: bool
    connects: list[float | str | None]
    acts: list[Act]


ATTEMPTS: Final = 3
VERBS: Final = [*["call"] * 8, *["call again"] * 3, *["crash"] * 3, *["sleep"] * 2, "restart", "stop", "start", "list"]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    options = {
        "max_in_flight": draw(st.sampled_from([1, 2, 64])),
        "mailbox_size": draw(st.sampled_from([1, 256])),
        "request_timeout": draw(st.sampled_from([None, 3.0, 20.0])),
        "progress_timeout": draw(st.sampled_from([None, None, 2.0])),
        "retry": RetryPolicy(
            attempts=ATTEMPTS, backoff=draw(st.sampled_from([Backoff(), Backoff(first=1.0, initial=5.0)]))
        ),
        "when_down": draw(st.sampled_from(["wait", "wait", "fail"])),
        "breaker": draw(st.sampled_from([None, None, BreakerPolicy(failures=2)])),
        "connect": draw(st.sampled_from(["eager", "eager", "lazy"])),
        "restarts": draw(
            st.sampled_from(
                [
                    RestartPolicy(max_restarts=0),
                    RestartPolicy(max_restarts=2, backoff=Backoff(first=1.0, initial=1.0)),
                    RestartPolicy(max_restarts=1000, backoff=Backoff()),
                ]
            )
        ),
    }
    act = st.builds(
        Act,
        st.sampled_from(VERBS),
        st.sampled_from([0.0, 0.5, 2.5, 10.0, 1000.0]),
        st.sampled_from([0.2, 5.0, math.inf, math.inf]),
    )
    connects = draw(st.lists(st.sampled_from([None, None, 1.0, 100.0, "refused"]), max_size=4))
    return Program(
        options=options,
        by_function=draw(st.booleans()),
        connects=connects,
        acts=draw(st.lists(act, min_size=3, max_size=25)),
    )


@define
class CallEnd:
    """The outcome of a caller, and its time."""

    asked: float
    at: float
    outcome: str
    error: Exception | None = None


@define(eq=False)
class Run:
    """Runs a program and keeps what the checks need."""

    program: Program
    began: list[int] = field(factory=list)
    ends: dict[int, CallEnd] = field(factory=dict)
    calls: int = 0
    repeatable: set[int] = field(factory=set)
    machine: Machine = field(init=False)

    def __attrs_post_init__(self) -> None:
        here = MCPServer("here")
        here.add_tool(self.work, name="work")
        self.machine = Machine(here._lowlevel_server)
        self.machine.connects = [
            OSError("refused") if connect == "refused" else connect  # type: ignore[misc]  # the only other str
            for connect in self.program.connects
        ]

    async def work(self, id: int, seconds: float) -> str:
        self.began.append(id)
        await trio.sleep(seconds)
        return str(id)

    async def main(self) -> None:
        config = ServerConfig("here", Stdio("here"), protocol="legacy", **self.program.options)
        with trio.fail_after(1e7), patch("mcp_actors.servers.connection._actor.open_link", self.machine.open_link):
            async with open_servers(config) as servers, trio.open_nursery() as nursery:
                for act in self.program.acts:
                    await self.do(act, servers["here"], nursery)
                await trio.sleep(2000)
                # Those without a bound of their own are let go, as they would be at the end of a program.
                await servers["here"].stop()
                await wait_all_tasks_blocked()
                assert kept_of(servers["here"]) == 0

    async def do(self, act: Act, ref: ServerRef, nursery: trio.Nursery) -> None:
        match act.verb:
            case "call" | "call again":
                if act.verb == "call again":
                    self.repeatable.add(self.calls)
                nursery.start_soon(self.call, ref, self.calls, act)
                self.calls += 1
            case "crash":
                self.machine.cut()
            case "sleep":
                await trio.sleep(act.seconds)
            case "restart" | "stop" | "start" | "list":
                nursery.start_soon(self.change, ref, act)
        await wait_all_tasks_blocked()

    async def change(self, ref: ServerRef, act: Act) -> None:
        changes = {"restart": ref.restart, "stop": ref.stop, "start": ref.start, "list": ref.list_tools}
        with trio.move_on_after(act.patience), suppress(ServerError):
            await changes[act.verb]()

    async def call(self, ref: ServerRef, id: int, act: Act) -> None:
        asked, how, error = trio.current_time(), "left", None
        try:
            with trio.move_on_after(act.patience):
                try:
                    again = True if id in self.repeatable else None
                    arguments = {"id": id, "seconds": act.seconds}
                    ask: Callable[..., Awaitable[CallToolResult]] = ServerRef.call_tool
                    if self.program.by_function:
                        ask = ask_by_function
                    assert text_of(await ask(ref, "work", arguments, idempotent=again)) == str(id)
                    how = "answered"
                except ServerError as exc:
                    how, error = type(exc).__name__, exc
        finally:
            assert id not in self.ends
            self.ends[id] = CallEnd(asked, trio.current_time(), how, error)

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        assert len(self.ends) == self.calls
        for id, times in Counter(self.began).items():
            assert times <= (ATTEMPTS if id in self.repeatable else 1)
        for id, end in self.ends.items():
            assert end.outcome in (
                "left",
                "answered",
                "RequestTimedOut",
                "ConnectionLost",
                "ServerUnavailable",
            ), end
            self.check_one(id, end)
        if self.program.options["max_in_flight"] == 1:
            once = [id for id in self.began if id not in self.repeatable]
            assert once == sorted(once)

    def check_one(self, id: int, end: CallEnd) -> None:
        if end.outcome in ("answered", "ConnectionLost"):
            # The connection may be lost between the sending and the first step of the server.
            assert id in self.began or end.outcome == "ConnectionLost"
        if isinstance(end.error, ServerUnavailable) and end.error.outcome == "not_sent":
            assert id not in self.began
        if isinstance(end.error, RequestTimedOut):
            if end.error.limit == "request_timeout":
                assert end.at - end.asked == pytest.approx(self.program.options["request_timeout"])
            else:
                assert id in self.began
            if "it was not sent" in str(end.error):
                assert id not in self.began
        if (timeout := self.program.options["request_timeout"]) is not None:
            assert end.at - end.asked <= timeout + 1e-6


def test_every_request_has_one_outcome_whatever_happens(record_property: Callable[[str, object], None]) -> None:
    """A-03, A-09: also none is carried out twice, none hangs, and those that wait keep their order."""
    run_programs(programs(), Run, record_property, number=25, full=5_000)
