"""The options of a supervisor: their types, defaults and checks.

`Supervisor` and the functions that open one take them as ``**options``, which type checkers check by
`SupervisorOptions`. `shows_options` adds them, with their defaults, to the signature for `help` and the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, Literal, TypedDict, TypeVar, get_args

from attrs import field, fields, frozen

from ..._backoff import Backoff
from ..._checks import is_seconds, is_whole

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
    """Let the signature of a function have the options of a supervisor instead of its ``**options``."""
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


@frozen(kw_only=True)
class SupervisorPolicy:
    """The options of one supervisor, checked; see `Supervisor`."""

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
        """Raise a `ValueError` that names the invalid argument."""
        if not is_whole(self.max_restarts, 0):
            raise ValueError(f"Supervisor: max_restarts must be an int of at least 0, not {self.max_restarts!r}")
        if self.window != math.inf and not is_seconds(self.window):
            raise ValueError(f"Supervisor: window must be positive seconds or math.inf, not {self.window!r}")
        if self.reset_after is not None and not is_seconds(self.reset_after):
            raise ValueError(f"Supervisor: reset_after must be positive seconds or None, not {self.reset_after!r}")
        if not isinstance(self.backoff, Backoff):
            raise ValueError(f"Supervisor: backoff must be a Backoff, not {self.backoff!r}")
        _check_choice("strategy", self.strategy, get_args(Strategy))
        _check_choice("on_limit", self.on_limit, ("end", "park"))
        _check_choice("auto_shutdown", self.auto_shutdown, get_args(AutoShutdown))
        _check_choice("start_order", self.start_order, ("sequential", "parallel"))
        _check_choice("stop_order", self.stop_order, ("sequential", "concurrent"))
        _check_flag("strict", self.strict)
        _check_flag("await_start", self.await_start)
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
        needed = self.backoff.total(self.max_restarts)
        if self.max_restarts and needed >= self.window:
            raise ValueError(
                f"Supervisor: max_restarts={self.max_restarts} within window={self.window} can never be reached, "
                f"because the back-offs alone take {needed:g} s; widen the window or shorten the back-off"
            )


def _check_flag(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise ValueError(f"Supervisor: {name} must be True or False, not {given!r}")


def _check_choice(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ValueError(f"Supervisor: {name} must be {' or '.join(map(repr, allowed))}, not {given!r}")
