"""The wishes about a server, and the step that is due.

It knows no actor and no clock, and may use the states of servers only.

Theory of operation
-------------------
`Wanted` is one frozen value for each server (``ServerLife.wanted``), with one writer (``ServerLife.want``). A caller,
the group, or a connection that has been idle replaces it in its own step: that is a wish. Wishes are counted, and each
incarnation of an actor notes the number of the wish that was valid when it began. So

- `due` compares what is wanted with what is, and returns the next step; one loop for each server carries it out
  (``group._loop``),
- a verdict tells the caller of an operation what has become of its own wish, whatever others have wished since.

Nothing here restarts a server that has failed, or decides when: that is its supervisor's part.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import evolve, field, frozen

from ._state import ACTIVE, CONNECTED, PARKED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...config import ServerConfig
    from ._state import Departure, ServerState

Mode: TypeAlias = Literal["run", "rest", "stop", "leave"]

UP: Final[frozenset[ServerState]] = CONNECTED | {"connecting", "backoff", "stopping"}
"""An actor runs, or its supervisor is about to run one."""


@frozen
class Wanted:
    """The wishes about a server, as one value.

    Attributes:
        config: its configuration. That of the record is an older one until the connection of that has ended.
        mode: ``run``: it is to be connected. ``rest``: not before it is used. ``stop``: not before it is started.
            ``leave``: never again.
        generation: the number of wishes so far.
        fresh: connections that have begun before the wish of this number are to be replaced.
        cut: those that have begun before the wish of this number do not even finish their requests: it was a stop.
        departure: why it leaves, or None. ``"block"``: the block of its group has ended. ``"signal"``: it is about to
            be ended by a signal, and until then requests wait instead. ``"removal"``: it is removed from its group.
        ask: whether a connect may ask a person to sign in.
        after: awaited before it is connected; None if nothing is.
    """

    config: ServerConfig
    mode: Mode
    generation: int = 0
    fresh: int = 0
    cut: int = 0
    departure: Departure | None = None
    ask: bool = True
    after: Callable[[], Awaitable[None]] | None = field(default=None, eq=False, repr=False)


@frozen
class Seen:
    """The facts about a connection that decisions use.

    Attributes:
        state: its state.
        began: the number of the wish that was valid when its last incarnation began; -1 before the first.
        broke: the number of the wish that was valid when a connection for it failed last, or was given up; -1 before.
        old: whether it is to be replaced because of its age (``max_lifetime``); until the next one begins.
        overdue: whether its connect has exceeded ``connect_timeout``.
    """

    state: ServerState
    began: int = -1
    broke: int = -1
    old: bool = False
    overdue: bool = False


# --- wishes -----------------------------------------------------------------------------------------------------------


def first(config: ServerConfig) -> Wanted:
    """Return what is wanted of a server at first."""
    return Wanted(config, _mode_of(config))


def _mode_of(config: ServerConfig) -> Mode:
    return "run" if config.connect == "eager" else "rest"


def started(wanted: Wanted) -> Wanted:
    """It is to run. A connection that there is stays."""
    return _wished(wanted, "run", wanted.fresh)


def restarted(wanted: Wanted, *, ask: bool = True, after: Callable[[], Awaitable[None]] | None = None) -> Wanted:
    """It is to run with a new connection."""
    return evolve(_wished(wanted, "run", wanted.generation + 1), ask=ask, after=after)


def stopped(wanted: Wanted) -> Wanted:
    """It is to be stopped. A connection that there is ends at once, even if the next wish comes before that."""
    now = wanted.generation + 1
    return wanted if wanted.mode == "leave" else evolve(_wished(wanted, "stop", now), cut=now)


def rested(wanted: Wanted) -> Wanted:
    """It is to rest until it is used."""
    return _wished(wanted, "rest", wanted.generation + 1)


def used(wanted: Wanted) -> Wanted:
    """It is used. This is not counted as a wish, so an operation before it is not overtaken."""
    return evolve(wanted, mode="run") if wanted.mode == "rest" else wanted


def configured(wanted: Wanted, config: ServerConfig) -> Wanted:
    """It is to have another configuration. One that was stopped or rests does so afterwards, too."""
    mode = wanted.mode
    if mode in ("run", "rest") and config.connect != wanted.config.connect:
        mode = _mode_of(config)
    return evolve(_wished(wanted, mode, wanted.generation + 1), config=config)


def moved(wanted: Wanted, config: ServerConfig) -> Wanted:
    """Its configuration, which is equal, is written elsewhere. This is not counted as a wish."""
    return evolve(wanted, config=config)


def left(wanted: Wanted, departure: Departure) -> Wanted:
    """It is to leave. Nothing is wanted of it after that."""
    return evolve(_wished(wanted, "leave", wanted.fresh), departure=wanted.departure or departure)


def _wished(wanted: Wanted, mode: Mode, fresh: int) -> Wanted:
    if wanted.mode == "leave":
        return wanted
    return Wanted(wanted.config, mode, wanted.generation + 1, fresh, wanted.cut)


# --- what is to be done -----------------------------------------------------------------------------------------------

Step: TypeAlias = Literal["disconnect", "stop", "exchange", "renew", "start", "remove"]
"""``disconnect``: end a connection, and let requests wait. ``stop``: end it, and refuse requests. ``exchange``: take
over the configuration. ``renew``: end an old connection. ``start``: connect. ``remove``: stop, and forget it."""


def due(wanted: Wanted, seen: Sequence[Seen], *, current: bool, kept: bool) -> Step | None:
    """Return the next step by which what is becomes what is wanted; None if there is nothing to do.

    Args:
        wanted: what is wanted.
        seen: the connections of the server: one, or that of each replica.
        current: whether the server has the configuration that is wanted.
        kept: whether requests wait although no connection follows.
    """
    mode, up = wanted.mode, [each for each in seen if each.state in UP]
    if mode == "leave":
        return "remove" if wanted.departure == "removal" else None
    if mode == "stop" and (kept or any(each.state != "stopped" for each in seen)):
        return "stop"
    if any(each.began < wanted.cut for each in up):
        return "stop"  # and start() was called meanwhile
    if up and (mode == "rest" or not current or any(each.began < wanted.fresh for each in up)):
        return "disconnect"
    if not current:
        return "exchange"
    return _due_to_run(wanted, seen) if mode == "run" else None


def _due_to_run(wanted: Wanted, seen: Sequence[Seen]) -> Step | None:
    if any(each.old and each.state in CONNECTED for each in seen):
        return "renew"
    # One that was given up before the last wish is tried again. Since that wish, it takes the others with it.
    tried = any(each.state in PARKED and each.broke >= wanted.generation for each in seen)
    ended = any(each.state in ("pending", "stopped") and (each.old or not tried) for each in seen)
    parked = any(each.state in PARKED and each.broke < wanted.generation for each in seen)
    return "start" if parked or ended else None


# --- what has become of a wish ----------------------------------------------------------------------------------------

Verdict: TypeAlias = Literal["wait", "done", "failed", "superseded"]


def verdict_of_start(mine: Wanted, wanted: Wanted, seen: Sequence[Seen], *, current: bool, required: bool) -> Verdict:
    """Decide about a start, a restart or another configuration.

    Args:
        mine: the wish.
        wanted: what is wanted now.
        seen: the connections of the server.
        current: whether the server has the configuration that is wanted.
        required: whether a slow connect is awaited without a limit.

    Returns:
        ``done`` if it serves by that wish or a later one, is lazy and may be used, or is optional and overdue;
        ``failed`` if the connect has failed, for a required server also that of one replica; ``superseded`` if it was
        stopped or has left since.
    """
    if wanted.mode == "leave" or (wanted.mode == "stop" and mine.mode != "stop"):
        return "superseded"
    if not current or any(each.state in UP and each.began < mine.fresh for each in seen):
        return "wait"
    if wanted.mode != "run":
        return "done"
    return _verdict_of_connects(mine, seen, required=required)


def _verdict_of_connects(mine: Wanted, seen: Sequence[Seen], *, required: bool) -> Verdict:
    """Decide by the connects since a wish: by those of all replicas if the server is required, or by the best one."""
    failed = [_has_failed(each, mine.generation) for each in seen]
    serving = [each.state in CONNECTED for each in seen]
    given_up = any(each.state in PARKED and each.broke >= mine.generation for each in seen)
    if all(failed) or (given_up and _has_ended(seen)):
        return "failed"
    if required:
        decided = all(map(or_, failed, serving))
        return "wait" if not decided else "failed" if any(failed) else "done"
    overdue = all(each.overdue or has_failed for each, has_failed in zip(seen, failed, strict=True))
    return "done" if any(serving) or overdue else "wait"


def _has_ended(seen: Sequence[Seen]) -> bool:
    return not any(each.state in UP for each in seen)


def _has_failed(each: Seen, generation: int) -> bool:
    """Return True if a connect since a wish has failed, or the next one only follows after a delay."""
    if each.state == "connecting":  # again
        return each.broke >= generation
    return each.state == "backoff" or (each.state in PARKED and each.broke >= generation)


def verdict_of_stop(mine: Wanted, wanted: Wanted, seen: Sequence[Seen]) -> Verdict:
    """Decide about a stop: it is done when no connection from before it is left."""
    if wanted.mode == "leave":
        return "superseded"
    if wanted.mode == "stop":
        return "done" if all(each.state == "stopped" for each in seen) else "wait"
    return "wait" if any(each.state in UP and each.began < mine.fresh for each in seen) else "done"


def verdict_of_ready(wanted: Wanted, seen: Sequence[Seen], *, current: bool) -> Verdict:
    """Decide about a wait until a server serves requests, which has been used."""
    if wanted.mode in ("stop", "leave"):
        return "superseded"
    if not current or wanted.mode == "rest" or any(each.state in UP and each.began < wanted.fresh for each in seen):
        return "wait"
    if any(each.state in ACTIVE for each in seen):
        return "done"
    return "failed" if _has_ended(seen) and _due_to_run(wanted, seen) is None else "wait"
