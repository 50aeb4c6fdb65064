"""An actor finds its supervisor, its siblings, and any actor of its tree by a path."""

from __future__ import annotations

from typing import assert_type

import pytest
import trio

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    ActorStopped,
    ChildError,
    ChildSpec,
    Pool,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)
from mcp_actors.kernel._ref import WhichChildren

from ..messages import Said
from .actors import Do, Get, Host, hook, open_child
from .workers import Echo, Yard, crash, nest


def supervisor_of(host: Host) -> SupervisorRef:
    found = host.supervisor
    assert found is not None
    return found


class Keeper(Host):
    """A host that a test can look into.

    Attributes:
        last: the object of the latest incarnation.
    """

    last: Host

    def __init__(self) -> None:
        super().__init__()
        Keeper.last = self


async def test_an_actor_knows_its_supervisor_and_its_siblings() -> None:
    async with open_supervisor(ChildSpec("a", Keeper), ChildSpec("b", Host)) as supervisor:

        async def ask_sibling() -> int:
            sibling = supervisor_of(Keeper.last).child("b")
            return await sibling.call(Get(7))

        assert await supervisor.child("a").call(Do(ask_sibling)) == 7
        assert supervisor_of(Keeper.last) == supervisor


async def test_an_actor_of_open_actor_and_the_outermost_supervisor_have_no_supervisor() -> None:
    host = Host()
    async with open_actor(host, name="alone") as ref:
        assert assert_type(host.supervisor, SupervisorRef | None) is None
        assert ref.path == "alone"
    made: list[Supervisor] = []

    def inner() -> Supervisor:
        made.append(Supervisor())
        return made[0]

    async with open_supervisor(ChildSpec("inner", inner), name="outer") as outer:
        assert made[0].supervisor == outer
        assert outer.path == "outer"


async def test_a_path_leads_through_nested_supervisors_and_back() -> None:
    yard = Yard()
    async with open_supervisor(
        nest("heating", nest("cellar", yard.spec("pump"))), yard.spec("door"), name="house"
    ) as house:
        pump = house.find("heating/cellar/pump")
        assert pump.path == "house/heating/cellar/pump"
        assert house.find("door") == house.child("door")
        assert house.find(pump.path.removeprefix("house/")) == pump
        assert await pump.call(Echo(1)) == 1


async def test_an_actor_without_supervisor_above_its_door_has_a_path_of_its_own() -> None:
    """A block that an actor opens is a tree of its own: nothing restarts it with the actor, so no path leads there."""

    async def open_another() -> str:
        async with open_supervisor(ChildSpec("inside", Host), name="other") as other:
            assert other.find("inside").path == "other/inside"
            return other.path

    async with open_child() as supervisor:
        assert await supervisor.child("child").call(Do(open_another)) == "other"


async def test_the_kind_of_a_child_is_checked_and_typed(said: Said) -> None:
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a")), yard.spec("b")) as supervisor:
        assert_type(supervisor.child("inner"), ActorRef)
        inner = assert_type(supervisor.child("inner", SupervisorRef), SupervisorRef)
        assert inner.child("a") == assert_type(supervisor.find("inner/a", ActorRef), ActorRef)
        assert assert_type(supervisor.find("inner", SupervisorRef), SupervisorRef) == inner
        supervisor.child("inner").child("a")  # type: ignore[attr-defined]  # a plain reference has no children
        with pytest.raises(TypeError) as refused:
            supervisor.child("b", SupervisorRef)
        said("child is not a supervisor", str(refused.value))
        with pytest.raises(TypeError, match="child 'b' is not a supervisor"):
            supervisor.find("b/a")
        with pytest.raises(TypeError, match="supervisor 'inner': child 'a' is not a supervisor"):
            supervisor.find("inner/a", SupervisorRef)


async def test_a_supervisor_that_has_never_run_is_not_known_as_one_yet(autojump_clock: trio.testing.MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        nest("slow", yard.spec("a", 5.0)), strict=False, start_order="parallel", max_restarts=0
    ) as supervisor:
        assert supervisor.find("slow/a").path == "supervisor/slow/a"


class First(Host):
    """Takes the reference of a supervisor that starts after it."""

    def __init__(self) -> None:
        super().__init__(start=self.look)
        self.seen: list[object] = []

    async def look(self, _: Host) -> None:
        self.later = supervisor_of(self).child("later", SupervisorRef)
        try:
            self.later.child("a")
        except ChildError as exc:
            self.seen.append(str(exc))
        self.asked = self.later.send_request(WhichChildren())


async def test_a_supervisor_that_starts_later_can_be_referred_to_before(said: Said) -> None:
    """C-32: its children are found once it has started, and what was sent to it waits until then."""
    first, yard = First(), Yard()
    async with open_supervisor(ChildSpec("first", lambda: first), nest("later", yard.spec("a"))) as supervisor:
        (refused,) = first.seen
        said("child of a supervisor that has not started", str(refused))
        assert first.later == supervisor.child("later")
        assert first.later.child("a") == supervisor.find("later/a")
        assert [child.id for child in await first.asked.wait()] == ["a"]


async def test_a_child_that_turns_out_not_to_be_a_supervisor_says_so(said: Said) -> None:
    """C-32: the reference was a promise."""
    first = First()
    async with open_supervisor(ChildSpec("first", lambda: first), ChildSpec("later", Host)) as supervisor:
        with pytest.raises(TypeError) as refused:
            first.later.child("a")
        said("child of a worker", str(refused.value))
        with pytest.raises(TypeError, match="child 'later' is not a supervisor"):
            supervisor.child("later", SupervisorRef)
        with pytest.raises(TypeError):
            await first.asked.wait()


async def test_a_reference_leads_to_the_supervisor_above_it() -> None:
    """C-32: also when its actor does not run."""
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a"))) as top:
        a = top.find("inner/a")
        assert assert_type(a.supervisor, SupervisorRef | None) == top.child("inner")
        assert top.child("inner").supervisor == top
        assert top.supervisor is None
    assert a.supervisor == top.child("inner")


async def test_a_path_with_a_slash_in_front_begins_at_the_top(said: Said) -> None:
    """C-32: so the path of a reference is found from anywhere in its tree."""
    yard = Yard()
    async with open_supervisor(
        nest("heating", yard.spec("pump")), nest("light", yard.spec("lamp")), name="house"
    ) as house:
        light = house.child("light", SupervisorRef)
        pump = house.find("heating/pump")
        assert light.find(f"/{pump.path}") == pump
        assert light.find("/house/light", SupervisorRef) == light
        for path in ("/", "/heating/pump", "/house"):
            with pytest.raises(ChildError) as refused:
                light.find(path)
            said("path that does not begin at the top", str(refused.value), path=repr(path))
        with pytest.raises(ChildError, match="not found; choose one of: heating, light"):
            light.find("/house/x")


async def test_the_class_of_a_child_is_checked_and_typed(said: Said) -> None:
    """C-35: against the incarnation that ran last; a child that has never run is believed."""
    kinds: list[type[Actor]] = [Keeper, Actor]
    async with open_supervisor(
        ChildSpec("a", lambda: kinds[0]()), ChildSpec("pool", lambda: Pool(Keeper, size=2))
    ) as supervisor:
        assert supervisor.child("a", Keeper) == supervisor.child("a", Host) == supervisor.child("a")
        assert supervisor.child("pool", Keeper) == supervisor.child("pool", Pool)
        with pytest.raises(TypeError):
            supervisor.find("pool", First)
        await supervisor.stop_child("a")
        kinds.pop(0)
        with pytest.raises(TypeError) as refused:
            await supervisor.restart_child("a", Keeper)
        said("child of another class", str(refused.value))
        assert supervisor.child("a", Actor).state == "running"


@pytest.mark.parametrize("path", ["x", "inner/x", "x/a", "", "inner/", "inner//a", "top/inner"])
async def test_a_wrong_path_is_an_error_that_lists_what_can_be_chosen(path: str) -> None:
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a")), name="top") as supervisor:
        with pytest.raises(ChildError, match=r"not found; choose one of: (inner|a)$") as refused:
            supervisor.find(path)
        assert refused.value.reason == "not_found"


async def test_a_path_with_dots_is_shown_with_slashes() -> None:
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a")), name="top") as supervisor:
        with pytest.raises(ChildError, match=r"child 'inner\.a' not found; did you mean find\('inner/a'\)\?$"):
            supervisor.find("inner.a")


async def test_what_was_found_stays_valid_across_restarts_of_the_supervisor_above() -> None:
    yard = Yard()
    async with open_supervisor(nest("inner", yard.spec("a"), max_restarts=0)) as supervisor:
        a = supervisor.find("inner/a")
        await crash(a)  # and with it its supervisor, which is restarted
        assert supervisor.find("inner/a") == a
        assert await a.call(Echo(1)) == 1
        assert a.path == "supervisor/inner/a"


async def test_a_deleted_child_is_found_no_more_and_keeps_its_path() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a")
        await supervisor.delete_child("a")
        with pytest.raises(ChildError):
            supervisor.find("a")
        assert a.path == "supervisor/a"
        with pytest.raises(ActorStopped):
            await a.call(Echo(1))


async def test_a_path_of_a_deep_tree_needs_no_recursion() -> None:
    spec = ChildSpec("leaf", Host)
    for _ in range(300):
        spec = nest("n", spec)
    async with open_supervisor(spec) as supervisor:
        leaf = supervisor.find("n/" * 300 + "leaf")
        assert leaf.path.count("/") == 301


async def test_the_supervisor_is_known_while_the_actor_starts_and_stops() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(supervisor_of(Keeper.last).path)

    def host() -> Host:
        made = Keeper()
        made.start_hook = made.stop_hook = hook(look)
        return made

    async with open_supervisor(ChildSpec("a", host)):
        pass
    assert seen == ["supervisor", "supervisor"]


async def test_an_actor_that_does_not_run_has_no_supervisor() -> None:
    with pytest.raises(RuntimeError, match="Host is not running"):
        _ = Host().supervisor
