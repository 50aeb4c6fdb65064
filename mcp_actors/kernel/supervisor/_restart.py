"""Child specs, and decisions about restarts as pure functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, get_args

from attrs import define, field, frozen

from ..._checks import is_seconds
from ..._foreign import plain_name
from ..actor import Shutdown
from ..mailbox import MAILBOX_SIZE, M_contra, OverflowPolicy, check_mailbox
from ..ref import RestartType, Spec
from ._options import AutoShutdown, Strategy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..actor import Actor
    from ..ref import EndReason


@frozen
class ChildSpec(Spec[M_contra]):
    """A child, as its supervisor is configured to run it.

    Attributes:
        id: its name, unique in its supervisor.
        factory: called once per incarnation, in the task that then owns the actor; returns a new actor each time.
        restart: ``"permanent"`` is always restarted, ``"transient"`` only after a crash, ``"temporary"`` never (and it
            leaves the child table when it ends).
        start_timeout: seconds that ``running()`` may take until its yield; None disables the limit. During that time a
            supervisor with ``start_order="sequential"`` (the default) does nothing else.
        significant: True if its end may end its supervisor (see `Supervisor`'s ``auto_shutdown``). Not for permanent
            children, which never end for good.
        shutdown: seconds from the request to stop until it is killed; ``"brutal_kill"`` kills it at once,
            ``"infinity"`` never. None, the default, means the actor's `~Actor.default_shutdown`: 5 seconds, and
            ``"infinity"`` for a supervisor.
        mailbox_size: the maximum number of queued messages.
        overflow: the behaviour of a full mailbox: ``"wait"`` applies back-pressure, ``"fail"`` raises `MailboxFull`.
    """

    id: str = field(converter=plain_name)
    factory: Callable[[], Actor[M_contra]]
    restart: RestartType = field(default="permanent", kw_only=True)
    start_timeout: float | None = field(default=None, kw_only=True)
    shutdown: Shutdown | None = field(default=None, kw_only=True)
    significant: bool = field(default=False, kw_only=True)
    mailbox_size: int = field(default=MAILBOX_SIZE, kw_only=True)
    overflow: OverflowPolicy = field(default="wait", kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Raise a `ValueError` that names the invalid argument."""
        id: object = self.id
        if not isinstance(id, str) or not id:
            raise ValueError(f"ChildSpec: id must be a non-empty str, not {id!r}")
        child = f"child {self.id!r}"
        if not callable(self.factory):
            raise ValueError(
                f"{child}: factory must be a callable that makes a new actor for every start, not {self.factory!r}; "
                "give the class itself, or a lambda"
            )
        if self.restart not in get_args(RestartType):
            known = ", ".join(get_args(RestartType))
            raise ValueError(f"{child}: restart must be one of {known}, not {self.restart!r}")
        if self.start_timeout is not None and not is_seconds(self.start_timeout):
            raise ValueError(f"{child}: start_timeout must be positive seconds or None, not {self.start_timeout!r}")
        if self.shutdown not in (None, "brutal_kill", "infinity") and not is_seconds(self.shutdown):
            raise ValueError(
                f"{child}: shutdown must be positive seconds, 'brutal_kill' or 'infinity', not {self.shutdown!r}"
            )
        if not isinstance(self.significant, bool):
            raise ValueError(f"{child}: significant must be True or False, not {self.significant!r}")
        check_mailbox(child, self.mailbox_size, self.overflow)
        if self.significant and self.restart == "permanent":
            raise ValueError(
                f"{child}: a permanent child cannot be significant, because it never ends for good; "
                "make it transient or temporary"
            )


def affected(strategy: Strategy, ids: Iterable[str], failed: str) -> Sequence[str]:
    """Return the ids of the children that are restarted with a failed one, in child-table order.

    Args:
        strategy: the strategy of the supervisor.
        ids: the child table. Not read for ``"one_for_one"``, so the cost of a crash does not depend on its size.
        failed: the id of the failed child.
    """
    if strategy == "one_for_one":
        return [failed]
    table = list(ids)
    return table if strategy == "one_for_all" else table[table.index(failed) :]


class Row(NamedTuple):
    """The data of one child that a decision needs.

    Attributes:
        id: its id.
        restart: its restart type.
        up: True if it is running or about to start.
        parked: True if only ``restart_child`` starts it again.
    """

    id: str
    restart: RestartType
    up: bool
    parked: bool = False


class Plan(NamedTuple):
    """The stops and starts after a failure.

    Attributes:
        stops: the ids to stop, newest first.
        starts: the ids to start after that, oldest first.
    """

    stops: tuple[str, ...]
    starts: tuple[str, ...]


def plan_restart(group: Sequence[Row], failed: str) -> Plan:
    """Plan the restart of a group.

    As in OTP, all members are started again, even if they had ended normally or were stopped explicitly. Temporary
    children are only stopped.

    Args:
        group: the failed child and the children restarted with it, in child-table order.
        failed: the id of the failed child, which has ended already.
    """
    return Plan(
        stops=tuple(row.id for row in reversed(group) if row.up and row.id != failed),
        starts=tuple(row.id for row in group if row.restart != "temporary" and not row.parked),
    )


def shuts_down(auto_shutdown: AutoShutdown, others_idle: Iterable[bool]) -> bool:
    """Return True if a supervisor ends after the final end of a significant child.

    Args:
        auto_shutdown: the setting of the supervisor.
        others_idle: for each significant child left in the table, True if it is not running or about to start.
    """
    return auto_shutdown == "any_significant" or (auto_shutdown == "all_significant" and all(others_idle))


@define(eq=False)
class RestartBudget:
    """The restart attempts that a supervisor may still make, shared by all its children. It reads no clock.

    Attributes:
        max_restarts: attempts allowed within ``window``.
        window: seconds, both ends included; `math.inf` never forgets an attempt.
        per_child: True if each child may make so many.
    """

    max_restarts: int
    window: float
    per_child: bool = False
    _spent: deque[tuple[float, str]] = field(factory=deque, init=False)

    def spend(self, now: float, child: str) -> bool:
        """Take one attempt at ``now``. Return False, and do nothing, if none is left."""
        # From the left only: linear in the number of attempts, however many there are in a window.
        while self._spent and now - self._spent[0][0] > self.window:
            self._spent.popleft()
        spent = sum(each == child for _, each in self._spent) if self.per_child else len(self._spent)
        if spent >= self.max_restarts:
            return False
        self._spent.append((now, child))
        return True

    def spenders(self) -> set[str]:
        """Return the ids of the children whose attempts count."""
        return {child for _, child in self._spent}

    def forget(self, children: Collection[str]) -> None:
        """Forget the attempts of these children."""
        self._spent = deque(entry for entry in self._spent if entry[1] not in children)

    def renew(self, child: str) -> None:
        """Forget all attempts that count for a child."""
        self.forget({child} if self.per_child else self.spenders())


def restarts_after(restart: RestartType, reason: EndReason) -> bool:
    """Return True if a child of this restart type is restarted after an end for this reason."""
    if reason == "ignored" or restart == "temporary":
        return False
    return restart == "permanent" or reason == "crashed"


def check_specs(specs: tuple[ChildSpec, ...], auto_shutdown: AutoShutdown) -> None:
    """Raise a `ValueError` for an invalid child: not a `ChildSpec`, a duplicate id, or a wrong option."""
    seen: set[str] = set()
    for spec in specs:
        if not isinstance(spec, ChildSpec):  # type: ignore[redundant-expr,unused-ignore]  # users may get it wrong
            raise ValueError(f"Supervisor: every child is a ChildSpec, not {spec!r}; write ChildSpec('name', factory)")
        if spec.id in seen:
            raise ValueError(f"Supervisor: two children have the id {spec.id!r}; ids are unique in a supervisor")
        seen.add(spec.id)
        if spec.significant and auto_shutdown == "never":
            raise ValueError(
                f"child {spec.id!r}: significant=True has no effect with auto_shutdown='never'; use 'any_significant' "
                "or 'all_significant'"
            )
