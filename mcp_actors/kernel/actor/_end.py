"""How an incarnation has ended, and the errors that say so to a caller, to an opener and to a supervisor."""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from ..._collapse import EXITS, caused_by
from ..._errors import ActorCrashed, ActorError, ActorStartError, ActorStopped, RestartLimitReached

EndReason = Literal["normal", "shutdown", "crashed", "ignored"]


@frozen
class End:
    """How an incarnation ended.

    Attributes:
        reason: ``"normal"`` (its own wish), ``"shutdown"`` (asked to, or its own wish, or cancelled while it was
            starting), ``"crashed"``, ``"ignored"`` (it had nothing to run).
        error: the failure behind it: of ``"crashed"``, once it is known; of ``"shutdown"``, if a supervisor gave up.
        hopeless: True if the actor said that a restart cannot help.
        keeps_mailbox: True if what is sent is to wait for somebody who starts it after all.
    """

    reason: EndReason
    error: BaseException | None = field(default=None, eq=False)
    hopeless: bool = False
    keeps_mailbox: bool = False

    @property
    def crashed(self) -> bool:
        """True if the reason is ``"crashed"``."""
        return self.reason == "crashed"


def told(failure: BaseException | None) -> str:
    """Return the text of a failure for the error that it causes.

    The text of an error of this package names its actor and is used as it is. A `repr` of it would be escaped again at
    every level of a tree, and so double its length each time.
    """
    return str(failure) if isinstance(failure, ActorError) else repr(failure)


CUT_SHORT: Final = End("shutdown")
"""The end, for who waits for the start, of an incarnation that somebody else has asked to stop."""


def stopped(name: str, why: str = "it was stopped", *, handed_over: bool = False) -> ActorStopped:
    """A fresh refusal for a message to an actor that does not run, or that ended while it handled the message."""
    return ActorStopped(
        f"actor {name!r}: does not run and will not come back by itself ({why}); "
        "if a supervisor still has it in its table, restart_child starts it again",
        actor=name,
        handed_over=handed_over,
    )


def interrupted(end: End, name: str, number: int, message: str, *, comes_back: bool) -> ActorError:
    """Return a fresh error for a caller whose message was being handled when the end was decided.

    Args:
        end: the end, as far as it is known.
        name: the actor's.
        number: which incarnation ends.
        message: the class of the message.
        comes_back: whether another incarnation follows.
    """
    if not end.crashed and not comes_back:
        return stopped(name, f"it ended ({end.reason}) while it handled {message}", handed_over=True)
    what = (
        f"actor {name!r}: incarnation {number} ended ({end.reason}) while it handled {message}, which may have had its "
        "effect; send it again only if that does no harm"
    )
    return caused_by(ActorCrashed(what, actor=name), end.error)


def not_started(end: End, name: str) -> BaseException:
    """Return the error of the block that opens an actor which has not started."""
    if isinstance(end.error, ActorStartError):
        return end.error
    if end.error is not None:
        why = str(end.error)
    elif end.reason == "ignored":
        why = "it has nothing to run"
    else:
        why = f"it ended itself ({end.reason}) before it had started"
    what = f"actor {name!r}: did not start: {why}"
    return caused_by(ActorStartError(what, actor=name), end.error)


def failure_of(end: End, name: str) -> BaseException | None:
    """Return the error of the block that has opened an actor, if its end is a failure."""
    if end.error is None or isinstance(end.error, (RestartLimitReached, *EXITS)):
        return end.error
    what = f"actor {name!r}: crashed: {told(end.error)}; it is not supervised, so it stays down"
    return caused_by(ActorCrashed(what, actor=name), end.error)
