"""What a sender is told when there is nobody to serve its message."""

from __future__ import annotations

from .._errors import ActorStopped


def stopped(name: str, why: str = "it was stopped", *, handed_over: bool = False) -> ActorStopped:
    """A fresh refusal for a message to an actor that does not run, or that ended while it handled the message."""
    return ActorStopped(
        f"actor {name!r}: does not run and will not come back by itself ({why}); "
        "if a supervisor still has it in its table, restart_child starts it again",
        actor=name,
        handed_over=handed_over,
    )
