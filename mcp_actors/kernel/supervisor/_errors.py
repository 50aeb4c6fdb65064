"""What a supervisor says when a change of its child table cannot be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._collapse import caused_by
from ..._errors import ActorError, ActorStartError, ChildError
from .._circles import explain
from ..actor import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._errors import ChildProblem
    from ..actor import End
    from ._table import Child


def change_refused(supervisor: str, child: str, reason: ChildProblem) -> ChildError:
    """The error for a change that does not fit the child table."""
    remedies: dict[ChildProblem, str] = {
        "not_found": "there is no such child; which_children lists those there are",
        "already_present": "there is a child of that id that does not run; use restart_child, or delete_child first",
        "already_started": "a child of that id runs already; choose another id",
        "running": "it runs; stop_child first",
        "restarting": "it is about to be restarted; stop_child ends that",
    }
    return ChildError(
        f"supervisor {supervisor!r}: child {child!r}: {remedies[reason]}",
        actor=supervisor,
        reason=reason,
    )


def start_failed(supervisor: str, child: Child, end: End) -> ActorStartError:
    """The error of a strict start: it names the child and carries the cause."""
    what = f"supervisor {supervisor!r}: child {child.spec.id!r} did not start: {told(end.error)}"
    return caused_by(ActorStartError(what, actor=child.spec.id), end.error)


def start_cut_short(supervisor: str, child: Child) -> ActorStartError:
    """The error for whoever waits for a start that was ended by a stop."""
    return ActorStartError(
        f"supervisor {supervisor!r}: child {child.spec.id!r} was stopped while it was starting; if it is still in the "
        "table, restart_child starts it",
        actor=child.spec.id,
    )


def change_deadlocks(supervisor: str, circle: Sequence[str]) -> ActorError:
    """Return the error of a change for which the supervisor would wait for the caller."""
    return ActorError(
        f"supervisor {supervisor!r}: this change would deadlock ({explain(circle)}, and the supervisor waits for that "
        "before it makes another change); ask for it later, from handle() or from a task that running() has started, "
        "or use start_order='parallel'",
        actor=supervisor,
    )


def stopping_itself(supervisor: str, child: str) -> ActorError:
    """Return the error of a child that asks its supervisor to stop it, and would wait for its own end."""
    return ActorError(
        f"supervisor {supervisor!r}: child {child!r} asks to be stopped from within, and would wait for its own end; "
        "call self.stop() instead",
        actor=supervisor,
    )
