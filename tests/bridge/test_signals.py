"""A signal ends an asyncio program, or reloads its configuration, wherever Trio runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import uvloop
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, ServerUnavailable
from mcp_actors.bridge import AsyncioServerRef, Host, open_servers
from tests.forkserver import run_python
from tests.servers.groups import BOUND
from tests.servers.links import text_of
from tests.source import ROOT

HOSTS: list[Host] = ["thread", "guest"]
TERMINATED = 128 + signal.SIGTERM


class Hall:
    """A server in this process that holds three calls until a test lets them go."""

    def __init__(self) -> None:
        self.held = 0
        self.full, self.let_go = asyncio.Event(), asyncio.Event()
        server = MCPServer("hall")
        server.add_tool(self.hold, description="Answer when the test says so.")
        self.config = ServerConfig("hall", InProcess(server))

    async def hold(self) -> str:
        self.held += 1
        if self.held == 3:
            self.full.set()
        await self.let_go.wait()
        return "done"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("again", [False, True])
def test_a_signal_ends_the_program(host: Host, again: bool) -> None:
    """S2-40: all requests are finished first, but for a second signal; the handler of before is there afterwards."""
    answers, before = list[str](), signal.getsignal(signal.SIGTERM)

    async def hold_for_ever(ref: AsyncioServerRef) -> None:
        while True:
            answers.append(text_of(await ref.call_tool("hold")))

    async def main() -> None:
        hall = Hall()
        async with (
            open_servers(hall.config, stop_on=signal.SIGTERM, host=host) as servers,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(3):
                tasks.create_task(hold_for_ever(servers["hall"]))
            await hall.full.wait()
            signal.raise_signal(signal.SIGTERM)
            await servers["hall"].wait_state("stopping")
            if again:
                signal.raise_signal(signal.SIGTERM)
            else:
                hall.let_go.set()
            await asyncio.Event().wait()

    with pytest.raises(SystemExit) as caught:
        asyncio.run(main())
    assert caught.value.code == TERMINATED
    assert answers == ([] if again else ["done"] * 3)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("runs_on", [False, True])
@pytest.mark.parametrize("calls", [False, True])
def test_a_signal_ends_the_program_whichever_task_has_entered_the_block(
    host: Host, again: bool, runs_on: bool, calls: bool
) -> None:
    """D-81: it has ended since, or runs other code. An `AsyncExitStack` holds the block, and the program waits."""
    answers, refusals, facts, before = list[str](), list[str](), list[object](), signal.getsignal(signal.SIGTERM)

    async def hold(ref: AsyncioServerRef) -> None:
        with suppress(ServerUnavailable):  # after the second signal
            answers.append(text_of(await ref.call_tool("hold")))

    async def refused(ref: AsyncioServerRef) -> None:
        try:
            await ref.call_tool("hold")
        except ServerUnavailable as error:
            refusals.append(str(error))
            raise

    async def main() -> None:
        hall, opened = Hall(), asyncio.get_running_loop().create_future()

        async def start_up() -> None:
            opening = open_servers(hall.config, stop_on=signal.SIGTERM, host=host)
            opened.set_result(await stack.enter_async_context(opening))
            if runs_on:
                await asyncio.Event().wait()

        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(start_up())
            ref = (await opened)["hall"]
            holding = [asyncio.create_task(hold(ref)) for _ in range(3)]  # noqa: F841  # keeps the tasks
            await hall.full.wait()
            signal.raise_signal(signal.SIGTERM)
            await ref.wait_state("stopping")
            if again:
                signal.raise_signal(signal.SIGTERM)
            else:
                hall.let_go.set()
            try:
                await (refused(ref) if calls else asyncio.Event().wait())
            finally:
                facts.append((starting.done(), calls or signal.getsignal(signal.SIGTERM) is before))
                if not calls:
                    with suppress(ServerUnavailable):
                        await refused(ref)

    with pytest.raises(SystemExit) as caught:
        asyncio.run(main())
    assert caught.value.code == TERMINATED
    assert answers == ([] if again else ["done"] * 3)
    why = "server 'hall' is stopped because SIGTERM was received, which ends the program (stop_on)"
    assert refusals == [why]
    assert facts == [(True, True)]  # another signal would do what it does without us


LOOP_ENDS = """
import asyncio, signal, sys
from mcp_actors.bridge import open_servers

async def main():
    async with open_servers(stop_on=signal.SIGTERM, host=sys.argv[1]):
        opened.set()
        await asyncio.Event().wait()

loop, opened = asyncio.new_event_loop(), asyncio.Event()
task = loop.create_task(main())
loop.run_until_complete(opened.wait())
loop.close()
signal.raise_signal(signal.SIGTERM)
print("still there")
"""


@pytest.mark.parametrize("host", HOSTS)
def test_a_signal_after_the_end_of_the_event_loop_kills_the_program(host: Host) -> None:
    """The loop was closed under the block, and nothing is there to finish requests."""
    finished = run_python("-c", LOOP_ENDS, host, cwd=ROOT, timeout=BOUND)
    assert (finished.returncode, finished.stdout) == (-signal.SIGTERM, ""), finished.stderr


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("by_loop", [False, True])
def test_a_program_that_is_asked_to_stop_while_it_starts_does_not_wait_for_a_silent_server(
    host: Host, by_loop: bool, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """D-86: a web server notes the signal by a handler of its own, and stops once its application has started."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGTERM)

    @asynccontextmanager
    async def asked_to_stop(_: object) -> AsyncIterator[None]:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()
        yield

    async def main() -> None:
        if by_loop:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, noted.append, signal.SIGTERM)
        silent = ServerConfig("silent", InProcess(MCPServer("silent", lifespan=asked_to_stop)), connect_timeout=3)
        async with open_servers(silent, host=host) as servers:
            assert servers["silent"].state == "connecting"
        assert noted == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)  # which finds all as it was
        while len(noted) < 2:  # noqa: ASYNC110 - handlers run in the event loop
            await asyncio.sleep(0)

    signal.signal(signal.SIGTERM, lambda number, _: noted.append(number))
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_outside_the_main_thread_signals_are_refused() -> None:
    def run() -> None:
        async def main() -> None:
            async with open_servers(Hall().config, stop_on=signal.SIGTERM):
                raise AssertionError("not reached")

        asyncio.run(main())

    async def in_thread() -> None:
        with pytest.raises(RuntimeError, match="stop_on needs the main thread"):
            await asyncio.to_thread(run)

    asyncio.run(in_thread())
