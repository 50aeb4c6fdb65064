"""Draw a plan from a seed: the servers, and what happens to them and when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from attrs import evolve, frozen

from mcp_actors import Backoff, BreakerPolicy, HealthPolicy, RestartPolicy, RetryPolicy

T = TypeVar("T")

MAX_SERVERS: Final = 4
MAX_CALLS: Final = 60
ATTEMPTS: Final = 3

DEEDS: Final = {
    "call": 30,
    "burst": 4,
    "crash": 4,
    "freeze": 2,
    "thaw": 1,
    "cut": 3,
    "lose": 2,
    "go down": 1,
    "come up": 2,
    "add tool": 3,
    "remove tool": 1,
    "list": 2,
    "stop": 1,
    "start": 2,
    "restart": 1,
    "remove": 1,
    "add": 2,
    "reload": 1,
    "expire": 1,
    "sign out": 2,
    "sign in": 1,
}
"""The deeds, and how often each happens."""

FATES: Final = {"answer": 12, "crash": 2, "hang": 2, "refuse": 1, "twice": 2}
"""The fates of calls at their server, and how often each happens."""

WAYS: Final = {"pipe": 2, "memory": 1, "http": 1}
"""The ways to a server, and how often each is drawn. Each request over HTTP costs three times as much as over pipes."""

REPLICAS: Final = (1, 1, 1, 1, 2, 3)
"""The processes of a server behind pipes. Each costs a connect, which is most of the cost of a seed."""

LONG: Final = 120.0
"""Seconds after which every caller leaves: a call without a timeout may wait for ever for a server that hangs."""

FOLLOWED: Final = 0.25
"""The part of the servers behind pipes and HTTP of which the program follows a resource."""

ASKING: Final = 0.1
"""The part of the calls to these servers that ask the program something before they are answered."""

CHANGES: Final = ("start", "stop", "restart", "reconnect", "reload", "lazy", "eager", "wait ready")
"""Of these, several callers ask for some at nearly the same time, in the plan of every fourth seed."""

MANY: Final = 6
"""Such changes, at most."""

WAITS: Final = 3
"""Waits for a server to serve, at most."""

UPDATES: Final = 6
"""Changes of a resource that is followed, at most."""

PLAIN: Final = ("answer", 0.0, LONG, False, False)
"""A call that nothing happens to, and a caller who is patient."""

DRAIN_TIMEOUTS: Final = (0.0, 1.0, 30.0, 30.0)
DRAINS: Final = ((), ("stop",), ("restart", "leave"), ("remove",), ("leave",), ("leave",))

SECONDS: Final = (0.0, 0.0, 0.0, 0.1, 0.5, 2.0)
PAUSES: Final = (0.0, 0.0, 0.0, 0.0, 0.1, 0.5, 1.0, 5.0, 40.0)
PATIENCE: Final = (0.0, 0.3, 2.0, LONG, LONG, LONG, LONG)


@frozen
class SimulatedServer:
    """A server.

    Attributes:
        name: its name.
        way: how it is reached.
        era: its era.
        options: those of its configuration.
        signs_in: True if a person signs in to it, over HTTP.
        followed: True if the program subscribes to a resource of it.
        actors: the names of the actors that have its connections.
    """

    name: str
    way: str
    era: str
    options: dict[str, Any]
    signs_in: bool = False
    followed: bool = False

    @property
    def actors(self) -> list[str]:
        replicas = self.options["replicas"]
        return [self.name] if replicas == 1 else [f"{self.name}:{number}" for number in range(1, replicas + 1)]


@frozen
class Deed:
    """Something that happens to a server, and a pause after it.

    Attributes:
        verb: one of `DEEDS` or `CHANGES`, or ``update``; calls have the others, too.
        server: to which.
        fate: what becomes of a call.
        seconds: how long a call takes.
        patience: seconds after which a caller leaves; 0.0 leaves after a step of the event loop.
        again: True if a call may be carried out more than once.
        way: the caller is a task, or a function as on asyncio.
        pause: seconds before the next deed; 0.0 leaves no step of the event loop between the two.
    """

    verb: str
    server: str
    fate: str
    seconds: float
    patience: float
    again: bool
    by_function: bool
    pause: float


@frozen
class Plan:
    """The plan of a seed.

    Attributes:
        drain_timeout: that of the group.
        drains: each of these happens once to healthy servers that are busy, after all deeds.
    """

    seed: int
    servers: tuple[SimulatedServer, ...]
    deeds: tuple[Deed, ...]
    drain_timeout: float
    drains: tuple[str, ...]


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    dice = random.Random(seed)
    servers = tuple(draw_server(dice, name) for name in "abcd"[: dice.choice((1, 1, 1, 2, 2, 3, MAX_SERVERS))])
    deeds: list[Deed] = []
    calls = 0
    for _ in range(dice.randint(4, 40)):
        deed = draw_deed(dice, servers)
        number = {"call": 1, "burst": dice.randint(2, 6)}.get(deed.verb, 0)
        calls += number
        if calls > MAX_CALLS:
            break
        deeds += [deed] if number < 2 else [draw_call(dice, deed.server) for _ in range(number)]
    plan = Plan(seed, servers, tuple(deeds), dice.choice(DRAIN_TIMEOUTS), dice.choice(DRAINS))
    plan = with_resources(random.Random(f"resources of {seed}"), plan)
    plan = with_questions(random.Random(f"questions of {seed}"), plan)
    plan = with_waits(random.Random(f"waits of {seed}"), plan)
    return plan if seed % 4 else with_changes(random.Random(f"changes of {seed}"), plan)


def with_resources(dice: random.Random, plan: Plan) -> Plan:
    """Return the plan with resources that are followed, and change."""
    deeds, servers = [*plan.deeds], []
    for server in plan.servers:
        followed = server.way != "memory" and dice.random() < FOLLOWED
        servers.append(evolve(server, followed=followed))
        for _ in range(dice.randint(1, UPDATES) if followed else 0):
            deed = Deed("update", server.name, *draw_way(dice), dice.choice(PAUSES))
            deeds.insert(dice.randint(0, len(deeds)), deed)
    return evolve(plan, servers=tuple(servers), deeds=tuple(deeds))


def with_questions(dice: random.Random, plan: Plan) -> Plan:
    """Return the plan with calls that ask the program something."""
    able = {server.name for server in plan.servers if server.way != "memory"}
    deeds = (
        evolve(deed, fate="ask")
        if deed.verb == "call" and deed.fate == "answer" and deed.server in able and dice.random() < ASKING
        else deed
        for deed in plan.deeds
    )
    return evolve(plan, deeds=tuple(deeds))


def with_waits(dice: random.Random, plan: Plan) -> Plan:
    """Return the plan with callers who wait until a server serves."""
    deeds = [*plan.deeds]
    for _ in range(dice.randint(0, WAITS)):
        deed = Deed("wait ready", dice.choice(plan.servers).name, *PLAIN, pause=0.0)
        deeds.insert(dice.randint(0, len(deeds)), deed)
    return evolve(plan, deeds=tuple(deeds))


def with_changes(dice: random.Random, plan: Plan) -> Plan:
    """Return the plan with several changes of one server that overlap."""
    server, at = dice.choice(plan.servers).name, dice.randint(0, len(plan.deeds))
    deeds = [
        evolve(Deed(dice.choice(CHANGES), server, *PLAIN, pause=dice.choice(PAUSES[:-1])), again=dice.random() < 0.5)
        for _ in range(dice.randint(2, MANY))
    ]
    return evolve(plan, deeds=(*plan.deeds[:at], *deeds, *plan.deeds[at:]))


def draw_server(dice: random.Random, name: str) -> SimulatedServer:
    """Return a server with options that make it wait, restart and retry."""
    max_in_flight = dice.choice((1, 2, 64))
    options: dict[str, Any] = {
        "max_in_flight": max_in_flight,
        "mailbox_size": dice.choice((1, 3, 256)),
        "overflow": dice.choice(("wait", "wait", "fail")),
        "request_timeout": dice.choice((None, 3.0, 20.0)),
        "when_down": dice.choice(("wait", "wait", "fail")),
        "connect": dice.choice(("eager", "eager", "lazy")),
        "connect_timeout": 10.0,
        "retry": RetryPolicy(attempts=ATTEMPTS, backoff=dice.choice((Backoff(), Backoff(first=1.0, initial=5.0)))),
        "breaker": dice.choice((None, None, None, BreakerPolicy(failures=3))),
        "health": dice.choice((HealthPolicy(interval=None), HealthPolicy(interval=60.0, silence=60.0))),
        "idle_timeout": dice.choice((None, None, None, None, 3.0)),
        "max_lifetime": dice.choice((None, None, None, None, 50.0)),
        "restarts": RestartPolicy(
            max_restarts=dice.choice((0, 1, 3, 10)),
            reset_after=dice.choice((None, 30.0)),
            backoff=dice.choice((Backoff(), Backoff(first=0.0, initial=1.0, jitter=0.1))),
            park_retry=dice.choice((None, 20.0)),
        ),
    }
    way, era = weighted(dice, WAYS), dice.choice(("legacy", "modern"))
    options["replicas"] = dice.choice(REPLICAS) if way == "pipe" and max_in_flight > 1 else 1
    return SimulatedServer(name, way, era, options, signs_in=dice.random() < 0.5)


def draw_deed(dice: random.Random, servers: Sequence[SimulatedServer]) -> Deed:
    """Return something that happens to one of the servers."""
    verb = weighted(dice, DEEDS)
    server = dice.choice(servers).name
    return Deed(verb, server, *draw_way(dice), dice.choice(PAUSES))


def draw_call(dice: random.Random, server: str) -> Deed:
    """Return a call of a burst: without a pause behind it."""
    return Deed("call", server, *draw_way(dice), 0.0)


def draw_way(dice: random.Random) -> tuple[str, float, float, bool, bool]:
    """Return the details of a call."""
    return (
        weighted(dice, FATES),
        dice.choice(SECONDS),
        dice.choice(PATIENCE),
        dice.random() < 0.25,
        dice.random() < 0.2,
    )


def weighted(dice: random.Random, weights: dict[str, int]) -> str:
    """Return one of the keys."""
    return dice.choices(list(weights), list(weights.values()))[0]
