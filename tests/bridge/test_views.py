"""A view has the methods of its Trio object, with the same arguments."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.types import PromptReference

from mcp_actors import ConfigError, ServerConfig, ServerGroup, ServerRef, Stdio, bridge, kernel, open_servers
from mcp_actors.adapters import McpClient
from mcp_actors.bridge import AsyncioActorRef, AsyncioLoop, AsyncioServerGroup, AsyncioServerRef, AsyncioSupervisorRef
from mcp_actors.kernel import ActorRef, ActorStopped, ChildSpec, Pool, SupervisorRef
from tests.servers import wire_server
from tests.servers.groups import server

from .actors import Echo, Worker

PAIRS: list[tuple[type, type]] = [
    (ActorRef, AsyncioActorRef),
    (SupervisorRef, AsyncioSupervisorRef),
    (ServerRef, AsyncioServerRef),
    (ServerGroup, AsyncioServerGroup),
]

NOT_NEEDED = {"send_complete", "send_get_prompt", "send_read_resource", "send_request", "send_tool_call"}
"""asyncio has `asyncio.create_task` for that."""

METHODS = [
    pytest.param(original, view, name, id=f"{original.__name__}.{name}")
    for original, view in PAIRS
    for name in dir(original)
    if (not name.startswith("_") or name in ("__getitem__", "__iter__", "__len__")) and name not in NOT_NEEDED
]


@pytest.mark.parametrize(("original", "view", "name"), METHODS)
def test_a_view_has_every_method_of_its_object(original: type, view: type, name: str) -> None:
    """If this fails, a method is new: write it with ``python -m tests.doors``, or add it to the view of an actor."""
    ours = inspect.getattr_static(view, name)
    theirs = inspect.getattr_static(original, name)
    assert isinstance(ours, property) == isinstance(theirs, property)
    if not isinstance(theirs, property):
        assert shown(parameters(ours)) == shown(parameters(theirs))
        assert bool(ours.__doc__) == bool(theirs.__doc__)
    assert not inspect.iscoroutinefunction(theirs) or inspect.iscoroutinefunction(ours)


@pytest.mark.parametrize(
    ("door", "original"), [(bridge.open_servers, open_servers), (bridge.open_supervisor, kernel.open_supervisor)]
)
def test_the_functions_take_the_arguments_of_those_for_trio(
    door: Callable[..., Any], original: Callable[..., Any]
) -> None:
    ours = parameters(door)
    assert ours.pop("host").default == "thread"
    assert ours == parameters(original)


def parameters(fn: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, without ``self``."""
    found = dict(inspect.signature(fn).parameters)
    found.pop("self", None)
    return {name: each for name, each in found.items() if each.annotation != "Never"}  # to refuse other arguments


def shown(found: dict[str, inspect.Parameter]) -> list[str]:
    """Return parameters as text, in which a class of asyncio's side has the name of that on Trio's side."""
    return [re.sub(r"mcp_actors\.\w+\.|Asyncio", "", str(each)) for each in found.values()]


def test_a_monitor_can_be_canceled_and_fails_once_the_block_has_exited() -> None:
    async def main() -> None:
        async with bridge.open_supervisor(ChildSpec("worker", Worker)) as supervisor:
            inside = supervisor.child("worker", AsyncioActorRef)
            assert inside == supervisor.child("worker", Worker) == supervisor.find("worker", Worker)
            assert (inside.supervisor, supervisor.supervisor) == (supervisor, None)
            with pytest.raises(TypeError, match="child 'worker' is not a Pool"):
                supervisor.child("worker", Pool)
            with pytest.raises(TypeError, match="child 'worker' is not a supervisor"):
                supervisor.find("worker", AsyncioSupervisorRef)
            async with inside.watch() as canceled:
                await canceled.cancel()
                with pytest.raises(RuntimeError, match="monitor of actor 'worker': was canceled"):
                    await canceled.wait()
            outlives = inside.watch()
            late = await outlives.__aenter__()
        with pytest.raises(ActorStopped, match="actor 'worker' has stopped"):
            await late.wait()
        await outlives.__aexit__(None, None, None)

    asyncio.run(main())


def test_the_tree_of_a_group_is_read_in_one_step_of_its_own_side() -> None:
    async def main() -> None:
        async with bridge.open_servers(server("a")) as servers:
            tree = await servers.tree()
            assert [node.id for node in tree.walk()][:4] == ["servers", "servers:deadlines", "a:supervisor", "a"]
            assert {node.state for node in tree.walk()} == {"running"}
        async with bridge.open_supervisor(ChildSpec("worker", Worker), name="house") as supervisor:
            assert str(await supervisor.tree()).split() == ["house/", "running", "└─", "worker", "running"]

    asyncio.run(main())


def test_one_server_is_replaced_and_its_sign_in_asked_for() -> None:
    """C-27: from asyncio."""

    async def main() -> None:
        async with bridge.open_servers(server("a"), server("b")) as servers:
            assert await servers.replace(server("a", request_timeout=7)) == servers["a"]
            assert [servers[name].config.request_timeout for name in servers] == [7, server("b").request_timeout]
            assert servers["a"].stderr_tail == ""
            assert servers.status()["a"].to_json()["state"] == "ready"
            for ask in (servers["a"].signed_in, servers["a"].sign_out):
                with pytest.raises(ConfigError, match="has no sign-in"):
                    await ask()

    asyncio.run(main())


def test_views_of_one_object_are_equal() -> None:
    async def main() -> None:
        async with bridge.open_servers(server("a"), server("b")) as servers:
            assert servers["a"] == servers.configured[0]
            assert len({servers["a"], servers.active[0], servers["b"]}) == 2
            assert servers["a"] != "a"
            assert list(servers) == ["a", "b"]
            assert len(servers) == 2
            assert "a" in servers
            assert servers == servers
            assert repr(servers) == "<AsyncioServerGroup a: ready, b: ready>"
            assert repr(servers["a"]) == "<AsyncioServerRef 'a' ready, 0 in flight, 0 queued>"
            with pytest.raises(KeyError, match="its servers are: a, b"):
                servers["c"]

    asyncio.run(main())


def test_a_copy_of_a_view_is_the_view_and_it_stays_in_its_process() -> None:
    """D-93: frameworks copy agents, with what these hold."""

    async def main() -> None:
        async with bridge.open_servers(server("a")) as servers:
            for view in servers, servers["a"]:
                assert copy.copy(view) is view
                assert copy.deepcopy([view])[0] is view
                with pytest.raises(TypeError, match=r"cannot be pickled.*open it in the other process"):
                    pickle.dumps(view)
            adapter = copy.deepcopy(McpClient(servers))
            assert (await adapter.call_tool("mcp__a__echo", {"text": "hi"})).is_error is False

    asyncio.run(main())


def test_an_object_without_a_view_is_refused() -> None:
    with pytest.raises(TypeError, match="3 has no asyncio view; give a ServerGroup"):
        AsyncioLoop(None).view(3)  # type: ignore[arg-type, call-overload]  # that is what is tested


def test_a_supervisor_that_is_a_child_has_a_view_of_a_supervisor() -> None:
    async def main() -> None:
        inner = ChildSpec("inner", lambda: kernel.Supervisor(ChildSpec("worker", Worker)))
        async with bridge.open_supervisor(inner) as outer:
            supervisor = outer.child("inner")
            assert isinstance(supervisor, AsyncioSupervisorRef)
            worker = supervisor.child("worker")
            assert not isinstance(worker, AsyncioSupervisorRef)
            await worker.tell_nowait(Echo(1))
            assert worker.name == "worker"
            started = await supervisor.start_child(ChildSpec("more", Worker))
            assert await started.call(Echo(7)) == 7
            assert (await supervisor.count_children()).specs == 2

    asyncio.run(main())


def test_reading_from_another_thread_never_fails() -> None:
    """The methods of a view that are not async read data while Trio's thread changes it."""
    looks = [look for look in dir(AsyncioServerGroup) if isinstance(getattr(AsyncioServerGroup, look), property)]
    looks = [name for name in looks if not name.startswith("_")]

    async def main() -> int:
        done, times = False, 0

        async def change() -> None:
            nonlocal done
            for _ in range(3):
                await servers.reconnect(failed_only=False)
                await asyncio.gather(*(servers[name].call_tool("echo", {"text": "x"}) for name in "abab"))
            done = True

        async with bridge.open_servers(server("a", "--tools", "20"), server("b")) as servers, asyncio.TaskGroup() as tg:
            tg.create_task(change())
            while not done:
                for name in looks:
                    getattr(servers, name)
                for ref in servers.values():
                    assert all([repr(ref), ref.state, ref.statistics()])
                assert servers.status()
                times += 1
                await asyncio.sleep(0)
        return times

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        assert asyncio.run(main()) > 10
    finally:
        sys.setswitchinterval(interval)


def test_a_health_check_is_awaited_from_asyncio() -> None:
    """S2-26, S2-27: it asks the real server."""

    async def main() -> None:
        async with bridge.open_servers(server("a")) as servers:
            health = await servers["a"].check_health()
            assert (health.status, health.message) == ("healthy", "it answers")
            assert health.latency is not None
            assert 0 < health.latency < 5
            assert servers.status()["a"].health.last_check == health

    asyncio.run(main())


def test_requests_report_progress_on_the_event_loop(tmp_path: Path) -> None:
    program, arguments = wire_server.command("modern", str(tmp_path / "log"))

    async def main() -> None:
        reports: list[object] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            reports.append((done, asyncio.get_running_loop()))

        async with bridge.open_servers(ServerConfig("a", Stdio(program, arguments))) as servers:
            a = servers["a"]
            await a.get_prompt("p", progress=progress)
            await a.read_resource("r", progress=progress)
            await a.complete(PromptReference(name="p"), {"name": "a", "value": "v"}, progress=progress, meta={"k": 1})
            assert reports == [(1, asyncio.get_running_loop())] * 3

    asyncio.run(main())
