"""A call whose answer is awaited later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import outcome


T_co = TypeVar("T_co", covariant=True)


class PendingCall(Protocol[T_co]):
    """A message that was sent with `ActorRef.send_request`; its sender waits for the answer."""

    @property
    def handed_over(self) -> bool:
        """True while the actor handles the message; False while it waits in the mailbox, and once it was handled."""

    @property
    def actor(self) -> str:
        """The name of the actor that has the message, or has handled it: of a pool, the member that has taken it."""

    async def wait(self) -> T_co:
        """Wait for the answer, as `ActorRef.call` does. Exactly one task may, once; else it is a `RuntimeError`.

        **Cancellation**: as for `ActorRef.call`.
        """

    def on_answer(self, fn: Callable[[outcome.Value[Any] | outcome.Error], object]) -> None:
        """Call a function with the answer, in the step in which it is given, instead of waiting for it.

        For callers outside any Trio task. The function must not raise: what it raises is only logged. It is called at
        once if there is an answer.
        """

    def withdraw(self) -> None:
        """Leave without the answer, like a task that is cancelled while it waits. The function is not called then."""

    def expire(self, exc: BaseException) -> bool:
        """Answer in the actor's place: the waiting caller gets this exception at once.

        If the message is still queued it is not served; if it was handed over its handler is cancelled. Any task may
        call this, in any state. Return False, and do nothing, if there is an answer or the caller has left.
        """
