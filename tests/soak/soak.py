"""The soak: real servers over stdio and HTTP, callers, and all that can happen to servers, in random order.

Some servers rest when they are idle, some are renewed all the time. Every few milliseconds something else happens:
SIGKILL, SIGSTOP, an outage of an HTTP server, a reload with changes, an added or removed server, a restart, a token
that is refused.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
from attrs import define, field, frozen
from mcp import MCPError

from mcp_actors import (
    Backoff,
    HealthPolicy,
    LimitExceeded,
    RestartPolicy,
    ServerConfig,
    ServerError,
    ServerGroup,
    open_servers,
)
from tests.auth.authority import run_authority
from tests.servers.fleet import http_config
from tests.servers.groups import server
from tests.servers.http_server import Running, reserved_port, run_server
from tests.servers.links import text_of
from tests.servers.processes import eventually

from .census import census, memory
from .guarded import Guarded

STUCK: Final = 60.0
"""Seconds after which a call counts as stuck; its own limit is far below."""

READY: Final = 90.0
"""Seconds in which all servers must be ready after the last trouble."""

RETRIED: Final = RestartPolicy(max_restarts=10**9, backoff=Backoff(first=0.0, initial=0.1, maximum=2.0, jitter=0.2))


@frozen
class Size:
    """How much there is of everything.

    Attributes:
        seconds: how long there is trouble, after the warm-up.
        warm_up: seconds of trouble before memory is measured first: until then every new mixture of sizes takes some.
        stdio: servers over stdio.
        replicated: how many of them are two processes.
        http: servers over HTTP.
        guarded: servers over HTTP whose tokens expire all the time.
        callers: tasks that call.
        check: seconds between two health checks.
        rest: seconds for which the group is left alone at the end, while its processor time is measured.
    """

    seconds: float = 60.0
    warm_up: float = 60.0
    stdio: int = 14
    replicated: int = 3
    http: int = 4
    guarded: int = 2
    callers: int = 50
    check: float = 5.0
    rest: float = 10.0


@define
class Report:
    """The outcome of a soak.

    Attributes:
        outcomes: how many calls ended in which way.
        events: how often each kind of trouble happened.
        defects: what must not happen.
        memory: bytes of this process after the warm-up, and at the end.
        idle: the part of a core that the group used while it was left alone.
    """

    outcomes: Counter[str] = field(factory=Counter)
    events: Counter[str] = field(factory=Counter)
    defects: list[str] = field(factory=list)
    memory: list[int] = field(factory=list)
    idle: float = 0.0

    @property
    def grown(self) -> float:
        """The part by which this process grew after the warm-up."""
        first, last = self.memory
        return last / first - 1.0

    def __str__(self) -> str:
        outcomes, events = (
            ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
            for counts in (self.outcomes, self.events)
        )
        return (
            f"calls: {outcomes}\ntrouble: {events}\n"
            f"memory: {self.memory[-1] / 2**20:.0f} MiB, grown by {self.grown:.1%}; idle: {self.idle:.2%} of a core"
        )


class Web:
    """An HTTP server that can be down for a while."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self._stack = ExitStack()
        self._running: Running | None = None
        self.outage: trio.Lock = trio.Lock()

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self._running is None:
            open_it = partial(self._stack.enter_context, run_server("--port", str(self.port)))
            self._running = await trio.to_thread.run_sync(open_it)

    async def stop(self) -> None:
        """Kill it."""
        if self._running is not None:
            self._running = None
            await trio.to_thread.run_sync(self._stack.close)


class Soak:
    """Runs it; the same seed draws the same troubles, though not at the same moments."""

    def __init__(self, size: Size, seed: int) -> None:
        self.report = Report()
        self._size = size
        self._draw = random.Random(seed)
        self._webs = [Web(f"web{number}") for number in range(size.http)]
        self._guarded: Guarded | None = None
        self._edition = 0
        self._extra: set[str] = set()

    def _configs(self, changed: frozenset[str] = frozenset(), *, calm: bool = False) -> list[ServerConfig]:
        """Configure all servers; those with a changed name differ. Calm ones neither rest nor age."""
        self._edition += bool(changed)
        configs = []
        for number in range(self._size.stdio):
            name = f"stdio{number}"
            age = {"idle_timeout": 1.0} if number % 5 == 1 else {"max_lifetime": 5.0} if number % 5 == 2 else {}
            age = {} if calm else age
            replicas = 2 if number < self._size.replicated else 1
            configs.append(server(name, replicas=replicas, **self._options(name, changed), **age))
        configs += [http_config(web.port, web.name, **self._options(web.name, changed)) for web in self._webs]
        if self._guarded is not None:
            configs += self._guarded.configs(lambda name: self._options(name, changed))
        return configs

    def _options(self, name: str, changed: frozenset[str]) -> dict[str, object]:
        size = 256 + self._edition if name in changed else 256
        return {
            "mailbox_size": size,
            "restarts": RETRIED,
            "health": HealthPolicy(interval=self._size.check, timeout=min(1.0, self._size.check), silence=10.0),
            "stop_timeout": 1.0,
            "request_timeout": 15.0,
            "connect_timeout": 10.0,
        }

    async def run(self) -> Report:
        """Make trouble, then look at what is left."""
        before = census()
        with ExitStack() as stack:
            await self._guard(stack)
            try:
                for web in self._webs:
                    web.port = stack.enter_context(reserved_port())
                    await web.start()
                async with open_servers(*self._configs(), drain_timeout=2.0) as group:
                    await self._trouble(group)
                    await self._recover(group)
                    await self._idle()
            finally:
                for web in self._webs:
                    await web.stop()
            if self._guarded is not None:
                self.report.events["refresh"] = self._guarded.refreshed
                self.report.defects += self._guarded.defects
        left = census()
        self.report.defects += [
            f"left: {key} {left[key]}, before: {before[key]}" for key in left if left[key] > before[key]
        ]
        return self.report

    async def _guard(self, stack: ExitStack) -> None:
        if self._size.guarded:
            authority = stack.enter_context(run_authority())
            folder = Path(stack.enter_context(TemporaryDirectory()))
            self._guarded = Guarded(authority, folder, self._size.guarded)
            await self._guarded.sign_in()

    async def _trouble(self, group: ServerGroup) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(self._size.callers):
                nursery.start_soon(self._call, group, random.Random(number))
            nursery.start_soon(self._change, group)
            await trio.sleep(self._size.warm_up)
            self._weigh()
            await trio.sleep(self._size.seconds)
            await eventually(lambda: self.report.outcomes["answered"] > 0, within=READY)
            nursery.cancel_scope.cancel("that was enough")

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, group: ServerGroup, draw: random.Random) -> None:
        while True:
            name, text = draw.choice([*group] or ["none"]), f"text {draw.random()}"
            with trio.move_on_after(draw.choice([STUCK, STUCK, STUCK, 0.02])) as scope:
                try:
                    answer = text_of(await group[name].call_tool("echo", {"text": text}))
                    outcome = "answered"
                    if answer != text:
                        self.report.defects.append(f"{name} answered {answer!r} to {text!r}")
                except (ServerError, MCPError, KeyError) as exc:
                    outcome = type(exc).__name__
                    if isinstance(exc, LimitExceeded | MCPError):
                        self.report.defects.append(f"{name}: {exc}")
            if scope.cancelled_caught:
                outcome = "cancelled"
                if trio.current_time() - scope.deadline > STUCK / 2:
                    self.report.defects.append(f"a call to {name} was stuck")
            self.report.outcomes[outcome] += 1
            await trio.sleep(draw.random() * 0.05)

    # --- trouble ----------------------------------------------------------------------------------------------------

    async def _change(self, group: ServerGroup) -> None:
        kinds: list[Callable[[ServerGroup], Awaitable[None]]] = [
            *(partial(self._signal, signal.SIGKILL), partial(self._signal, signal.SIGKILL)),
            *(
                partial(self._signal, signal.SIGSTOP),
                self._outage,
                self._reload,
                self._add,
                self._remove,
                self._restart,
                self._expire,
            ),
        ]
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._draw.random() * 0.4)
                nursery.start_soon(self._draw.choice(kinds), group)

    def _note(self, kind: str) -> None:
        self.report.events[kind] += 1

    async def _signal(self, number: signal.Signals, group: ServerGroup) -> None:
        replicas = [replica for status in group.status().values() for replica in status.replicas.each]
        pids = [replica.pid for replica in replicas if replica.pid is not None]
        if pids:
            self._note(number.name)
            with suppress(ProcessLookupError):
                os.kill(self._draw.choice(pids), number)

    async def _outage(self, _: ServerGroup) -> None:
        if self._webs:
            web = self._draw.choice(self._webs)
            self._note("outage")
            async with web.outage:
                await web.stop()
                await trio.sleep(self._draw.random() * 2.0)
                await web.start()

    async def _reload(self, group: ServerGroup) -> None:
        self._note("reload")
        changed = frozenset(self._draw.sample([*group], min(2, len(group))))
        with suppress(ServerError):  # one that is awaited was removed meanwhile
            await group.reload(*self._configs(changed))

    async def _add(self, group: ServerGroup) -> None:
        self._edition += 1
        name = f"extra{self._edition}"
        if len(group) < self._size.stdio + self._size.http + 3:
            self._note("add")
            with suppress(ServerError):  # a reload has removed it meanwhile
                await group.add(server(name, **self._options(name, frozenset())))

    async def _remove(self, group: ServerGroup) -> None:
        extra = [name for name in group if name.startswith("extra")]
        if extra:
            self._note("remove")
            with suppress(KeyError, ServerError):
                await group.remove(self._draw.choice(extra))

    async def _restart(self, group: ServerGroup) -> None:
        self._note("restart")
        with suppress(ServerError, KeyError):
            await group[self._draw.choice([*group])].restart()

    async def _expire(self, _: ServerGroup) -> None:
        if self._guarded is not None:
            self._note("expiry")
            await self._guarded.expire()

    # --- afterwards -------------------------------------------------------------------------------------------------

    async def _recover(self, group: ServerGroup) -> None:
        """Wait until everything serves."""
        for web in self._webs:
            await web.start()
        await group.reload(*self._configs(calm=True))
        with trio.move_on_after(READY):
            async with trio.open_nursery() as nursery:
                for name in group:
                    nursery.start_soon(_until_answered, group, name)
        each = [replica for status in group.status().values() for replica in status.replicas.each]
        self.report.defects += [f"{replica.name} is {replica.state}" for replica in each if replica.state != "ready"]

    async def _idle(self) -> None:
        """Measure the processor time of a group that nothing happens to."""
        await trio.sleep(self._size.rest / 5)  # the last processes have ended
        began, used = time.monotonic(), time.process_time()
        await trio.sleep(self._size.rest)
        self.report.idle = (time.process_time() - used) / (time.monotonic() - began)
        self._weigh()

    def _weigh(self) -> None:
        gc.collect()
        self.report.memory.append(memory())


async def _until_answered(group: ServerGroup, name: str) -> None:
    while True:
        with suppress(ServerError):  # perhaps it was suspended, which is noticed only now
            await group[name].call_tool("echo", {"text": "back"})
            replicas = group.status()[name].replicas
            if replicas.serving == replicas.total:
                return
        await trio.sleep(0.2)
