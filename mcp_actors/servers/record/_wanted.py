"""The wishes about a server, and the step that is due.

`Wanted` is what is wanted of a server, and `Seen` is what decisions use of a connection. The functions make a wish,
return the next step (`due`), or give the verdict on a wish (`verdict_of_start`, `verdict_of_stop`, `verdict_of_ready`).

Frozen values and pure functions: no actor, no clock, no log. They use the states of servers, and have a configuration
in a `Wanted`. Refs, the record and the group make wishes with them, the loops of the group ask for the next step, and
refs, `ServerGroup` and the lifecycle actor wait for verdicts.

Theory of operation
-------------------
`Wanted` is one frozen value for each server (`ServerLife.wanted`), with one writer (`ServerLife.want`). A caller, the
lifecycle actor or the end of the group replaces it: that is a wish. Wishes are counted (`used` and `moved` are not, and
the record and the loops of the group make these, too), and each incarnation of an actor notes the number of the wish
that was valid when it began. So

- `due` compares what is wanted with what is, and returns the next step; one loop for each server carries it out
  (``group/_loop.py``),
- a verdict says what has become of the wish of one caller, whatever others have wished since.

Nothing here restarts a server that has failed, or decides when: that is its supervisor's part.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import evolve, field, frozen

from ._states import ACTIVE, CONNECTED, PARKED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...config import ServerConfig
    from ._states import Departure, ServerState

Mode: TypeAlias = Literal["run", "rest", "stop", "leave"]

UP: Final[frozenset[ServerState]] = CONNECTED | {"connecting", "backoff", "stopping"}
"""An actor runs, or its supervisor is about to run one."""


@frozen
class Wanted:
    """The wishes about a server, as one value.

    Attributes:
        config: its configuration. The record keeps the previous one until the connection with that has ended.
        mode: ``run``: it is to be connected. ``rest``: not before it is used. ``stop``: not before it is started.
            ``leave``: never again.
        generation: the number of wishes so far.
        fresh: the number of a wish: connections that began before it are replaced, once their requests have ended.
        cut: the number of the last stop: connections that began before it end at once, with their requests.
        departure: why it leaves, or None. ``"block"``: the block of its group has ended. ``"signal"``: a signal is
            ending the block, and new requests wait until then. ``"removal"``: it is removed from its group.
        ask: whether a connect may ask a person to sign in.
        after: awaited before it is connected; None does not wait.
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
        broke: the number of the last wish for which a connect or a connection has failed; -1 before.
        old: whether its connection is to be replaced because of its age (``max_lifetime``).
        overdue: whether its connect has exceeded ``connect_timeout``.
    """

    state: ServerState
    began: int = -1
    broke: int = -1
    old: bool = False
    overdue: bool = False


# --- Wishes -----------------------------------------------------------------------------------------------------------


def first(config: ServerConfig) -> Wanted:
    """Return what is wanted of a server at first."""
    return Wanted(config, _mode_of(config))


def _mode_of(config: ServerConfig) -> Mode:
    return "run" if config.connect == "eager" else "rest"


def started(wanted: Wanted) -> Wanted:
    """Wish that it runs. An existing connection stays."""
    return _wished(wanted, "run", wanted.fresh)


def restarted(wanted: Wanted, *, ask: bool = True, after: Callable[[], Awaitable[None]] | None = None) -> Wanted:
    """Wish that it runs with a new connection."""
    return evolve(_wished(wanted, "run", wanted.generation + 1), ask=ask, after=after)


def stopped(wanted: Wanted) -> Wanted:
    """Wish that it is stopped. An existing connection ends at once, even if another wish follows before that."""
    now = wanted.generation + 1
    return wanted if wanted.mode == "leave" else evolve(_wished(wanted, "stop", now), cut=now)


def rested(wanted: Wanted) -> Wanted:
    """Wish that it rests until it is used."""
    return _wished(wanted, "rest", wanted.generation + 1)


def used(wanted: Wanted) -> Wanted:
    """Note that it is used. This is not counted as a wish, so it overtakes no operation."""
    return evolve(wanted, mode="run") if wanted.mode == "rest" else wanted


def configured(wanted: Wanted, config: ServerConfig) -> Wanted:
    """Wish for another configuration. A server that was stopped stays so; any other follows a change of ``connect``."""
    mode = wanted.mode
    if mode in ("run", "rest") and config.connect != wanted.config.connect:
        mode = _mode_of(config)
    return evolve(_wished(wanted, mode, wanted.generation + 1), config=config)


def moved(wanted: Wanted, config: ServerConfig) -> Wanted:
    """Note that the same configuration is written elsewhere now. This is not counted as a wish."""
    return evolve(wanted, config=config)


def left(wanted: Wanted, departure: Departure) -> Wanted:
    """Wish that it leaves. No later wish has an effect."""
    return evolve(_wished(wanted, "leave", wanted.fresh), departure=wanted.departure or departure)


def _wished(wanted: Wanted, mode: Mode, fresh: int) -> Wanted:
    if wanted.mode == "leave":
        return wanted
    # `ask` and `after` are of one wish only, so they begin anew.
    return Wanted(wanted.config, mode, wanted.generation + 1, fresh, wanted.cut)


# --- The step that is due ---------------------------------------------------------------------------------------------


Step: TypeAlias = Literal["disconnect", "stop", "exchange", "renew", "start", "remove"]
"""``disconnect``: end a connection, and let requests wait. ``stop``: end it, and refuse requests. ``exchange``: take
over the configuration. ``renew``: end a connection that is too old. ``start``: connect. ``remove``: stop and forget."""


def due(wanted: Wanted, seen: Sequence[Seen], *, current: bool, kept: bool) -> Step | None:
    """Return the next step towards what is wanted; None if there is nothing to do.

    Args:
        wanted: what is wanted.
        seen: the connection of the server, or of each of its replicas.
        current: whether the server has the configuration that is wanted.
        kept: whether requests wait although no connection follows by itself, so that a stop must refuse them.
    """
    mode, up = wanted.mode, [each for each in seen if each.state in UP]
    if mode == "leave":
        return "remove" if wanted.departure == "removal" else None
    if mode == "stop" and (kept or any(each.state != "stopped" for each in seen)):
        return "stop"
    if any(each.began < wanted.cut for each in up):
        return "stop"  # it was stopped, and wanted again before that was carried out
    if up and (mode == "rest" or not current or has_older(seen, wanted.fresh)):
        return "disconnect"
    if not current:
        return "exchange"
    return _due_to_run(wanted, seen) if mode == "run" else None


def _due_to_run(wanted: Wanted, seen: Sequence[Seen]) -> Step | None:
    if any(each.old and each.state in CONNECTED for each in seen):
        return "renew"
    # A connection that was given up before the last wish is tried again. If one was given up since, the pool of the
    # replicas may have ended, and stopped the others: a start of those would try the failed one again, too.
    given_up = any(_was_given_up(each, wanted.generation) for each in seen)
    ended = any(each.state in ("pending", "stopped") and (each.old or not given_up) for each in seen)
    to_retry = any(each.state in PARKED and each.broke < wanted.generation for each in seen)
    return "start" if to_retry or ended else None


def has_older(seen: Sequence[Seen], wish: int) -> bool:
    """Return True if a connection has not ended that began before a wish."""
    return any(each.state in UP and each.began < wish for each in seen)


def _was_given_up(each: Seen, wish: int) -> bool:
    """Return True if a supervisor has given up a connection since a wish."""
    return each.state in PARKED and each.broke >= wish


# --- The verdict on a wish --------------------------------------------------------------------------------------------


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
        ``done`` if a connection serves that began by that wish or a later one, if the server rests or stays stopped
        with its new configuration, or if it is optional and overdue; ``failed`` if the connect has failed, for a
        required server also that of one replica; ``superseded`` if it was stopped or has left since.
    """
    if wanted.mode == "leave" or (wanted.mode == "stop" and mine.mode != "stop"):
        return "superseded"
    if not current or has_older(seen, mine.fresh):
        return "wait"
    if wanted.mode != "run":
        return "done"
    return _verdict_of_connects(mine, seen, required=required)


def _verdict_of_connects(mine: Wanted, seen: Sequence[Seen], *, required: bool) -> Verdict:
    """Decide by the connects since a wish: by those of all replicas if the server is required, or by the best one."""
    failed = [_has_failed(each, mine.generation) for each in seen]
    serving = [each.state in CONNECTED for each in seen]
    given_up = any(_was_given_up(each, mine.generation) for each in seen)
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
    """Return True if a connect since a wish has failed, or the next one follows after a delay only."""
    if each.state == "connecting":  # perhaps once more
        return each.broke >= generation
    return each.state == "backoff" or _was_given_up(each, generation)


def verdict_of_stop(mine: Wanted, wanted: Wanted, seen: Sequence[Seen]) -> Verdict:
    """Decide about a stop: it is done when all connections from before it have ended."""
    if wanted.mode == "leave":
        return "superseded"
    if wanted.mode == "stop":
        return "done" if all(each.state == "stopped" for each in seen) else "wait"
    return "wait" if has_older(seen, mine.fresh) else "done"


def verdict_of_ready(wanted: Wanted, seen: Sequence[Seen], *, current: bool) -> Verdict:
    """Decide about a wait until a server serves requests. The wait counts as a use of it."""
    if wanted.mode in ("stop", "leave"):
        return "superseded"
    if not current or wanted.mode == "rest" or has_older(seen, wanted.fresh):
        return "wait"
    if any(each.state in ACTIVE for each in seen):
        return "done"
    return "failed" if _has_ended(seen) and _due_to_run(wanted, seen) is None else "wait"
