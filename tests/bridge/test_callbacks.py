"""Functions of an asyncio program run on its event loop, each call in a task of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from mcp.client import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListToolsRequest,
    ListToolsResult,
    Notification,
    TextContent,
)

from mcp_actors import (
    Callbacks,
    CatalogTool,
    ConnectFailed,
    InProcess,
    RequestTimedOut,
    ServerConfig,
    ServerUnavailable,
    StateChanged,
    Stdio,
    ToolFilter,
    ToolRequest,
)
from mcp_actors.bridge import Host, open_servers, open_supervisor
from mcp_actors.config import CallbackContext, ConfigValue, Secret, ToolContext
from mcp_actors.kernel import ChildSpec, Event, RequestStarted
from mcp_actors.servers import ResourceUpdated
from tests.servers.asking import ACCEPTED, ELICIT, SAID, SAMPLE, asking
from tests.servers.groups import BOUND, server
from tests.servers.library import Library
from tests.servers.links import text_of
from tests.servers.plain_functions import LOG, QUESTIONS, Heard
from tests.servers.scripted_server import command
from tests.servers.test_extensions import JobResult, Mood

from .actors import Echo, Worker, caller

A = "file:///a"

HOSTS: list[Host] = ["thread", "guest"]
pytestmark = pytest.mark.parametrize("host", HOSTS)

CallNext = Callable[[ToolRequest], Awaitable[CallToolResult]]


def test_plain_functions_work_wherever_a_function_may_be_given(host: Host) -> None:
    """C-54: they are called on the event loop, not in a thread."""
    complete = asyncio.Event()
    heard = Heard(complete.set)

    async def main() -> None:
        configs = heard.asking(), heard.reporting(), heard.extended()
        async with open_servers(*configs, host=host) as servers:
            await servers["a"].call_tool("ask", {"questions": QUESTIONS})
            await servers["a"].call_tool("tell", {"notifications": [LOG]})
            await servers["reporting"].call_tool("add", {"a": 1, "b": 2}, progress=heard.progress)
            assert text_of(await servers["library"].call_tool("search")) == "job endless"
            await asyncio.wait_for(complete.wait(), BOUND)

    asyncio.run(main())
    assert heard.threads == {threading.current_thread()}


def test_middleware_runs_on_the_event_loop_in_the_callers_context(host: Host) -> None:
    """And so do the functions that it awaits. A request that it passes on reaches the server."""
    heard: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def shout(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        heard.append(f"{caller.get()} {threading.current_thread().name} {asyncio.get_running_loop() is loops[0]}")
        await asyncio.sleep(0)
        assert request.arguments is not None
        return await call_next(attrs.evolve(request, arguments={"text": request.arguments["text"].upper()}))

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        caller.set("ann")
        async with open_servers(server("a", middleware=[shout]), host=host) as servers:
            assert text_of(await servers["a"].call_tool("echo", {"text": "hi"})) == "HI"
        assert heard == [f"ann {threading.current_thread().name} True"]

    asyncio.run(main())


def test_questions_of_a_server_are_answered_on_the_event_loop(host: Host) -> None:
    """Callbacks of the group and of one server alike."""
    threads: list[str] = []

    async def say(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)
        return SAID

    async def accept(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)
        return ACCEPTED

    async def main() -> None:
        config = asking(callbacks=Callbacks(elicitation=accept))
        async with open_servers(config, callbacks=Callbacks(sampling=say), host=host) as servers:
            for question in (SAMPLE, ELICIT):
                result = await servers["a"].call_tool("ask", {"questions": [question]})
                assert not result.is_error
        assert threads == [threading.current_thread().name] * 2

    asyncio.run(main())


def test_changes_of_resources_are_an_async_iterator(host: Host) -> None:
    library = Library()

    async def main() -> None:
        async with open_servers(library.config(), host=host) as servers:
            async with servers["library"].subscribe(A) as changes:
                await library.change(A)
                assert await anext(changes) == ResourceUpdated(A)
            assert [change async for change in changes] == []

    asyncio.run(main())


def test_an_exception_of_middleware_reaches_the_caller(host: Host) -> None:
    async def refuse(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        raise PermissionError(request.name)

    async def main() -> None:
        async with open_servers(server("a", middleware=[refuse]), host=host) as servers:
            with pytest.raises(PermissionError, match="echo"):
                await servers["a"].call_tool("echo", {"text": "hi"})

    asyncio.run(main())


def test_middleware_is_cancelled_with_its_request(host: Host) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def dawdle(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        begun.append(request.name)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.name)
        raise AssertionError("unreachable")

    async def main() -> None:
        async with open_servers(server("a", middleware=[dawdle], request_timeout=0.05), host=host) as servers:
            while "echo" not in begun:  # the time may be over before it has begun
                with pytest.raises(RequestTimedOut):
                    await servers["a"].call_tool("echo", {"text": "hi"})
        async with open_servers(server("a", middleware=[dawdle]), host=host) as servers:
            while "sleep" not in begun:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await servers["a"].call_tool("sleep", {"seconds": 1})
        assert ended == begun
        assert set(begun) == {"echo", "sleep"}  # twice, if one has begun just when its caller had left

    asyncio.run(main())


def test_functions_that_return_a_value_are_called_on_the_event_loop(host: Host) -> None:
    asked: list[bool] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def token() -> str:
        await asyncio.sleep(0)
        asked.append(asyncio.get_running_loop() is loops[0])
        return "async"

    def plain() -> str:
        asked.append(asyncio.get_running_loop() is loops[0])
        return "plain"

    program, args = command()
    env: dict[str, ConfigValue] = {"ONE": token, "TWO": plain, "THREE": Secret("x"), "FOUR": "y"}
    config = ServerConfig("a", Stdio(program, args, env=env), protocol="legacy")

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        async with open_servers(config, host=host, strict=True):
            assert asked == [True, True]

    asyncio.run(main())


def test_observers_are_called_on_the_event_loop_with_every_event_in_order(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    threads: set[str] = set()

    def observe(event: Event) -> None:
        threads.add(threading.current_thread().name)
        seen.append(event)

    def broken(event: Event) -> None:
        raise ValueError("an observer of no use")

    async def main() -> None:
        async with open_servers(server("a"), observers=[broken, observe], host=host):
            pass
        assert [event.new for event in seen if isinstance(event, StateChanged)] == [
            "connecting",
            "ready",
            "stopping",
            "stopped",
        ]
        assert threads == {threading.current_thread().name}

    asyncio.run(main())
    assert "an observer of no use" in caplog.text


def test_observers_are_not_called_within_a_step_of_trio(host: Host) -> None:
    """There the state that they may ask for is about to change; a guest shares the thread, so it is not given."""
    within: list[bool] = []

    async def main() -> None:
        observers = [lambda _: within.append(trio.lowlevel.in_trio_task())]
        async with open_supervisor(ChildSpec("worker", Worker), observers=observers, host=host) as supervisor:
            assert await supervisor.child("worker").call(Echo(1)) == 1

    asyncio.run(main())
    assert set(within) == {False}


class Uninterested:
    """An observer that does not want to hear of single requests."""

    wants_requests = False

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def __call__(self, event: Event, /) -> None:
        self.seen.append(event)


def test_an_observer_that_wants_no_requests_gets_no_events_of_requests(host: Host) -> None:
    observer = Uninterested()

    async def main() -> None:
        async with open_supervisor(ChildSpec("worker", Worker), observers=[observer], host=host) as supervisor:
            assert await supervisor.child("worker").call(Echo(1)) == 1

    asyncio.run(main())
    assert observer.seen
    assert not any(isinstance(event, RequestStarted) for event in observer.seen)


def test_a_callback_that_ends_as_cancelled_fails_the_request(host: Host) -> None:
    async def give_up(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        raise asyncio.CancelledError

    async def main() -> None:
        async with open_servers(server("a", middleware=[give_up]), host=host) as servers:
            with pytest.raises(RuntimeError, match=r"give_up: was cancelled on its event loop"):
                await servers["a"].call_tool("echo", {"text": "hi"})

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_the_predicate_of_a_filter_is_asked_on_the_event_loop(host: Host, is_async: bool) -> None:
    asked: list[str] = []

    def plain(tool: CatalogTool, context: ToolContext) -> bool:
        asyncio.get_running_loop()
        asked.append(f"{threading.current_thread().name} {caller.get()}")
        return bool(tool.name == context.agent)

    async def waiting(tool: CatalogTool, context: ToolContext) -> bool:
        await asyncio.sleep(0)  # fails outside asyncio
        return plain(tool, context)

    predicate = waiting if is_async else plain

    async def main() -> None:
        caller.set("ann")
        async with open_servers(server("a", tool_filter=ToolFilter(predicate=predicate)), host=host) as servers:
            assert [tool.name for tool in await servers.list_tools(ToolContext("echo"))] == ["echo"]
        assert set(asked) == {f"{threading.current_thread().name} ann"}
        with pytest.raises(ServerUnavailable, match="this group of servers is stopped"):
            await servers.list_tools(ToolContext("echo"))

    asyncio.run(main())


class Jobs(ClientExtension):
    """Asks for the tools before it answers for a job, and hears of moods. Notes where its code runs."""

    identifier = "com.example/jobs"

    def __init__(self) -> None:
        self.ran: dict[str, set[str]] = {}
        self.heard = asyncio.Event()

    def note(self, what: str) -> None:
        self.ran.setdefault(what, set()).add(f"{threading.current_thread().name} {caller.get('nobody')}")

    def settings(self) -> dict[str, Any]:
        self.note("settings")
        return {}

    def claims(self) -> list[ResultClaim[Any]]:
        self.note("claims")
        return [ResultClaim(result_type="job", model=JobResult, resolve=self.wait)]

    def notifications(self) -> list[NotificationBinding[Any]]:
        self.note("notifications")
        return [NotificationBinding(method="notifications/mood", params_type=Mood, handler=self.hear)]

    async def wait(self, result: JobResult, ctx: ClaimContext) -> CallToolResult:
        await asyncio.sleep(0)
        self.note("resolve")
        listed = await ctx.session.send_request(ListToolsRequest(), ListToolsResult, progress_callback=self.progress)
        version = ctx.session.protocol_version
        return CallToolResult(content=[TextContent(text=f"{result.job}: {len(listed.tools)} tools, {version}")])

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        self.note("progress")

    async def hear(self, params: Mood) -> None:
        await asyncio.sleep(0)
        self.note("handler")
        self.heard.set()


async def answer_with_a_job(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Answer tool calls as a server of the extension does."""
    if ctx.method == "tools/list":
        await ctx.session.report_progress(1.0)
    if ctx.method != "tools/call":
        return await call_next(ctx)
    mood = Notification[Mood, str](method="notifications/mood", params=Mood(mood="busy"))
    await ctx.session.send_notification(mood, related_request_id=ctx.request_id)
    return {"resultType": "job", "job": "digging"}


def test_extensions_run_on_the_event_loop(host: Host) -> None:
    """B-26: what they declare, what they claim, what they observe; and the session that they are given works there."""
    library = Library()
    library.server.middleware.append(answer_with_a_job)

    async def main() -> None:
        caller.set("ann")
        jobs = Jobs()
        config = library.config(protocol="2026-07-28", extensions=[jobs])
        async with open_servers(config, host=host) as servers:
            assert text_of(await servers["library"].call_tool("search")) == "digging: 1 tools, 2026-07-28"
            await jobs.heard.wait()
            await servers["library"].restart()
        here = threading.current_thread().name
        assert set(jobs.ran) == {"settings", "claims", "notifications", "resolve", "progress", "handler"}
        assert jobs.ran["resolve"] == {f"{here} ann"}
        assert {place.split()[0] for places in jobs.ran.values() for place in places} == {here}

    asyncio.run(main())


# --- in-process servers -----------------------------------------------------------------------------------------------


class Notes(list[str]):
    """The actions of a server, each with its thread and its caller."""

    def __init__(self) -> None:
        self.hanging, self.cancelled = asyncio.Event(), asyncio.Event()


def in_process(**options: Any) -> tuple[ServerConfig, Notes]:
    """Configure a server whose code is written for asyncio."""
    notes = Notes()

    def note(what: str) -> None:
        asyncio.get_running_loop()
        notes.append(f"{what} {threading.current_thread().name} {caller.get('nobody')}")

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        note("enter")
        yield
        await asyncio.sleep(0)
        note("leave")

    here = MCPServer("here", lifespan=lifespan)

    @here.tool()
    async def work(steps: int, ctx: Context[Any]) -> str:
        for step in range(steps):
            await asyncio.sleep(0)
            await ctx.report_progress(step)
        note("work")
        return "done"

    @here.tool()
    async def hang() -> None:
        notes.hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            notes.cancelled.set()

    return ServerConfig("here", InProcess(here), **options), notes


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_an_in_process_server_runs_on_the_event_loop(host: Host, protocol: Any) -> None:
    """B-26: its lifespan and its tools, in the context of the caller, and a reconnect serves it anew."""
    config, notes = in_process(protocol=protocol)
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def main() -> None:
        async with open_servers(config, host=host) as servers:
            caller.set("ann")
            assert text_of(await servers["here"].call_tool("work", {"steps": 3}, progress=hear)) == "done"
            await servers["here"].restart()
            assert text_of(await servers["here"].call_tool("work", {"steps": 0})) == "done"

    asyncio.run(main())
    name = threading.current_thread().name
    assert heard == [0.0, 1.0, 2.0]
    assert [note.split()[0] for note in notes] == ["enter", "work", "leave", "enter", "work", "leave"]
    assert notes[1] == notes[4] == f"work {name} ann"
    assert {note.split()[1] for note in notes} == {name}


def test_a_call_that_is_cancelled_is_cancelled_in_an_in_process_server(host: Host) -> None:
    """B-26, A-14."""
    config, notes = in_process()

    async def main() -> None:
        async with open_servers(config, host=host) as servers:
            call = asyncio.create_task(servers["here"].call_tool("hang"))
            await notes.hanging.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await notes.cancelled.wait()
            assert text_of(await servers["here"].call_tool("work", {"steps": 1})) == "done"

    asyncio.run(main())


def test_an_in_process_server_that_cannot_start_says_why(host: Host) -> None:
    """B-26: what its lifespan raises is the cause."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        if caller.get("nobody") == "nobody":
            raise OSError("the database is locked")
        yield

    async def main() -> None:
        config = ServerConfig("here", InProcess(MCPServer("here", lifespan=lifespan)), required=True)
        with pytest.raises(ConnectFailed, match="the database is locked"):
            async with open_servers(config, host=host):
                pass

    asyncio.run(main())


def test_a_group_leaves_no_task_of_an_in_process_server(host: Host) -> None:
    """B-26: a lifespan that does not end is cancelled."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    async def main() -> None:
        config = ServerConfig("here", InProcess(MCPServer("here", lifespan=lifespan)), stop_timeout=0.2)
        async with open_servers(config, host=host):
            pass
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_reload_recognizes_functions_and_servers_of_the_program(host: Host) -> None:
    """S3-15: a server that was given before is the same, and runs on; a removed one is given anew."""
    asked: list[str] = []

    async def note(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        asked.append(request.server)
        return await call_next(request)

    house = MCPServer("house")
    house.add_tool(lambda: "here", name="who", description="Say who answers.")

    def config(name: str, **options: Any) -> ServerConfig:
        return ServerConfig(name, InProcess(house), middleware=[note], protocol="legacy", **options)

    async def main() -> None:
        async with open_servers(config("a"), config("b"), host=host) as servers:
            summary = await servers.reload(config("a"), config("b", request_timeout=7.0), config("c"))
            assert (summary.added, summary.changed, summary.unchanged) == (("c",), ("b",), ("a",))
            await servers.remove("a")
            await servers.add(config("a"))
            for ref in servers.configured:
                await ref.call_tool("who")
            assert [ref.statistics().incarnation for ref in servers.configured] == [2, 1, 1]
        assert asked == ["b", "c", "a"]

    asyncio.run(main())
