"""Child specs, the options of supervisors, and decisions about restarts.

Every decision is a function of plain data, with the time as an argument: nothing here runs a task, reads a clock, or
touches a running actor. ``_children`` and ``_supervisor`` carry the decisions out.

Owns: restart budgets.
Writes: the signature of a function that `shows_options` decorates.
Calls: _envelope, _incarnation, _mailbox, _record.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict, TypeVar, get_args

from attrs import define, field, fields, frozen

from .._backoff import Backoff
from .._foreign import plain_name
from .._misuse import check_option, explained, is_name, is_seconds, is_whole
from ._envelope import M_contra
from ._incarnation import Shutdown
from ._mailbox import OverflowPolicy, check_mailbox
from ._record import RestartType, Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ._actor import Actor
    from ._record import EndReason


# --- The options of a supervisor --------------------------------------------------------------------------------------

# Type checkers check ``**options`` with `SupervisorOptions`. `SupervisorPolicy` has the defaults and the checks, and
# `shows_options` shows the options in `help` and the reference.


Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown = Literal["never", "any_significant", "all_significant"]

ParkRetry = Callable[[BaseException | None], float | None]
"""Takes the last failure of a parked child. Returns the seconds until one more attempt; None means no attempt."""

F = TypeVar("F", bound=Callable[..., Any])


class SupervisorOptions(TypedDict, total=False):
    """The options of a `Supervisor`, for functions that pass them on: ``**options: Unpack[SupervisorOptions]``."""

    strategy: Strategy
    max_restarts: int
    window: float
    reset_after: float | None
    backoff: Backoff | None
    auto_shutdown: AutoShutdown
    on_limit: Literal["end", "park"]
    park_retry: ParkRetry | None
    start_order: Literal["sequential", "parallel"]
    stop_order: Literal["sequential", "concurrent"]
    strict: bool
    await_start: bool


def shows_options(fn: F) -> F:
    """Show the options of a supervisor in a function's signature, instead of ``**options``."""
    shown = signature(fn)
    own = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    options = [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(SupervisorPolicy)
    ]
    fn.__signature__ = shown.replace(parameters=[*own, *options])  # type: ignore[attr-defined]  # functions take any
    return fn


def _default_if_none(given: Backoff | None) -> Backoff:
    return Backoff() if given is None else given


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "strategy": get_args(Strategy),
    "on_limit": ("end", "park"),
    "auto_shutdown": get_args(AutoShutdown),
    "start_order": ("sequential", "parallel"),
    "stop_order": ("sequential", "concurrent"),
}


@frozen(kw_only=True)
class SupervisorPolicy:
    """The checked options of a supervisor; see `Supervisor`."""

    strategy: Strategy = "one_for_one"
    max_restarts: int = 1
    window: float = 5.0
    reset_after: float | None = None
    backoff: Backoff = field(default=Backoff(), converter=_default_if_none)
    auto_shutdown: AutoShutdown = "never"
    on_limit: Literal["end", "park"] = "end"
    park_retry: ParkRetry | None = None
    start_order: Literal["sequential", "parallel"] = "sequential"
    stop_order: Literal["sequential", "concurrent"] = "sequential"
    strict: bool = True
    await_start: bool = True

    def __attrs_post_init__(self) -> None:
        def check(name: str, wanted: str, *, valid: bool) -> None:
            check_option("Supervisor", name, getattr(self, name), wanted, valid=valid)

        wanted = "an int of at least 0 (for no limit, add on_limit='park' and park_retry=…)"
        check("max_restarts", wanted, valid=is_whole(self.max_restarts, 0))
        check("window", "positive seconds or math.inf", valid=self.window == math.inf or is_seconds(self.window))
        check("reset_after", "positive seconds or None", valid=self.reset_after is None or is_seconds(self.reset_after))
        check("backoff", "a Backoff", valid=isinstance(self.backoff, Backoff))
        for name, allowed in _CHOICES.items():
            check(name, " or ".join(map(repr, allowed)), valid=getattr(self, name) in allowed)
        for name in ("strict", "await_start"):
            check(name, "True or False", valid=isinstance(getattr(self, name), bool))
        if self.strict and not self.await_start:
            raise ValueError(
                "Supervisor: strict=True and await_start=False contradict each other, because a start that is not "
                "awaited cannot fail; remove one of them"
            )
        if self.park_retry is not None and self.on_limit != "park":
            raise ValueError(
                f"Supervisor: park_retry has no effect with on_limit={self.on_limit!r}; use on_limit='park', or remove "
                "park_retry"
            )

    def check_budget(self, *, per_child: bool) -> None:
        """Raise a `ValueError` if the budget can never be spent, because the back-offs alone take longer.

        A shared budget can always be spent: several children may fail at the same time.
        """
        needed = self.backoff.total(self.max_restarts) if per_child else 0.0
        if self.max_restarts and needed >= self.window:
            raise ValueError(
                f"Supervisor: max_restarts={self.max_restarts} within window={self.window} can never be reached, "
                f"because the back-offs alone take {needed:g} s; widen the window or shorten the back-off"
            )


def _copied(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy, so that later changes of the mapping reach no incarnation."""
    return dict(given) if isinstance(given, Mapping) else given  # type: ignore[redundant-expr,unused-ignore]  # checked later


@explained
@frozen
class ChildSpec(Spec[M_contra]):
    """The configuration of a supervisor's child.

    Attributes:
        id: the child's name, unique in the supervisor.
        factory: called once per incarnation, in the task that then owns the actor; returns a new actor each time.
        args, kwargs: the arguments for the factory. A ``lambda`` in a loop would look up variables at each start, and
            give all children the arguments of the last.
        restart: ``"permanent"`` is always restarted, ``"transient"`` only after a crash, ``"temporary"`` never (and
            leaves the child table at the end).
        start_timeout: seconds that ``running()`` may take until the yield; None disables the limit. During that time a
            supervisor with ``start_order="sequential"`` (the default) does nothing else.
        significant: True if the child's end may end the supervisor (see `Supervisor`'s ``auto_shutdown``). Not for
            permanent children, which never end for good.
        shutdown: seconds from the request to stop until the child is killed; ``"brutal_kill"`` kills at once,
            ``"infinity"`` never. None, the default, means the actor's `~Actor.default_shutdown`: 5 seconds, and
            ``"infinity"`` for a supervisor.
        mailbox_size: the maximum number of queued messages.
        overflow: the behaviour of a full mailbox: ``"wait"`` applies back-pressure, ``"fail"`` raises `MailboxFull`,
            ``"drop_oldest"`` drops the message that has waited longest, counted by `ActorStatistics.dropped`; a dropped
            call raises `MailboxFull`.
    """

    id: str = field(converter=plain_name)
    factory: Callable[..., Actor[M_contra]]
    args: tuple[Any, ...] = field(default=(), kw_only=True)
    kwargs: Mapping[str, Any] = field(default={}, kw_only=True, hash=False, converter=_copied)
    restart: RestartType = field(default="permanent", kw_only=True)
    start_timeout: float | None = field(default=None, kw_only=True)
    shutdown: Shutdown | None = field(default=None, kw_only=True)
    significant: bool = field(default=False, kw_only=True)
    mailbox_size: int = field(default=256, kw_only=True)
    overflow: OverflowPolicy = field(default="wait", kw_only=True)

    def __attrs_post_init__(self) -> None:
        id: object = self.id
        if not is_name(id):
            raise ValueError(f"ChildSpec: id must be a non-empty str of one line, not {id!r}")
        child = f"child {self.id!r}"
        if not callable(self.factory):
            raise ValueError(
                f"{child}: factory must be a callable that makes a new actor for every start, not {self.factory!r}; "
                "give the class itself, or a lambda"
            )
        check_option(child, "args", self.args, "a tuple, as in (1,)", valid=isinstance(self.args, tuple))
        valid = isinstance(self.kwargs, dict) and all(isinstance(each, str) for each in self.kwargs)
        check_option(child, "kwargs", self.kwargs, "a dict with names as keys", valid=valid)
        known = get_args(RestartType)
        check_option(child, "restart", self.restart, f"one of {', '.join(known)}", valid=self.restart in known)
        valid = self.start_timeout is None or is_seconds(self.start_timeout)
        check_option(child, "start_timeout", self.start_timeout, "positive seconds or None", valid=valid)
        valid = self.shutdown in (None, "brutal_kill", "infinity") or is_seconds(self.shutdown)
        check_option(child, "shutdown", self.shutdown, "positive seconds, 'brutal_kill' or 'infinity'", valid=valid)
        check_option(child, "significant", self.significant, "True or False", valid=isinstance(self.significant, bool))
        check_mailbox(child, self.mailbox_size, self.overflow)
        if self.significant and self.restart == "permanent":
            raise ValueError(
                f"{child}: a permanent child cannot be significant, because it never ends for good; "
                "make it transient or temporary"
            )


# --- Decide about restarts --------------------------------------------------------------------------------------------


def affected(strategy: Strategy, ids: Iterable[str], failed: str) -> Sequence[str]:
    """Return the ids of the children restarted with a failed child, in child-table order.

    ``"one_for_one"`` does not read ``ids``, so the cost of a crash does not depend on the table.
    """
    if strategy == "one_for_one":
        return [failed]
    table = list(ids)
    return table if strategy == "one_for_all" else table[table.index(failed) :]


class Row(NamedTuple):
    """The data of a child for a decision.

    Attributes:
        up: True if the child is running or about to start.
        parked: True if the child has failed, and is not restarted with a group.
    """

    id: str
    restart: RestartType
    up: bool
    parked: bool = False


class Plan(NamedTuple):
    """The ids to stop after a failure, newest first, and the ids to start afterwards, oldest first."""

    stops: tuple[str, ...]
    starts: tuple[str, ...]


def plan_restart(group: Sequence[Row], failed: str) -> Plan:
    """Plan the restart of a group, in child-table order. The failed child has ended already.

    As in OTP, all members are started again, even after a normal end or an explicit stop. Temporary children are only
    stopped; parked children stay parked.
    """
    return Plan(
        stops=tuple(row.id for row in reversed(group) if row.up and row.id != failed),
        starts=tuple(row.id for row in group if row.restart != "temporary" and not row.parked),
    )


def shuts_down(auto_shutdown: AutoShutdown, others_idle: Iterable[bool]) -> bool:
    """Return True if a supervisor ends after the final end of a significant child.

    ``others_idle``: for each significant child left in the table, True if neither running nor about to start.
    """
    return auto_shutdown == "any_significant" or (auto_shutdown == "all_significant" and all(others_idle))


@define(eq=False)
class RestartBudget:
    """The restart attempts that a supervisor may still make, shared by all children by default.

    Attributes:
        max_restarts: attempts allowed within ``window``.
        window: seconds, both ends included; `math.inf` never forgets an attempt.
        per_child: True gives each child as many attempts.
    """

    max_restarts: int
    window: float
    per_child: bool = False
    _spent: deque[tuple[float, str]] = field(factory=deque, init=False)

    def spend(self, now: float, child: str) -> bool:
        """Take an attempt at ``now``. Return False, and do nothing, if none is left."""
        # From the left only: linear in the number of attempts.
        while self._spent and now - self._spent[0][0] > self.window:
            self._spent.popleft()
        spent = sum(each == child for _, each in self._spent) if self.per_child else len(self._spent)
        if spent >= self.max_restarts:
            return False
        self._spent.append((now, child))
        return True

    def spenders(self) -> set[str]:
        return {child for _, child in self._spent}

    def forget(self, children: Collection[str]) -> None:
        self._spent = deque(entry for entry in self._spent if entry[1] not in children)

    def renew(self, child: str) -> None:
        self.forget({child} if self.per_child else self.spenders())


def restarts_after(restart: RestartType, reason: EndReason) -> bool:
    if reason == "ignored" or restart == "temporary":
        return False
    return restart == "permanent" or reason == "crashed"


def check_specs(specs: tuple[ChildSpec, ...], auto_shutdown: AutoShutdown) -> None:
    """Raise a `ValueError` for an invalid child or a duplicate id."""
    seen: set[str] = set()
    for spec in specs:
        given: object = spec
        if not isinstance(given, ChildSpec):
            remedy = (
                "pass each one as an argument"
                if isinstance(given, (list, tuple))
                else "write ChildSpec('name', factory)"
            )
            raise ValueError(f"Supervisor: every child is a ChildSpec, not {given!r:.60}; {remedy}")
        if spec.id in seen:
            remedy = "rename one of them, or for several that are equal use a Pool"
            raise ValueError(f"Supervisor: two children have the id {spec.id!r}; {remedy}")
        seen.add(spec.id)
        if spec.significant and auto_shutdown == "never":
            raise ValueError(
                f"child {spec.id!r}: significant=True has no effect with auto_shutdown='never'; use 'any_significant' "
                "or 'all_significant'"
            )
