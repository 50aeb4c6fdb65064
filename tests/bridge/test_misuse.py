"""Who uses a view where it cannot work is told so, and what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

from mcp_actors import ConfigError, ServerUnavailable, kernel, servers
from mcp_actors.bridge import Host, _asyncio_loop, open_asyncio_loop, open_servers, open_supervisor
from mcp_actors.kernel import ActorStopped, ChildSpec
from tests.forkserver import run_python
from tests.servers.groups import BOUND, server
from tests.source import ROOT

from .actors import Count, Echo, Worker

HOSTS: list[Host] = ["thread", "guest"]


def worker() -> ChildSpec:
    return ChildSpec("worker", Worker)


@pytest.mark.parametrize("host", HOSTS)
def test_use_after_the_end(host: Host) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            ref = supervisor.child("worker")
        with pytest.raises(
            ActorStopped, match="actor 'worker': has stopped, because the block that opened it was left"
        ):
            await ref.call(Echo(1))
        with pytest.raises(ActorStopped, match="actor 'supervisor'"):
            await supervisor.which_children()
        assert ref.state == "stopped"
        async with open_servers(server("a"), host=host) as servers:
            pass
        with pytest.raises(ServerUnavailable, match=r"server 'a': its group was left.*open_servers again"):
            await servers["a"].list_tools()
        with pytest.raises(ServerUnavailable, match="this group of servers was left"):
            await servers.reconnect()
        with pytest.raises(ServerUnavailable, match="this group of servers was left"):
            async with servers.watch_events():
                pass

    asyncio.run(main())


def in_a_loop_of_its_own(make: Callable[[], Any]) -> None:
    async def main() -> None:
        await make()

    asyncio.run(main())


@pytest.mark.parametrize("host", HOSTS)
def test_use_from_a_second_event_loop(host: Host) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            ref = supervisor.child("worker")
            with pytest.raises(
                RuntimeError, match=r"actor 'worker': was opened on another event loop.*run_coroutine_thr"
            ):
                await asyncio.to_thread(in_a_loop_of_its_own, lambda: ref.call(Echo(1)))
            with pytest.raises(RuntimeError, match="actor 'supervisor': was opened on another event loop"):
                await asyncio.to_thread(in_a_loop_of_its_own, supervisor.which_children)
            loop = asyncio.get_running_loop()

            def as_told() -> int:
                return asyncio.run_coroutine_threadsafe(ref.call(Echo(2)), loop).result()

            assert await asyncio.to_thread(as_told) == 2

    asyncio.run(main())


def test_use_from_a_plain_thread_and_from_trio() -> None:
    async def main() -> None:
        async with open_supervisor(worker()) as supervisor:
            ref = supervisor.child("worker")

            def step() -> None:
                ref.call(Count()).send(None)

            message = "actor 'worker': was opened on an asyncio event loop, and is used from where none runs"
            with pytest.raises(RuntimeError, match=message):
                await asyncio.to_thread(step)
            with pytest.raises(RuntimeError, match=message):
                await asyncio.to_thread(trio.run, ref.call, Count())

    asyncio.run(main())


def test_a_block_is_entered_once() -> None:
    async def main() -> None:
        door = open_supervisor(worker())
        async with door:
            pass
        with pytest.raises(RuntimeError, match="this block was entered before"):
            async with door:
                pass

    asyncio.run(main())


def test_one_thread_has_room_for_one_guest() -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host="guest") as supervisor:
            with pytest.raises(RuntimeError, match="host='guest': another Trio run is a guest of this thread already"):
                async with open_supervisor(worker(), host="guest"):
                    pass
            async with open_supervisor(worker(), host="thread") as second:
                assert await second.child("worker").call(Echo(1)) == 1
            assert await supervisor.child("worker").call(Echo(2)) == 2

    asyncio.run(main())


def test_a_host_that_there_is_not() -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host="process"):  # type: ignore[arg-type]  # that is what is tested
            pass

    with pytest.raises(ValueError, match="host='process': Trio runs in a 'thread' of its own, or as a 'guest'"):
        asyncio.run(main())


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_configured_wrong_is_refused_as_for_trio(host: Host) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="open_servers takes"):
            async with open_servers(3, host=host):  # type: ignore[arg-type]  # that is what is tested
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


@pytest.mark.parametrize(("door", "remedy"), ON_TRIO.values(), ids=ON_TRIO)
async def test_a_bridge_door_on_trio_names_the_import_to_use(door: Callable[[], Any], remedy: str) -> None:
    """B-23."""
    await refused(door, "needs asyncio and was called on trio", remedy)


def test_a_trio_door_in_a_console_of_asyncio_names_the_import_to_use() -> None:
    """B-23: ``python -m asyncio`` awaits at its top level, as notebooks do."""
    typed = "import mcp_actors\nasync with mcp_actors.open_servers(): pass\n\n"
    console = subprocess.run(
        [sys.executable, "-m", "asyncio"], input=typed, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert "from mcp_actors.bridge import open_servers" in console.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_a_trio_door_in_asyncio_code_of_a_trio_program_is_refused() -> None:
    """B-23: such code runs inside a Trio task, and a nursery that is opened there ends the whole run."""
    finished = run_python("-m", "tests.bridge.trio_door_on_asyncio", cwd=ROOT, timeout=BOUND)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [f"{name} refused" for name in TRIO_DOORS] + ["went on"]


async def test_there_is_no_trio_asyncio_on_python_3_14(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_asyncio_loop, "sys", type("Python", (), {"version_info": (3, 14, 0)}))
    with pytest.raises(RuntimeError, match=r"does not work on Python 3.14 or newer; let asyncio be the outer one"):
        async with open_asyncio_loop():
            pass
    assert "trio_asyncio" not in sys.modules


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_what_fails_or_is_left_behind_on_the_event_loop_of_a_trio_program() -> None:
    finished = run_python("-m", "tests.bridge.loop_fails", cwd=ROOT, timeout=BOUND)
    assert finished.stdout.splitlines() == [
        "here is stopped",
        "Boom alone",
        "together: Boom Fatal",
        "Fatal alone",
    ], finished.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_of_calls_that_cross_the_bridge_only_those_are_refused_that_would_deadlock() -> None:
    """B-35: code on asyncio may call the actor that runs it, but not while that waits for it."""
    finished = run_python("-m", "tests.bridge.circles", cwd=ROOT, timeout=BOUND)
    another, later, tell, back = finished.stdout.splitlines()
    assert (another, later) == ("another: answered", "later: answered"), finished.stderr
    assert tell == "tell: MailboxFull"
    assert back.startswith("back: actor 'p': this call would deadlock")
