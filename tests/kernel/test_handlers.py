"""Handlers by the class of the message: inherited, overridden, checked; and messages that have none."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Event,
    Later,
    Message,
    Unhandled,
    handles,
    open_actor,
    open_supervisor,
)

from ..messages import Said

if TYPE_CHECKING:
    pass

T = TypeVar("T")


@frozen
class Add(Call[int]):
    number: int


@frozen
class AddTwice(Add):
    pass


@frozen
class Reset(Message):
    pass


@frozen
class Name(Call[str | None]):
    pass


@frozen
class Total(Call[int]):
    pass


class Counter(Actor):
    def __init__(self) -> None:
        self.total = 0
        self.laters: list[Later[int]] = []

    @handles(Add)
    async def add(self, message: Add) -> int:
        self.total += message.number
        return self.total

    @handles(Reset)
    async def reset(self, message: Reset) -> None:
        self.total = 0

    @handles(Name)
    async def name(self, message: Name) -> None:
        pass


class Doubling(Counter):
    """Has a handler for a subclass, and overrides one by name."""

    @handles(AddTwice)
    async def add_twice(self, message: AddTwice) -> int:
        return await self.add(message) + await self.add(message)

    async def reset(self, message: Reset) -> None:
        self.total = -1


class Slow(Counter):
    """Overrides a handler by its message, answers later, and reuses a name."""

    @handles(Add)
    async def add_later(self, message: Add) -> int | Later[int]:
        later = self.defer(message)
        self.laters.append(later)
        return later

    @handles(Total)
    async def name(self, message: Total) -> int:  # type: ignore[override]  # so `Name` has no handler any more
        return self.total


class Mixin:
    @handles(Total)
    async def get_total(self, message: Total) -> int:
        return 100


class Mixed(Mixin, Counter):
    pass


async def test_each_message_goes_to_the_handler_of_its_class() -> None:
    """Or of the nearest base class."""
    async with open_actor(Counter(), name="counter") as ref:
        assert await ref.call(Add(2)) == 2
        assert await ref.call(AddTwice(3)) == 5
        await ref.tell(Reset())
        assert await ref.call(Name()) is None
        assert await ref.call(Add(1)) == 1


async def test_subclasses_inherit_and_override_handlers() -> None:
    async with open_actor(Doubling(), name="doubling") as ref:
        assert await ref.call(AddTwice(3)) == 3 + 6
        await ref.tell(Reset())
        assert await ref.call(Add(1)) == 0
    async with open_actor(Mixed(), name="mixed") as ref:
        assert await ref.call(Total()) == 100
        assert await ref.call(Add(1)) == 1


async def test_a_handler_replaced_by_name_or_message_is_gone() -> None:
    slow = Slow()
    async with open_actor(slow, name="slow") as ref:
        pending = ref.send_request(Add(1))
        await settle()
        slow.laters[0].reply(9)
        assert await pending.wait() == 9
        assert await ref.call(Total()) == 0
        with pytest.raises(TypeError, match="no handler for Name"):
            await ref.call(Name())


async def test_a_message_without_a_handler_is_refused_where_it_is_sent(said: Said) -> None:
    """B-37: in the sender's step; nothing is queued, and no failure is an event."""
    events: list[Event] = []
    async with open_actor(Counter(), name="counter", observers=[events.append]) as ref:
        for send in (ref.call, ref.tell):
            with pytest.raises(TypeError) as caught:
                await send(Total())
            said("no handler for a message", str(caught.value))
        for step in (ref.send_request, ref.tell_nowait):
            with pytest.raises(TypeError):
                step(Total())
        assert ref.statistics().queued == 0
    assert not [event for event in events if isinstance(event, Unhandled)]


async def test_a_message_that_was_sent_before_the_class_was_known_is_refused_when_it_is_taken() -> None:
    """B-37: before the first start. From then on it is known, also while the actor starts."""
    ready = trio.Event()
    events: list[Event] = []

    class Late(Counter):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            await ready.wait()
            yield

    def late() -> Late:
        supervisor.child("late").tell_nowait(Total())
        return Late()

    async with (
        open_supervisor(start_order="parallel", observers=[events.append]) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.start_child, ChildSpec("late", late))
        await settle()
        with pytest.raises(TypeError):
            supervisor.child("late").tell_nowait(Total())
        ready.set()
        await settle()
    (unhandled,) = [event for event in events if isinstance(event, Unhandled)]
    assert "no handler for Total" in str(unhandled.error)


async def test_a_timer_and_a_monitor_need_a_handler_too() -> None:
    """B-37: refused where they are set, and not by a crash when they are due."""
    counter = Counter()
    async with open_actor(counter, name="counter"), open_actor(Counter(), name="other") as other:
        for use in (partial(counter.after, 1), partial(counter.every, 1)):
            with pytest.raises(TypeError, match="no handler for Total"):
                use(Total())
        with pytest.raises(TypeError, match="no handler for Down"):
            counter.watch(other)
        counter.after(0, Add(5))
        await settle()
        assert counter.total == 5


class Taking(Counter):
    def take(self, later: Later[Any]) -> bool:
        return later.reply(7) if isinstance(later.message, Total) else super().take(later)


class Own(Counter):
    async def handle(self, message: Any) -> Any:
        return 3 if isinstance(message, Total) else await super().handle(message)


@pytest.mark.parametrize(("actor", "answer"), [(Taking, 7), (Own, 3)])
async def test_a_class_that_decides_by_itself_is_not_checked_at_the_send(actor: type[Counter], answer: int) -> None:
    """B-37: its other messages are refused when they are taken."""

    @frozen
    class Other(Call[int]):
        pass

    async with open_actor(actor(), name="actor") as ref:
        assert await ref.call(Total()) == answer
        assert await ref.call(Add(2)) == 2
        pending = ref.send_request(Other())
        with pytest.raises(TypeError, match="no handler for Other"):
            await pending.wait()


async def test_none_is_an_answer_of_a_handler_that_has_no_annotations() -> None:
    """A handler is known to have handled its message, so a result of None is not doubted."""

    class Untyped(Actor):
        @handles(Total)
        async def total(self, message):  # type: ignore[no-untyped-def]  # that is the test
            return None

    async with open_actor(Untyped(), name="untyped") as ref:
        assert await ref.call(Total()) is None


async def test_an_actor_without_any_handler_refuses_all_messages() -> None:
    async with open_actor(Actor(), name="nothing") as ref:
        with pytest.raises(TypeError, match="Actor has no handler for Reset"):
            await ref.tell(Reset())


# --- checks when a class is made -------------------------------------------------------------------------------------


def make(kind: Any, fn: Any) -> type:
    """Make a class with this handler for this message."""
    return type("Made", (Actor,), {"method": handles(kind)(fn)})


async def _any(self: Any, message: Any) -> Any: ...


def returning(answer: Any, parameter: Any = Any) -> Any:
    async def method(self: Any, message: Any) -> Any: ...

    method.__annotations__ = {"message": parameter, "return": answer}
    return method


def test_a_handler_is_a_function_that_returns(said: Said) -> None:
    """C-38: async or not."""

    def values(self: Any, message: Add) -> Any:
        yield 1

    async def async_values(self: Any, message: Add) -> Any:
        yield 1

    def without_the_message(self: Any) -> int:
        return 1

    for wrong in (values, async_values, staticmethod(values)):
        with pytest.raises(TypeError) as caught:
            make(Add, wrong)
        said("handler that yields", str(caught.value))
    with pytest.raises(TypeError) as caught:
        make(Add, without_the_message)
    said("handler without the message", str(caught.value))
    with pytest.raises(TypeError, match=r"Yielding\.reset\(\)"):

        class Yielding(Counter):
            def reset(self, message: Reset) -> Any:  # that is the test
                yield


def test_a_message_has_one_handler_in_a_class(said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        type("Twice", (Actor,), {"one": handles(Add)(returning(int)), "two": handles(Add)(returning(int))})
    said("two handlers for a message", str(caught.value))


def test_a_method_handles_one_class_of_messages(said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        handles(Add)(handles(Total)(_any))
    said("a handler for two messages", str(caught.value).replace(_any.__qualname__, "method"))


@pytest.mark.parametrize("message", [int, Add(1), "Add", None])
def test_handles_takes_a_class_of_messages(message: Any, said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        handles(message)
    said("@handles without a message", str(caught.value), given=repr(message))


def test_handles_takes_one_class(said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        handles(Add | Total)  # type: ignore[arg-type]  # the mistake under test
    said("@handles of two classes", str(caught.value), given=repr(Add | Total))


@pytest.mark.parametrize(
    ("hook", "row"),
    [
        ("take", "async take"),
        ("ending", "async ending"),
        ("is_fatal", "async is_fatal"),
        ("is_hopeless", "async is_hopeless"),
    ],
)
def test_a_method_that_nothing_awaits_is_not_async(hook: str, row: str, said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        type("Made", (Actor,), {hook: returning(int)})
    said(row, str(caught.value))


def test_handles_without_its_message_shows_how_it_is_written(said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        handles(_any)  # type: ignore[call-overload]  # the mistake
    said("@handles without parentheses", str(caught.value))


async def test_annotations_of_a_handler_are_left_to_type_checkers() -> None:
    """They refuse it, see `typed_handlers`; at run time, it gets each message of the class that ``@handles`` names."""
    for answer, parameter in ((str, Add), (int, Total | Reset), (int, AddTwice), ("Unknown", "Unknown")):
        async with open_actor(make(Add, returning(answer, parameter))(), name="made") as ref:
            assert await ref.call(Add(1)) is None


async def test_a_generic_message_has_a_handler() -> None:
    @frozen
    class Echo(Call[T], Generic[T]):
        value: T

    class Echoing(Actor):
        @handles(Echo)
        async def echo(self, message: Echo[T]) -> T:
            return message.value

    async with open_actor(Echoing(), name="echoing") as ref:
        assert await ref.call(Echo("x")) == "x"


# --- messages that a class declares ----------------------------------------------------------------------------------

M = TypeVar("M", bound=Message)


class Counting(Actor[M]):
    """Leaves its messages open."""

    @handles(Add)
    def add(self, message: Add) -> int:
        return message.number


class Exact(Counting[Add | AddTwice | Reset]):
    @handles(Reset)
    def reset(self, message: Reset) -> None:
        pass


class Wider(Counting[Message]):
    @handles(Message)
    def anything(self, message: Message) -> None:
        pass


class Pair(Actor[M], Generic[T, M]):
    pass


class Halved(Pair[int, Add]):
    add = Counter.add


class Nothing(Actor[Never]):
    pass


def declared(*bases: Any, **handlers: Any) -> type:
    """Make a class of these bases, with a handler for each message."""
    methods = {name.lower(): handles(kind)(returning(Any)) for name, kind in handlers.items()}
    return types.new_class("Made", bases, exec_body=lambda namespace: namespace.update(methods))


@pytest.mark.parametrize(
    ("base", "missing"),
    [
        (Actor[Add | Reset], "Reset"),
        (Actor[Add | Reset | Name], "Reset, Name"),
        (Counting[Add | Reset], "Reset"),
        (Pair[int, Add | Reset], "Reset"),
    ],
)
def test_a_declared_message_without_a_handler_is_refused(base: Any, missing: str, said: Said) -> None:
    """C-35."""
    with pytest.raises(TypeError, match=f"Made: has no handler for {missing}, which") as caught:
        declared(base, Add=Add)
    if base == Actor[Add | Reset]:
        said("declared message without a handler", str(caught.value))


@pytest.mark.parametrize("base", [Actor[Add | Reset], Counting[Add | Reset], Exact, Nothing, Pair[int, Add | Reset]])
def test_a_handler_of_a_message_that_is_not_declared_is_refused(base: Any, said: Said) -> None:
    """C-35: also in a subclass, whose references have the type of its base class."""
    with pytest.raises(TypeError, match=r"Made: handles .*Total, which") as caught:
        declared(base, Add=Add, Reset=Reset, Total=Total)
    if base == Actor[Add | Reset]:
        said("handler of a message that is not declared", str(caught.value))


@pytest.mark.parametrize(
    "base",
    [
        Actor,
        Actor[Any],
        Actor[M],  # type: ignore[valid-type]  # that is the test
        Actor[Add | M],  # type: ignore[valid-type]  # that is the test
        Counting[Any],
        Counting,
        Actor.__class_getitem__("Unknown"),  # type: ignore[attr-defined]  # what a checker has resolved
        Pair[int, M],  # type: ignore[valid-type]  # that is the test
        Pair,
        Taking,
        Own,
        Actor[Message],
    ],
)
def test_what_is_not_declared_or_is_decided_by_other_means_is_believed(base: Any) -> None:
    """C-35: any message, one that cannot be resolved, or a class that overrides ``handle`` or ``take``."""
    declared(base, Add=Add, **({"Message": Message} if base == Actor[Message] else {"AddTwice": AddTwice}))


async def test_a_class_that_overrides_handle_is_believed() -> None:
    """C-35."""

    class Trusted(Actor[Add | Total]):
        async def handle(self, message: Add | Total) -> int:
            return 5

    async with open_actor(Trusted(), name="trusted") as ref:
        assert await ref.call(Total()) == 5


@pytest.mark.parametrize("actor", [Exact, Wider, Halved])
async def test_declared_messages_are_handled(actor: type[Actor]) -> None:
    """C-35."""
    made = actor()
    made.total = 0  # type: ignore[attr-defined]  # for one of them
    async with open_actor(made, name="counter") as ref:
        assert await ref.call(Add(3)) == 3
