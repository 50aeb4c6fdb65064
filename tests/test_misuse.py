"""Wrong calls of the public API are explained in one sentence with a remedy."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import re
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from typing import Any, Final

import attrs
import pytest
import trio
import trio.lowlevel
from mcp.server.mcpserver import MCPServer

import mcp_actors
from mcp_actors import (
    Http,
    InProcess,
    ServerConfig,
    ServerUnavailable,
    Socket,
    Stdio,
    ToolFilter,
    auth,
    bridge,
    catalog,
    config,
    kernel,
    load_config,
    open_servers,
    servers,
    sync,
)
from mcp_actors._misuse import LONGEST_MESSAGE, explained
from mcp_actors.bridge import open_supervisor
from mcp_actors.kernel import Actor, ActorStopped, Call, ChildSpec, Later
from mcp_actors.observe import Metrics

LIMIT: Final = (
    "set ServerConfig(request_timeout=…), or limit this call with `with trio.fail_after(seconds):` (on asyncio: `async "
    "with asyncio.timeout(seconds):`; in threads: `with mcp_actors.sync.fail_after(seconds):`)"
)
"""What to do instead of ``timeout=``."""

NOT_WRITTEN: Final = {
    *("CallbackContext", "EffectiveCallbacks", "Input", "LoadedConfig", "ToolRequest"),
    *catalog.__all__,
    *servers.__all__,
}
"""Data that this package makes, and no program."""

WRITTEN: Final[dict[str, Any]] = {
    name: getattr(module, name)
    for module in (auth, config, mcp_actors)
    for name in module.__all__
    if name not in NOT_WRITTEN and attrs.has(getattr(module, name))
} | {name: getattr(config, name) for name in ("DirectorySource", "FileSource", "PostgresSource", "SqliteSource")}
"""The classes that programs make objects of."""


def sentence(error: BaseException) -> str:
    """Return the text of an error, which must be short enough to be read."""
    assert "\n" not in str(error)
    assert len(str(error)) < LONGEST_MESSAGE
    assert not getattr(error, "__notes__", ())
    return str(error)


class Ask(Call[int]):
    pass


def configured() -> ServerConfig:
    """Return the configuration of a server in this process."""
    made = MCPServer("a")

    @made.tool()
    def echo(text: str) -> str:
        return text

    return ServerConfig("a", InProcess(made))


@pytest.mark.parametrize("name", WRITTEN)
def test_each_class_names_the_option_that_a_misspelled_one_may_mean(name: str) -> None:
    """C-55."""
    kind = WRITTEN[name]
    option = [*inspect.signature(kind).parameters][-1]
    with pytest.raises(TypeError) as caught:
        kind(**{f"{option}s": None})
    assert sentence(caught.value) == f"{name}: unknown argument '{option}s'; did you mean {option}?"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: ServerConfig("a", Stdio("x"), timeout=5),  # type: ignore[call-arg]  # the mistake
            "ServerConfig: unknown argument 'timeout'; did you mean request_timeout, connect_timeout, startup_timeout, "
            "progress_timeout, idle_timeout or stop_timeout?",
        ),
        (
            lambda: ServerConfig("a", Stdio("x"), tools=5),  # type: ignore[call-arg]  # the mistake
            "ServerConfig: unknown argument 'tools'; did you mean tool_filter, static_tools or on_tool_change?",
        ),
        (
            lambda: Http("https://example.com/mcp", timeout=5),  # type: ignore[call-arg]  # the mistake
            "Http: unknown argument 'timeout'; set it for each server: ServerConfig(connect_timeout=…, "
            "request_timeout=…)",
        ),
        (
            lambda: ToolFilter(x=5),  # type: ignore[call-arg]  # the mistake
            "ToolFilter: unknown argument 'x'; its arguments are: allow, deny, patterns, predicate",
        ),
        (
            lambda: ServerConfig("a", Stdio("x"), **{"y" * 500: 5}),  # type: ignore[arg-type]  # the mistake
            f"ServerConfig: unknown argument '{'y' * 40}'; see help(ServerConfig)",
        ),
        (
            lambda: ServerConfig("a", command="x"),  # type: ignore[call-arg]  # the mistake
            "ServerConfig: unknown argument 'command'; it belongs in Stdio(command, args, …)",
        ),
        (
            lambda: ServerConfig("a", url="x"),  # type: ignore[call-arg]  # the mistake
            "ServerConfig: unknown argument 'url'; it belongs in Http(url, …)",
        ),
        (
            lambda: ServerConfig("a", Stdio("x"), require_approval="always"),  # type: ignore[call-arg]  # the mistake
            "ServerConfig: unknown argument 'require_approval'; ask in a middleware, or set the approval of an agent's "
            "adapter",
        ),
        (
            lambda: Http("https://example.com/mcp", token="x"),  # type: ignore[call-arg]  # the mistake
            "Http: unknown argument 'token'; write auth=…",
        ),
        (
            lambda: Stdio("x", "--local-timezone", "UTC"),  # type: ignore[call-arg, arg-type]  # the mistake
            'Stdio: too many positional arguments; its arguments are one list: Stdio("command", ["--option", "value"])',
        ),
        (
            lambda: Socket("localhost", 8000),  # type: ignore[call-arg, arg-type]  # the mistake
            'Socket: too many positional arguments; the address is one str: Socket("HOST:PORT")',
        ),
        (
            lambda: sync.open_servers({}, stop_on=15),  # type: ignore[call-arg]  # the mistake
            "open_servers(): unknown argument 'stop_on'; in threads, call sys.exit in a handler of the signal",
        ),
        (
            lambda: load_config({}, envfile=".env"),  # type: ignore[call-arg]  # the mistake
            "load_config(): unknown argument 'envfile'; did you mean env_file?",
        ),
        *(
            (lambda door=door, words=words: door(**words), f"open_servers(): unknown argument {said}")
            for door in (open_servers, bridge.open_servers)
            for words, said in [
                ({"strct": True}, "'strct'; did you mean strict?"),
                (
                    {"timeout": 5},
                    "'timeout'; set it for each server: ServerConfig(connect_timeout=…, request_timeout=…)",
                ),
            ]
        ),
    ],
)
def test_an_unknown_argument_has_a_remedy(call: Callable[[], object], said: str) -> None:
    """C-55."""
    with pytest.raises(TypeError) as caught:
        call()
    assert sentence(caught.value) == said


CALLS: Final[dict[str, tuple[Callable[[Any], Awaitable[object]], str]]] = {
    "call_tool": (lambda group: group["a"].call_tool("echo", {}, timeout=5), LIMIT),
    "call_tool of a group": (lambda group: group.call_tool("mcp__a__echo", {}, timeout=5), LIMIT),
    "list_tools": (lambda group: group["a"].list_tools(timeout=5), LIMIT),
    "list_tools of a group": (lambda group: group.list_tools(timeout=5), LIMIT),
    "read_resource": (lambda group: group["a"].read_resource("x://y", timeout=5), LIMIT),
    "get_prompt": (lambda group: group["a"].get_prompt("x", timeout=5), LIMIT),
    "get_prompt of a prompt": (
        lambda group: group["a"].get_prompt("x", meal="lunch"),
        "did you mean meta? The prompt's own arguments are one mapping: get_prompt(name, {'meal': …})",
    ),
    "wait_ready": (lambda group: group["a"].wait_ready(timeout=5), LIMIT),
    "reconnect": (lambda group: group.reconnect(failed=True), "did you mean failed_only?"),
}
IN_THREADS: Final = " (in code without it, use mcp_actors.sync)"

ARGUMENTS: Final = {
    "text": "the tool's own arguments are one mapping: call_tool(name, {'text': …})",
    "argument": "did you mean arguments? The tool's own arguments are one mapping: call_tool(name, {'argument': …})",
}


async def use_wrongly(group: Any) -> None:
    """Use an open group wrongly."""
    for name, (call, remedy) in CALLS.items():
        with pytest.raises(TypeError) as caught:
            await call(group)
        said = sentence(caught.value)
        assert said.startswith(f"{name.partition(' of ')[0]}(): unknown argument ")
        assert said.endswith(f"; {remedy}")
    for argument, remedy in ARGUMENTS.items():
        with pytest.raises(TypeError) as caught:
            await group["a"].call_tool("echo", **{argument: "x"})
        assert sentence(caught.value) == f"call_tool(): unknown argument {argument!r}; {remedy}"
    for option, given, wanted in (
        ("progress", 5, "an async function or None, not 5"),
        ("idempotent", "no", "True, False or None, not 'no'"),
    ):
        with pytest.raises(ValueError, match=rf"^server 'a': tool 'echo': {option} must be {wanted}$"):
            await group["a"].call_tool("echo", {"text": "x"}, **{option: given})
    with pytest.raises(
        TypeError, match=r"^server 'a': approve_tools\(\) got 'echo'; pass this server's tool_changes, and"
    ):
        await group["a"].approve_tools("echo")
    assert not (await group["a"].call_tool("echo", {"text": "x"})).is_error


async def misuse(door: Callable[..., Any], *given: Any, gives: str) -> None:
    """Use an `async with` that is not entered yet, or that was, in all wrong ways."""
    opened = door(*given)

    async def wait() -> None:
        await opened

    async def iterate() -> None:
        async for _ in opened:
            pass

    async def enter() -> None:
        with opened:
            pass

    async def look() -> None:
        _ = opened["a"]

    async def loop() -> None:
        for _ in opened:
            pass

    begin = f"{door.__name__}(): "
    write = f"write: async with {door.__name__}(…) as {gives}: …"
    for wrong, problem in {
        wait: "this cannot be awaited",
        iterate: "this cannot be iterated",
        loop: "this cannot be iterated",
        enter: f"'with' needs 'async' in front of it{IN_THREADS if gives == 'servers' else ''}",
        look: "nothing is open before the block",
    }.items():
        with pytest.raises(TypeError) as caught:
            await wrong()
        assert sentence(caught.value) == f"{begin}{problem}; {write}"
    with pytest.raises(AttributeError) as unknown:
        _ = opened.tools
    assert sentence(unknown.value) == f"{begin}nothing is open before the block, so 'tools' cannot be used; {write}"
    assert not hasattr(opened, "__wrapped__")
    async with opened:
        await enter_again(opened, begin)
    await enter_again(opened, begin)


async def enter_again(opened: Any, begin: str) -> None:
    """Enter a block that was entered."""
    with pytest.raises(RuntimeError) as caught:
        async with opened:
            pass
    assert sentence(caught.value) == f"{begin}this block was already entered; call {begin[:-2]} for each 'async with'"


async def test_a_block_on_trio_explains_its_use() -> None:
    """C-55."""
    await misuse(open_servers, configured(), gives="servers")
    await misuse(kernel.open_supervisor, gives="supervisor")
    async with open_servers(configured()) as group:
        await misuse(group.watch_events, gives="events")


def test_a_block_on_asyncio_explains_its_use() -> None:
    """C-55."""
    asyncio.run(misuse(bridge.open_servers, configured(), gives="servers"))
    asyncio.run(misuse(open_supervisor, gives="supervisor"))

    async def events() -> None:
        async with bridge.open_servers(configured()) as group:
            await misuse(group.watch_events, gives="events")

    asyncio.run(events())


async def test_events_cannot_be_watched_after_the_block() -> None:
    async with open_servers(configured()) as group:
        early = group.watch_events()
    for events in (early, group.watch_events()):
        with pytest.raises(ServerUnavailable, match=r"^this group of servers has no more events because its open_serv"):
            async with events:
                pass
    async with kernel.open_supervisor() as supervisor:
        pass
    with pytest.raises(ActorStopped, match=r"^actor 'supervisor': has stopped .* \(its tree has ended\)"):
        async with supervisor.watch_events():
            pass


async def test_a_snapshot_of_tools_is_searched_by_find() -> None:
    async with open_servers(configured()) as group:
        with pytest.raises(
            TypeError, match=r"^tools are found by number, not by 'echo'; write find\(public_name\), or"
        ):
            _ = group.tools["echo"]  # type: ignore[call-overload]  # the mistake
        with pytest.raises(KeyError, match=r"no tool has the public name 'echo'; similar: \['mcp__a__echo'\]"):
            group.tools.find("echo")


class Listens:
    async def __call__(self, event: object) -> None:
        pass


@pytest.mark.parametrize("observer", [Listens().__call__, Listens()])
async def test_an_async_observer_is_refused(observer: Any) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=problem):
            async with bridge.open_servers(observers=[observer]):
                pass

    problem = r"^observers must be plain functions \(not async\) in a list, not .*; write observers=\[function\]$"
    with pytest.raises(TypeError, match=problem):
        async with open_servers(observers=[observer]):
            pass
    await trio.to_thread.run_sync(asyncio.run, main())


class Sleeps(Actor[Ask]):
    @kernel.handles(Ask)
    async def ask(self, message: Ask) -> int:
        await asyncio.sleep(1)
        return 1


async def test_an_error_of_another_event_loop_has_a_note() -> None:
    async def think(request: Any, call_next: Any) -> Any:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with bridge.open_servers(attrs.evolve(configured(), middleware=[think])) as group:
            with pytest.raises(RuntimeError) as caught:
                await group["a"].call_tool("echo", {"text": "x"})
        assert caught.value.__notes__ == ["note: this runs on asyncio, not on Trio; write: await asyncio.sleep(…)"]

    await trio.to_thread.run_sync(asyncio.run, main())
    async with kernel.open_actor(Sleeps(), name="a") as ref:
        with pytest.raises(RuntimeError, match="no running event loop") as raised:
            await ref.call(Ask())
    [note] = raised.value.__notes__
    assert note == "note: this runs on Trio, also if it is called from asyncio; write: await trio.sleep(…)"


def look_for(owner: object, name: str, hint: str) -> None:
    """Look for an attribute that does not exist."""
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert sentence(caught.value) == f"{type(owner).__name__!r} object has no attribute {name!r}{hint and f'; {hint}'}"
    assert (caught.value.obj is None) == bool(hint)  # otherwise Python suggests a name
    assert not hasattr(owner, name)
    assert getattr(owner, name, None) is None


def look_for_names(group: Any) -> None:
    """Look for servers and tools as if they were attributes, and for the words of others."""
    wait = "" if isinstance(group, sync.SyncServerGroup) else "await "
    for owner, name, hint in (
        (group, "a", "write servers['a']"),
        (group, "ghost", ""),
        (group, "aclose", f"leave its block, or {wait}stop() of one server"),
        (group, "restart", "write servers['a'].restart, which is of one server"),
        (group["a"], "tools", f"write servers.tools, or {wait}list_tools() of one server"),
        (group["a"], "ping", f"read state, or {wait}check_health()"),
        (group["a"], "capabilities", "read info"),
        (group["a"], "echo", "write call('echo', …) for a tool"),
        (group["a"], "call_tol", ""),
        (group["a"], "_private", ""),
    ):
        look_for(owner, name, hint)


async def test_servers_and_tools_are_not_attributes_on_trio() -> None:
    async with open_servers(configured()) as group:
        look_for_names(group)


def test_servers_and_tools_are_not_attributes_on_asyncio() -> None:
    async def main() -> None:
        async with bridge.open_servers(configured()) as group:
            look_for_names(group)

    asyncio.run(main())


def test_servers_and_tools_are_not_attributes_without_an_event_loop() -> None:
    with sync.open_servers(configured()) as group:
        look_for_names(group)
        look_for(group, "watch_events", "give open_servers(…, observers=[function])")
        look_for(group["a"], "subscribe", "it needs an event loop: open the servers with mcp_actors.bridge")
        with pytest.raises(
            ValueError, match=r"^server 'a': tool 'echo': progress must be an async function or None, not 5$"
        ):
            group["a"].call_tool("echo", {"text": "x"}, progress=5)  # type: ignore[arg-type]  # the mistake


ANSWER: Final = "send a message: await call(message) for an answer, or await tell(message) without one"


def look_for_words_of_others(supervisor: Any) -> None:
    """Look for what actors have in Erlang, Akka, Pykka and Ray, and tasks in Trio and asyncio."""
    actor = supervisor.child("a")
    for owner, names, hint in (
        (actor, "ask cast increment post remote send", ANSWER),
        (actor, "cancel kill stop terminate", "await stop_child(id) of its supervisor"),
        (actor, "is_alive join", "read state, or await wait_stopped()"),
        (actor, "link monitor", "write: async with ref.watch() as monitor: …"),
        (actor, "tel _private", ""),
        (supervisor, "stop", "leave its block, or await stop_child(id) of one child"),
        (supervisor, "terminate_child", "await stop_child(id)"),
        (supervisor, "remove_child", "await stop_child(id), then await delete_child(id)"),
        (supervisor, "add_child spawn start_soon", "await start_child(ChildSpec(id, factory))"),
        (supervisor, "children", "await which_children()"),
        (supervisor, "whereis", "write child(id), or find(path)"),
        (supervisor, "ask", ANSWER),
    ):
        for name in names.split():
            look_for(owner, name, hint)


async def limit_actors(supervisor: Any) -> None:
    """Limit the time of actors as if there were arguments for it."""
    actor, message = supervisor.child("a"), Ask()
    limit = "limit this call with `with trio.fail_after(seconds):` (on asyncio: `async with asyncio.timeout(seconds):`)"
    uses: dict[str, Callable[[], Any]] = {
        "call": lambda: actor.call(message, timeout=5),
        "tell": lambda: actor.tell(message, timeout=5),
        "tell_nowait": lambda: actor.tell_nowait(message, timeout=5),
        "wait_stopped": lambda: actor.wait_stopped(timeout=5),
        "stop_child": lambda: supervisor.stop_child("a", timeout=5),
    }
    for name, use in uses.items():
        with pytest.raises(TypeError) as caught:
            await use()
        who, _, said = sentence(caught.value).partition(": ")
        assert who == "actor 'a'" or who.endswith(f"Ref.{name}()")
        assert said == f"unknown argument 'timeout'; {limit}"
    assert await actor.call(message) == 1


class Answering(Actor[Ask]):
    async def handle(self, message: Ask) -> Later[int]:
        look_for(later := self.defer(message), "set_result", "write reply(value)")
        assert "set_result" not in dir(later)
        assert not vars(Later)["set_result"].__doc__  # or the reference would list it
        look_for(later, "set_exception", "write fail(error)")
        look_for(later, "ghost", "")
        later.reply(1)
        return later


async def test_actors_on_trio_explain_the_words_of_others_and_arguments_for_time() -> None:
    async with kernel.open_supervisor(ChildSpec("a", Answering)) as supervisor:
        look_for_words_of_others(supervisor)
        await limit_actors(supervisor)
        with pytest.raises(TypeError, match=r"^actor 'supervisor': unknown argument 'timeout'; limit this call"):
            supervisor.send_request(Ask(), timeout=5)  # type: ignore[arg-type]  # the mistake


def test_actors_on_asyncio_explain_the_words_of_others_and_arguments_for_time() -> None:
    async def main() -> None:
        async with open_supervisor(ChildSpec("a", Answering)) as supervisor:
            look_for_words_of_others(supervisor)
            await limit_actors(supervisor)

    asyncio.run(main())


async def test_requests_on_trio_explain_unknown_arguments() -> None:
    """C-55."""
    async with open_servers(configured()) as group:
        await use_wrongly(group)


def test_requests_on_asyncio_explain_unknown_arguments() -> None:
    """C-55."""

    async def main() -> None:
        async with bridge.open_servers(configured()) as group:
            await use_wrongly(group)

    asyncio.run(main())


def test_a_call_with_too_many_arguments_or_too_few_names_the_method_that_was_called() -> None:
    async def main() -> None:
        async with bridge.open_servers(configured()) as group:
            with pytest.raises(TypeError, match=r"^\w+\.read_resource\(\) missing 1 required positional argument"):
                await group["a"].read_resource()  # type: ignore[call-arg]  # that is tested
            with pytest.raises(TypeError, match=r"^AsyncioServerGroup\.call_tool\(\) takes from 2 to 3 "):
                await group.call_tool("a", "echo", {"text": "x"})  # type: ignore[call-arg, arg-type]  # that is tested

    asyncio.run(main())


async def test_a_ref_in_the_trio_run_of_another_thread_names_what_to_call() -> None:
    """C-55, B-30: in words of servers, and before anything of the group is changed."""
    async with open_servers(configured()) as group:
        uses: list[tuple[str, Callable[[], Coroutine[Any, Any, object]]]] = [
            ("server 'a'", lambda: group["a"].call_tool("echo", {"text": "x"})),
            ("server 'a'", group["a"].restart),
            ("this group of servers", group.reload),
            ("this group of servers", lambda: group.add(configured())),
        ]
        for subject, use in uses:
            with pytest.raises(RuntimeError) as caught:
                await trio.to_thread.run_sync(trio.run, use)
            said = sentence(caught.value)
            assert said.startswith(f"{subject}: used outside its Trio run; ")
            assert "trio.from_thread.run(ref.call_tool, name, arguments)" in said
        with pytest.raises(RuntimeError, match="this group of servers: used outside its Trio run"):
            await trio.to_thread.run_sync(group.tree)
        assert group.status()["a"].queued == group.status()["a"].in_flight == 0


async def log(request: Any, call_next: Any) -> Any:
    await call_next(request)


async def forget(request: Any, call_next: Any) -> Any:
    return call_next(request)


async def rewrite(request: Any, call_next: Any) -> Any:
    return "no"


def log_in_a_thread(request: Any, call_next: Any) -> Any:
    call_next(request)


WRONG_MIDDLEWARE: Final[dict[Callable[..., Any], tuple[str, str]]] = {
    log: ("None", "await call_next(request)"),
    forget: ("a coroutine", "await call_next(request)"),
    rewrite: ("a str", "await call_next(request)"),
    log_in_a_thread: ("None", "call_next(request)"),
}


def no_result(middleware: Callable[..., Any]) -> Any:
    """Expect the error of a middleware that returns no result."""
    returned, write = WRONG_MIDDLEWARE[middleware]
    said = (
        f"server 'a': middleware {middleware.__name__} returned {returned} for tool 'echo'; return the result of "
        f"`{write}`, or one of its own"
    )
    return pytest.raises(TypeError, match=f"^{re.escape(said)}$")


async def get_no_result(door: Callable[..., Any]) -> None:
    """Call a tool through each middleware that returns no result."""
    for middleware in (log, forget, rewrite):
        async with door(attrs.evolve(configured(), middleware=[middleware])) as group:
            with no_result(middleware):
                await group["a"].call("echo", text="x")
            with no_result(middleware):
                await group["a"].call_tool("echo", {"text": "x"})


async def test_middleware_that_returns_no_result_is_named_on_trio() -> None:
    await get_no_result(open_servers)


def test_middleware_that_returns_no_result_is_named_on_asyncio() -> None:
    asyncio.run(get_no_result(bridge.open_servers))


def test_middleware_that_returns_no_result_is_named_without_an_event_loop() -> None:
    for middleware in (log_in_a_thread, log):
        with sync.open_servers(attrs.evolve(configured(), middleware=[middleware])) as group, no_result(middleware):
            group["a"].call_tool("echo", {"text": "x"})


async def refuse_observers(door: Callable[..., Any]) -> None:
    """Open a block with observers that are not functions in a list."""
    for observers, shown, write in (
        (print, "<built-in function print>", "function"),
        ([Metrics], "<class 'mcp_actors.observe", "Metrics()"),
        ([3], "3", "function"),
    ):
        with pytest.raises(TypeError) as caught:
            async with door(observers=observers):
                pass
        said = sentence(caught.value)
        assert said.startswith("observers must be plain functions (not async) in a list, not ")
        assert shown in said
        assert said.endswith(f"; write observers=[{write}]")


def test_wrong_observers_are_named_on_asyncio_and_without_an_event_loop() -> None:
    for door in (bridge.open_servers, open_supervisor):
        asyncio.run(refuse_observers(door))
    given: Any = print
    with pytest.raises(TypeError, match="observers must be plain functions"), sync.open_servers(observers=given):
        pass


async def test_wrong_children_options_and_observers_of_a_supervisor_are_named() -> None:
    spec: Any = ChildSpec("a", Answering)
    wrong: dict[str, Callable[[], Any]] = {
        r"^Supervisor: unknown argument 'strategi'; did you mean strategy\?$": lambda: kernel.Supervisor(strategi="x"),  # type: ignore[call-arg]  # the mistake
        r"^ChildSpec: unknown argument 'max_restarts'; give it to open_supervisor\(…, max_restarts=…\)$": (
            lambda: ChildSpec("a", Answering, max_restarts=3)  # type: ignore[call-arg]  # the mistake
        ),
        r"^Supervisor: unknown argument 'restart'; give it to ChildSpec\(…, restart=…\)$": (
            lambda: kernel.Supervisor(spec, restart="transient")  # type: ignore[call-arg]  # the mistake
        ),
        r"^Supervisor: every child is a ChildSpec, not \[Child.{,60}; pass each one as an argument$": (
            lambda: kernel.Supervisor([spec])  # type: ignore[arg-type]  # the mistake
        ),
        r"^open_actor\(\): missing a required argument: 'name'; it opens a block: async with open_actor\(": (
            lambda: kernel.open_actor(Answering())  # type: ignore[call-arg]  # the mistake
        ),
    }
    for said, make in wrong.items():
        with pytest.raises((TypeError, ValueError), match=said):
            make()
    doors: list[Callable[..., Any]] = [open_servers, kernel.open_supervisor]
    for door in doors:
        await refuse_observers(door)


def test_an_error_inside_a_function_stays_as_it_is() -> None:
    """C-55: also one of the same type and text."""

    @explained
    def fails(given: int = 0) -> None:
        raise TypeError("fails() got an unexpected keyword argument 'other'")

    for words in ({}, {"given": 1}):
        with pytest.raises(TypeError, match=r"^fails\(\) got an unexpected keyword argument 'other'$"):
            fails(**words)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ServerConfig, "ServerConfig: missing a required argument: 'transport'; see help(ServerConfig)"),
        (ChildSpec, "ChildSpec: missing a required argument: 'factory'; its arguments are: id, factory, "),
    ],
)
def test_a_call_that_does_not_fit_says_which_arguments_there_are(kind: Any, said: str) -> None:
    """C-55."""
    with pytest.raises(TypeError) as caught:
        kind("a")
    assert sentence(caught.value).startswith(said)


def test_what_is_explained_is_otherwise_as_it_was() -> None:
    """C-55."""
    made = ServerConfig("a", Stdio("x", ["y"]), required=True)
    assert copy(made) == attrs.evolve(made) == pickle.loads(pickle.dumps(made)) == made
    assert [*inspect.signature(ServerConfig).parameters][:3] == ["name", "transport", "required"]
    assert inspect.iscoroutinefunction(mcp_actors.ServerRef.call_tool)
    assert inspect.iscoroutinefunction(mcp_actors.ServerRef.list_tools)
    assert not inspect.iscoroutinefunction(mcp_actors.ServerRef.statistics)
    assert open_servers.__name__ == "open_servers"
    assert "strict" in inspect.signature(open_servers).parameters
