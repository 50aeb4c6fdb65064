"""A model of one server: what is wanted of it, its loop, its supervisor, its mailbox, and its callers.

`explore` visits every order of a number of operations, accidents and steps. The decisions are those of the library (the
wishes, `due` and the verdicts); the code that carries them out is modelled. Each replica has a connection in the
kernel, and the facts that the record has seen of it. The loop carries out one step at a time, which may be overtaken as
in ``group._loop``.

Only the order of the numbers of wishes and configurations matters. So each state is numbered anew (`canonical`), and
states that differ in these numbers only become one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from attrs import define, evolve, field, frozen

from mcp_actors.servers.record import (
    UP,
    Wanted,
    configured,
    due,
    left,
    restarted,
    rested,
    started,
    stopped,
    used,
    verdict_of_ready,
    verdict_of_start,
    verdict_of_stop,
)
from mcp_actors.servers.record._states import ACTIVE, TRANSITIONS, ServerState
from mcp_actors.servers.record._wanted import Seen, Step

if TYPE_CHECKING:
    from mcp_actors import ServerConfig

Kernel = Literal["none", "starting", "up", "backoff", "parked", "stopping"]

RUNS: Final = ("starting", "up", "backoff", "stopping")


@frozen
class Config:
    """The part of a configuration that decisions look at."""

    number: int
    connect: str


@frozen
class Under:
    """The step that the loop carries out.

    Attributes:
        step: which.
        mine: what was wanted when it began.
        asked: whether the supervisor was asked for it.
        index: the replica that is renewed.
    """

    step: Step
    mine: Wanted
    asked: bool = False
    index: int = 0


@frozen(slots=False)
class World:
    """A state of the model.

    Attributes:
        wanted: what is wanted.
        seen: what the record knows of each connection.
        kernel: the state of each child in its supervisor.
        configs: the configuration of each connection.
        applied: that of the server's own supervisor.
        under: the step that is carried out.
        kept: whether requests wait although no connection follows.
        open: whether the mailbox takes requests.
        queued: whether a request waits in it.
        in_flight: whether each connection has a request.
        gone: whether the server was removed.
        callers: the operations that have not ended, with their wishes.
        left: operations that may follow.
        spare: accidents that may follow.
    """

    wanted: Wanted
    seen: tuple[Seen, ...]
    kernel: tuple[Kernel, ...]
    configs: tuple[Config, ...]
    applied: Config
    left: int
    spare: int
    under: Under | None = None
    kept: bool = False
    open: bool = True
    queued: bool = False
    in_flight: tuple[bool, ...] = (False,)
    gone: bool = False
    callers: tuple[tuple[str, Wanted], ...] = ()

    def but(self, **changes: Any) -> World:
        """Return this state with other values. `attrs.evolve` would take half of the time of an exploration."""
        other = object.__new__(World)
        vars(other).update(vars(self), **changes)
        return other

    @property
    def current(self) -> bool:
        return self.applied == models(self.wanted)[0]


class Broken(Exception):
    """The model does something that must not happen."""


def put(items: tuple[Any, ...], index: int, item: Any) -> Any:
    return (*items[:index], item, *items[index + 1 :])


# --- what the record sees ---------------------------------------------------------------------------------------------


def see(world: World, index: int, state: ServerState, **changes: Any) -> World:
    """Let the record follow an event of a connection; refuse a transition that its table does not allow."""
    before = world.seen[index]
    if state != before.state and state not in TRANSITIONS[before.state]:
        raise Broken(f"a connection goes from {before.state} to {state}")
    return world.but(seen=put(world.seen, index, evolve(before, state=state, **changes)))


def failed(world: World, index: int, kernel: Kernel) -> World:
    """Let a connect or a connection fail."""
    seen, wanted = world.seen[index], world.wanted
    broke = seen.began if seen.began < wanted.fresh else wanted.generation  # as in `ServerLife.follow`
    if kernel == "parked" and seen.state != "connecting":
        world = see(world, index, "backoff")  # by `Crashed`; `GaveUp` follows
    world = see(world, index, "backoff" if kernel == "backoff" else "failed", broke=broke)
    world = world.but(kernel=put(world.kernel, index, kernel), in_flight=put(world.in_flight, index, False))
    if all(each == "parked" for each in world.kernel):
        world = world.but(open=False, queued=False)
        if world.wanted.mode == "rest":
            world = world.but(wanted=used(world.wanted))
    return world


def begin(world: World, index: int) -> World:
    """Let an incarnation begin. As in `ServerLife.idle`, it has nothing to run if nothing is to run at that moment."""
    seen = world.seen[index]
    if seen.state in ("pending", "stopped") and world.wanted.mode != "run":
        return world.but(kernel=put(world.kernel, index, "none"), open=world.open and world.wanted.mode != "stop")
    if world.kernel[index] in ("starting", "up"):
        raise Broken("two connections of one replica")
    world = world.but(
        kernel=put(world.kernel, index, "starting"),
        configs=put(world.configs, index, world.applied),
        open=True,
    )
    return see(world, index, "connecting", began=world.wanted.generation, old=False, overdue=False)


def end(world: World, index: int) -> World:
    """Let a connection end that was asked to stop."""
    state: ServerState = "pending" if world.wanted.mode == "rest" else "stopped"
    if world.seen[index].state not in ("pending", "stopped"):
        world = see(world, index, state)
    return world.but(kernel=put(world.kernel, index, "none"), in_flight=put(world.in_flight, index, False))


# --- the loop ---------------------------------------------------------------------------------------------------------


def overtaken(under: Under, wanted: Wanted) -> bool:
    """Return True if a step ends early, as in ``group._loop``."""
    if under.step == "start":
        return wanted.mode != "run" or wanted.fresh > under.mine.fresh
    return under.step in ("disconnect", "renew") and (wanted.cut > under.mine.cut or wanted.mode == "leave")


def look(world: World) -> World:
    """Let the loop take its next step, and callers their verdicts."""
    if world.under is None and not world.gone:
        rests = world.wanted.mode == "rest" and not any(each.state in UP for each in world.seen)
        waits = any(name == "wait ready" for name, _ in world.callers)
        if (rests and world.queued) or waits:
            world = world.but(wanted=used(world.wanted))
        step = due(world.wanted, world.seen, current=world.current, kept=world.kept)
        if step is not None:
            old = next((index for index, each in enumerate(world.seen) if each.old), 0)
            world = world.but(under=Under(step, world.wanted, index=old))
    waiting = []
    for name, mine in world.callers:
        verdict = verdict_of(world, name, mine)
        if verdict == "wait":
            waiting.append((name, mine))
        else:
            check_verdict(world, name, mine, verdict)
    return world.but(callers=tuple(waiting))


def verdict_of(world: World, name: str, mine: Wanted) -> str:
    if name in ("stop", "remove"):
        if name == "remove":
            return "done" if world.gone else "wait"
        return verdict_of_stop(mine, world.wanted, world.seen)
    if name == "wait ready":
        return verdict_of_ready(world.wanted, world.seen, current=world.current)
    return verdict_of_start(mine, world.wanted, world.seen, current=world.current, required=True)


def check_verdict(world: World, name: str, mine: Wanted, verdict: str) -> None:
    if name == "stop" and verdict == "done":
        for kernel, seen in zip(world.kernel, world.seen, strict=True):
            if kernel in RUNS and seen.began < mine.fresh:
                raise Broken(f"a stop is done, and a connection from before it is {kernel}")
    elif verdict == "done" and world.wanted.mode == "run" and name != "remove":
        if "up" not in world.kernel:
            raise Broken(f"{name} is done, and the kernel has {world.kernel}")
        for kernel, seen in zip(world.kernel, world.seen, strict=True):
            if kernel == "up" and seen.began < mine.fresh:
                raise Broken(f"{name} is done, and a connection from before it serves")
    elif verdict == "failed" and name != "wait ready" and not any(fails_since(mine, each) for each in world.seen):
        raise Broken(f"{name} has failed, and nothing failed since")


def fails_since(mine: Wanted, seen: Seen) -> bool:
    return seen.broke >= mine.generation or seen.state == "backoff"


def finish(world: World, *, kept: bool = False) -> World:
    return world.but(under=None, kept=kept)


def carry_out(world: World) -> Iterator[tuple[str, World]]:
    """Yield what may follow from the step that is carried out."""
    under = world.under
    if under is None:
        return
    if overtaken(under, world.wanted):
        ended = all(each.state in ("pending", "stopped") for each in world.seen)
        yield f"{under.step} is overtaken", finish(world, kept=under.step != "start" or ended)
        if not under.asked:
            return
    yield from STEPS[under.step](world, under)


def concerned_by(world: World, under: Under) -> list[int]:
    """Return the replicas that a step is about: all, but for the renewal of one."""
    return [under.index] if under.step == "renew" and len(world.kernel) > 1 else [*range(len(world.kernel))]


def ask_to_stop(world: World, only: list[int] | None = None) -> World:
    """Ask the supervisor to stop children; those that do not run end in this step."""
    for index, kernel in enumerate(world.kernel):
        if only is not None and index not in only:
            continue
        if kernel in ("starting", "up", "backoff"):
            if kernel == "up":
                world = see(world, index, "stopping")  # which it may be already
            world = world.but(in_flight=put(world.in_flight, index, False))
            world = world.but(kernel=put(world.kernel, index, "stopping"))
        elif kernel == "parked":
            world = end(world, index)
    return world


def disconnect(world: World, under: Under) -> Iterator[tuple[str, World]]:
    concerned = concerned_by(world, under)
    if not under.asked:
        still = due(world.wanted, world.seen, current=world.current, kept=False)
        wanted = any(world.seen[index].old for index in concerned) if under.step == "renew" else still == "disconnect"
        busy = [index for index in concerned if world.in_flight[index] and world.seen[index].state == "ready"]
        shown = under.step == "renew" or len(world.kernel) == 1  # otherwise its replicas serve, and the server drains
        if not wanted:
            yield "is not due any more", finish(world)
        elif busy and shown:
            yield "drains", see(world, busy[0], "stopping")
        else:  # all requests have ended, or the time for that is over
            asked = evolve(under, asked=True)
            yield "stops it", ask_to_stop(world.but(under=asked), concerned)
    elif not any(world.kernel[index] in RUNS for index in concerned):
        yield "has stopped it", finish(world, kept=under.step == "disconnect" or len(world.kernel) == 1)


def stop(world: World, under: Under) -> Iterator[tuple[str, World]]:
    if not under.asked:
        yield "stops it for good", ask_to_stop(world.but(under=evolve(under, asked=True), open=False, queued=False))
    elif not any(kernel in RUNS for kernel in world.kernel):
        for index, each in enumerate(world.seen):
            if each.state == "pending":
                world = see(world, index, "stopped" if world.wanted.mode != "rest" else "pending")
        yield "has stopped it for good", finish(world)


def adopt(world: World, under: Under) -> Iterator[tuple[str, World]]:
    if not under.asked:
        yield "stops its supervisor", ask_to_stop(world.but(under=evolve(under, asked=True)))
    elif not any(kernel in RUNS for kernel in world.kernel):
        mode = world.wanted.mode
        is_open = mode in ("run", "rest")
        world = world.but(applied=models(world.wanted)[0], open=is_open, queued=world.queued and is_open)
        world = finish(world, kept=mode != "stop")
        if mode == "rest":
            for index, each in enumerate(world.seen):
                if each.state != "pending":
                    world = see(world, index, "pending")
        for index in range(len(world.kernel)) if mode == "run" else ():
            world = begin(world, index)
        yield "takes over the configuration", world


def start(world: World, under: Under) -> Iterator[tuple[str, World]]:
    if not under.asked:
        for index, kernel in enumerate(world.kernel):
            if kernel in ("none", "parked"):
                world = begin(world, index)
        yield "starts it", world.but(under=evolve(under, asked=True))
    elif not any(kernel == "starting" for kernel in world.kernel):
        kept = all(each.state in ("pending", "stopped") for each in world.seen)
        yield "has started it, or not", finish(world, kept=kept)


def remove(world: World, under: Under) -> Iterator[tuple[str, World]]:
    if not under.asked:
        asked = evolve(under, asked=True)
        yield "drained", ask_to_stop(world.but(under=asked, open=False, queued=False))
    elif not any(kernel in RUNS for kernel in world.kernel):
        yield "removed", finish(world).but(gone=True)


STEPS: Final[dict[Step, Callable[[World, Under], Iterator[tuple[str, World]]]]] = {
    "disconnect": disconnect,
    "renew": disconnect,
    "stop": stop,
    "adopt": adopt,
    "start": start,
    "remove": remove,
}


# --- what happens -----------------------------------------------------------------------------------------------------


def operations(world: World) -> Iterator[tuple[str, World]]:
    if world.wanted.mode == "leave":
        return
    after, wanted = world.but(left=world.left - 1), world.wanted
    number = 1 + max(each.number for each in (*world.configs, world.applied, *models(wanted)))
    wishes = {
        "start": started(wanted),
        "stop": stopped(wanted),
        "restart": restarted(wanted),
        "reload lazy": configured(wanted, configuration(number, "lazy")),
        "reload eager": configured(wanted, configuration(number, "eager")),
        "remove": left(wanted, "removal"),
    }
    for name, mine in wishes.items():
        yield name, after.but(wanted=mine, callers=(*world.callers, (name, mine)))
    waits = used(wanted)
    yield "wait ready", after.but(wanted=waits, callers=(*world.callers, ("wait ready", waits)))
    if not world.queued and not any(world.in_flight) and world.open and wanted.mode in ("run", "rest"):
        serving = [index for index, kernel in enumerate(world.kernel) if kernel == "up"]
        if serving and not holds(world):
            yield "request", after.but(in_flight=put(world.in_flight, serving[0], True))
        else:
            yield "request", after.but(queued=True, wanted=used(wanted))


def holds(world: World) -> bool:
    return world.under is not None and world.under.step in ("disconnect", "renew")


def forced(world: World) -> Iterator[tuple[str, World]]:
    """Yield what happens sooner or later."""
    yield from carry_out(world)
    for index, kernel in enumerate(world.kernel):
        if world.in_flight[index]:
            yield f"answered {index}", world.but(in_flight=put(world.in_flight, index, False))
        if kernel == "stopping":
            yield f"ended {index}", end(world, index)
        elif kernel == "starting":
            yield f"connected {index}", see(world.but(kernel=put(world.kernel, index, "up")), index, "ready")
            yield f"failed {index}", failed(world, index, "backoff")
            yield f"gave up {index}", failed(world, index, "parked")
        elif kernel == "backoff":
            yield f"tries again {index}", begin(world, index)
        elif kernel == "up" and world.queued and not holds(world):
            yield f"takes {index}", world.but(queued=False, in_flight=put(world.in_flight, index, True))


def accidents(world: World) -> Iterator[tuple[str, World]]:
    after = world.but(spare=world.spare - 1)
    for index, kernel in enumerate(world.kernel):
        if kernel == "up":
            yield f"crash {index}", failed(after, index, "backoff")
            yield f"hopeless {index}", failed(after, index, "parked")
            others = all(other == "up" for at, other in enumerate(world.kernel) if at != index)
            if world.under is None and others and world.wanted.mode != "leave":
                yield f"old {index}", after.but(seen=put(after.seen, index, evolve(after.seen[index], old=True)))
        if kernel == "parked":
            yield f"is tried again {index}", begin(after, index)
    serves = any(each.state in ACTIVE for each in world.seen)
    unused = not (any(world.in_flight) or world.queued or world.callers)
    if serves and unused and world.under is None and world.wanted.mode == "run":
        yield "unused", after.but(wanted=rested(world.wanted))


ALLOWED: Final[dict[str, tuple[Kernel, ...]]] = {
    "run": ("up", "parked"),
    "rest": ("none", "up"),
    "stop": ("none",),
    "leave": ("none",),
}


def wrong(world: World) -> str | None:
    """Return what is wrong with a state in which nothing happens any more."""
    if world.callers or world.queued:
        return f"for ever wait {[name for name, _ in world.callers] or 'a request'}"
    found = [problem for each in range(len(world.kernel)) if (problem := wrong_with(world, each)) is not None]
    return found[0] if found and not world.gone else None


def wrong_with(world: World, index: int) -> str | None:
    kernel, seen, config = world.kernel[index], world.seen[index], world.configs[index]
    if kernel not in ALLOWED[world.wanted.mode]:
        return f"{world.wanted.mode} is wanted, and the kernel has {world.kernel}"
    serves = kernel == "up"
    if serves and (seen.began < world.wanted.fresh or config != models(world.wanted)[0]):
        return "an old connection serves"
    return None if serves == (seen.state == "ready") else f"the kernel has {kernel}, and the record shows {seen.state}"


# --- all of it --------------------------------------------------------------------------------------------------------


def models(*wishes: Wanted) -> list[Config]:
    """Return the configurations of wishes, which are models here."""
    return [cast("Config", each.config) for each in wishes]


def configuration(number: int, connect: str) -> ServerConfig:
    return cast("ServerConfig", Config(number, connect))


def canonical(world: World) -> World:
    """Drop what no decision looks at any more, and number wishes and configurations anew, in their order.

    Decisions only ask whether a connection is older than a wish. So its number becomes that of the last wish that it is
    not older than.
    """
    under = None if world.under is None else evolve(world.under, mine=bare(world.under.step, world.under.mine))
    callers = {(name if name in QUIET else "start", bare(name, mine)) for name, mine in world.callers}
    wishes = (world.wanted, *(() if under is None else (under.mine,)), *(mine for _, mine in callers))
    bounds = sorted({-1, *(each for wish in wishes for each in (wish.generation, wish.fresh, wish.cut))})
    known = sorted({each.number for each in (*world.configs, world.applied, *models(world.wanted))})

    def rank(number: int) -> int:
        return bisect_right(bounds, number) - 2

    def config(old: Config) -> Config:
        return Config(known.index(old.number), old.connect)

    def wish(old: Wanted) -> Wanted:
        return evolve(old, generation=rank(old.generation), fresh=rank(old.fresh), cut=rank(old.cut))

    return world.but(
        wanted=evolve(wish(world.wanted), config=cast("ServerConfig", config(*models(world.wanted))), ask=True),
        seen=tuple(evolve(each, began=rank(each.began), broke=rank(each.broke)) for each in world.seen),
        configs=tuple(map(config, world.configs)),
        applied=config(world.applied),
        under=None if under is None else evolve(under, mine=wish(under.mine)),
        callers=tuple(sorted(((name, wish(mine)) for name, mine in callers), key=repr)),
    )


QUIET: Final = ("stop", "remove", "wait ready")
"""The callers that do not wait for a connect by their own wish."""


def bare(name: str, mine: Wanted) -> Wanted:
    """Return a wish with only those parts that the verdict of this caller, or this step, looks at."""
    generation, fresh, cut = mine.generation, mine.fresh, mine.cut
    match name:
        case "stop":
            return Wanted(NO_CONFIG, "stop", -1, fresh, -1)
        case "disconnect" | "renew":
            return Wanted(NO_CONFIG, "run", -1, -1, cut)
        case "adopt" | "remove" | "wait ready":
            return Wanted(NO_CONFIG, "run", -1, -1, -1)
        case _:  # a start, as a step or of a caller
            return Wanted(NO_CONFIG, "stop" if mine.mode == "stop" else "run", generation, fresh, -1)


NO_CONFIG: Final = configuration(0, "")
"""The configuration of a wish of which only the mode and the numbers count."""


@frozen
class Explored:
    """The findings of an exploration.

    Attributes:
        states: the number of states.
        problems: what is wrong, with the shortest way to it.
        stuck: the number of states without a way to a good end.
        changes: the changes of the public states of connections.
    """

    states: int
    problems: dict[str, list[str]]
    stuck: int
    changes: frozenset[tuple[str, str]]


@define
class Exploration:
    """Visits every state that can be reached."""

    came: dict[World, tuple[World, str] | None] = field(factory=dict)
    ahead: dict[World, list[World]] = field(factory=dict)
    problems: dict[str, list[str]] = field(factory=dict)
    changes: set[tuple[str, str]] = field(factory=set)
    pending: deque[World] = field(factory=deque)
    seen: dict[World, World] = field(factory=dict)

    def run(self) -> None:
        """Visit the pending states, and all that follow."""
        while self.pending:
            world = self.pending.popleft()
            self.ahead[world] = list(self.follow(world, forced(world)))
            if world.left and not world.gone:
                list(self.follow(world, operations(world)))
            if world.spare and not world.gone:
                list(self.follow(world, accidents(world)))
            if not self.ahead[world] and (found := wrong(world)) is not None:
                self.problems.setdefault(found, self.way_to(world))

    def follow(self, world: World, moves: Iterator[tuple[str, World]]) -> Iterator[World]:
        """Yield the states that follow from a state, and note those that are new."""
        name = "begins"
        try:
            for name, new in moves:
                next_one = self.seen.get(new)
                if next_one is None:
                    next_one = self.seen[new] = canonical(look(new))
                for old, now in zip(world.seen, next_one.seen, strict=True):
                    # A connection that is given up goes through backoff in one move; a connect may also fail at once.
                    by_way = ["backoff"] if now.state == "failed" != old.state else []
                    self.changes.update(pairwise([old.state, *by_way, now.state]))
                    if old.state == "connecting":
                        self.changes.add((old.state, now.state))
                if next_one not in self.came:
                    self.came[next_one] = world, name
                    self.pending.append(next_one)
                yield next_one
        except Broken as exc:
            self.problems.setdefault(str(exc), [*self.way_to(world), f"after {name}"])

    def way_to(self, world: World) -> list[str]:
        """Return what happens on the shortest way to a state."""
        names = []
        while (before := self.came[world]) is not None:
            world, name = before
            names.append(name)
        return names[::-1]

    def stuck(self) -> int:
        """Count the states from which no way leads to a good end."""
        behind: defaultdict[World, list[World]] = defaultdict(list)
        for world, nexts in self.ahead.items():
            for each in nexts:
                behind[each].append(world)
        found = {world for world, nexts in self.ahead.items() if not nexts and wrong(world) is None}
        pending = deque(found)
        while pending:
            new = {world for world in behind[pending.popleft()] if world not in found}
            found |= new
            pending.extend(new)
        return len(self.ahead) - len(found)


def explore(replicas: int, left: int, spare: int) -> Explored:
    """Visit all states of a server with some replicas, that a number of operations and accidents can lead to."""
    exploration = Exploration()
    for connect in ("eager", "lazy"):
        config = Config(0, connect)
        none = cast("tuple[Kernel, ...]", ("none",) * replicas)
        world = World(
            Wanted(configuration(0, connect), "run" if connect == "eager" else "rest"),
            (Seen("pending"),) * replicas,
            none,
            (config,) * replicas,
            config,
            left,
            spare,
            kept=True,
            in_flight=(False,) * replicas,
        )
        first = canonical(look(world))
        exploration.came[first] = None
        exploration.pending.append(first)
    exploration.run()
    return Explored(len(exploration.came), exploration.problems, exploration.stuck(), frozenset(exploration.changes))
