"""The tree of actors, as data and as a drawing."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Backoff,
    ChildSpec,
    IgnoreStart,
    NotSent,
    SupervisorRef,
    open_supervisor,
)

from .actors import Do, DoNow, Fatal, Gate, Get, Host, Put, raising
from .workers import Boom, Hang, Yard, crash, nest


def drawn(supervisor: SupervisorRef) -> list[str]:
    return str(supervisor.tree()).splitlines()


async def test_a_tree_is_drawn_with_everything_that_is_out_of_the_ordinary(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(
            nest("heating", nest("cellar", yard.spec("pump")), yard.spec("boiler"), on_limit="park", max_restarts=0),
            yard.spec("weather"),
            yard.spec("door", IgnoreStart()),
            nest("empty"),
            name="house",
            max_restarts=2,
        ) as house,
        trio.open_nursery() as nursery,
    ):
        await crash(house.find("heating/boiler"), Boom("the boiler is cold"))
        await crash(house.child("weather"), Boom("no wind"))
        for _ in range(4):
            nursery.start_soon(house.child("weather").call, Hang())
        await trio.sleep(3.21)
        assert drawn(house) == [
            "house/         running",
            "├─ heating/    running",
            "│  ├─ cellar/  running",
            "│  │  └─ pump  running",
            "│  └─ boiler   failed    last error: Boom('the boiler is cold')",
            "├─ weather     running   1 in flight (Hang for 3.2 s), 3 queued for 3.2 s, 1 restart, "
            "last error: Boom('no wind')",
            "├─ door        stopped",
            "└─ empty/      running",
        ]
        nursery.cancel_scope.cancel("the test is done")


async def test_a_tree_is_data() -> None:
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a")), yard.spec("b"), name="top") as top:
        tree = top.tree()
        assert [(node.path, node.kind, node.state, node.incarnation) for node in tree.walk()] == [
            ("top", "supervisor", "running", 1),
            ("top/inner", "supervisor", "running", 1),
            ("top/inner/a", "worker", "running", 1),
            ("top/b", "worker", "running", 1),
        ]
        inner = top.child("inner", SupervisorRef).tree()
        assert tree.children[0] == inner
        assert (inner.id, inner.path, inner.children[0].id) == ("inner", "top/inner", "a")
        assert repr(inner) == "<TreeNode 'top/inner' running, 1 children>"
        assert str(inner).splitlines()[0].split() == ["inner/", "running"]
    assert {node.state for node in top.tree().walk()} == {"stopped"}
    assert tree.state == "running"


async def test_restarts_are_counted_and_explicit_starts_are_not(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", None, Boom("no network")), yard.spec("b"), max_restarts=9, strategy="rest_for_one"
    ) as top:
        await crash(top.child("a"))  # the first attempt fails
        await crash(top.child("b"))
        await top.stop_child("a")
        await top.restart_child("a")
        a, b = top.tree().children
        assert (a.restarts, a.incarnation) == (2, 4)
        assert (b.restarts, b.incarnation) == (2, 3)
        assert "2 restarts" in str(a)
        assert top.tree().restarts == 0


async def test_a_child_that_never_ran_has_no_restarts(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(strict=False) as outer, trio.open_nursery() as nursery:
        nursery.start_soon(outer.start_child, nest("inner", yard.spec("a", 10.0), yard.spec("b")))
        await settle()
        b = outer.tree().children[0].children[1]
        assert (b.id, b.incarnation, b.restarts, b.state) == ("b", 0, 0, "starting")


# --- how long the oldest message waits --------------------------------------------------------------------------------


async def test_the_oldest_wait_is_that_of_the_longest_waiting_message(autojump_clock: MockClock) -> None:
    gate = Gate()
    async with open_supervisor(ChildSpec("a", Host, mailbox_size=1)) as top, trio.open_nursery() as nursery:
        a = top.child("a")

        def oldest() -> float | None:
            return top.tree().children[0].oldest_wait

        assert oldest() is None
        nursery.start_soon(a.call, Do(gate))
        await trio.sleep(1)
        assert oldest() is None
        for _ in range(3):  # one in the queue, two in the entrance
            nursery.start_soon(a.tell, Put(1))
            await trio.sleep(1)
        assert oldest() == pytest.approx(3)
        gate.open()
        await settle()
        assert oldest() is None


async def test_what_moves_up_from_the_entrance_has_waited_there_too(autojump_clock: MockClock) -> None:
    first, second = Gate(), Gate()
    async with open_supervisor(ChildSpec("a", Host, mailbox_size=1)) as top, trio.open_nursery() as nursery:
        a = top.child("a")
        for each in (first, second):
            nursery.start_soon(a.call, Do(each))
            await settle()
        nursery.start_soon(a.call, Get(1))  # in the entrance
        await trio.sleep(5)
        first.open()
        await settle()
        assert top.tree().children[0].queued == 1
        assert top.tree().children[0].oldest_wait == pytest.approx(5)
        second.open()


async def test_messages_wait_while_their_actor_is_restarted(autojump_clock: MockClock) -> None:
    async with (
        open_supervisor(ChildSpec("a", Host), backoff=Backoff(first=4.0), max_restarts=1) as top,
        trio.open_nursery() as nursery,
    ):
        a = top.child("a")
        with pytest.raises(Fatal):
            await a.call(Do(raising(Fatal("broken"))))
        nursery.start_soon(a.call, DoNow(give_one))  # on the control lane
        await trio.sleep(1)
        nursery.start_soon(a.call, Get(1))
        await trio.sleep(2)
        node = top.tree().children[0]
        assert (node.state, node.queued) == ("backoff", 2)
        assert node.oldest_wait == pytest.approx(3)


async def give_one() -> int:
    return 1


async def test_a_message_that_was_not_sent_waits_anew(autojump_clock: MockClock) -> None:
    hosts: list[Host] = []

    def factory() -> Host:
        hosts.append(Host())
        return hosts[-1]

    async def lose() -> None:
        await trio.sleep(7)
        if len(hosts) == 1:
            hosts[0].fail(Fatal("lost"))
            raise NotSent

    async with (
        open_supervisor(ChildSpec("a", factory), backoff=Backoff(first=4.0), max_restarts=1) as top,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(top.child("a").call, Do(lose))
        await trio.sleep(8)
        assert top.tree().children[0].oldest_wait == pytest.approx(1)


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (9.9, "9.9 s"), (75.0, "75 s"), (900.0, "15 min")])
async def test_a_wait_is_rounded(autojump_clock: MockClock, seconds: float, text: str) -> None:
    async with open_supervisor(ChildSpec("a", Host)) as top, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(top.child("a").call, Do(trio.sleep_forever))
        await settle()
        await trio.sleep(seconds)
        handled = f" (Do for {text})" if seconds >= 1 else ""
        assert drawn(top)[1] == f"└─ a         running   1 in flight{handled}, 1 queued for {text}"
        nursery.cancel_scope.cancel("the test is done")


# --- the last error ---------------------------------------------------------------------------------------------------


class Nasty(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Boom("a\nb\x1b[31mred"), "Boom('a\\nb\\x1b[31mred')"),
        (Boom("x" * 1000), "Boom('" + "x" * 193 + "…"),
        (Nasty(), "Nasty (its repr() raises)"),
    ],
    ids=["control characters", "long", "without a text"],
)
async def test_the_last_error_is_one_short_line(error: Exception, text: str) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as top:
        await crash(top.child("a"), error)
        assert top.tree().children[0].last_error == text
        assert len(drawn(top)[1]) < 150


async def test_the_last_error_keeps_no_exception_alive() -> None:
    """Its traceback would keep frames, and what is in them."""
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as top:
        error = Boom("boom")
        gone = weakref.ref(error)
        await crash(top.child("a"), error)
        del error
        await settle()
        gc.collect()
        assert gone() is None
        assert top.tree().children[0].last_error == "Boom('boom')"


async def test_a_supervisor_shows_why_it_gave_up_and_a_start_why_it_failed() -> None:
    yard = Yard()
    async with open_supervisor(
        nest("inner", yard.spec("a"), max_restarts=0), yard.spec("b", Boom("no network")), max_restarts=5, strict=False
    ) as top:
        await crash(top.find("inner/a"))
        inner, b = top.tree().children
        assert inner.last_error is not None
        assert "gave up on child 'a'" in inner.last_error
        assert (b.last_error, b.state) == ("Boom('no network')", "running")


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_tree_that_is_deeper_than_the_stack_can_be_drawn() -> None:
    from mcp_actors.kernel._mailbox import Mailbox
    from mcp_actors.kernel._record import Record
    from mcp_actors.kernel._ref import ref_to

    top = above = Record("n", Mailbox("n"), hub=None)  # type: ignore[arg-type]  # it emits nothing
    for _ in range(3_000):
        below = Record("n", Mailbox("n"), above.hub, above)
        above.children = {"n": below}
        above = below
    ref = ref_to(top)
    assert isinstance(ref, SupervisorRef)
    tree = ref.tree()
    assert len(str(tree).splitlines()) == len(list(tree.walk())) == 3_001


async def test_a_tree_is_made_in_the_run_of_its_actors_only() -> None:
    raised: list[str] = []
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as top:

        def look() -> None:
            with pytest.raises(RuntimeError) as refused:
                top.tree()
            raised.append(str(refused.value))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert "used outside its Trio run" in raised[0]
