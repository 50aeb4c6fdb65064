"""Replays recordings of Erlang/OTP's supervisor on ours.

The events come from the children's own ``running()`` and from whoever drives the scenario, never from the supervisor.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio
from attrs import define, field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    ActorStartError,
    ActorStopped,
    ChildError,
    ChildSpec,
    IgnoreStart,
    RestartLimitReached,
    SupervisorRef,
    open_supervisor,
)

Term = Any
"""An Erlang term: atoms and strings are str, tuples are tuples, lists are lists, maps are dicts."""

TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|#\{|=>|[{}\[\],.]|-?\d+|[a-z]\w*)')

CLOSING = {"{": "}", "[": "]", "#{": "}"}


def parse_term(text: str) -> Term:
    """Parse one Erlang term, with or without the dot at its end."""
    tokens = iter(TOKEN.findall(text))
    return _term(next(tokens), tokens)


def _term(token: str, tokens: Iterator[str]) -> Term:
    if token not in CLOSING:
        return int(token) if token.lstrip("-").isdigit() else token.strip('"')
    items: list[Term] = []
    while (part := next(tokens)) != CLOSING[token]:
        if part not in (",", "=>"):
            items.append(_term(part, tokens))
    if token == "#{":
        return dict(zip(items[::2], items[1::2], strict=True))
    return tuple(items) if token == "{" else items


@frozen
class Scenario:
    """One recording."""

    name: str
    flags: dict[str, Term]
    specs: list[dict[str, Term]]
    actions: list[Term]
    events: list[Term]


def parse_scenarios(text: str) -> list[Scenario]:
    """Parse a file of recordings: blocks of a scenario, its name once more, and its events."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        if not block.startswith('{"'):
            continue
        head, _, *lines = block.strip().splitlines()
        name, (flags, specs, actions) = parse_term(head)
        found.append(Scenario(name, flags, specs, actions, [parse_term(line) for line in lines]))
    return found


class Killed(Exception):
    """Stands for a kill from outside."""


@define(eq=False)
class Replay:
    """Drives one scenario and records what happens.

    Attributes:
        events: the recording.
        alive: the children that run.
        starts: how often each was started.
        over: True once the supervisor was told to end, or has ended by itself, before the last question.
    """

    scenario: Scenario
    events: list[Term] = field(factory=list)
    alive: dict[str, Child] = field(factory=dict)
    starts: dict[str, int] = field(factory=dict)
    over: bool = False

    async def run(self) -> list[Term]:
        flags = self.scenario.flags
        try:
            async with open_supervisor(
                *map(self.spec, self.scenario.specs),
                strategy=flags.get("strategy", "one_for_one"),
                max_restarts=flags.get("intensity", 1),
                window=flags.get("period", 5),
                auto_shutdown=flags.get("auto_shutdown", "never"),
            ) as supervisor:
                self.events.append("sup_started")
                await self.drive(supervisor)
        except RestartLimitReached:
            self.exited()
        except ActorStartError as exc:
            self.events.append(("sup_start_error", ("failed_to_start_child", exc.actor)))
        except ValueError as exc:
            self.events.append(("sup_start_error", ("start_spec", self.refusal(str(exc)))))
        else:
            if self.over:
                self.exited()
            else:
                self.events.append(("sup_exit", "shutdown"))
        return self.events

    async def drive(self, supervisor: SupervisorRef) -> None:
        for action in self.scenario.actions:
            if action == "stop_sup":
                self.over = True
                self.events.append("sup_stop_requested")
                return
            if action[0] == "together":
                async with busy(supervisor):
                    for each in action[1]:
                        await self.act(supervisor, *each)
                        await wait_all_tasks_blocked()
            else:
                await self.act(supervisor, *action)
            await wait_all_tasks_blocked()
        if supervisor.state == "stopped":
            self.over = True
            return
        self.events += [self.living(), ("sup_alive", "true"), "sup_stop_requested"]

    async def act(self, supervisor: SupervisorRef, verb: str, what: Term, reason: Term = None) -> None:
        if verb == "kill":
            self.alive[what].end(("killed", what), Killed())
        elif verb == "exit":
            self.alive[what].end(("died", what, reason), _failure(reason))
        elif verb == "sleep":
            await trio.sleep(what / 1000)
        else:
            argument, id = (self.spec(what), what["id"]) if verb == "start_child" else (what, what)
            result: Term = "ok"
            try:
                await getattr(supervisor, verb)(argument)
            except ChildError as exc:
                result = exc.reason if exc.reason == "already_started" else ("error", exc.reason)
            except ActorStartError:
                result = ("error", "start_failed")
            except ValueError as exc:
                result = ("error", self.refusal(str(exc)))
            self.events.append(("call", verb, id, result))

    def refusal(self, message: str) -> Term:
        """What OTP says where ours raises a ValueError."""
        ids = [spec["id"] for spec in self.scenario.specs]
        if "two children" in message:
            return ("duplicate_child_name", next(id for id in ids if ids.count(id) > 1))
        rule = ("restart", "permanent") if "permanent child" in message else ("auto_shutdown", "never")
        return ("bad_combination", [rule, ("significant", "true")])

    def exited(self) -> None:
        self.events += [("sup_exit", "shutdown"), self.living(), ("sup_alive", "false")]

    def living(self) -> Term:
        return ("alive", [spec["id"] for spec in self.scenario.specs if spec["id"] in self.alive])

    def spec(self, term: dict[str, Term]) -> ChildSpec:
        shutdown = term.get("shutdown", 5000)
        return ChildSpec(
            term["id"],
            lambda: Child(self, term),
            restart=term.get("restart", "permanent"),
            significant=term.get("significant") == "true",
            shutdown=shutdown / 1000 if isinstance(shutdown, int) else shutdown,
        )


def _failure(reason: Term) -> Exception | None:
    is_shutdown = reason == "shutdown" or (isinstance(reason, tuple) and reason[0] == "shutdown")
    return None if is_shutdown or reason == "normal" else RuntimeError(f"exit: {reason}")


class Child(Actor):
    """A process of a scenario."""

    def __init__(self, replay: Replay, term: dict[str, Term]) -> None:
        self.replay = replay
        self.term = term
        self.id = term["id"]
        self.last_words: Term = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        record = self.replay.events.append
        number = self.replay.starts.get(self.id, 0)
        self.replay.starts[self.id] = number + 1
        plan = self.term.get("init", [])[number : number + 1]
        if plan == ["fail"]:
            record(("start_failed", self.id))
            raise RuntimeError("does not start")
        if plan == ["ignore"]:
            record(("start_ignored", self.id))
            raise IgnoreStart
        record(("started", self.id))
        self.replay.alive[self.id] = self
        try:
            yield
            # A killed process gets no further than this.
            await trio.lowlevel.checkpoint()
            if self.last_words is None and self.term.get("stop") == "hang":
                await trio.sleep_forever()
            record(self.last_words or ("stopped", self.id, "shutdown"))
        finally:
            del self.replay.alive[self.id]

    def end(self, last_words: Term, failure: Exception | None) -> None:
        self.last_words = last_words
        if failure is not None:
            self.fail(failure)
        else:
            self.stop("normal" if last_words[-1] == "normal" else "shutdown")

    async def handle(self, message: object) -> None:
        raise NotImplementedError


class Blocker(Actor):
    """Does not start, but takes a while for that."""

    def __init__(self, gate: trio.Event) -> None:
        self.gate = gate

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.refuse()
        yield

    async def refuse(self) -> None:
        await self.gate.wait()
        raise RuntimeError("does not start")

    async def handle(self, message: object) -> None:
        raise NotImplementedError


@asynccontextmanager
async def busy(supervisor: SupervisorRef) -> AsyncIterator[None]:
    """Have the supervisor do nothing else until the block is left, and forget what it did."""
    gate = trio.Event()

    async def block() -> None:
        with suppress(ActorStartError, ActorStopped):
            await supervisor.start_child(ChildSpec("blocker", lambda: Blocker(gate)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(block)
        await wait_all_tasks_blocked()
        yield
        gate.set()


def replay(scenario: Scenario) -> list[Term]:
    """Replay a scenario in virtual time."""
    return trio.run(Replay(scenario).run, clock=MockClock(autojump_threshold=0))
