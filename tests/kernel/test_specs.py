"""Specs of children, names, and handlers that replace something."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Never

import pytest
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    Backoff,
    Call,
    ChildSpec,
    Message,
    Pool,
    Supervisor,
    handles,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Host, hook, raising


class Ask(Call[int]):
    """Answered with the number of the actor."""


class Numbered(Actor[Ask]):
    def __init__(self, number: int, *, plus: int = 0) -> None:
        self.number = number + plus

    @handles(Ask)
    def ask(self, message: Ask) -> int:
        return self.number


async def test_each_incarnation_gets_the_arguments_of_its_own_spec() -> None:
    """D-62: also children that were specified in a loop, and although the mapping has changed since."""
    kwargs = {"plus": 10}
    specs = [ChildSpec(f"a{number}", Numbered, args=(number,), kwargs=kwargs) for number in range(3)]
    kwargs["plus"] = 20
    async with open_supervisor(*specs, max_restarts=3) as top:
        refs = [top.child(spec.id, Numbered) for spec in specs]
        assert [await ref.call(Ask()) for ref in refs] == [10, 11, 12]
        for ref in refs:
            life = ref._record.mailbox.life
            life.end("crashed", Boom())  # type: ignore[union-attr]  # an incarnation
        await settle()
        assert [await ref.call(Ask()) for ref in refs] == [10, 11, 12]
    assert len({*specs}) == 3


@pytest.mark.parametrize(
    ("given", "row"),
    [({"args": 3}, "child: args=3"), ({"kwargs": 3}, "child: kwargs=3"), ({"kwargs": {1: 2}}, "child: kwargs={1: 2}")],
)
def test_arguments_that_no_factory_can_have_are_refused(given: dict[str, Any], row: str, said: Said) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the table has the whole message
        ChildSpec("a", Numbered, **given)
    said(row, str(refused.value))


def test_a_budget_is_refused_only_if_no_number_of_children_can_spend_it(said: Said) -> None:
    """D-63: twenty children that fail at the same time spend twenty attempts at once."""
    Supervisor(max_restarts=20, window=60, backoff=Backoff(initial=5))
    Supervisor(max_restarts=20, window=60, backoff=Backoff(first=5))
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the table has the whole message
        Pool(Host, max_restarts=3, window=5, backoff=Backoff(initial=2), budget_per_member=True)
    said("supervisor: limit never reached", str(refused.value))


async def test_a_shared_budget_with_delays_is_spent_by_children_that_fail_together() -> None:
    specs = [ChildSpec(f"a{number}", Host, kwargs={"start": hook(raising(Boom()))}) for number in range(4)]
    options: dict[str, Any] = {"max_restarts": 3, "window": 5, "backoff": Backoff(first=3), "strict": False}
    async with open_supervisor(*specs, on_limit="park", await_start=False, **options) as top:
        await settle()
        assert [top.child(spec.id).state for spec in specs] == ["backoff", "backoff", "backoff", "failed"]


@pytest.mark.parametrize("name", ["stop", "handle", "watch", "is_fatal", "_current"])
def test_a_handler_named_like_a_member_of_actor_is_refused(name: str, said: Said) -> None:
    """D-61: it would replace that member, and the first call of it would be a riddle."""

    @handles(Ask)
    def method(self: Any, message: Ask) -> int:
        return 1

    with pytest.raises(TypeError) as refused:
        type("Made", (Actor,), {name: method})
    said("handler named like a member", str(refused.value), name=f"{name}()")
    mixin = type("Mixin", (), {name: method})
    with pytest.raises(TypeError, match="named like a member of Actor"):
        type("Made", (mixin, Actor), {})


def test_an_actor_that_declares_only_the_base_of_messages_is_explained(said: Said) -> None:
    with pytest.raises(TypeError) as refused:
        type("Made", (Actor,), {"__orig_bases__": (Actor[Message],)})
    said("Actor[Message] without messages", str(refused.value))


async def test_an_actor_may_have_no_messages() -> None:
    class Idle(Actor[Never]):
        pass

    async with open_actor(Idle(), name="idle") as ref:
        with pytest.raises(TypeError, match="Idle has no handler for Ask"):
            await ref.call(Ask())  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize("name", ["a\nb", "a\r", "\x85", "a\u2028b"])
async def test_a_name_has_one_line(name: str) -> None:
    """Else it could forge a line of a log."""
    with pytest.raises(ValueError, match="non-empty str of one line"):
        ChildSpec(name, Host)
    with pytest.raises(ValueError, match="non-empty str of one line"):
        async with open_actor(Host(), name=name):
            pytest.fail("it started")


async def test_a_reference_may_be_referred_to_weakly() -> None:
    async with open_actor(Host(), name="host") as ref:
        assert weakref.ref(ref)() is ref


async def test_a_clean_up_that_raises_reaches_down() -> None:
    class Careless(Actor):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            yield
            raise Boom("while stopping")

    async with open_supervisor(ChildSpec("a", Careless)) as top, top.child("a").watch() as monitor:
        await top.stop_child("a")
        down = await monitor.wait()
        assert (down.reason, repr(down.error)) == ("shutdown", "Boom('while stopping')")
        assert top.tree().children[0].last_error == "Boom('while stopping')"


@pytest.mark.parametrize(
    ("option", "value", "row"),
    [("slow_after", 0, "open_actor: slow_after=0"), ("finish_on_stop", 1, "open_actor: finish_on_stop=1")],
)
async def test_a_wrong_attribute_of_a_class_is_refused(option: str, value: object, row: str, said: Said) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the table has the whole message
        async with open_actor(type("Wrong", (Host,), {option: value})(), name="host"):
            pytest.fail("it started")
    said(row, str(refused.value))
