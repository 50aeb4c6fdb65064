"""Errors of changes to the child table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._collapse import caused_by
from ..._errors import ActorError, ActorStartError, ChildError
from .._circles import explain
from ..ref import failure_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._errors import ChildProblem
    from ..ref import End
    from ._table import Child


def change_refused(supervisor: str, child: str, reason: ChildProblem) -> ChildError:
    """Return the error for a change that does not fit the child table."""
    remedies: dict[ChildProblem, str] = {
        "not_found": "not found; list the children with which_children()",
        "already_present": "already exists and is not running; call restart_child(), or delete_child() first",
        "already_started": "already exists and is running; choose another id",
        "running": "is running; call stop_child() first",
        "restarting": "is about to be restarted; call stop_child() to prevent that",
    }
    return ChildError(
        f"supervisor {supervisor!r}: child {child!r} {remedies[reason]}",
        actor=supervisor,
        reason=reason,
    )


def start_failed(supervisor: str, child: Child, end: End) -> ActorStartError:
    """Return the error of a strict start, with the child and the cause."""
    what = f"supervisor {supervisor!r}: child {child.spec.id!r} did not start: {failure_text(end.error)}"
    return caused_by(ActorStartError(what, actor=child.spec.id), end.error)


def start_cut_short(supervisor: str, child: Child) -> ActorStartError:
    """Return the error for the caller of a start that was interrupted by a stop."""
    return ActorStartError(
        f"supervisor {supervisor!r}: child {child.spec.id!r} was stopped while starting; call restart_child() if "
        "it is still in the table",
        actor=child.spec.id,
    )


def change_deadlocks(supervisor: str, circle: Sequence[str]) -> ActorError:
    """Return the error of a change that would make the supervisor wait for its caller."""
    return ActorError(
        f"supervisor {supervisor!r}: this change would deadlock ({explain(circle)}, and the supervisor waits for that "
        "before it makes another change); request it later, from handle() or from a task that running() has started, "
        "or use start_order='parallel'",
        actor=supervisor,
    )


def wait_deadlocks(supervisor: str, child: str, circle: Sequence[str]) -> ActorError:
    """Return the error of a stop whose caller would wait for an end that waits for that caller."""
    return ActorError(
        f"supervisor {supervisor!r}: waiting for the end of child {child!r} would deadlock ({explain(circle)}); the "
        "child was asked to stop, so continue without waiting for it",
        actor=supervisor,
    )


def stopping_itself(supervisor: str, child: str) -> ActorError:
    """Return the error of a child that asks its supervisor to stop it, and would wait for its own end."""
    return ActorError(
        f"supervisor {supervisor!r}: child {child!r} called stop_child() on itself, which would deadlock; call "
        "self.stop() instead",
        actor=supervisor,
    )
