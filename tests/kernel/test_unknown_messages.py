"""A message that an actor has no case for is refused: it does not look as if it had been done."""

from __future__ import annotations

from collections.abc import Hashable, Sized
from typing import TYPE_CHECKING, Any, Generic, Optional, Protocol, TypeVar

import pytest
from attrs import frozen
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import Actor, ActorRef, Call, Event, Message, RequestFinished, Unhandled, open_actor

from ..messages import Said

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


@frozen
class Add(Call[int]):
    number: int


@frozen
class Reset(Call[None]):
    pass


@frozen
class Note(Message):
    pass


@frozen
class Total(Call[int]):
    pass


@frozen
class Clear(Call[None]):
    pass


@frozen
class Forget(Message):
    pass


class Counter(Actor):
    """Knows `Add`, `Reset` and `Note`."""

    def __init__(self) -> None:
        self.total = 0

    async def handle(self, message: Add | Reset | Note) -> Any:
        match message:
            case Add(number):
                self.total += number
                return self.total
            case Reset() | Note():
                self.total = 0
        return None


class Untyped(Counter):
    """Does not say what it knows."""

    async def handle(self, message: Any) -> Any:
        return await super().handle(message)


class ForCheckersOnly(Untyped):
    """Says it where only a type checker can read it."""

    async def handle(self, message: Add | Reset | Note | Decimal) -> Any:
        return await super().handle(message)


class Explicit(Untyped):
    """Refuses what it does not know."""

    async def handle(self, message: Any) -> Any:
        match message:
            case Add() | Reset() | Note():
                return await super().handle(message)
            case _:
                return await Actor.handle(self, message)


@pytest.mark.parametrize("message", [Total(), Clear()])
async def test_a_call_that_no_case_matches_is_refused(message: Call[Any]) -> None:
    """B-37: whatever its answer would be; the actor goes on."""
    async with open_actor(Counter(), name="counter") as ref:
        for _ in range(2):
            with pytest.raises(TypeError, match=rf"'counter'.*Counter\.handle\(\).*{type(message).__name__}.*add"):
                await ref.call(message)
        assert await ref.call(Add(1)) == 1
        await ref.call(Reset())
        assert await ref.call(Add(1)) == 1


@pytest.mark.parametrize("message", [Total(), Clear(), Forget()])
async def test_a_tell_that_no_case_matches_is_logged_and_an_event(
    message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    """B-37: as any failure without a caller."""
    events: list[Event] = []
    async with open_actor(Counter(), name="counter", observers=[events.append]) as ref:
        await ref.tell(message)
        await ref.tell(Note())
        await settle()
    (unhandled,) = [event for event in events if isinstance(event, Unhandled)]
    assert (unhandled.message, type(unhandled.error)) == (type(message).__name__, TypeError)
    assert "has no case for" in caplog.text
    finished = [event for event in events if isinstance(event, RequestFinished)]
    assert [type(event.error) for event in finished] == [TypeError, type(None)]


@pytest.mark.parametrize("actor", [Untyped, ForCheckersOnly])
async def test_without_a_declared_message_type_only_a_none_for_a_number_is_refused(
    actor: type[Counter],
) -> None:
    """B-37: all else is believed."""
    async with open_actor(actor(), name="counter") as ref:
        with pytest.raises(TypeError, match="Total"):
            await ref.call(Total())
        await ref.call(Clear())


async def test_an_actor_can_refuse_a_message_itself(said: Said) -> None:
    """B-37: as all others are refused."""
    async with open_actor(Explicit(), name="counter") as ref:
        await ref.call(Reset())
        for message in (Total(), Clear()):
            with pytest.raises(TypeError) as refused:
                await ref.call(message)
            said("no case for a message", str(refused.value), kind=type(message).__name__)


class Proto(Protocol):
    pass


class Nothing(Actor):
    async def handle(self: Nothing, message: Call[Any]) -> None:
        return None


@frozen
class Ask(Call[T], Generic[T]):
    pass


def asking(reply: Any) -> type[Call[Any]]:
    """A class of calls with this reply type."""

    class Asked(Call[reply]):
        pass

    return Asked


NONE = [None, Any, object, Optional[int], int | None, int | Any, Hashable, Proto, "int", T]  # noqa: UP045 - both forms
NEVER_NONE = [int, list[int], int | str, tuple[int, ...], Sized, Actor]


async def refuses(ref: ActorRef, message: Call[Any]) -> bool:
    try:
        assert await ref.call(message) is None
    except TypeError:
        return True
    return False


async def test_none_is_refused_where_the_reply_type_rules_it_out() -> None:
    """B-37: and believed where that cannot be checked."""
    async with open_actor(Nothing(), name="nothing") as ref:
        assert [reply for reply in NONE if await refuses(ref, asking(reply)())] == []
        assert [reply for reply in NEVER_NONE if not await refuses(ref, asking(reply)())] == []
        assert not await refuses(ref, Ask())
        ref.tell_nowait(Note())
