"""Wrong actors, messages, children, events and errors. Nothing runs this file."""

from __future__ import annotations

from mcp_actors import ConnectFailed, McpActorsError, RequestTimedOut, ServerUnavailable, StateChanged, ToolFailed
from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Message,
    Pool,
    Supervisor,
    SupervisorRef,
    handles,
    open_actor,
    open_supervisor,
)
from mcp_actors.testing import Probe


class Add(Call[int]):
    """A call."""


class Reset(Message):
    """A message without an answer."""


class Other(Call[str]):
    """A call that the counter does not handle."""


class Counter(Actor[Add | Reset]):
    """Counts."""

    @handles(Add)
    def add(self, message: Add) -> int:
        self.after("1", Reset())  # wrong
        self.after(1, Other())  # wrong
        self.every(1)  # wrong
        return 1

    @handles(Reset)
    async def reset(self, message: Reset) -> None:
        self.ref.tell_nowait(Other())  # wrong


async def send(counter: ActorRef[Add | Reset], above: SupervisorRef) -> None:
    await counter.call(Other())  # wrong
    await counter.call(Reset())  # wrong
    await counter.call("add")  # wrong
    await counter.call(Add)  # wrong
    await counter.call(Add(), 5)  # wrong
    await counter.call(Add(), timeout=5)  # wrong
    (await counter.call(Add())).upper()  # wrong
    await counter.tell(Other())  # wrong
    counter.tell_nowait("reset")  # wrong
    counter.send_request(Other())  # wrong
    await counter.wait_state("done")  # wrong
    await counter.stop()  # wrong
    counter.state = "running"  # wrong
    counter.statistics().queue  # wrong
    counter.call(Add())  # wrong
    counter.tell(Reset())  # wrong
    await above.start_child(Counter())  # wrong
    await above.start_child("counter", Counter)  # wrong
    above.child(1)  # wrong
    await above.child("counter", Counter).call(Other())  # wrong
    await above.stop_child(counter)  # wrong
    (await above.which_children()).count_all  # wrong


async def start() -> None:
    ChildSpec()  # wrong
    ChildSpec("counter")  # wrong
    ChildSpec(Counter)  # wrong
    ChildSpec("counter", Counter, "permanent")  # wrong
    ChildSpec("counter", Counter, restart="always")  # wrong
    ChildSpec("counter", Counter, shutdown="kill")  # wrong
    ChildSpec("counter", Counter, overflow="drop")  # wrong
    ChildSpec("counter", Counter, mailbox_size="10")  # wrong
    ChildSpec("counter", lambda: 1)  # wrong
    Supervisor(Counter)  # wrong
    Supervisor(ChildSpec("counter", Counter), strategy="one_for_two")  # wrong
    Supervisor(ChildSpec("counter", Counter), auto_shutdown="yes")  # wrong
    Pool(Counter(), size=2)  # wrong
    Pool(Counter, size="2")  # wrong
    handles(int)  # wrong
    handles("Add")  # wrong
    async with open_actor(Counter, name="counter"):  # wrong
        pass
    async with open_actor(Counter(), name=1):  # wrong
        pass
    async with open_supervisor(Counter):  # wrong
        pass


class TakesAnother(Actor):
    """The annotation contradicts the decorator."""

    @handles(Add)  # wrong
    async def add(self, message: Reset) -> int:
        return 1


class AnswersAnother(Actor):
    """The answer is of another type."""

    @handles(Add)  # wrong: mypy pyright; says int
    async def add(self, message: Add) -> str:
        return ""


def observe(event: StateChanged, error: McpActorsError) -> None:
    event.sever  # wrong
    event.new.value  # wrong
    error.server  # wrong
    if event.new == "redy":  # wrong: mypy pyright
        pass
    if isinstance(error, ConnectFailed):
        error.exit  # wrong
        if error.phase == "connect":  # wrong: mypy pyright
            pass
    if isinstance(error, ToolFailed):
        error.result.contents  # wrong
        error.server  # wrong
    if isinstance(error, RequestTimedOut) and error.outcome == "sent":  # wrong: mypy pyright
        pass
    if isinstance(error, ServerUnavailable) and error.state == "down":  # wrong: mypy pyright
        pass
    raise ServerUnavailable("text", server="x", state="down")  # wrong


def substitute(probe: Probe) -> None:
    probe.reply(Add, "1")  # wrong
    probe.reply(Add, 1, "2")  # wrong
    probe.reply(Reset, None)  # wrong
    probe.hold(Add, "1")  # wrong
    probe.hold(Reset, 1)  # wrong
