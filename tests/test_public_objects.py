"""Objects have a repr, editors complete public names, and signatures show the values of defaults."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs
import pytest
import trio
from mcp.server import MCPServer

import mcp_actors.adapters
from mcp_actors import Http, InProcess, Secret, ServerConfig, Socket, Stdio, bridge, open_servers, sync
from mcp_actors.auth import FileTokenStore, OAuth
from mcp_actors.catalog import ToolChecks
from mcp_actors.catalog._names import DEFAULT_NAMING
from mcp_actors.config import DirectorySource, FileSource, PostgresSource, SqliteSource, load_config
from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    EventHub,
    Later,
    LaterQueue,
    Pool,
    Supervisor,
    handles,
    open_supervisor,
)
from mcp_actors.observe import Metrics
from mcp_actors.servers.group._tree import GroupLimits
from mcp_actors.testing import Gate, Probe, ScriptedServer, Snapshot
from tests.forkserver import run_python
from tests.servers.groups import BOUND

from .source import FOLDERS, PACKAGE, ROOT, parse, python_files

PLACES: Final = [f"mcp_actors.{folder}".rstrip(".") for folder in ("", *FOLDERS) if folder != "adapters"]
"""The modules with public names, without the adapters, which import frameworks."""

LATER: Final = {"datetime": datetime}
"""The names in annotations of functions that are imported only when a program asks."""


def things(*places: str) -> dict[str, Any]:
    """Return the public things of modules by their full names."""
    modules = [import_module(place) for place in places]
    return {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}


def members(kind: type) -> Iterator[Any]:
    """Yield the public functions of a class, and what a block or an iteration over one of its objects returns."""
    for name in dir(kind):
        if not name.startswith("_") or name in ("__aenter__", "__enter__", "__getitem__", "__iter__", "__anext__"):
            member = inspect.getattr_static(kind, name)
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(member, FunctionType):
                yield inspect.unwrap(member)


def obtainable(*places: str) -> set[type]:
    """Return the classes of this package whose objects a program can make, or get from a public thing."""
    found: set[type] = set()
    waiting: list[Any] = [*things(*places).values()]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, FunctionType):
            waiting.append(get_type_hints(inspect.unwrap(thing), localns=LATER).get("return"))
        elif isinstance(thing, type) and thing.__module__.startswith("mcp_actors") and thing not in found:
            found.add(thing)
            hints = get_type_hints(thing)
            waiting += [hint for name, hint in hints.items() if not name.startswith("_")]
            waiting += [each for each in members(thing) if each.__module__.startswith("mcp_actors")]
        else:
            waiting += [*get_args(thing), *filter(None, [get_origin(thing)])]
    return found


UNNAMED: Final = {
    "Call": "an object of a class of your own, which attrs gives a repr",
    "CallObserver": "an object of a class of your own",
    "Message": "an object of a class of your own, which attrs gives a repr",
    "handles": "a decorator, which nobody keeps",
}
"""Class that needs no repr → why."""


def nameless(*places: str) -> list[str]:
    """Return the classes whose objects have Python's repr, with an address."""
    kinds: list[Any] = [kind for kind in obtainable(*places) if not getattr(kind, "_is_protocol", False)]
    return sorted(each.__name__ for each in kinds if each.__repr__ is object.__repr__ and each.__name__ not in UNNAMED)


def test_each_object_that_a_program_gets_has_a_repr() -> None:
    """D-95: also of a class that is added."""
    assert len(obtainable(*PLACES)) >= 170
    assert nameless(*PLACES) == []


def test_each_adapter_has_a_repr_of_its_own() -> None:
    classes = [node for path in python_files(PACKAGE / "adapters") for node in parse(path).body]
    adapters = [each for each in classes if isinstance(each, ast.ClassDef) and each.name in mcp_actors.adapters.__all__]
    assert len(adapters) == 5
    for each in adapters:
        assert "__repr__" in [getattr(member, "name", "") for member in each.body], each.name


@pytest.mark.parametrize("place", PLACES)
def test_dir_of_a_module_lists_public_names(place: str) -> None:
    """D-95: an editor completes them."""
    module = import_module(place)
    listed = {name for name in dir(module) if not name.startswith("__")}
    assert {*module.__all__} <= listed
    assert all(is_folder(getattr(module, name)) for name in listed - {*module.__all__})


def is_folder(thing: object) -> bool:
    """Return True for a module that programs import."""
    return isinstance(thing, ModuleType) and thing.__name__ in [*PLACES, "mcp_actors.adapters"]


SECRET: Final = "hunter2hunter2hunter2"


@attrs.frozen
class Ask(Call[int]):
    """A question without an answer."""


class Silent(Actor[Ask]):
    """Defers all answers."""

    def __init__(self) -> None:
        self.held: LaterQueue[int] = LaterQueue()

    @handles(Ask)
    def ask(self, message: Ask) -> Later[int]:
        self.timer = self.after(60, message)
        return self.held.add(self.defer(message))


def configured(folder: Path) -> list[object]:
    """Return objects with a credential in each place that may have one."""
    url = f"https://user:{SECRET}@x.example/mcp?key={SECRET}"
    auth = OAuth(client_id="a", client_secret=SECRET)
    transports: list[Any] = [
        Stdio("x", ["--token", SECRET], env={"A": SECRET, "B": Secret(SECRET)}),
        Http(url, headers={"X-Key": SECRET}),
        Http("https://x.example", auth=SECRET),
        Http("https://x.example", auth=auth),
        Socket("x.example:1", secret=SECRET),
        load_config({"mcpServers": {"a": {"url": "https://${A}", "auth": SECRET}}}).servers[0].transport,
    ]
    entry = {"command": "x", "env": {"A": SECRET}}
    return [
        *(thing for each in transports for thing in (each, ServerConfig("x", each))),
        auth,
        Secret(SECRET),
        load_config({"mcpServers": {"a": entry}}),
        *(DirectorySource(folder), FileSource(folder / "x.json"), SqliteSource(folder / "x.sqlite")),
        PostgresSource(f"postgresql://user:{SECRET}@x.example/x?password={SECRET}"),
        *(FileTokenStore(folder), ScriptedServer(), Gate(), Probe(), Snapshot.take()),
        *(EventHub(), Metrics(), ToolChecks("a"), Silent(), Pool(Silent), Supervisor(), open_servers()),
        bridge.open_servers(),
    ]


def check(thing: object) -> None:
    """Check what people see of an object."""
    shown = repr(thing)
    assert re.search(rf"{type(thing).__name__}|PendingCall|not entered", shown)
    assert " at 0x" not in shown
    assert SECRET not in shown
    assert isinstance(thing, Silent) or not re.findall(r"(?<![^ ])_(?!_)\w+", " ".join(dir(thing)))


def test_the_repr_of_each_object_names_it_and_shows_no_credential(tmp_path: Path) -> None:
    """D-95: and `dir` lists its public members only."""
    # A loop on Trio imports trio-asyncio, which changes asyncio for all tests of a process.
    finished = run_python("-m", "tests.test_public_objects", str(tmp_path), cwd=ROOT, timeout=BOUND)
    assert finished.stdout == "checked\n", finished.stderr


async def check_objects(folder: Path) -> None:
    """Check objects of both doors that have an event loop."""
    lazy = ServerConfig("lazy", Http("https://x.example", auth=SECRET), connect="lazy")
    silent = Silent()
    async with (
        open_servers(ServerConfig("a", InProcess(MCPServer("a"))), lazy) as servers,
        open_supervisor(ChildSpec("silent", lambda: silent)) as above,
        above.watch_events() as events,
        above.child("silent", Silent).watch() as monitor,
        bridge.open_asyncio_loop() as loop,
    ):
        call = above.child("silent", Silent).send_request(Ask())
        [later] = silent.held
        views = [loop.view(each) for each in (servers, servers["a"], above, above.child("silent"))]
        live = [servers, *servers.values(), *servers.status().values(), above, above.child("silent"), events, monitor]
        live += [call, later, silent, silent.held, silent.timer, loop, *views, servers["a"].send_tool_call("x")]
        for thing in [*configured(folder), *live, servers["a"].info, servers.tools, above.tree()]:
            check(thing)

        async def read_on_loop() -> None:
            async with loop.view(servers).watch_events() as stream:
                check(stream)

        await loop.run(read_on_loop)


def test_the_repr_of_an_object_of_a_thread_names_it() -> None:
    """D-95."""
    with sync.open_servers(ServerConfig("a", InProcess(MCPServer("a")))) as servers:
        check(servers)
        check(servers["a"])


COMPUTED: Final = {
    "restarts": "follows the transport",
    "startup_timeout": "follows connect_timeout",
    "wall": "is the time at which an event is made",
    "arguments": "is a new dict for each object",
    "headers": "is a new dict for each object",
}
"""Parameter whose default is not a value → why."""

NAMED: Final = re.compile(r"_\w+|[A-Z][A-Z\d_]+")


def test_signatures_show_the_values_of_defaults() -> None:
    """D-95: `inspect.signature` shows them."""
    for name, thing in things(*PLACES).items():
        functions = [thing] if isinstance(thing, FunctionType) else [thing, *members(thing)] if is_class(thing) else []
        for function in functions:
            for parameter in inspect.signature(function).parameters.values():
                computed = parameter.default is attrs.NOTHING
                assert not computed or parameter.name in COMPUTED, f"{name}: {parameter}"
                assert " at 0x" not in repr(parameter.default), f"{name}: {parameter}"


def is_class(thing: object) -> bool:
    """Return True for a class that programs make objects of."""
    return isinstance(thing, type) and not issubclass(thing, (dict, Exception))


def test_the_source_of_a_default_is_its_value() -> None:
    """D-95: an editor shows the text, and `_CONNECT_TIMEOUT` says nothing."""
    public = {(name.rpartition(".")[2], id(thing)) for name, thing in things(*PLACES).items()}
    checked = 0
    for path in python_files(PACKAGE):
        module = sys.modules.get(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in parse(path).body if module is not None else ():
            name = getattr(node, "name", "")
            if (name, id(getattr(module, name, None))) in public:
                for name, default in defaults(node):
                    used = {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(default)}
                    named = [each for each in used if NAMED.fullmatch(each)]
                    assert name in COMPUTED or named in ([], ["TASK_STATUS_IGNORED"]), f"{path.name}: {name}: {named}"
                    checked += 1
    assert checked >= 300


def defaults(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function, or of a class and its methods, with their defaults."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if not node.name.startswith("_") or node.name == "__init__":
            taken = node.args
            positional = [*taken.posonlyargs, *taken.args]
            given = [*zip(positional[len(positional) - len(taken.defaults) :], taken.defaults, strict=True)]
            given += [(arg, value) for arg, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value]
            yield from ((arg.arg, value) for arg, value in given)
    elif isinstance(node, ast.ClassDef):
        for each in node.body:
            yield from defaults(each)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("field"):
            yield from ((node.target.id, each.value) for each in node.value.keywords if each.arg == "default")
        elif node.value is not None:
            yield node.target.id, node.value


def test_the_doors_of_servers_have_the_same_defaults() -> None:
    """Each writes the value, so that an editor shows it."""
    doors = [{**inspect.signature(each).parameters} for each in (open_servers, bridge.open_servers, sync.open_servers)]
    for name in doors[0].keys() & doors[2].keys():
        assert doors[0][name].default == doors[1][name].default == doors[2][name].default, name
    limits = inspect.signature(GroupLimits).parameters
    assert {name: limits[name].default for name in limits} == {name: doors[0][name].default for name in limits}
    assert doors[0]["naming"].default == DEFAULT_NAMING


if __name__ == "__main__":
    trio.run(check_objects, Path(sys.argv[1]))
    print("checked")
