"""The task that enters and leaves the link to a server and the session over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, field

from mcp_actors import ConnectFailed, Http, ServerConfig, open_servers
from mcp_actors.kernel import StopFailed
from mcp_actors.servers._session import ConnectionSession
from mcp_actors.servers.connection import _actor, _negotiation
from mcp_actors.transports import Link, open_link
from tests.idle_clock import IdleClock

from .groups import AT_ONCE, LATER, NEVER, Events, Fault, crash, server, state
from .http_server import run_server
from .links import text_of


@define
class Visits:
    """The task that entered or left each resource, in order."""

    seen: list[tuple[str, trio.lowlevel.Task]] = field(factory=list)

    def note(self, what: str) -> None:
        self.seen.append((what, trio.lowlevel.current_task()))

    @property
    def order(self) -> list[str]:
        return [what for what, _ in self.seen]

    def tasks(self) -> list[trio.lowlevel.Task]:
        """Return the task of each connection, which must be one alone."""
        connections = [self.seen[begin : begin + 4] for begin in range(0, len(self.seen), 4)]
        found = [{task for _, task in connection} for connection in connections]
        assert all(len(tasks) == 1 for tasks in found), found
        return [task for tasks in found for task in tasks]


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Visits:
    """Watch the seam: what the actor enters and leaves."""
    visits = Visits()

    @asynccontextmanager
    async def watched_link(config: ServerConfig, **options: Any) -> AsyncIterator[Link]:
        visits.note("enter link")
        try:
            async with open_link(config, **options) as link:
                yield link
        finally:
            visits.note("leave link")

    class WatchedSession(ConnectionSession):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[None]:
            visits.note("enter session")
            try:
                async with super().open():
                    yield
            finally:
                visits.note("leave session")

    monkeypatch.setattr(_actor, "open_link", watched_link)
    monkeypatch.setattr(_negotiation, "ConnectionSession", WatchedSession)
    return visits


CONNECTION = ["enter link", "enter session", "leave session", "leave link"]


async def in_another_task(step: Callable[[], Any]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(step)


async def test_one_task_owns_a_connection_from_the_first_step_to_the_last(visits: Visits) -> None:
    """S1-01: link and session are entered and left by one owner, the session inside the link.

    S1-03: connect and clean-up run in the same task, whichever task asks for them, and however the connection ends.
    """
    async with open_servers(server("a", restarts=AT_ONCE)) as group:
        await in_another_task(group["a"].restart)
        await crash(group, "a")
        await group.wait_ready()
        await in_another_task(group["a"].stop)
        await group["a"].start()
    assert visits.order == CONNECTION * 4
    tasks = visits.tasks()
    assert len({*tasks}) == 4
    assert trio.lowlevel.current_task() not in tasks
    assert {task.name for task in tasks} == {"a"}


async def test_servers_that_start_side_by_side_have_an_owner_each(visits: Visits) -> None:
    """S1-04: the parallel start of a group keeps every connection in one task."""
    async with open_servers(server("a"), server("b"), server("c")):
        assert sorted(visits.order) == ["enter link"] * 3 + ["enter session"] * 3
    by_task: dict[str, list[str]] = {}
    for what, task in visits.seen:
        by_task.setdefault(task.name, []).append(what)
    assert by_task == dict.fromkeys(("a", "b", "c"), CONNECTION)


async def test_servers_that_are_started_one_after_the_other_have_an_owner_each(visits: Visits) -> None:
    """S1-04: so does a sequence of starts."""
    async with open_servers(server("a"), server("b")) as group:
        for name in group:
            await group[name].stop()
        visits.seen.clear()
        for name in group:
            await group[name].start()
        assert visits.order == ["enter link", "enter session"] * 2
        for name in group:
            await group[name].stop()
        assert visits.order == ["enter link", "enter session"] * 2 + ["leave session", "leave link"] * 2
    for name in ("a", "b"):
        assert len({task for _, task in visits.seen if task.name == name}) == 1


@pytest.mark.parametrize("flags", [("--exit-at-start", "3"), ("--error-on-list",), ("--hang-on-list",)])
async def test_a_connect_that_fails_leaves_what_it_had_entered(
    visits: Visits, flags: tuple[str, ...], idle_clock: IdleClock
) -> None:
    """S1-02: in reverse order and in the task that had entered it, wherever the connect failed.

    S1-03: a failed connect too.
    """
    with pytest.raises(ConnectFailed):
        async with open_servers(server("a", *flags), strict=True):
            pass
    # A session that cannot be entered is not left.
    assert [step for step in visits.order if step != "leave session"] == ["enter link", "enter session", "leave link"]
    assert len({task for _, task in visits.seen}) == 1


async def test_clean_up_goes_on_across_a_failure(visits: Visits) -> None:
    """S1-06: in reverse order; a session that raises on its way out keeps nothing else from being closed."""
    fault, events = Fault(), Events()
    fault.on_exit = RuntimeError("no way out")
    async with open_servers(server("a"), fault.config("b"), server("c"), observers=[events]) as group:
        assert group.active == group.configured
        visits.seen.clear()
    assert sorted(visits.order) == ["leave link"] * 3 + ["leave session"] * 3
    for name in group:
        assert [what for what, task in visits.seen if task.name == name] == ["leave session", "leave link"]
        assert state(group, name) == "stopped"
    [failed] = events.of(StopFailed)
    assert (failed.actor, failed.error) == ("b", fault.on_exit)


async def test_servers_over_stdio_over_http_and_in_this_process_are_one_group(visits: Visits) -> None:
    """S2-01: stdio and HTTP, each connection with an owner of its own."""
    with run_server() as running:
        async with open_servers(
            server("pipe"),
            ServerConfig("web", Http(running.url)),
            Fault().config("here"),
            ServerConfig("nobody", Http("http://127.0.0.1:9/mcp"), restarts=NEVER),
            server("broken", "--exit-at-start", "3", restarts=LATER),
        ) as group:
            assert [ref.name for ref in group.active] == ["pipe", "web", "here"]
            assert [*group.errors] == ["nobody", "broken"]
            assert "http://127.0.0.1:9/mcp" in str(group.errors["nobody"])
            pids = {str(running.pid), str(group["pipe"].statistics().pid)}
            await group.reconnect("web", "here")
            for name in ("pipe", "web"):
                assert text_of(await group[name].call_tool("pid")) in pids
            assert text_of(await group["here"].call_tool("ping")) == "pong"
            assert {tool.server for tool in group.tools} == {"pipe", "web", "here"}
    for name in ("pipe", "web", "here"):
        assert len({task for _, task in visits.seen if task.name == name}) == (1 if name == "pipe" else 2)
