"""Wishes about a server, and the next step towards them.

Callers, the lifecycle actor and the end of a group may want different things at once, and each caller must learn the
fate of its own wish. So each wish has a number. `due` returns the next step towards the latest wish; a verdict compares
numbers, and says what has become of one wish.

Owns: nothing.
Writes: nothing.
Calls: _states.
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
    """The current wish about a server, as one value.

    Each server has one value, `ServerLife.wanted`, with one writer, `ServerLife.want`. Each wish gets the next number.

    Attributes:
        config: the wanted configuration. The record keeps the previous configuration until its connection has ended.
        mode: ``run``: connect. ``rest``: connect at the next use. ``stop``: connect only after a start. ``leave``:
            never connect again.
        generation: the number of the latest wish.
        fresh: the number of the last wish to restart, reconfigure, rest or stop. Connections begun earlier must end.
        cut: the number of the last stop. Connections begun earlier end at once, and their requests fail. If a
            connection must end only because of `fresh`, its requests are finished first.
        departure: why the server leaves, or None. ``"block"``: the block of the group has ended. ``"signal"``: a signal
            is ending the block, and new requests wait for the end. ``"removal"``: the group removes the server.
        ask: whether a connect may ask a person to sign in.
        after: awaited before the connect; None does not wait.
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
        began: the number of the wish under which the last incarnation began; -1 before the first.
        broke: the number of the last wish for which a connect or a connection has failed; -1 before.
        old: True for a connection to be replaced because of its age (``max_lifetime``).
        overdue: True for a connect beyond ``connect_timeout``.
    """

    state: ServerState
    began: int = -1
    broke: int = -1
    old: bool = False
    overdue: bool = False


# --- Wishes -----------------------------------------------------------------------------------------------------------


def first(config: ServerConfig) -> Wanted:
    return Wanted(config, _mode_of(config))


def _mode_of(config: ServerConfig) -> Mode:
    return "run" if config.connect == "eager" else "rest"


def started(wanted: Wanted) -> Wanted:
    """Wish that the server runs. An existing connection stays."""
    return _wished(wanted, "run", wanted.fresh)


def restarted(wanted: Wanted, *, ask: bool = True, after: Callable[[], Awaitable[None]] | None = None) -> Wanted:
    return evolve(_wished(wanted, "run", wanted.generation + 1), ask=ask, after=after)


def stopped(wanted: Wanted) -> Wanted:
    """Wish that the server is stopped. An existing connection ends at once, even if another wish follows first."""
    now = wanted.generation + 1
    return wanted if wanted.mode == "leave" else evolve(_wished(wanted, "stop", now), cut=now)


def rested(wanted: Wanted) -> Wanted:
    return _wished(wanted, "rest", wanted.generation + 1)


def used(wanted: Wanted) -> Wanted:
    """Note a use, which does not count as a wish, and so overtakes no operation."""
    return evolve(wanted, mode="run") if wanted.mode == "rest" else wanted


def configured(wanted: Wanted, config: ServerConfig) -> Wanted:
    """Wish for another configuration. Unless stopped, the server follows a change of ``connect``."""
    mode = wanted.mode
    if mode in ("run", "rest") and config.connect != wanted.config.connect:
        mode = _mode_of(config)
    return evolve(_wished(wanted, mode, wanted.generation + 1), config=config)


def moved(wanted: Wanted, config: ServerConfig) -> Wanted:
    """Note another ``source`` of an equal configuration, which does not count as a wish."""
    return evolve(wanted, config=config)


def left(wanted: Wanted, departure: Departure) -> Wanted:
    """Wish that the server leaves. No later wish has an effect."""
    return evolve(_wished(wanted, "leave", wanted.fresh), departure=wanted.departure or departure)


def _wished(wanted: Wanted, mode: Mode, fresh: int) -> Wanted:
    if wanted.mode == "leave":
        return wanted
    # `ask` and `after` belong to a single wish, so the new value begins with the defaults.
    return Wanted(wanted.config, mode, wanted.generation + 1, fresh, wanted.cut)


# --- The step that is due ---------------------------------------------------------------------------------------------


Step: TypeAlias = Literal["disconnect", "stop", "adopt", "renew", "start", "remove"]
"""``disconnect``: end a connection, and let requests wait. ``stop``: end all, and refuse requests. ``adopt``: adopt
the configuration. ``renew``: end a connection that is too old. ``start``: connect. ``remove``: stop and forget."""


def due(wanted: Wanted, seen: Sequence[Seen], *, current: bool, kept: bool) -> Step | None:
    """Return the next step towards the wish; None if nothing is left to do.

    One loop for each server carries out the steps (``group/_loop.py``). Supervisors, not wishes, restart a failed
    server.

    `current` is True if the server has the wanted configuration. `kept` is True if requests wait although no connection
    follows by itself; a stop must then refuse them.
    """
    mode, up = wanted.mode, [each for each in seen if each.state in UP]
    if mode == "leave":
        return "remove" if wanted.departure == "removal" else None
    if mode == "stop" and (kept or any(each.state != "stopped" for each in seen)):
        return "stop"
    if any(each.began < wanted.cut for each in up):
        return "stop"  # a stop was overtaken by another wish before the loop carried it out
    if up and (mode == "rest" or not current or has_older(seen, wanted.fresh)):
        return "disconnect"
    if not current:
        return "adopt"
    return _due_to_run(wanted, seen) if mode == "run" else None


def _due_to_run(wanted: Wanted, seen: Sequence[Seen]) -> Step | None:
    if any(each.old and each.state in CONNECTED for each in seen):
        return "renew"
    # A connection that was given up before the last wish is tried again. If a connection was given up since, the pool
    # may have ended and stopped the other replicas, and a start would also retry the failed one.
    given_up = any(_was_given_up(each, wanted.generation) for each in seen)
    ended = any(each.state in ("pending", "stopped") and (each.old or not given_up) for each in seen)
    to_retry = any(each.state in PARKED and each.broke < wanted.generation for each in seen)
    return "start" if to_retry or ended else None


def has_older(seen: Sequence[Seen], wish: int) -> bool:
    """Return True if a connection from before a wish has not ended."""
    return any(each.state in UP and each.began < wish for each in seen)


def _was_given_up(each: Seen, wish: int) -> bool:
    return each.state in PARKED and each.broke >= wish


# --- The verdict on a wish --------------------------------------------------------------------------------------------


Verdict: TypeAlias = Literal["wait", "done", "failed", "superseded"]


def verdict_of_start(mine: Wanted, wanted: Wanted, seen: Sequence[Seen], *, current: bool, required: bool) -> Verdict:
    """Decide about a start, a restart or another configuration.

    `mine` is the wish, `wanted` the current one. `current` is True if the server has the wanted configuration.
    `required` is True if a slow connect is awaited without a limit.

    Returns:
        - ``superseded``: the server was stopped or has left since.
        - ``done``: a connection serves that `mine` does not replace, the server rests or stays stopped with the new
          configuration, or is optional and overdue.
        - ``failed``: the connect has failed; for a required server, the connect of one replica.
        - ``wait``: none of these.
    """
    if wanted.mode == "leave" or (wanted.mode == "stop" and mine.mode != "stop"):
        return "superseded"
    if not current or has_older(seen, mine.fresh):
        return "wait"
    if wanted.mode != "run":
        return "done"
    return _verdict_of_connects(mine, seen, required=required)


def _verdict_of_connects(mine: Wanted, seen: Sequence[Seen], *, required: bool) -> Verdict:
    """Decide by the connects since a wish: of all replicas if the server is required, else of the best one."""
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
    """Return True if a connect since a wish has failed, also before a delayed attempt."""
    if each.state == "connecting":  # perhaps after a failure
        return each.broke >= generation
    return each.state == "backoff" or _was_given_up(each, generation)


def verdict_of_stop(mine: Wanted, wanted: Wanted, seen: Sequence[Seen]) -> Verdict:
    if wanted.mode == "leave":
        return "superseded"
    if wanted.mode == "stop":
        return "done" if all(each.state == "stopped" for each in seen) else "wait"
    return "wait" if has_older(seen, mine.fresh) else "done"


def verdict_of_ready(wanted: Wanted, seen: Sequence[Seen], *, current: bool) -> Verdict:
    """Decide about a wait until a server serves requests. The wait counts as a use of the server."""
    if wanted.mode in ("stop", "leave"):
        return "superseded"
    if not current or wanted.mode == "rest" or has_older(seen, wanted.fresh):
        return "wait"
    if any(each.state in ACTIVE for each in seen):
        return "done"
    return "failed" if _has_ended(seen) and _due_to_run(wanted, seen) is None else "wait"
