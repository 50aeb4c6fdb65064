"""Random programs over the requests on a pipe: each caller gets exactly what a simple model expects, after each act.

A program makes calls by both ways, lets callers leave and time out, has the server read a part of what it was sent,
answer in odd ways, exit in mid-answer, and be restarted. The pipe is a page long, so most lines are written in parts.
The model knows which call each answer was for, and what the pipe had taken when its server was gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import strategies as st
from mcp import MCPError
from mcp.types import ListRootsResult, Root
from pydantic import FileUrl
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, HealthPolicy, ServerError, ServerGroup, StateChanged, open_servers
from mcp_actors.kernel import Event
from mcp_actors.transports._request_table import LAST_ID

from ..programs import run_programs
from .groups import AT_ONCE
from .links import text_of
from .wire_pipes import SMALLEST, Machine, WireProcess, needs_linux
from .wire_server import filled

pytestmark = pytest.mark.own_way

TIMEOUT: Final = 50.0
LONGEST: Final = 1e4
"""Virtual seconds for a program, which takes at most some thousand. One that waits for ever fails within seconds, even
if a task looks at something ten times per second meanwhile."""

BY_SESSION: Final = {"k": 1}

OK: Final = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"$n"}]}}'

UNKNOWN: Final = (f"{LAST_ID}", f"{LAST_ID + 1}", f"{2**70}", "-1", "0.5", "null", '"x"')
"""Ids of no request."""

ANSWERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "ok": ("answered", (OK,)),
    "as a string": ("answered", (OK.replace("$id", "$text"),)),
    "doubled": ("answered", (OK, OK)),
    "with a later field": ("answered", (OK.replace('"result":{', '"result":{"ttlMs":"x","cacheScope":5,'),)),
    "after answers to nobody": (
        "answered",
        (*(OK.replace("$id", number) for number in UNKNOWN), OK),
    ),
    "error": ("no", ('{"jsonrpc":"2.0","id":$id,"error":{"code":7,"message":"no"}}',)),
    "broken": ("not understood", ('{"jsonrpc":"2.0","id":$id,"result":{"content":5}}',)),
    "no JSON": ("not understood", ('{"jsonrpc":"2.0","id":$id,"result":[}}',)),
    "error after a result": ("answered", (OK, '{"jsonrpc":"2.0","id":$id,"error":{"code":7,"message":"no"}}')),
}
"""How a call may be answered: what its caller gets, and the lines that the server writes."""


@frozen
class Act:
    """One act.

    Attributes:
        verb: what is done.
        pick: which call, or how many.
        size: the bytes of a call, or to read.
        way: of a call, or of an answer.
        later: the steps of the event loop before a caller leaves; how many do it in one tick.
    """

    verb: str
    pick: int
    size: int
    way: str
    later: int


@frozen
class Program:
    """A program: acts on one server, how it is configured, and whether it writes one byte at a time."""

    era: str
    slow: bool
    options: dict[str, Any]
    acts: list[Act]


VERBS: Final = {
    "call": 10,
    "call_and_leave": 3,
    "leave": 3,
    "answer": 10,
    "half_an_answer": 2,
    "ask": 2,
    "freeze": 4,
    "thaw": 2,
    "read": 4,
    "sleep": 2,
    "kill": 2,
    "restart": 2,
}
"""The kinds of actions, each with how often it is drawn."""

ACTS: Final = st.builds(
    Act,
    st.sampled_from([verb for verb, times in VERBS.items() for _ in range(times)]),
    st.integers(0, 9),
    st.sampled_from([1, 10, 500, 3000, 3900, 9000]),
    st.sampled_from(["ok", *ANSWERS]),
    st.integers(0, 4),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    options = {
        "max_in_flight": draw(st.sampled_from([1, 3, 64])),
        "mailbox_size": draw(st.sampled_from([1, 256])),
        "request_timeout": draw(st.sampled_from([None, TIMEOUT])),
    }
    era = draw(st.sampled_from(["legacy", "modern"]))
    slow = draw(st.sampled_from([False] * 9 + [True]))
    return Program(era, slow, options, draw(st.lists(ACTS, min_size=3, max_size=30)))


@define(eq=False)
class Caller:
    """A call, and what the model expects of it.

    Attributes:
        number: its own.
        direct: True if its request may go directly.
        began: when it was made.
        place: in the order of arrival.
        scope: around its task.
        outcomes: what its task got.
        expected: what it should have got by now; None if it should still wait.
        begun: the process that may have read of it.
        abandoned: True if it has left, or its deadline has expired.
    """

    number: int
    direct: bool
    began: float
    place: int = -1
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    outcomes: list[str] = field(factory=list)
    expected: str | None = None
    begun: WireProcess | None = None
    abandoned: bool = False


@define(eq=False)
class Run:
    """Runs a program, and compares it with the model."""

    program: Program
    callers: list[Caller] = field(factory=list)
    machine: Machine = field(init=False)
    process: WireProcess = field(init=False)
    servers: ServerGroup = field(init=False)
    nursery: trio.Nursery = field(init=False)
    places: count[int] = field(factory=count)
    half: object = None
    reads_at_the_end: bool = False
    verbs: dict[str, Callable[[Act], Awaitable[None]]] = field(init=False)
    numbers: dict[tuple[WireProcess, object], int] = field(factory=dict)
    noticed: dict[tuple[WireProcess, object], bool] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.machine = Machine(self.program.era, SMALLEST, slow=self.program.slow)
        self.verbs = {verb: getattr(self, verb) for verb in VERBS}

    # --- the program ------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        config = self.machine.config(
            **self.program.options, restarts=AT_ONCE, health=HealthPolicy(interval=None), validate="off"
        )
        with trio.fail_after(LONGEST), self.machine.installed():
            async with (
                open_servers(
                    config,
                    callbacks=Callbacks(roots=roots),
                    observers=[self.observe],
                    drain_timeout=0,
                ) as self.servers,
                trio.open_nursery() as self.nursery,
            ):
                for act in self.program.acts:
                    await self.do(act)
                    self.compare(act)
                await self.end()

    async def do(self, act: Act) -> None:
        self.process = self.machine.now
        await self.verbs[act.verb](act)
        await wait_all_tasks_blocked()
        self.end_half()
        if self.process.has_exited():
            self.lose(self.process)
        self.expire()

    async def end(self) -> None:
        """Have the last server read and answer all, look at its notices, and stop it."""
        await wait_all_tasks_blocked()
        self.process = process = self.machine.now
        self.finish()
        process.thaw()
        await wait_all_tasks_blocked()
        while process.server.muted:
            await self.answer(Act("answer", 0, 0, "ok", 9))
            await wait_all_tasks_blocked()
            self.compare("the end")
        assert self.waiting() == []
        now = self.servers["a"].statistics()
        assert (now.in_flight, now.queued) == (0, 0)
        cancelled = self.cancelled(process)
        for (of, request), number in self.numbers.items():
            if of is process:
                left = self.noticed.get(
                    (of, request), self.callers[number].abandoned and (of, request) not in self.noticed
                )
                assert cancelled[request] == left, (request, number)
        await self.servers["a"].stop()
        await wait_all_tasks_blocked()

    # --- acts -------------------------------------------------------------------------------------------------------

    async def call(self, act: Act) -> None:
        """Make some calls in one tick."""
        for _ in range(act.pick % 4 + 1):
            self.make_call(act)

    async def call_and_leave(self, act: Act) -> None:
        """Make a call whose caller leaves soon."""
        caller = self.make_call(act)
        for _ in range(act.later):
            await trio.lowlevel.checkpoint()
        self.leave_as(caller)

    async def leave(self, act: Act) -> None:
        """Have some callers leave in one tick."""
        for _ in range(act.later + 1):
            if waiting := self.waiting():
                self.leave_as(waiting[act.pick % len(waiting)])

    async def freeze(self, _: Act) -> None:
        """Have the server read nothing."""
        self.process.freeze()

    async def thaw(self, _: Act) -> None:
        """Have the server read again."""
        self.process.thaw()

    async def read(self, act: Act) -> None:
        """Have a frozen server read some bytes."""
        self.process.read_some(act.size)

    async def sleep(self, act: Act) -> None:
        """Let time pass, and perhaps deadlines."""
        await trio.sleep([1, 20, 60][act.pick % 3])

    async def kill(self, act: Act) -> None:
        """Kill the server, perhaps in the tick of a call."""
        self.process.kill()
        if act.later == 0:
            self.make_call(act)

    async def restart(self, act: Act) -> None:
        """Restart the server, which perhaps reads all of its input in the very step that decides the end."""
        self.reads_at_the_end = act.later > 1
        await self.servers["a"].restart()
        self.reads_at_the_end = False

    def observe(self, event: Event) -> None:
        """Have the server read, so that there is room in the pipe of a connection that ends."""
        if self.reads_at_the_end and isinstance(event, StateChanged) and event.new in ("stopping", "backoff"):
            self.process.thaw()
            self.process.read_some(2**16)

    async def answer(self, act: Act) -> None:
        """Have the server answer some calls in one write."""
        self.finish()
        for _ in range(act.later // 2 + 1):
            if self.process.server.muted:
                request, number = self.pick(act)
                outcome, lines = ANSWERS[act.way]
                self.process.put(written(request, number, lines))
                self.answered(request, outcome)

    async def half_an_answer(self, act: Act) -> None:
        """Have the server answer, and write the second half when it writes next."""
        self.finish()
        if self.process.server.muted:
            request, number = self.pick(act)
            line = written(request, number, (OK,))
            self.process.put(line[: len(line) // 2])
            self.half, self.process.rest = request, line[len(line) // 2 :]

    async def ask(self, act: Act) -> None:
        """Have the server ask in the middle of a call: in the modern era by an answer that requires input."""
        self.finish()
        if self.process.server.muted:
            request, _ = self.pick(act)
            if self.process.server.modern:
                self.noticed[self.process, request] = self.callers[self.numbers[self.process, request]].abandoned
                self.process.server.require_roots(request)
            else:
                self.process.server.muted.append(request)
                self.process.server.send({"id": f"roots-{request}", "method": "roots/list"})

    # --- their parts ------------------------------------------------------------------------------------------------

    def make_call(self, act: Act) -> Caller:
        caller = Caller(len(self.callers), act.way != "error", trio.current_time())
        self.callers.append(caller)
        self.nursery.start_soon(self.wait_for, caller, act.size)
        return caller

    async def wait_for(self, caller: Caller, size: int) -> None:
        outcome, caller.place = "left", next(self.places)
        with caller.scope:
            try:
                arguments = {"number": caller.number, "padding": "x" * size}
                meta = None if caller.direct else BY_SESSION
                result = await self.servers["a"].call_tool("mute", arguments, meta=meta)
                outcome = f"answered {text_of(result)}"
            except MCPError as exc:
                outcome = exc.error.message
            except ServerError as exc:
                outcome = "not understood" if "fix the server" in str(exc) else type(exc).__name__
        caller.outcomes.append(outcome)

    def leave_as(self, caller: Caller) -> None:
        caller.scope.cancel("it leaves")
        self.over(caller, "left")

    def over(self, caller: Caller, outcome: str) -> None:
        if caller.expected is None:
            caller.expected = outcome
            caller.abandoned = outcome in ("left", "RequestTimedOut")

    def waiting(self) -> list[Caller]:
        return [each for each in self.callers if each.expected is None]

    def pick(self, act: Act) -> tuple[object, int]:
        """Return one of the requests that the server may answer, and the number of the call."""
        muted = self.process.server.muted
        request = muted.pop(act.pick % len(muted))
        self.note(self.process)
        return request, self.numbers[self.process, request]

    def finish(self) -> None:
        """Write the rest of half an answer."""
        if self.half is not None:
            self.process.put(b"")
            self.end_half()

    def end_half(self) -> None:
        """Expect the answer whose second half was written."""
        if self.half is not None and not self.process.rest:
            self.answered(self.half, "answered")
            self.half = None

    def answered(self, request: object, outcome: str) -> None:
        caller = self.callers[self.numbers[self.process, request]]
        self.noticed[self.process, request] = caller.abandoned
        self.over(caller, f"answered {caller.number}" if outcome == "answered" else outcome)

    # --- the model --------------------------------------------------------------------------------------------------

    def note(self, process: WireProcess) -> None:
        """Note whose call each line was."""
        for line in bytes(process.received).split(b"\n"):
            if found := re.search(rb'"number":(\d+),', line):
                number = int(found[1])
                self.callers[number].begun = process
                if request := re.search(rb'"id":(\d+),', line):
                    self.numbers[process, int(request[1])] = number

    def lose(self, process: WireProcess) -> None:
        """Expect that all calls of which the pipe has taken something are lost."""
        self.half = None
        self.note(process)
        unclear = []
        for caller in self.waiting():
            if caller.begun is process:
                self.over(caller, "ConnectionLost")
            elif not caller.direct or is_begun(bytes(process.received).rpartition(b"\n")[2]):
                unclear.append(caller)  # handed to the session; or so little was taken that nothing says whose it is
        for caller in unclear:
            if caller.outcomes:
                assert caller.outcomes == ["ConnectionLost"]
                self.over(caller, "ConnectionLost")
        assert sum(caller.direct and caller.expected == "ConnectionLost" for caller in unclear) <= 1

    def expire(self) -> None:
        if self.program.options["request_timeout"] is not None:
            for caller in self.waiting():
                if caller.began + TIMEOUT <= trio.current_time():
                    self.over(caller, "RequestTimedOut")

    def compare(self, act: object) -> None:
        """Compare all outcomes up to now with those expected."""
        for caller in self.callers:
            expected = [] if caller.expected is None else [caller.expected]
            assert caller.outcomes == expected, (act, caller)

    def cancelled(self, process: WireProcess) -> Counter[object]:
        """Count the requests that the server was asked to cancel."""
        notices = [message for message in process.read if message.get("method") == "notifications/cancelled"]
        return Counter(notice["params"]["requestId"] for notice in notices)

    # --- at the end -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for caller in self.callers:
            assert caller.outcomes == [caller.expected], caller
        first = Counter[int]()
        for process in self.machine.processes:
            calls = [message for message in process.read if message.get("method") == "tools/call"]
            new = [each for each in calls if "inputResponses" not in each["params"]]
            first.update(each["params"]["arguments"]["number"] for each in new)
            callers = [self.callers[each["params"]["arguments"]["number"]] for each in new]
            # A call in a task is written a step later, so a call that goes directly may overtake it within that step.
            places = [caller.place for caller in callers if caller.direct]
            assert places == sorted(places)
            cancelled = self.cancelled(process)
            known = {message.get("id") for message in calls}
            assert set(cancelled) <= known
            assert set(cancelled.values()) <= {1}
        assert set(first.values()) <= {1}


def is_begun(tail: bytes) -> bool:
    """Return True if this is a line that does not tell whose it is."""
    return bool(tail) and b'"number":' not in tail


def written(request: object, number: int, lines: tuple[str, ...]) -> bytes:
    """Return the lines of an answer."""
    return "".join(filled(request, line.replace("$n", str(number))) + "\n" for line in lines).encode()


async def roots(_: object) -> ListRootsResult:
    """Answer the server's question."""
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///here"))])


@needs_linux
def test_each_caller_gets_what_the_model_expects(record_property: Callable[[str, object], None]) -> None:
    """A-03, A-09."""
    run_programs(programs(), Run, record_property, number=40, full=5_000)
