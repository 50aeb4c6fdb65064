"""Run plain ``def`` handlers in the step that delivers a message.

Theory of operation
-------------------
A message that finds a free slot is handled in the step of its sender, and one that has waited in the step that frees
the slot. Both are steps of any task, of other actors too. So nothing that a handler raises leaves from here: it becomes
the answer, a log line, or the end of the incarnation, whose own task then leaves ``running()``.

A plain handler may send messages to actors with plain handlers. Handled at once, they would nest in its step, and two
actors that answer each other would exceed Python's recursion limit. Therefore one plain handler runs at a time in a
Trio run. While it runs, other messages take their slots and are *due*. They are handled after it, in the order in which
they were taken, still in the same step. After `AT_ONCE` of them Trio runs other tasks first, so two actors that answer
each other forever do not stop the program.

With several slots, a plain handler may begin before the task of a message that was taken earlier, because a task begins
when Trio runs it. To wait for that would take a step per message.

A message that is due is not handed over yet. If its incarnation ends, it returns to the mailbox; if its caller leaves,
it is dropped.
"""

from __future__ import annotations

from collections import deque
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from .._circles import serving
from ._taken import Taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..mailbox import Envelope, Message
    from ._actor import Actor, Life

Handler: TypeAlias = "Callable[[Message], Any]"

AT_ONCE: Final = 64
"""Messages that are handled in one step before Trio runs other tasks. Plain handlers take microseconds each."""

HERE: Final = object()
"""The `Envelope.scope` of a message that a plain handler handles."""


class Steps:
    """The plain handlers of one Trio run. See the top of the file.

    Attributes:
        busy: True while a plain handler runs.
        due: for each message that is due, the incarnation that has taken it.
    """

    __slots__ = ("_later", "_token", "busy", "due")

    def __init__(self) -> None:
        self.busy = False
        self.due: deque[Plain] = deque()
        self._later = False
        self._token = trio.lowlevel.current_trio_token()

    def go_on(self) -> None:
        """Handle the messages that are due, `AT_ONCE` of them in this step. Some handler has just run."""
        if self._later:
            return
        for _ in range(AT_ONCE):
            if not self.due:
                return
            self.due.popleft().handle_due()
        if self.due:
            self._later = True
            self._token.run_sync_soon(self._resume)

    def _resume(self) -> None:
        self._later = False
        self.busy = True
        try:
            self.go_on()
        finally:
            self.busy = False


_steps: Final = trio.lowlevel.RunVar[Steps]("mcp_actors.kernel.steps")


def steps_of_run() -> Steps:
    """Return the plain handlers of the running Trio run."""
    try:
        return _steps.get()
    except LookupError:
        _steps.set(steps := Steps())
        return steps


class Plain(Taken):
    """Messages in flight, some of them in plain handlers. See the top of the file."""

    __slots__ = ("_due", "_nursery", "_running", "_steps")

    def __init__(self, incarnation: Life, actor: Actor, nursery: trio.Nursery) -> None:
        super().__init__(incarnation, actor)
        self._nursery = nursery
        self._steps = steps_of_run() if type(actor)._plain else None
        self._due: deque[tuple[Envelope, Handler]] | None = None
        self._running: Envelope | None = None

    def _run_in_step(self, envelope: Envelope, handler: Handler, steps: Steps) -> None:
        """Handle a message, or have it handled after those that are due."""
        if not envelope.message.control:
            self.free -= 1
        if steps.busy or self._due:
            if self._due is None:
                self._due = deque()
            self._due.append((envelope, handler))
            steps.due.append(self)
            return
        steps.busy = True
        try:
            self._run(envelope, handler)
            if steps.due:
                steps.go_on()
        finally:
            steps.busy = False

    def handle_due(self) -> None:
        """Handle the oldest message that is due, if the end of the incarnation has not returned it to the mailbox."""
        if self._due:
            self._run(*self._due.popleft())

    def _return_due(self) -> None:
        """Return the messages that are due to the mailbox, because the incarnation ends."""
        while self._due:
            envelope, _ = self._due.pop()  # the last one first, so that each becomes the first of the queue
            self._return(envelope)
            self._finish(envelope)

    def _run(self, envelope: Envelope, handler: Handler) -> None:
        """Call a plain handler, and answer. Never raises."""
        held = False
        try:
            # The message before, of several that waited on the control lane, or `take` may have decided the end.
            if self._interruption is not None:
                self._return(envelope)
            elif envelope.open or not envelope.withdrawn:
                envelope.scope = HERE
                self._in_flight.add(envelope)
                self._running = envelope
                envelope.context.run(serving.set, envelope)
                call = self._call_noted if self._observed else _call
                self._answer(envelope, envelope.context.run(call, handler, envelope.message))
        except BaseException as exc:
            self._in_flight.discard(envelope)
            # What it calls (observers, log handlers, `is_fatal`) sees the variables of the sender, as with a task.
            if envelope.context.run(self._raised, envelope, exc):
                self._clear_context(envelope)
                held = self._interruption is None
                if not held:
                    self._return(envelope)
        finally:
            self._running = None
            if held:
                envelope.scope = scope = trio.CancelScope()
                self._nursery.start_soon(self._hold, envelope, scope, name=f"{self.name}:not sent")
            else:
                self._handler_ended(envelope)

    def _call_noted(self, handler: Handler, message: Message) -> object:
        """Call a plain handler, with an event before and after."""
        with self._noted(message) as note:
            return note(_call(handler, message))

    async def _hold(self, envelope: Envelope, scope: trio.CancelScope) -> None:
        """Keep the slot of a message whose handler has raised `NotSent` until the end of the incarnation is decided."""
        try:
            with scope:
                await self._not_sent(envelope)
        finally:
            self._handler_ended(envelope)


@trio.lowlevel.disable_ki_protection
def _call(handler: Handler, message: Message) -> object:
    """Call a plain handler. Unlike the kernel around it, a Ctrl-C may interrupt it anywhere."""
    result: object = handler(message)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(
            f"{getattr(handler, '__qualname__', handler)}(): returned a coroutine for {type(message).__name__}; define "
            "it with `async def`"
        )
    return result
