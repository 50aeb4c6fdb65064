"""C-35: messages that type checkers must accept and refuse for typed references. Nothing runs this file.

It is checked like `typed_handlers`: an ignore that is not needed is an error.
"""

from __future__ import annotations

from typing import Any, Generic, Never, TypeVar, assert_type

from mcp_actors.bridge import AsyncioActorRef, AsyncioSupervisorRef
from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Message,
    PendingCall,
    Pool,
    Supervisor,
    SupervisorRef,
    handles,
    open_actor,
    open_supervisor,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Add(Call[int]):
    """A call."""


class AddTwice(Add):
    """Handled as its base class is."""


class Name(Call[str | None]):
    """A call that may be answered with None."""


class Reset(Message):
    """A message without an answer."""


class Other(Call[int]):
    """A call that the counter does not handle."""


class Echo(Call[T], Generic[T]):
    """A call that is answered with what it carries."""

    def __init__(self, value: T) -> None:
        self.value = value


class Counting(Actor[M]):
    """Leaves open which messages its subclasses handle."""

    @handles(Add)
    def add(self, message: Add) -> int:
        return 1

    @handles(Name)
    async def name(self, message: Name) -> str | None:
        return None


class Counter(Counting[Add | Name | Reset]):
    """Writes its messages once."""

    @handles(Reset)
    def reset(self, message: Reset) -> None:
        assert_type(self.ref, ActorRef[Add | Name | Reset])
        self.after(1, Reset())
        self.every(1, Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # it has no handler


class More(Counting[Add | Name | Other]):
    """Handles another message too."""

    @handles(Other)
    def other(self, message: Other) -> int:
        return 1


class Echoing(Actor[Echo[int]]):
    """A message with a type of its own."""

    async def handle(self, message: Echo[int]) -> int:
        return message.value


class Bare(Actor):
    """Any message."""


class Silent(Actor[Never]):
    """None."""


def house() -> Supervisor:
    """Children that are supervisors."""
    return Supervisor(ChildSpec("counter", Counter))


async def use(counter: ActorRef[Add | Name | Reset], bare: ActorRef, silent: ActorRef[Never]) -> None:
    """A wrong message is an error at each way of sending it."""
    assert_type(await counter.call(Add()), int)
    assert_type(await counter.call(AddTwice()), int)
    assert_type(await counter.call(Name()), str | None)
    assert_type(counter.send_request(Add()), PendingCall[int])
    await counter.tell(Reset())
    counter.tell_nowait(Add())
    await counter.call(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    await counter.call(Reset())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no answer
    counter.send_request(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    await counter.tell(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    counter.tell_nowait(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    silent.tell_nowait(Reset())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    assert_type(bare, ActorRef[Any])
    assert_type(await bare.call(Other()), int)
    bare.tell_nowait(Reset())


def pass_on(counter: ActorRef[Add | Name | Reset], bare: ActorRef) -> list[ActorRef[Add]]:
    """A reference that takes more messages is accepted where one that takes fewer is wanted, and not the other way."""
    adding: ActorRef[Add] = counter
    all_of: ActorRef[Add | Name | Other] = counter  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] # no Other
    return [adding, all_of, bare]


async def open_them() -> None:
    """Each way to a reference gives its type."""
    async with open_actor(Counter(), name="counter") as counter:
        assert_type(counter, ActorRef[Add | Name | Reset])
    async with open_actor(More(), name="more") as more:
        assert_type(await more.call(Other()), int)
    async with open_actor(Echoing(), name="echoing") as echoing:
        assert_type(await echoing.call(Echo(1)), int)
        wrong = Echo("text")
        await echoing.call(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # not an int
    async with open_actor(Bare(), name="bare") as bare:
        assert_type(bare, ActorRef[Any])
    async with open_actor(Silent(), name="silent") as silent:
        assert_type(silent, ActorRef[Never])
    async with open_actor(Pool(Counter, size=2), name="pool") as pool:
        assert_type(pool, ActorRef[Add | Name | Reset])


async def find_them() -> None:
    """The class of a child is the type of its reference."""
    specs = ChildSpec("counter", Counter), ChildSpec("house", house), ChildSpec("pool", lambda: Pool(Counter))
    async with open_supervisor(*specs) as top:
        assert_type(top.child("counter"), ActorRef[Any])
        assert_type(top.child("counter", Counter), ActorRef[Add | Name | Reset])
        assert_type(top.child("pool", Counter), ActorRef[Add | Name | Reset])
        assert_type(top.child("house", SupervisorRef), SupervisorRef)
        assert_type(top.find("house/counter", Counter), ActorRef[Add | Name | Reset])
        assert_type(top.find("house", SupervisorRef), SupervisorRef)
        assert_type(await top.start_child(ChildSpec("more", More)), ActorRef[Add | Name | Other])
        assert_type(await top.restart_child("more"), ActorRef[Any])
        assert_type(await top.restart_child("more", More), ActorRef[Add | Name | Other])
        assert_type(await top.restart_child("house", SupervisorRef), SupervisorRef)
        await top.child("counter", Counter).call(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler


async def use_on_asyncio(top: AsyncioSupervisorRef, counter: AsyncioActorRef[Add | Name | Reset]) -> None:
    """The same on the other side of the bridge."""
    assert_type(top.child("counter", Counter), AsyncioActorRef[Add | Name | Reset])
    assert_type(top.find("house", AsyncioSupervisorRef), AsyncioSupervisorRef)
    assert_type(await top.start_child(ChildSpec("more", More)), AsyncioActorRef[Add | Name | Other])
    assert_type(await top.restart_child("more", More), AsyncioActorRef[Add | Name | Other])
    assert_type(await counter.call(Add()), int)
    await counter.call(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    await counter.tell(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
    await counter.tell_nowait(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # no handler
