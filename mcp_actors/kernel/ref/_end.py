"""The end of an incarnation, and the errors that report it."""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from ..._collapse import caused_by, flattened, is_a, is_exit
from ..._errors import ActorCrashed, ActorError, ActorStartError, ActorStopped, McpActorsError, RestartLimitReached
from ..._foreign import shown, words_of
from ..._plain_text import plain_text

SUMMARY: Final = 200
"""Characters of the summary of a failure: two lines of a terminal."""

EndReason = Literal["normal", "shutdown", "crashed", "ignored"]


@frozen
class End:
    """The end of an incarnation.

    Attributes:
        reason: ``"normal"`` (by the actor itself), ``"shutdown"`` (requested, or by the actor itself, or cancelled
            while starting), ``"crashed"``, ``"ignored"`` (there was nothing to run).
        error: the failure: for ``"crashed"``, once it is known; for ``"shutdown"``, if a supervisor gave up.
        hopeless: True if the actor's `is_hopeless` says that a restart cannot help.
        keeps_mailbox: True if messages wait for a later ``restart_child``.
    """

    reason: EndReason
    error: BaseException | None = field(default=None, eq=False)
    hopeless: bool = False
    keeps_mailbox: bool = False

    @property
    def crashed(self) -> bool:
        """True if the reason is ``"crashed"``."""
        return self.reason == "crashed"


def failure_text(failure: BaseException | None) -> str:
    """Return the text of a failure, for the error that it causes.

    The text of an error of this package names its actor and is used as it is. A `repr` of it would be escaped again at
    every level of a tree, and so double its length each time.
    """
    if is_a(failure, ActorError):
        return words_of(failure)
    return shown(failure if failure is None else flattened(failure))


def failure_summary(failure: BaseException) -> str:
    """Return the text of a failure as one short line, to be kept."""
    text = words_of(failure) if is_a(failure, McpActorsError) else shown(flattened(failure))
    return plain_text(text, limit=SUMMARY)


CUT_SHORT: Final = End("shutdown")
"""The outcome of a start attempt that was interrupted by a stop; the caller of that stop does the rest."""


def stopped(name: str, why: str = "it was stopped", *, handed_over: bool = False) -> ActorStopped:
    """Return a new error for a message to an actor that has stopped, before or while it handled the message."""
    return ActorStopped(
        f"actor {name!r}: has stopped and will not restart by itself ({why}); "
        "call restart_child if its supervisor still lists it",
        actor=name,
        handed_over=handed_over,
    )


def interrupted(end: End, name: str, number: int, message: str, *, comes_back: bool) -> ActorError:
    """Return a new error for a caller whose message was being handled when the end was decided.

    Args:
        end: the end, as far as it is known yet.
        name: the actor's.
        number: the number of the incarnation that ends.
        message: the class of the message.
        comes_back: whether another incarnation follows.
    """
    if not end.crashed and not comes_back:
        return stopped(name, f"it ended ({end.reason}) while it handled {message}", handed_over=True)
    what = (
        f"actor {name!r}: incarnation {number} ended ({end.reason}) while it handled {message}, whose effect is "
        "unknown; send it again only if repeating it is safe"
    )
    return caused_by(ActorCrashed(what, actor=name), end.error)


def not_started(end: End, name: str) -> BaseException:
    """Return the error for the block that opens an actor which has not started."""
    if is_a(end.error, ActorStartError):
        return end.error
    if end.error is not None:
        why = words_of(end.error)
    elif end.reason == "ignored":
        why = "it has nothing to run"
    else:
        why = f"it ended itself ({end.reason}) before it had started"
    what = f"actor {name!r}: did not start: {why}"
    return caused_by(ActorStartError(what, actor=name), end.error)


def failure_of(end: End, name: str) -> BaseException | None:
    """Return the error for the block that has opened an actor; None if its end is not a failure."""
    if end.error is None or is_a(end.error, RestartLimitReached) or is_exit(end.error):
        return end.error
    what = f"actor {name!r}: crashed: {failure_text(end.error)}; to have it restarted, run it in open_supervisor()"
    return caused_by(ActorCrashed(what, actor=name), end.error)
