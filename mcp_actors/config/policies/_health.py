"""The policy of health checks: how soon a silent server is detected."""

from __future__ import annotations

from typing import Any, Final

import attrs

from ..._misuse import explained
from .. import _validators as check

_RUNGS: Final = ("warn_after", "unhealthy_after", "restart_after", "fail_after")


def _check_rung(instance: HealthPolicy, attribute: attrs.Attribute[Any], value: int) -> None:
    """Validate that a rung is a count and not below the one before it."""
    check.at_least_one(instance, attribute, value)
    before = _RUNGS[_RUNGS.index(attribute.name) - 1] if attribute.name != _RUNGS[0] else None
    if before is not None and value < getattr(instance, before):
        remedy = f"give at least {before}, which is {getattr(instance, before)}"
        raise check.refused_value(instance, attribute.name, value, remedy)


@explained
@attrs.frozen(kw_only=True)
class HealthPolicy:
    """How a connected server is checked, and what consecutive failures lead to.

    A check is a request that every server answers: ``ping``, or ``server/discover`` since 2026-07-28. It fails without
    an answer within `timeout`, and the next one then follows at once. A request that times out without a byte from the
    server counts as a failure too, and a check follows at once. Any answer resets the count.

    A server that executes one request at a time looks frozen meanwhile. So a server that is only silent becomes
    ``unhealthy``, but is restarted only after `silence`, and not while a request that was sent before it fell silent is
    within its own deadline. A stopped process (SIGSTOP) is restarted without these conditions.

    Args:
        interval: seconds between checks while they succeed; None disables checks. Default 60.
        timeout: seconds to wait for the answer to a check. Default 5.
        warn_after: consecutive failures after which the server is ``degraded``, with a warning. Default 2.
        unhealthy_after: consecutive failures after which it is ``unhealthy``, and no longer in ``active``. Default 3.
        restart_after: consecutive failures after which it is restarted. Default 5.
        fail_after: consecutive failures after which it is parked as ``failed``. A restart does not reset the count.
            Default 10.
        silence: seconds without a byte from the server after which a silent server may be restarted. None disables
            restarts for silence. Default 300.

    Raises:
        ConfigError: a value is out of its range, or a later step comes before an earlier one.
    """

    interval: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))
    timeout: float = attrs.field(default=5.0, validator=check.seconds())
    warn_after: int = attrs.field(default=2, validator=_check_rung)
    unhealthy_after: int = attrs.field(default=3, validator=_check_rung)
    restart_after: int = attrs.field(default=5, validator=_check_rung)
    fail_after: int = attrs.field(default=10, validator=_check_rung)
    silence: float | None = attrs.field(default=300.0, validator=check.seconds(optional=True))
