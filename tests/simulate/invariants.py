"""State what must hold in every run, whatever happened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from mcp_actors import HttpStatusError
from mcp_actors.auth import SignInRequired
from mcp_actors.kernel import (
    Crashed,
    Event,
    GaveUp,
    Restarting,
    Started,
    StartFailed,
    Starting,
    Stopped,
    Stopping,
)
from mcp_actors.servers import ConfigChanged, ReplicaChanged, ServerAdded, StateChanged, ToolsChanged

from .http import as_events
from .pipes import PipeMachine
from .plan import ATTEMPTS, SimulatedServer
from .world import BUSY, BUSY_SECONDS, RELOADS, THINKING, CallEnd, Drain, World

STOP_TIMEOUT = 5.0

JITTER = 0.1
"""Fraction of its lifetime after which an old connection that was kept is asked again."""

SERVING = ("ready", "degraded")

OUTCOMES = {
    "answered",
    "left",
    "ConnectionLost",
    "ConnectFailed",
    "LimitExceeded",
    "MCPError",
    "RequestTimedOut",
    "ServerUnavailable",
    "SignInRequired",
}


def broken(world: World) -> list[str]:
    """Return what does not hold, in sentences."""
    return [
        *world.problems,
        *calls(world),
        *executions(world),
        *states(world),
        *catalogs(world),
        *(problem for drain in world.drains for problem in drained(world, drain)),
        *(problem for server in world.plan.servers for problem in of_server(world, server)),
    ]


def of_server(world: World, server: SimulatedServer) -> Iterator[str]:
    """Yield what does not hold for a server."""
    yield from lost(world, server)
    yield from changes(world, server.name)
    for actor in server.actors:
        yield from budget(world, server, actor)
        yield from lifetimes(world, server, actor)
    for actor in dict.fromkeys([server.name, *server.actors]):
        yield from order(world, server.name, actor)


def calls(world: World) -> Iterator[str]:
    """Yield what is wrong with an outcome."""
    for end in world.ends.values():
        # Credentials that expire again, before anything was answered with them, are not renewed a second time.
        # C-01: nor is a request repeated on a third session, also if its server has really restarted twice.
        refused = isinstance(end.error, HttpStatusError) and (
            world.houses[end.deed.server].unproven or "on two sessions in a row" in str(end.error)
        )
        if end.outcome not in OUTCOMES and not refused:
            yield f"call {end.call} ended in {end.outcome}: {end.error}"
        if end.outcome == "answered" and end.answer != str(end.call):
            yield f"call {end.call} got the answer to call {end.answer}"
        if end.outcome == "MCPError" and (end.deed.fate != "refuse" or str(end.error) != f"refused {end.call}"):
            yield f"call {end.call} got an error of the server that is not its own: {end.error}"
        yield from times(world, end)


def times(world: World, end: CallEnd) -> Iterator[str]:
    """Yield what is wrong with the time of an outcome."""
    server = world.houses[end.deed.server].plan
    # While the program answers a question, its call does not expire.
    timeout = None if end.deed.fate == "ask" else server.options["request_timeout"]
    limit = min(math.inf if timeout is None else timeout + thinking(world, server, end), end.deed.patience)
    if end.at - end.asked > limit + 1e-6:
        yield f"call {end.call} ended after {end.at - end.asked:g} s, and its limit is {limit:g} s"
    if end.outcome == "RequestTimedOut" and timeout is not None and end.at - end.asked < timeout - 1e-6:
        yield f"call {end.call} timed out after {end.at - end.asked:g} s, and not after {timeout:g} s"


def thinking(world: World, server: SimulatedServer, end: CallEnd) -> float:
    """Return how long a call may have waited for answers of the program that a server has asked for in another call.

    A legacy server behind a pipe, or in its stream of notifications, does not say in which call it asks. A call that is
    sent again is asked about again.
    """
    if server.era != "legacy":
        return 0.0
    carried_out = Counter(world.houses[server.name].began)
    asking = (other for other in world.ends.values() if other.deed.server == server.name and other.deed.fate == "ask")
    others = (other for other in asking if server.way == "pipe" or not as_events(other.call))
    meanwhile = (other for other in others if other.asked <= end.at and not other.at < end.asked)
    return THINKING * sum(max(1, carried_out[other.call]) for other in meanwhile)


def executions(world: World) -> Iterator[str]:
    """Yield the calls that were carried out too often, or not at all although they were answered."""
    for name, house in world.houses.items():
        for call, number in Counter(house.began).items():
            end = world.ends[call]
            if end.deed.server != name:
                yield f"call {call} to {end.deed.server} was carried out by {name}"
            if number > (ATTEMPTS if end.deed.again else 1):
                yield f"call {call} was carried out {number} times"
        for call, time in zip(house.began, house.times, strict=True):
            if time > world.ends[call].at and not house.frozen:
                yield f"call {call} was carried out at {time:g} s, after it had ended"
    began = {call for house in world.houses.values() for call in house.began}
    for end in world.ends.values():
        if end.outcome == "answered" and end.call not in began:
            yield f"call {end.call} was answered and never carried out"
        if getattr(end.error, "outcome", None) == "not_sent" and end.call in began and not end.deed.again:
            yield f"call {end.call} was reported as not sent, and was carried out"


def states(world: World) -> Iterator[str]:
    """Yield the servers that did not come back although nothing keeps them away."""
    for name, state in world.states.items():
        restart = world.houses[name.partition(":")[0]].plan.options["restarts"]
        comes_back = restart.park_retry is not None and restart.max_restarts > 0
        parked = state in ("failed", "needs_auth")
        stays = parked and (not comes_back or expired_while_connecting(world, name))
        if state not in ("ready", "stopped", "pending") and not stays:
            yield f"{name} is {state}, long after everything is healthy"


def expired_while_connecting(world: World, server: str) -> bool:
    """Return True if the last connect was refused with 401, and began with credentials that were valid then.

    If it was the last one of the budget, no other follows: the client cannot know that the credentials were right.
    """
    began = math.inf
    refused_at = -math.inf
    for event in world.trace.events:
        if event.actor == server and isinstance(event, Starting):
            began = event.time
        elif event.actor == server and isinstance(event, GaveUp):
            refused_at = event.time if getattr(event.error, "http_status", None) == 401 else -math.inf
    expiries = [each.time for each in world.trace.entries if each.to == server and each.text in ("expire", "sign out")]
    return any(began <= time <= refused_at for time in expiries)


def catalogs(world: World) -> Iterator[str]:
    """Yield the servers whose tools are not shown as they are, or whose events say something else."""
    for name, shown in world.shown.items():
        if shown != {*world.houses[name].tools}:
            yield f"{name} has the tools {sorted(world.houses[name].tools)}, and {sorted(shown)} are shown"
        said = [event for event in world.trace.events if isinstance(event, ToolsChanged) and event.actor == name]
        if said and {*said[-1].tools} != shown:
            yield f"{name} shows {sorted(shown)}, and its last event says {sorted(said[-1].tools)}"


def drained(world: World, drain: Drain) -> Iterator[str]:
    """Yield the calls that were not finished although there was time, and those that were not refused."""
    has_time = drain.verb != "stop" and world.plan.drain_timeout > BUSY * BUSY_SECONDS
    for end in (world.ends[call] for call in drain.calls):
        full = end.outcome == "LimitExceeded" and end.at == end.asked
        if has_time and not full and end.outcome != "answered":
            yield f"call {end.call} had time to finish before the {drain.verb}, and ended in {end.outcome}: {end.error}"
    for end in (world.ends[call] for call in drain.late):
        if drain.verb != "restart" and (end.outcome != "ServerUnavailable" or end.at > end.asked):
            yield f"call {end.call} came after the {drain.verb} had begun, and ended in {end.outcome}"
    if drain.ended - drain.began > world.plan.drain_timeout + STOP_TIMEOUT:
        yield f"the {drain.verb} took {drain.ended - drain.began:g} s"


def lost(world: World, server: SimulatedServer) -> Iterator[str]:
    """Yield the calls that were lost with a process that was not to end: the crash of one takes its own calls only."""
    house, since = (
        world.houses[server.name],
        min((begin for begin, _ in commanded(world, server.name)), default=math.inf),
    )
    if not isinstance(house.machine, PipeMachine) or house.frozen or server.options["max_lifetime"] is not None:
        return
    for end in world.ends.values():
        had = [process for process in house.machine.processes if end.call in process.worker.calls]
        if end.outcome == "ConnectionLost" and end.at < since and had and not any(each.crashed for each in had):
            yield f"call {end.call} was lost at {end.at:g} s, and its process had not crashed"


def budget(world: World, server: SimulatedServer, actor: str) -> Iterator[str]:
    """Yield restarts beyond the budget, and surrenders before it is spent."""
    policy = server.options["restarts"]
    commands = commanded(world, server.name)
    spent, parked, served_since = 0, False, math.inf
    for event in world.trace.events:
        new_pool = actor != server.name == event.actor and isinstance(event, Starting)  # it has new budgets
        if event.actor != actor and not new_pool:
            continue
        lasted = policy.reset_after is not None and event.time - served_since >= policy.reset_after
        ended = isinstance(event, Crashed | Stopping)
        # One that was parked, has come back and is idle starts anew when it is used.
        rested = parked and isinstance(event, Stopping)
        if new_pool or (ended and lasted) or rested or any(begin <= event.time <= end for begin, end in commands):
            spent, parked = 0, False
        if isinstance(event, Started):
            served_since = event.time
        elif ended:
            served_since = math.inf
        elif isinstance(event, Restarting):
            spent += 1
            if spent > policy.max_restarts or parked:
                yield f"{actor} was restarted at {event.time:g} s, for the {spent}th time, {parked=}"
        elif isinstance(event, GaveUp):
            too_soon = spent < policy.max_restarts and not isinstance(event.error, SignInRequired)
            # A server that answers nothing over two connections is given up by its health.
            too_soon = too_soon and f"{server.options['health'].fail_after} health checks" not in str(event.error)
            if too_soon and not parked and not any(begin <= event.time for begin, _ in commands):
                yield f"{actor} was given up at {event.time:g} s after {spent} restarts"
            parked = True


def lifetimes(world: World, server: SimulatedServer, actor: str) -> Iterator[str]:
    """Yield the connections that lasted for too long."""
    lifetime, since = server.options["max_lifetime"] or math.inf, math.inf
    # A replica is kept while another one is down. The end of that is noticed late, and its own requests end first.
    limit = lifetime * JITTER + world.plan.drain_timeout + STOP_TIMEOUT
    down, complete_since = {*server.actors} - {server.name, actor}, 0.0
    # A command takes the place of a replacement that is under way, and lets requests finish for a time of its own.
    begun = [begin for begin, _ in commanded(world, server.name)]
    for event in world.trace.events:
        commanded_at = max((begin for begin in begun if begin <= event.time), default=0.0)
        if not down and event.time - max(since + lifetime, complete_since, commanded_at) > limit:
            yield f"{actor} was connected for {event.time - since:g} s, the others since {complete_since:g} s"
            return
        if event.actor == actor and isinstance(event, Started):
            since = event.time
        elif event.actor == actor and isinstance(event, Crashed | Stopping):
            since = math.inf
        elif isinstance(event, ReplicaChanged) and event.replica in server.actors and event.replica != actor:
            down = down - {event.replica} if event.new in SERVING else down | {event.replica}
            complete_since = event.time


def commanded(world: World, server: str) -> list[tuple[float, float]]:
    """Return the times in which a start, stop, restart or reload was being carried out."""
    verbs = ("start", "stop", "restart", "remove", "add")
    entries = world.trace.entries
    begun = [
        each.time
        for each in entries
        if each.text in (*RELOADS, "reconnect") or (each.to == server and each.text in verbs)
    ]
    # A command goes on without its caller, so it counts until everything is quiet; that is long, and safe.
    return [(time, time + 30.0) for time in begun]


def changes(world: World, server: str) -> Iterator[str]:
    """Yield the changes of a server that do not follow from the one before."""
    state = None
    for event in world.trace.events:
        if event.actor == server and isinstance(event, ServerAdded | ConfigChanged):
            state = None
        elif event.actor == server and isinstance(event, StateChanged):
            if state is not None and event.old != state:
                yield f"{server} changed from {event.old}, and was {state}"
            state = event.new


def order(world: World, server: str, actor: str) -> Iterator[str]:
    """Yield the events of an actor that are out of order."""
    last: Event | None = None
    phase = "ended"
    for event in world.trace.events:
        if event.actor == server and isinstance(event, ServerAdded):
            last = None
        if event.actor == server and isinstance(event, Stopped):
            phase = "ended"  # with a pool its replicas have stopped
        if event.actor != actor or not isinstance(event, (*PHASES,)):
            continue
        if last is not None and event.time < last.time:
            yield f"{actor}: {type(event).__name__} at {event.time:g} s comes after {type(last).__name__}"
        if last is not None and event.incarnation < last.incarnation:
            yield f"{actor}: an event of incarnation {event.incarnation} comes after {last.incarnation}"
        if phase not in FOLLOWS[type(event)]:
            yield f"{actor}: {type(event).__name__} {event.incarnation} while it was {phase}"
        phase, last = PHASES[type(event)], event
    if phase == "ending" and isinstance(last, Stopping):
        yield f"{actor} has not stopped"


PHASES = {
    Starting: "starting",
    Started: "serving",
    StartFailed: "ended",
    Crashed: "ending",
    Stopping: "ending",
    Stopped: "ended",
}
FOLLOWS = {
    Starting: ("ended", "ending"),
    Started: ("starting",),
    StartFailed: ("starting",),
    Crashed: ("serving",),
    Stopping: ("serving", "starting"),
    Stopped: ("ending", "ended", "starting"),
}
