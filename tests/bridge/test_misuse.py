"""Views and functions that are used in the wrong place raise errors with a remedy."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
import trio

from mcp_actors import ConfigError, ServerUnavailable, kernel, servers
from mcp_actors.bridge import Host, _open, open_asyncio_loop, open_servers, open_supervisor
from mcp_actors.kernel import ActorStopped, ChildSpec
from tests.forkserver import run_python
from tests.messages import Said
from tests.servers.groups import BOUND, server
from tests.source import ROOT

from .actors import Count, Echo, Worker

HOSTS: list[Host] = ["thread", "guest"]


def worker() -> ChildSpec:
    return ChildSpec("worker", Worker)


@pytest.mark.parametrize("host", HOSTS)
def test_use_after_the_end(host: Host, said: Said) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            ref = supervisor.child("worker")
        with pytest.raises(ActorStopped) as stopped:
            await ref.call(Echo(1))
        said("actor after the end", str(stopped.value))
        with pytest.raises(ActorStopped, match="actor 'supervisor'"):
            await supervisor.which_children()
        assert ref.state == "stopped"
        async with open_servers(server("a"), host=host) as servers:
            pass
        with pytest.raises(ServerUnavailable) as unavailable:
            await servers["a"].list_tools()
        said("server after the end", str(unavailable.value))
        with pytest.raises(ServerUnavailable) as unavailable:
            await servers.reconnect()
        said("group after the end", str(unavailable.value))
        with pytest.raises(ServerUnavailable, match="this group of servers is stopped"):
            async with servers.watch_events():
                pass

    asyncio.run(main())


def in_a_loop_of_its_own(make: Callable[[], Any]) -> None:
    async def main() -> None:
        await make()

    asyncio.run(main())


@pytest.mark.parametrize("host", HOSTS)
def test_use_from_a_second_event_loop(host: Host, said: Said) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            ref = supervisor.child("worker")
            with pytest.raises(RuntimeError) as caught:
                await asyncio.to_thread(in_a_loop_of_its_own, lambda: ref.call(Echo(1)))
            said("use from another event loop", str(caught.value), thread=threading.current_thread().name)
            with pytest.raises(RuntimeError, match="actor 'supervisor': belongs to another event loop"):
                await asyncio.to_thread(in_a_loop_of_its_own, supervisor.which_children)
            loop = asyncio.get_running_loop()

            def with_the_remedy() -> int:
                return asyncio.run_coroutine_threadsafe(ref.call(Echo(2)), loop).result()

            assert await asyncio.to_thread(with_the_remedy) == 2

    asyncio.run(main())


def test_use_after_the_event_loop_was_closed(said: Said) -> None:
    async def main() -> Any:
        async with open_supervisor(worker()) as supervisor:
            return supervisor.child("worker")

    ref = asyncio.run(main())
    with pytest.raises(RuntimeError) as caught:
        in_a_loop_of_its_own(lambda: ref.call(Echo(1)))
    said("use after the event loop was closed", str(caught.value))


def test_use_from_a_plain_thread_and_from_trio(said: Said) -> None:
    async def main() -> None:
        async with open_supervisor(worker()) as supervisor:
            ref = supervisor.child("worker")

            def step() -> None:
                ref.call(Count()).send(None)

            with pytest.raises(RuntimeError) as in_thread:
                await asyncio.to_thread(step)
            with pytest.raises(RuntimeError) as on_trio:
                await asyncio.to_thread(trio.run, ref.call, Count())
            for caught in (in_thread, on_trio):
                said("use without an event loop", str(caught.value))

    asyncio.run(main())


def test_a_block_is_entered_once(said: Said) -> None:
    async def main() -> None:
        door = open_supervisor(worker())
        async with door:
            pass
        with pytest.raises(RuntimeError) as caught:
            async with door:
                pass
        said("block entered twice", str(caught.value))

    asyncio.run(main())


def test_one_thread_has_room_for_one_guest(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host="guest") as supervisor:
            with pytest.raises(RuntimeError) as caught:
                async with open_supervisor(worker(), host="guest"):
                    pass
            said("second guest in a thread", str(caught.value))
            with monkeypatch.context() as patched:
                patched.setitem(sys.modules, "trio_asyncio", ModuleType("trio_asyncio"))
                with pytest.raises(RuntimeError) as caught:
                    async with open_supervisor(worker(), host="guest"):
                        pass
            said("guest on a loop of trio-asyncio", str(caught.value))
            async with open_supervisor(worker(), host="thread") as second:
                assert await second.child("worker").call(Echo(1)) == 1
            assert await supervisor.child("worker").call(Echo(2)) == 2

    asyncio.run(main())


def test_an_unknown_host_is_refused(said: Said) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host="process"):  # type: ignore[arg-type]  # that is what is tested
            pass

    with pytest.raises(ValueError, match="host='process'") as caught:
        asyncio.run(main())
    said("unknown host", str(caught.value))


@pytest.mark.parametrize("host", HOSTS)
def test_wrong_arguments_are_refused_as_on_trio(host: Host) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="open_servers takes"):
            async with open_servers(3, host=host):  # type: ignore[arg-type]  # that is what is tested
                pass
        with pytest.raises(ConfigError, match="callbacks"):
            async with open_servers(callbacks=3, host=host):  # type: ignore[arg-type]  # likewise
                pass
        with pytest.raises(ValueError, match="max_restarts"):
            async with open_supervisor(worker(), max_restarts=-1, host=host):
                pass

    asyncio.run(main())


TRIO_DOORS: dict[str, tuple[Callable[[], Any], str]] = {
    "open_servers": (servers.open_servers, "from mcp_actors.bridge import open_servers"),
    "open_supervisor": (kernel.open_supervisor, "from mcp_actors.bridge import open_supervisor"),
    "open_actor": (lambda: kernel.open_actor(Worker(), name="worker"), "from mcp_actors.bridge import open_supervisor"),
}
ON_ASYNCIO = {**TRIO_DOORS, "open_asyncio_loop": (open_asyncio_loop, "mcp_actors.bridge.open_servers()")}
ON_TRIO: dict[str, tuple[Callable[[], Any], str]] = {
    "open_servers": (open_servers, "from mcp_actors import open_servers"),
    "open_supervisor": (open_supervisor, "from mcp_actors.kernel import open_supervisor"),
}


async def refused(open_door: Callable[[], Any], needs: str, remedy: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        async with open_door():
            pass
    assert needs in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(("door", "remedy"), ON_ASYNCIO.values(), ids=ON_ASYNCIO)
def test_a_trio_door_on_asyncio_names_the_import_to_use(door: Callable[[], Any], remedy: str) -> None:
    """B-23."""
    asyncio.run(refused(door, "needs trio and was called on asyncio", remedy))


USES: dict[str, Callable[[servers.ServerGroup], Awaitable[object]]] = {
    "a call": lambda group: group["a"].call_tool("echo", {"text": "x"}),
    "a call by public name": lambda group: group.call_tool("mcp__a__echo", {"text": "x"}),
    "a list": lambda group: group["a"].list_tools(),
    "a stop": lambda group: group["a"].stop(),
    "a reconnect": lambda group: group.reconnect(),
    "an addition": lambda group: group.add(server("b")),
    "a reload": lambda group: group.reload(),
}


@pytest.mark.parametrize("use", USES)
async def test_a_group_of_trio_that_is_used_on_asyncio_names_its_remedy(use: str, said: Said) -> None:
    """B-23, B-30: in a thread with an asyncio loop of its own."""

    async def main(group: servers.ServerGroup) -> None:
        await USES[use](group)

    async with servers.open_servers(server("a")) as group:
        with pytest.raises(RuntimeError) as refused:
            await trio.to_thread.run_sync(lambda: asyncio.run(main(group)))
        subject, _, remedy = str(refused.value).partition(":")
        assert subject in ("server 'a'", "this group of servers")
        said("used outside Trio", f"{{subject}}:{remedy}")
        assert (await group["a"].call_tool("echo", {"text": "x"})).is_error is False


@pytest.mark.parametrize(("door", "remedy"), ON_TRIO.values(), ids=ON_TRIO)
async def test_a_bridge_door_on_trio_names_the_import_to_use(door: Callable[[], Any], remedy: str) -> None:
    """B-23."""
    await refused(door, "needs asyncio and was called on trio", remedy)


def test_a_trio_door_in_a_console_of_asyncio_names_the_import_to_use() -> None:
    """B-23: ``python -m asyncio`` awaits at its top level, as notebooks do."""
    typed = "import mcp_actors\nasync with mcp_actors.open_servers(): pass\n\n"
    with tempfile.TemporaryFile("w+") as keyboard:
        keyboard.write(typed)
        keyboard.seek(0)
        console = run_python("-m", "asyncio", cwd=ROOT, timeout=BOUND, stdin=keyboard)
    assert "from mcp_actors.bridge import open_servers" in console.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_a_trio_door_in_asyncio_code_of_a_trio_program_is_refused() -> None:
    """B-23: such code runs inside a Trio task, and a nursery that is opened there ends the whole run."""
    finished = run_python("-m", "tests.bridge.trio_door_on_asyncio", cwd=ROOT, timeout=BOUND)
    assert finished.returncode == 0, finished.stderr
    *lines, coroutine, end = finished.stdout.splitlines()
    assert (lines, end) == ([f"{name} refused" for name in TRIO_DOORS], "went on")
    assert coroutine == ("run() takes an async function and its arguments, not a coroutine; write run(on_asyncio, …)")


async def test_there_is_no_trio_asyncio_on_python_3_14(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setattr(_open, "sys", type("Python", (), {"version_info": (3, 14, 0)}))
    with pytest.raises(RuntimeError) as caught:
        async with open_asyncio_loop():
            pass
    said("no trio-asyncio on Python 3.14", str(caught.value))
    assert "trio_asyncio" not in sys.modules


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
async def test_an_event_loop_that_anyio_would_not_find_is_refused(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setitem(sys.modules, "anyio._backends._asyncio", ModuleType("anyio._backends._asyncio"))
    with pytest.raises(RuntimeError) as caught:
        async with open_asyncio_loop():
            pass
    said("no event loop for AnyIO", str(caught.value))
    assert "trio_asyncio" not in sys.modules


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_failures_and_abandoned_calls_on_the_event_loop_of_a_trio_program() -> None:
    finished = run_python("-m", "tests.bridge.loop_fails", cwd=ROOT, timeout=BOUND)
    assert finished.stdout.splitlines() == [
        "here is stopped",
        "Boom alone",
        "together: Boom Fatal",
        "Fatal alone",
    ], finished.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_only_calls_across_the_bridge_that_would_deadlock_are_refused() -> None:
    """B-35: code on asyncio may call the actor that runs it, but not while that waits for it."""
    finished = run_python("-m", "tests.bridge.circles", cwd=ROOT, timeout=BOUND)
    another, later, tell, back = finished.stdout.splitlines()
    assert (another, later) == ("another: answered", "later: answered"), finished.stderr
    assert tell == "tell: MailboxFull"
    assert back.startswith("back: actor 'p': this call would deadlock")
