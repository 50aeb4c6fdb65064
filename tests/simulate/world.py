"""Carry out a plan, and keep what the checks need."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

import trio
from attrs import define, evolve, field
from mcp import MCPError
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Callbacks,
    ConfigError,
    HttpStatusError,
    ServerError,
    ServerGroup,
    ServerRef,
    ServerUnavailable,
    open_servers,
)
from mcp_actors.config import CallbackContext
from mcp_actors.kernel import Event, RequestStarted
from mcp_actors.servers import ServerAdded, StateChanged, Subscription, ToolsChanged
from mcp_actors.servers.record import ACTIVE, PARKED
from mcp_actors.testing import run_seeded
from mcp_actors.transports.http._bodies import QUIET_STREAM

from ..servers.fleet import ask_by_function, kept_of
from .http import HttpMachine
from .pipes import PipeMachine, PipeProcess
from .plan import LONG, PLAIN, Deed, Plan
from .servers import House
from .trace import Trace
from .worker import RESOURCE

COMMANDS: Final = (
    *("list", "stop", "start", "restart", "reconnect", "remove", "add"),
    *("reload", "lazy", "eager", "wait ready"),
)

WISHES: Final = ("stop", "start", "restart", "reconnect", "remove")
"""The commands of which the last one says whether a server should run."""

RELOADS: Final = ("reload", "lazy", "eager")
"""The commands that change configurations."""

NO_WISH: Final = (0, "start", -math.inf)
"""The entry in `World.wishes` of a server to which no command was given."""

STARTS: Final = ("start", "restart", "reconnect")
"""The commands after which a server serves, or its state shows why it does not."""

RENEWALS: Final = ("restart", "reconnect")
"""Those of them after which another connection serves than before."""

DOWN: Final = ("pending", "stopping", "stopped")
"""The states of a server that is not to run."""

SETTLED: Final = ACTIVE | PARKED | {"stopped", "pending"}
"""The states of a server that serves, or will not by itself."""

ENDLESS: Final = 4_000
"""Events, of which a run has some hundreds."""

SETTLING: Final = 80.0
"""Virtual seconds for all back-offs, checks and retries of parked servers to be over, once no caller waits."""

SETTLING_UNHEARD: Final = QUIET_STREAM + 20.0
"""The same if a network may have dropped a stream without telling either side."""

REOPENING: Final = 5.0
"""Virtual seconds for a stream that has just ended, as it was silent for long, to be opened again."""

PROMPT: Final = 30.0
"""Virtual seconds for a call to a healthy and idle server, whatever happened before."""


THINKING: Final = 1.0
"""Seconds for the answer to a question."""

BUSY: Final = 4
"""Calls that keep each server busy, one after the other if it takes one at a time."""

BUSY_SECONDS: Final = 0.5
"""Seconds that each of them takes."""


@define
class CallEnd:
    """A call, and how it ended: ``answered``, ``left``, or the name of an error."""

    call: int
    deed: Deed
    asked: float
    at: float = math.nan
    outcome: str | None = None
    answer: str | None = None
    error: Exception | None = None
    done: trio.Event = field(factory=trio.Event)


@define(eq=False)
class Drain:
    """A stop, restart, removal or leave of busy servers, and their calls; ``late`` ones came after it had begun."""

    verb: str
    calls: list[int]
    late: list[int] = field(factory=list)
    began: float = math.nan
    ended: float = math.nan


@define(eq=False)
class World:
    """A run of a plan.

    Attributes:
        ends: the calls, by number.
        drains: what happened at the end to servers that were busy.
        problems: what was found wrong during the run.
        shown: the tools in the catalogue of each server that was ready at the end.
        states: the state of each server and of each replica at the end.
        read: what the program has read last of the resource of each server, while it is subscribed to it.
        wishes: the number of commands to each server so far that start, stop or change it, with the last of
            `WISHES` and its time.
        known: the servers that have served since they were stopped, parked or added: their tools are known.
        rested: the servers that have been disconnected as idle. In some runs a caller waits for the first of these.
    """

    plan: Plan
    trace: Trace = field(factory=Trace)
    houses: dict[str, House] = field(init=False)
    ends: dict[int, CallEnd] = field(factory=dict)
    drains: list[Drain] = field(factory=list)
    problems: list[str] = field(factory=list)
    shown: dict[str, set[str]] = field(factory=dict)
    states: dict[str, str] = field(factory=dict)
    read: dict[str, int] = field(factory=dict)
    wishes: dict[str, tuple[int, str, float]] = field(factory=dict)
    known: set[str] = field(factory=set)
    rested: set[str] = field(factory=set)
    _servers: ServerGroup = field(init=False)
    _refs: dict[str, ServerRef] = field(init=False)
    _callers: trio.Nursery = field(init=False)
    _all: trio.CancelScope = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.houses = {server.name: House(server, self.trace) for server in self.plan.servers}

    def run(self) -> None:
        """Carry out the plan."""
        before = len(os.listdir("/dev/fd"))
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with patch("mcp_actors.transports.stdio._link.start_process", self._start):
                run_seeded(self._main, seed=self.plan.seed)
        finally:
            logging.disable(disabled)
        if (left := len(os.listdir("/dev/fd")) - before) > 0:
            self.problems.append(f"{left} file descriptors are left")

    async def _start(self, server: str, *_: object) -> Any:
        machine = self.houses[server].machine
        assert isinstance(machine, PipeMachine)
        return await machine.start()

    async def _main(self) -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as self._all:
            await self._carry_out()
        for house in self.houses.values():
            house.machine.crash()  # a server behind HTTP goes on without its clients
        await wait_all_tasks_blocked()
        if (left := trio.lowlevel.current_statistics().tasks_living - tasks) > 0:
            self.problems.append(f"{left} tasks are left")

    async def _carry_out(self) -> None:
        async with trio.open_nursery() as callers:
            self._callers = callers
            configs = [house.config() for house in self.houses.values()]
            options: Any = {"observers": [self._observe], "drain_timeout": self.plan.drain_timeout}
            if any(deed.fate == "ask" for deed in self.plan.deeds):
                options["callbacks"] = Callbacks(elicitation=self._answer)
            async with open_servers(*configs, **options) as self._servers:
                self._refs = dict(self._servers)
                for server in self.plan.servers:
                    if server.followed:
                        callers.start_soon(self._follow, server.name, name=f"follows {server.name}")
                for deed in self.plan.deeds:
                    self._do(deed, callers)
                    if deed.pause:
                        await trio.sleep(deed.pause)
                        await wait_all_tasks_blocked()
                        self._check_idleness()
                await self._settle(callers)
                for verb in self.plan.drains:
                    await self._drain(verb, callers)
                self._no_deadline_is_kept()
            await wait_all_tasks_blocked()
            self._end_drain()
            self._no_call_is_pending("the group was left")
            callers.cancel_scope.cancel("the run is over")

    def _observe(self, event: Event) -> None:
        self.trace(event)
        if len(self.trace.events) == ENDLESS:
            self.problems.append("there is no end of events")
            self._all.cancel("there is no end of events")
        if isinstance(event, RequestStarted):
            self._check_bounds(event.actor)
        if isinstance(event, ServerAdded):
            self.known.discard(event.actor)  # the end of the one before was perhaps seen when this one had its name
        if isinstance(event, StateChanged):
            self._check_tools(event)
            if event.new == "stopping":
                self._check_rest(event)

    def _check_tools(self, event: StateChanged) -> None:
        """Find a server that is to run, and whose tools are not shown although they are known."""
        name = event.actor
        leaves = name not in self._servers or self._servers[name]._record.life.leaving
        _, wish, at = self.wishes.get(name, NO_WISH)
        if leaves or wish == "stop" or event.new in PARKED:
            self.known.discard(name)
        elif event.new == "ready":
            self.known.add(name)
        # A start and a stop in the same moment: the start wins, and the server is stopped for a moment.
        elif name in self.known and at < event.time and not self._shown(name):
            self.problems.append(f"{name} is {event.new} at {event.time:g} s, and its tools are not shown")

    def _check_idleness(self) -> None:
        """Find requests that wait although there is a free slot for them, while nothing is about to happen."""
        for name in self._servers:
            mailbox = self._servers[name]._actor._record.mailbox
            if mailbox.queued and mailbox.taker is not None and mailbox.taker.free > 0:
                self.problems.append(f"{name} has a free slot, and {mailbox.queued} requests wait")

    def _check_bounds(self, actor: str) -> None:
        server = actor.partition(":")[0]
        if server not in self._servers:  # it is being removed
            return
        record, options = self._servers[server]._actor._record, self.houses[server].plan.options
        for each in [record] if server == actor else (record.children or {}).values():
            slots = sum(not envelope.message.control for envelope in each.in_flight)
            if slots > options["max_in_flight"]:
                self.problems.append(f"{each.name} has {slots} requests in flight")
        # What a lost connection has not sent returns to its place, and may exceed the size.
        if (queued := len(record.mailbox._queue)) > options["mailbox_size"] + options["max_in_flight"]:
            self.problems.append(f"{server} has {queued} requests in its mailbox")

    def _check_rest(self, event: StateChanged) -> None:
        """Find the calls of a server that is disconnected because it is idle."""
        if event.reason.startswith("not used for a while"):
            self.trace.note(event.actor, "is idle")
            if self.plan.seed % 2 and event.actor not in self.rested:
                self._do(Deed("wait ready", event.actor, *PLAIN, 0.0), self._callers)
            self.rested.add(event.actor)
            for end in self.ends.values():
                if end.deed.server == event.actor and end.outcome is None and end.asked < event.time:
                    self.problems.append(f"{event.actor} is disconnected as idle, and call {end.call} is pending")

    async def _answer(self, context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer the question of a call."""
        await trio.sleep(THINKING)
        return ElicitResult(action="accept", content={"call": int(params.message)})

    # --- deeds ------------------------------------------------------------------------------------------------------

    def _do(self, deed: Deed, callers: trio.Nursery) -> None:
        ref = self._ref(deed.server)
        if deed.verb == "call":
            self._begin_call(deed, ref, callers)
            return
        self.trace.note("program", deed.verb, deed.server)
        if deed.verb in COMMANDS:
            callers.start_soon(self._command, deed, ref)
        else:
            self.houses[deed.server].do(deed.verb)

    async def _command(self, deed: Deed, ref: ServerRef) -> None:
        try:
            # A server may be removed or added at the same time.
            with trio.move_on_after(deed.patience or LONG), suppress(ServerError, MCPError, ConfigError, KeyError):
                await self._carry_out_command(deed, ref)
        finally:
            self.trace.note(deed.server, f"{deed.verb} is done", "program")

    async def _carry_out_command(self, deed: Deed, ref: ServerRef) -> None:
        for name in self.houses if deed.verb in RELOADS else [deed.server] if deed.verb in WISHES else []:
            number, wish, _ = self.wishes.get(name, NO_WISH)
            self.wishes[name] = number + 1, deed.verb if deed.verb in WISHES else wish, trio.current_time()
        before = ref._record.life.incarnation
        await self._ask_for(deed, ref)
        if deed.verb in STARTS:
            self._check_started(deed, ref, before)

    def _check_started(self, deed: Deed, ref: ServerRef, before: int) -> None:
        """Find a server that is down although its start has succeeded, or that has the connection from before."""
        record = ref._record
        rests = record.life.wanted.mode == "rest"  # it is lazy by now, or was idle
        if ref.state in DOWN and not rests:
            self.problems.append(f"{ref.name} is {ref.state}, and its {deed.verb} has succeeded")
        is_old = len(record.connections) == 1 and ref.state in ACTIVE and record.life.incarnation <= before
        if deed.verb in RENEWALS and is_old:
            self.problems.append(f"{ref.name} has the connection from before, and its {deed.verb} has succeeded")

    async def _ask_for(self, deed: Deed, ref: ServerRef) -> None:
        match deed.verb:
            case "wait ready":
                await self._wait_ready(ref)
            case "list":
                await ref.list_tools()
            case "stop" | "start" | "restart":
                await getattr(ref, deed.verb)()
            case "reconnect":
                others = () if deed.again else tuple(self._servers)
                await self._servers.reconnect(deed.server, *others)
            case "remove":
                await self._servers.remove(deed.server)
            case "add":
                await self._servers.add(self.houses[deed.server].config())
            case _:
                await self._reload(deed)

    async def _reload(self, deed: Deed) -> None:
        if deed.verb != "reload":
            self.houses[deed.server].connect = deed.verb
        timeout = 5.0 if deed.again else 6.0
        configs = [house.config(stop_timeout=timeout) for house in self.houses.values()]
        await self._servers.reload(*configs)

    async def _wait_ready(self, ref: ServerRef) -> None:
        """Wait for a server, and find a wait that goes on although there is nothing to wait for."""
        try:
            await ref.wait_ready()
        except trio.Cancelled:
            if ref.state in SETTLED:
                self.problems.append(f"{ref.name} is {ref.state}, and a wait for it has not ended")
            raise

    def _ref(self, server: str) -> ServerRef:
        """Return the ref of a server; the last one if it was removed."""
        if server in self._servers:
            self._refs[server] = self._servers[server]
        return self._refs[server]

    def _begin_call(self, deed: Deed, ref: ServerRef, callers: trio.Nursery) -> int:
        call = len(self.ends)
        self.ends[call] = CallEnd(call, deed, trio.current_time())
        self.trace.note("program", f"call {call}{' again' if deed.again else ''}", deed.server)
        callers.start_soon(self._call, self.ends[call], ref, name=f"call {call}")
        return call

    async def _call(self, end: CallEnd, ref: ServerRef) -> None:
        deed = end.deed
        how = "left"
        try:
            with trio.CancelScope() as scope:
                if deed.patience == 0.0:
                    trio.lowlevel.spawn_system_task(self._leave_soon, scope)
                else:
                    scope.deadline = trio.current_time() + deed.patience
                end.answer = await self._ask(end, ref)
                how = "answered"
        except (ServerError, MCPError) as error:
            how, end.error = type(error).__name__, error
        finally:
            if end.outcome is not None:
                self.problems.append(f"call {end.call} has two outcomes: {end.outcome} and {how}")
            end.outcome, end.at = how, trio.current_time()
            end.done.set()
            self.trace.note(end.deed.server, f"call {end.call}: {how}", "program")

    async def _leave_soon(self, scope: trio.CancelScope) -> None:
        await trio.lowlevel.checkpoint()
        scope.cancel("the caller leaves")

    async def _ask(self, end: CallEnd, ref: ServerRef) -> str:
        arguments = {"call": end.call, "seconds": end.deed.seconds, "fate": end.deed.fate}
        ask: Callable[..., Awaitable[CallToolResult]] = ServerRef.call_tool
        if end.deed.by_function:
            ask = ask_by_function
        result = await ask(ref, "work", arguments, idempotent=True if end.deed.again else None)
        [content] = result.content
        assert isinstance(content, TextContent)
        return content.text

    async def _follow(self, server: str) -> None:
        """Subscribe to the resource of a server, and read it whenever it may have changed."""
        while True:
            ref = self._ref(server)
            with suppress(ServerError, MCPError):
                async with ref.subscribe(RESOURCE) as changes:
                    self.read[server] = self.houses[server].number
                    while await self._read_changes(server, changes) and self._ref(server) is ref:
                        pass
            self.read.pop(server, None)
            await trio.sleep(1.0)

    async def _read_changes(self, server: str, changes: Subscription) -> bool:
        """Read what changes. Return True if the server is down, and the subscription goes on when it is back."""
        try:
            async for change in changes:
                self.read[server] = self.houses[server].number
                self.trace.note(server, f"{'may have' if change.missed else 'has'} changed", "program")
        except ServerUnavailable:
            await trio.sleep(1.0)
            return True
        return False

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _settle(self, callers: trio.Nursery) -> None:
        """Heal everything, wait, and look whether the servers serve as if nothing had happened."""
        for house in self.houses.values():
            house.do("come up")
            if not house.signed_in:
                house.do("sign in")
        began = trio.current_time()
        with trio.move_on_after(2 * LONG):  # until then a call may crash its server once more
            for end in [*self.ends.values()]:
                await end.done.wait()
        self._no_call_is_pending("all its limits are over")
        unheard = any(deed.verb == "lose" and self.houses[deed.server].plan.way == "http" for deed in self.plan.deeds)
        await trio.sleep_until(max(trio.current_time() + SETTLING, began + SETTLING_UNHEARD if unheard else 0.0))
        self.trace.note("program", "everything is healthy and quiet")
        for name, house in self.houses.items():
            if name in self._servers:
                await self._look(self._servers[name], house, callers)

    async def _look(self, ref: ServerRef, house: House, callers: trio.Nursery) -> None:
        """Look at a healthy server: it is idle, it takes as many calls as it should, and it shows its tools."""
        status = ref.statistics()
        self.states |= {each.name: each.state for each in status.replicas.each}
        self.states[ref.name] = status.state
        self._look_at_replicas(ref)
        if status.state not in ("ready", "pending"):
            return
        if status.in_flight or status.queued:
            self.problems.append(f"{ref.name} is idle with {status.in_flight} in flight and {status.queued} queued")
        await self._look_at_stream(ref, house)
        if house.plan.options["idle_timeout"] is not None and not house.plan.followed:
            self._look_at_idle(ref)
            if self.plan.seed % 2:  # the others are connected by their first call
                await self._stop_idle(ref)
        await self._look_at_calls(ref, house, callers)
        if ref.state == "ready":
            self.shown[ref.name] = self._shown(ref.name)
        if house.plan.followed:
            await self._look_at_resource(ref, house)

    async def _look_at_calls(
        self, ref: ServerRef, house: House, callers: trio.Nursery, *, refused_before: bool = False
    ) -> None:
        for number in (1, min(house.plan.options["max_in_flight"], 3)):
            ends = await self._ask_some(number, ref, callers)
            if not refused_before and any(isinstance(end.error, HttpStatusError) for end in ends):
                # Renewed for a caller who had left, and expired again: refused once (`calls` checks), and no more.
                await trio.sleep(SETTLING)
                await self._look_at_calls(ref, house, callers, refused_before=True)
                return
            for end in ends:
                if end.outcome != "answered" and house.plan.options["breaker"] is None:
                    self.problems.append(f"call {end.call} to a healthy and idle server: {end.outcome}")

    async def _look_at_resource(self, ref: ServerRef, house: House) -> None:
        """Find a reader who does not know of a change, or does not hear of the next one."""
        for number in (house.number, house.number + 1):
            if number > house.number:
                house.do("update")
                await trio.sleep(REOPENING)
            if self.read.get(ref.name) != number:
                self.problems.append(f"{ref.name} has changed to {number}, and {self.read.get(ref.name)} was read")

    async def _ask_some(self, number: int, ref: ServerRef, callers: trio.Nursery) -> list[CallEnd]:
        """Make calls at the same time, and return how they have ended after a while."""
        ends = [self.ends[self._begin_call(last_call(ref.name), ref, callers)] for _ in range(number)]
        with trio.move_on_after(PROMPT):
            for end in ends:
                await end.done.wait()
        return ends

    def _look_at_replicas(self, ref: ServerRef, before: Sequence[PipeProcess] | None = None) -> None:
        """Compare what a server says of its processes with what they do, unless one is just coming or going.

        One that was renewed since its server was busy has none of the calls. So if there are others than `before`, how
        the calls are divided says nothing.
        """
        machine, replicas = self.houses[ref.name].machine, ref.statistics().replicas
        if not isinstance(machine, PipeMachine) or {each.state for each in replicas.each} & {"connecting", "stopping"}:
            return
        work = [len(process.worker.running) for process in machine.running]
        said = replicas.total, replicas.serving, replicas.active, replicas.idle
        if said != (len(self.houses[ref.name].plan.actors), len(work), sum(map(bool, work)), work.count(0)):
            self.problems.append(f"{ref.name} says {said} of its replicas, which have {work} calls")
        if work and max(work) > min(work) + 1 and before in (None, machine.running):
            self.problems.append(f"{ref.name} divides its calls into {work}")

    def _processes(self, server: str) -> Sequence[PipeProcess]:
        machine = self.houses[server].machine
        return machine.running if isinstance(machine, PipeMachine) else ()

    def _look_at_idle(self, ref: ServerRef) -> None:
        if ref.state != "pending":
            self.problems.append(f"{ref.name} is {ref.state}, and idle for long")
        about = (event for event in reversed(self.trace.events) if event.actor == ref.name)
        said = next((event for event in about if isinstance(event, ToolsChanged | ServerAdded)), None)
        if isinstance(said, ToolsChanged) and self._shown(ref.name) != {*said.tools}:
            self.problems.append(f"{ref.name} is idle, and does not show the tools that it had")

    async def _stop_idle(self, ref: ServerRef) -> None:
        """Stop an idle server, and start it again."""
        self.trace.note("program", "stop", ref.name)
        await self._carry_out_command(Deed("stop", ref.name, *PLAIN, 0.0), ref)
        if ref.state != "stopped":
            self.problems.append(f"{ref.name} was idle and has been stopped, and is {ref.state}")
        await self._carry_out_command(Deed("start", ref.name, *PLAIN, 0.0), ref)

    async def _look_at_stream(self, ref: ServerRef, house: House) -> None:
        """Find a server that could announce nothing to its client."""
        if not isinstance(house.machine, HttpMachine) or ref.state != "ready":
            return
        if not house.machine.is_heard:
            await trio.sleep(REOPENING)
        if not house.machine.is_heard:
            self.problems.append(f"{ref.name} is ready, and has no stream for its notifications")

    def _shown(self, server: str) -> set[str]:
        return {tool.name for tool in self._servers.tools if tool.server == server}

    async def _drain(self, verb: str, callers: trio.Nursery) -> None:
        """Keep healthy servers busy, and then stop, restart, remove or leave them."""
        names = [name for name in self._servers if self._servers[name].state == "ready"]
        if verb == "remove":  # one at a time: the removal of another waits for this one
            names = names[:1]
        refs = {name: self._servers[name] for name in names}
        before = {name: self._processes(name) for name in names}
        calls = [self._begin_call(busy_call(name), refs[name], callers) for name in names for _ in range(BUSY)]
        self.drains.append(drain := Drain(verb, calls))
        await trio.sleep(BUSY_SECONDS / 2)
        for ref in refs.values():
            self._look_at_replicas(ref, before[ref.name])
        drain.began = trio.current_time()
        callers.start_soon(self._come_late, drain, refs, callers)
        if verb == "leave":
            return
        async with trio.open_nursery() as commands:
            for name in names:
                self.trace.note("program", verb, name)
                commands.start_soon(self._carry_out_command, Deed(verb, name, *PLAIN, 0.0), refs[name])
        self._end_drain()
        if verb != "restart":
            await wait_all_tasks_blocked()
            for name in names:
                self._no_call_is_pending(f"{name} was asked to {verb}", name)
        await trio.sleep(PROMPT)

    async def _come_late(self, drain: Drain, refs: dict[str, ServerRef], callers: trio.Nursery) -> None:
        await trio.sleep(BUSY_SECONDS / 4)
        drain.late = [self._begin_call(busy_call(name), ref, callers) for name, ref in refs.items()]

    def _end_drain(self) -> None:
        for drain in self.drains[-1:]:
            drain.ended = trio.current_time() if math.isnan(drain.ended) else drain.ended

    def _no_deadline_is_kept(self) -> None:
        for name in self.houses:
            if self.plan.drains[-1:] != ("leave",) and (kept := kept_of(self._ref(name))):
                self.problems.append(f"{name} keeps {kept} deadlines")

    def _no_call_is_pending(self, since: str, server: str | None = None) -> None:
        for end in self.ends.values():
            if end.outcome is None and server in (None, end.deed.server):
                self.problems.append(f"call {end.call} is pending although {since}")


def last_call(server: str) -> Deed:
    """Return a call by which a server shows that it serves."""
    return Deed("call", server, *PLAIN, pause=0.0)


def busy_call(server: str) -> Deed:
    """Return a call that keeps a server busy for a moment."""
    return evolve(last_call(server), seconds=BUSY_SECONDS)
