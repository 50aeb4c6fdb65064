"""Disturb twelve programs of actors: let them crash, kill, stop and cancel at random moments, each drawn from a seed.

The programs send messages like those of ``tests/benchmarks/programs``. A `Ledger` notes what becomes of each message.
"""

from __future__ import annotations

import gc
import logging
import math
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Final, Literal, get_args

import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    Backoff,
    Call,
    ChildSpec,
    DeadLetter,
    Event,
    Later,
    NotSent,
    OverflowPolicy,
    Supervisor,
    SupervisorRef,
    handles,
    open_supervisor,
)
from mcp_actors.testing import run_seeded

from ..kernel.actors import Boom, Fatal, end_by

# --- The programs -----------------------------------------------------------------------------------------------------

Kind = Literal["call", "tell", "tell_nowait"]
Dice = random.Random


@frozen
class Shape:
    """How the messages of a program go.

    Attributes:
        actors: how many there are.
        sent: how its clients send.
        way: draws the actors that a message comes to, one after the other.
        passed: how handlers pass it on.
        plain: True if the handlers are plain functions.
        waits: True if a message waits for another one, and is answered later.
        brief: True if each message has an actor of its own, which stops after it.
    """

    actors: int
    sent: Kind
    way: Callable[[Dice], Sequence[int]]
    passed: Kind = "tell"
    plain: bool = False
    waits: bool = False
    brief: bool = False


def one(_: Dice) -> Sequence[int]:
    """Stay at the only actor."""
    return [0]


def anyone(dice: Dice) -> Sequence[int]:
    """Choose an actor."""
    return [dice.randrange(5)]


def circle(dice: Dice) -> Sequence[int]:
    """Go round."""
    first = dice.randrange(5)
    return [(first + step) % 5 for step in range(dice.randint(2, 12))]


def walk(dice: Dice) -> Sequence[int]:
    """Go anywhere."""
    return [dice.randrange(5) for _ in range(dice.randint(2, 8))]


def there(dice: Dice) -> Sequence[int]:
    """Go from the first half to the second."""
    return [dice.randrange(3), 3 + dice.randrange(3)]


def line(_: Dice) -> Sequence[int]:
    """Go through all."""
    return range(5)


def back_and_forth(dice: Dice) -> Sequence[int]:
    """Go from the first to one of the others, and back."""
    return [0, 1 + dice.randrange(4), 0]


SHAPES: Final = {
    "ping pong": Shape(1, "call", one, plain=True),
    "counting": Shape(1, "tell", one, plain=True),
    "many counters": Shape(5, "tell", anyone, plain=True),
    "short lives": Shape(0, "tell", one, plain=True, brief=True),
    "ring": Shape(5, "tell", circle, "tell_nowait", plain=True),
    "meetings": Shape(1, "call", one, plain=True, waits=True),
    "crosstalk": Shape(5, "tell", walk, "tell_nowait", plain=True),
    "dictionary": Shape(1, "call", one),
    "buffer": Shape(1, "call", one, waits=True),
    "bank": Shape(6, "call", there, "call"),
    "radix sort": Shape(5, "tell", line),
    "queens": Shape(5, "tell", back_and_forth),
}

Deed = Literal["raise", "crash", "fail", "stop", "not sent"]
"""What a handler does besides, at its first message of that kind."""

Trouble = Literal["fail", "stop", "keep", "drain", "restart", "cancel", "stop above", "restart above"]
TIMES: Final = (0.0, 0.0, 0.25, 0.5, 1.0)
SETTLING: Final = 60.0
"""Virtual seconds for all back-offs and stops to be over."""


@frozen(eq=False)
class Ball(Call[int]):
    """A message, and the actors that it comes to after this one."""

    number: int
    way: tuple[str, ...]
    deed: str
    takes: float


@frozen(eq=False)
class QuickBall(Ball):
    """The same for a plain handler."""


class Player(Actor[Ball]):
    """Notes messages, and passes them on or answers them."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        self.max_in_flight = ledger.slots
        self.finish_on_stop = ledger.finishes
        self._waiting: deque[Later[int]] = deque()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be known to the program."""
        self._ledger.players[self._name] = self
        yield
        await trio.lowlevel.checkpoint()

    @handles(QuickBall)
    def catch_quickly(self, ball: QuickBall) -> int | Later[int]:
        """Pass it on at once."""
        self._begin(ball)
        if ball.way:
            self._ledger.send_now(self._neighbor(ball), ball.way)
        return self._answer(ball)

    @handles(Ball)
    async def catch(self, ball: Ball) -> int | Later[int]:
        """Pass it on, and wait for that."""
        self._begin(ball)
        await trio.sleep(ball.takes)
        if ball.way:
            await self._ledger.send(self._neighbor(ball), self._ledger.shape.passed, ball.way)
        return self._answer(ball)

    def _neighbor(self, ball: Ball) -> ActorRef[Any]:
        assert self.supervisor is not None
        return self.supervisor.child(ball.way[0])

    def _begin(self, ball: Ball) -> None:
        first = ball.number not in self._ledger.tried
        self._ledger.tried.add(ball.number)
        if first and ball.deed == "not sent":
            self.fail(Boom())
            raise NotSent
        self._ledger.begin(self._name, ball.number)
        if self._ledger.shape.brief:
            self.stop()
        end_by(self, ball.deed)

    def _answer(self, ball: Ball) -> int | Later[int]:
        if not self._ledger.shape.waits:
            return ball.number
        while self._waiting:
            later = self._waiting.popleft()
            other = later.message
            assert isinstance(other, Ball)
            if later.reply(other.number):
                return ball.number
        self._waiting.append(self.defer(ball, keep_slot=False))
        return self._waiting[-1]

    def is_fatal(self, exc: Exception) -> bool:
        """Return True for some."""
        return isinstance(exc, Fatal)


# --- What becomes of the messages -------------------------------------------------------------------------------------


@define(eq=False)
class Ledger:
    """One program, what is done to it, and what becomes of its messages.

    Attributes:
        arrived: the numbers of the messages to each actor, in the order in which they were sent.
        begun: those that it has begun to handle.
        outcomes: what each sender got.
        letters: how many messages to each actor were dropped at its end.
        story: what has happened, for reading.
        problems: what must not have happened.
    """

    dice: Dice
    name: str
    shape: Shape
    slots: int
    size: int
    overflow: OverflowPolicy
    finishes: bool
    players: dict[str, Player] = field(factory=dict, init=False)
    tried: set[int] = field(factory=set, init=False)
    arrived: dict[str, list[int]] = field(factory=dict, init=False)
    begun: dict[str, list[int]] = field(factory=dict, init=False)
    kinds: dict[int, Kind] = field(factory=dict, init=False)
    outcomes: dict[int, str] = field(factory=dict, init=False)
    letters: Counter[str] = field(factory=Counter, init=False)
    story: list[str] = field(factory=list, init=False)
    problems: list[str] = field(factory=list, init=False)
    _numbers: count[int] = field(factory=count, init=False)
    _scopes: list[trio.CancelScope] = field(factory=list, init=False)

    def tell(self, what: str) -> None:
        """Note what happens."""
        self.story.append(f"{trio.current_time():7.2f}  {what}")

    def note(self, event: Event) -> None:
        """Note what an observer sees."""
        if isinstance(event, DeadLetter):
            self.letters[event.actor] += 1
            self.tell(f"{event.actor} drops {event.message}")

    def begin(self, actor: str, number: int) -> None:
        """Note that a handler has begun."""
        self.begun.setdefault(actor, []).append(number)
        self.tell(f"{actor} handles {number}")

    def _throw(self, kind: Kind, way: Sequence[str]) -> Ball:
        number = next(self._numbers)
        deed = self.dice.choice(get_args(Deed)) if self.dice.random() < 0.12 else ""
        ball = (QuickBall if self.shape.plain else Ball)(number, tuple(way[1:]), deed, self.dice.choice(TIMES))
        self.kinds[number] = kind
        self.arrived.setdefault(way[0], []).append(number)
        self.tell(f"{kind} {number} to {way[0]}{f', to {deed}' if deed else ''}")
        return ball

    def _caught(self, number: int, outcome: str) -> None:
        if number in self.outcomes:
            self.problems.append(f"{number} has two outcomes")
        self.outcomes[number] = outcome
        self.tell(f"{number}: {outcome}")

    async def send(self, ref: ActorRef[Any], kind: Kind, way: Sequence[str]) -> None:
        """Send a message, and note what its sender gets."""
        ball, outcome = self._throw(kind, way), "cancelled"
        try:
            if kind == "call":
                outcome = "value" if await ref.call(ball) == ball.number else "a wrong value"
            else:
                await ref.tell(ball)
                outcome = "told"
        except (Boom, Fatal, ActorError) as exc:
            outcome = type(exc).__name__
        finally:
            self._caught(ball.number, outcome)

    def send_now(self, ref: ActorRef[Any], way: Sequence[str]) -> None:
        """Send a message without waiting."""
        ball = self._throw("tell_nowait", way)
        try:
            ref.tell_nowait(ball)
            outcome = "told"
        except ActorError as exc:
            outcome = type(exc).__name__
        self._caught(ball.number, outcome)

    # --- the run ----------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Run the program, disturb it, and end it."""
        dice = self.dice
        options: dict[str, Any] = {
            "strategy": dice.choice(["one_for_one", "one_for_one", "rest_for_one", "one_for_all"]),
            "start_order": dice.choice(["sequential", "sequential", "parallel"]),
            "stop_order": dice.choice(["sequential", "concurrent"]),
            "max_restarts": dice.choice([2, 1000]),
            "window": math.inf,
            "on_limit": dice.choice(["end", "park"]),
            "backoff": Backoff(first=dice.choice([0.0, 0.75])),
        }
        specs = [self._spec(str(number)) for number in range(self.shape.actors)]
        house = ChildSpec("house", lambda: Supervisor(*specs, **options))
        with trio.fail_after(10_000):
            async with trio.open_nursery() as clients:
                async with open_supervisor(house, max_restarts=1000, window=math.inf, observers=[self.note]) as top:
                    for _ in range(dice.randint(1, 6)):
                        self._scopes.append(trio.CancelScope())
                        clients.start_soon(self._send_some, top, self._scopes[-1])
                    for trouble in dice.choices(get_args(Trouble), k=dice.randint(0, 12)):
                        await trio.sleep(dice.choice(TIMES))
                        for _ in range(dice.randrange(12)):  # so that it comes in the midst of what is done at a time
                            await trio.lowlevel.checkpoint()
                        clients.start_soon(self._disturb, top, trouble, str(dice.randrange(max(1, self.shape.actors))))
                    if dice.random() < 0.7:
                        await trio.sleep(SETTLING)
                        await wait_all_tasks_blocked()
                        self._check_quiet(top)
                self._check_ended(top)

    def _spec(self, name: str) -> ChildSpec[Ball]:
        shutdown: Any = self.dice.choice([None, 0.5, "brutal_kill"])
        return ChildSpec(
            name,
            partial(Player, name, self),
            restart="temporary" if self.shape.brief else "permanent",
            shutdown=shutdown,
            mailbox_size=self.size,
            overflow=self.overflow,
        )

    async def _send_some(self, top: SupervisorRef, scope: trio.CancelScope) -> None:
        with scope:
            for _ in range(self.dice.randint(1, 12)):
                await trio.sleep(self.dice.choice(TIMES))
                way = [str(each) for each in self.shape.way(self.dice)]
                if self.shape.brief:
                    way = [f"brief-{next(self._numbers)}"]
                with suppress(ActorError):  # the one above may have ended
                    house = top.child("house", SupervisorRef)
                    if self.shape.brief:
                        await house.start_child(self._spec(way[0]))
                    await self.send(house.child(way[0]), self.shape.sent, way)

    async def _disturb(self, top: SupervisorRef, trouble: Trouble, name: str) -> None:
        self.tell(f"{trouble} {name}")
        with suppress(ActorError), trio.move_on_after(self.dice.choice([0.25, 100.0])):
            house = top.child("house", SupervisorRef)
            match trouble:
                case "fail":
                    if name in self.players:
                        self.players[name].fail(Boom())
                case "cancel":
                    self.dice.choice(self._scopes).cancel("at a random moment")
                case "restart":
                    await house.restart_child(name)
                case "restart above":
                    await top.restart_child("house")
                case "stop above":
                    await top.stop_child("house", keep_mailbox=self.dice.random() < 0.5)
                    await top.restart_child("house")
                case _:
                    await house.stop_child(name, keep_mailbox=trouble == "keep", drain=trouble == "drain")
                    await trio.sleep(self.dice.choice(TIMES))
                    await house.restart_child(name)

    # --- the model --------------------------------------------------------------------------------------------------

    def _check_quiet(self, top: SupervisorRef) -> None:
        for node in top.tree().walk():
            waits = any(each.waits_for for each in node.handling)  # for an actor that is stopped, or for its `Later`
            if node.state == "running" and (node.queued or node.in_flight) and not waits:
                self.problems.append(f"{node.id} has work and does nothing: {node}")

    def _check_ended(self, top: SupervisorRef) -> None:
        for node in top.tree().walk():
            if node.queued or node.in_flight:
                self.problems.append(f"{node.id} has ended with messages: {node}")

    def check(self) -> list[str]:
        """Return what is wrong with a run that is over."""
        begun = {number for numbers in self.begun.values() for number in numbers}
        for number, kind in self.kinds.items():
            outcome = self.outcomes.get(number, "nothing")
            if outcome in ("nothing", "a wrong value"):
                self.problems.append(f"the sender of {number} got {outcome}")
            if outcome in ("value", "Boom", "Fatal", "ActorCrashed") and number not in begun:
                self.problems.append(f"{number} was not handled: {outcome}")
            if (outcome == "MailboxFull" or (outcome == "cancelled" and kind != "call")) and number in begun:
                self.problems.append(f"{number} was handled, although it was not accepted: {outcome}")
        for actor, arrived in self.arrived.items():
            numbers = self.begun.get(actor, [])
            if len(numbers) != len(set(numbers)):
                self.problems.append(f"{actor} has handled a message twice: {numbers}")
            places = [arrived.index(number) for number in numbers]
            if self.slots == 1 and places != sorted(places):
                self.problems.append(f"{actor} has handled messages out of order: {numbers}, sent as {arrived}")
            lost = [number for number in arrived if self.outcomes.get(number) == "told" and number not in begun]
            if len(lost) != self.letters[actor]:
                self.problems.append(f"{actor} has lost {lost}, and {self.letters[actor]} were noted")
        return self.problems


def draw(seed: int) -> Ledger:
    """Draw a program from a seed."""
    dice = Dice(seed)
    name = dice.choice(list(SHAPES))
    overflow: OverflowPolicy = "fail" if dice.random() < 0.3 else "wait"
    return Ledger(
        dice, name, SHAPES[name], dice.choice([1, 1, 3]), dice.choice([1, 2, 256]), overflow, dice.random() < 0.2
    )


def run_program(seed: int) -> Ledger:
    """Run the program of a seed, without its logs, and note what is wrong."""
    ledger = draw(seed)
    logging.disable(logging.CRITICAL)
    try:
        run_seeded(ledger.main, seed=seed)
        ledger.check()
    except Exception as error:
        ledger.problems.append(f"the run raised {error!r}")
    finally:
        logging.disable(logging.NOTSET)
    return ledger


def program_failure(seed: int) -> str | None:
    """Return None if the program of a seed is fine; otherwise its story, and the line that repeats it."""
    gc.collect()  # the processes of `run_all` do not by themselves
    ledger = run_program(seed)
    if not ledger.problems:
        return None
    repeat = f"repeat with: python -m tests.simulate --programs --seed {seed}"
    return "\n".join([ledger.name, *ledger.story, *ledger.problems, repeat])
