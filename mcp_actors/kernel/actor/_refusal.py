"""The errors of a message that nobody serves: its actor does not run, or lives in another Trio run."""

from __future__ import annotations

from ..._errors import ActorStopped


def stopped(name: str, why: str = "it was stopped", *, handed_over: bool = False) -> ActorStopped:
    """A fresh refusal for a message to an actor that does not run, or that ended while it handled the message."""
    return ActorStopped(
        f"actor {name!r}: does not run and will not come back by itself ({why}); "
        "if a supervisor still has it in its table, restart_child starts it again",
        actor=name,
        handed_over=handed_over,
    )


def elsewhere(name: str) -> RuntimeError:
    """Return the error of a message from outside the actor's Trio run, which could corrupt both sides."""
    return RuntimeError(
        f"actor {name!r}: used outside the Trio run that it lives in; in a thread call "
        "trio.from_thread.run(ref.call, message) or trio.from_thread.run_sync(ref.tell_nowait, message) (with "
        "trio_token=... if Trio did not start the thread), in an asyncio program open it with mcp_actors.bridge"
    )
