"""How an incarnation has ended."""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from ..._errors import ActorError

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
