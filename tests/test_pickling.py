"""Every public error and event survives copying and pickling, with its attributes, its notes and its cause."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import fields
from mcp import MCPError
from mcp.server import MCPServer
from mcp.types import CallToolResult, Implementation, SamplingCapability, Tool

from mcp_actors import (
    Callbacks,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    InProcess,
    LimitExceeded,
    McpActorsError,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    ToolRequest,
    load_config,
    open_servers,
    sync,
)
from mcp_actors._pickling import UnpicklableError
from mcp_actors.config import CallbackContext, OAuth, Sandbox
from mcp_actors.kernel import Actor, Call, ChildSpec, Crashed, Event, handles, open_supervisor

from .forkserver import run_python
from .source import FOLDERS, ROOT
from .test_exports import public_things

MODULES: Final = [
    "mcp_actors",
    *(f"mcp_actors.{folder}" for folder in FOLDERS if folder not in ("mcp_actors", "adapters")),
]
"""The public modules, without the one that would import all frameworks."""


def pickled(thing: Any, protocol: int = 5) -> Any:
    """Return what arrives of a thing that was pickled."""
    return pickle.loads(pickle.dumps(thing, protocol))


COPIES: Final[dict[str, Callable[[Any], Any]]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle 2": partial(pickled, protocol=2),
    "pickle 5": pickled,
}

REQUEST: Final = httpx2.Request("GET", "http://localhost/")

FAILURE: Final = LimitExceeded("too much", server="docs")
VALUES: Final[dict[str, Any]] = {"error": FAILURE, "last_error": FAILURE, "result": CallToolResult(content=[])}
"""Values of parameters; any other one gets a text, as it makes no difference what is carried."""


class WithRequiredKeyword(Exception):
    """An exception as other packages have them: it is pickled, but cannot be loaded."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def public_classes(base: type, *modules: str) -> list[type]:
    """Return the public classes of these modules, or of all, that are of some kind."""
    found: dict[type, None] = {}
    for module in map(importlib.import_module, modules or MODULES):
        for thing in public_things(module).values():
            if isinstance(thing, type) and issubclass(thing, base):
                found.setdefault(thing)
    return list(found)


def example(kind: type) -> Any:
    """Make one of a public class, with a value for each of its parameters."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]  # of the class
    if parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return kind("something happened")
    # A StopActor refuses a reason that it does not know.
    values = {each.name: VALUES.get(each.name, each.name) for each in parameters if each.default != "normal"}
    return kind(**values)


def told(value: object) -> object:
    """Return all that there is to an exception, in a form that can be compared."""
    if not isinstance(value, BaseException):
        return value
    attributes = {name: told(each) for name, each in vars(value).items()}
    return type(value), value.args, attributes, told(value.__cause__)


def fail(error: Exception) -> None:
    """Raise an error in a worker."""
    raise error


@pytest.mark.parametrize("base", [BaseException, Event])
def test_the_adapters_have_no_error_and_no_event_of_their_own(base: type) -> None:
    assert public_classes(base, "mcp_actors.adapters") == []


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", public_classes(BaseException), ids=lambda kind: kind.__name__)
def test_an_error_survives_with_attributes_notes_and_cause(kind: type, how: Callable[[Any], Any]) -> None:
    """B-24."""
    error = example(kind)
    error.add_note("a note")
    if isinstance(error, McpActorsError):
        error.__cause__ = MCPError(-32000, "out of order", {"retry": [1, 2]})
        error.__cause__.__cause__ = ConnectFailed("no", server="docs", phase="open", exit_code=7)
    copied = how(error)
    assert copied is not error
    assert told(copied) == told(error)
    assert str(copied) == str(error)


def test_an_error_made_anew_from_its_args_keeps_class_and_text_and_may_have_had_an_effect() -> None:
    """D-84: Celery's JSON results do so. What they do not carry must not have a request be sent twice."""
    for kind in public_classes(BaseException):
        error = example(kind)
        made = kind(*error.args)
        assert (type(made), str(made), vars(made).keys()) == (kind, str(error), vars(error).keys())
        assert getattr(made, "outcome", "unknown") == "unknown", kind
        assert getattr(made, "handed_over", True) is True, kind


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", public_classes(Event), ids=lambda kind: kind.__name__)
def test_an_event_survives_with_its_error(kind: type, how: Callable[[Any], Any]) -> None:
    """B-24."""
    event = example(kind)
    copied = how(event)
    assert type(copied) is kind
    for each in fields(kind):
        assert told(getattr(copied, each.name)) == told(getattr(event, each.name))


@pytest.mark.parametrize(
    "cause",
    [
        WithRequiredKeyword(code=3),
        ValueError(lambda: None),
        httpx2.HTTPStatusError("no", request=REQUEST, response=httpx2.Response(401)),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_a_cause_that_cannot_be_pickled_is_replaced_by_its_description(cause: Exception) -> None:
    """B-24."""
    cause.add_note("a note")
    cause.__cause__ = ConnectionLost("the first cause", server="docs")
    error = ServerUnavailable("gone", server="docs", state="failed", last_error=cause)
    error.__cause__ = cause
    copied = pickled(error)
    for found in (copied.__cause__, copied.last_error):
        assert type(found) is UnpicklableError
        assert type(cause).__name__ in str(found)
        assert str(cause) in str(found)
        assert found.__notes__ == ["a note"]
        assert told(found.__cause__) == told(cause.__cause__)
    assert copy.copy(error).__cause__ is cause


def test_a_group_as_cause_keeps_its_members() -> None:
    """B-24."""
    members = [ConnectionLost("gone", server="docs"), WithRequiredKeyword(code=3), KeyError("x")]
    error = McpActorsError("failed")
    error.__cause__ = ExceptionGroup("several", members)
    group = pickled(error).__cause__
    assert isinstance(group, ExceptionGroup)
    assert group.message == "several"
    assert [type(each) for each in group.exceptions] == [ConnectionLost, UnpicklableError, KeyError]


def test_a_chain_of_causes_that_is_a_circle_can_be_pickled() -> None:
    """B-24."""
    first, second = McpActorsError("first"), McpActorsError("second")
    first.__cause__, second.__cause__ = second, first
    copied = pickled(first)
    assert copied.__cause__.__cause__ is copied


def test_a_process_pool_survives_every_error_and_event() -> None:
    """B-24."""
    # In another process, because `multiprocessing` leaves one of its own behind. The worker is a new interpreter.
    code = "from tests.test_pickling import use_a_pool; use_a_pool()"
    finished = run_python("-c", code, timeout=120, cwd=ROOT)
    assert finished.stderr == ""
    assert finished.stdout.splitlines() == ["every error", "every event", "the pool works"]


def use_a_pool() -> None:
    """Have every error raised, and every event returned, by the worker of a pool."""
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        errors = [example(kind) for kind in public_classes(McpActorsError)]
        raised = [pool.submit(fail, error).exception(timeout=60) for error in errors]
        assert [type(each) for each in raised] == [type(error) for error in errors]
        # A pool adds the traceback of the worker as the cause.
        assert [vars(each).keys() for each in raised] == [vars(error).keys() for error in errors]
        print("every error")
        events = [example(kind) for kind in public_classes(Event)]
        events.append(Crashed(actor="docs", incarnation=1, time=0.0, error=WithRequiredKeyword(code=3)))
        returned = [pool.submit(copy.copy, event).result(timeout=60) for event in events]
        assert [type(each) for each in returned] == [type(event) for event in events]
        print("every event")
        assert pool.submit(os.getpid).result(timeout=60) != os.getpid()
        print("the pool works")


class Ask(Call[int]):
    """A question without an answer."""


class Silent(Actor[Ask]):
    """Defers all answers."""

    @handles(Ask)
    async def ask(self, message: Ask) -> int:
        return await trio.sleep_forever()


def check_handles(*things: Any) -> None:
    for thing in things:
        assert copy.copy(thing) is thing
        assert copy.deepcopy({"held": [thing]})["held"][0] is thing
        with pytest.raises(TypeError, match="cannot be pickled, because it works only in its own process; open it in"):
            pickle.dumps(thing)


async def test_a_live_handle_copies_to_itself_and_refuses_to_be_pickled() -> None:
    """D-93: a group, references, a monitor, a stream and a pending call."""
    async with (
        open_servers(ServerConfig("a", InProcess(MCPServer("a")))) as servers,
        open_supervisor(ChildSpec("b", Silent)) as above,
        above.watch_events() as events,
        above.child("b", Silent).watch() as monitor,
    ):
        call = above.child("b", Silent).send_request(Ask())
        check_handles(servers, servers["a"], above, monitor.ref, monitor, events, call)


def test_a_handle_of_a_thread_copies_to_itself_and_refuses_to_be_pickled() -> None:
    """D-93."""
    with sync.open_servers(ServerConfig("a", InProcess(MCPServer("a")))) as servers:
        check_handles(servers, servers["a"])


TOOL: Final = Tool(name="x", input_schema={"type": "object"})
ME: Final = Implementation(name="me", version="1")


async def values() -> list[object]:
    """Return frozen data with fields of all kinds."""
    configs = {"a": {"command": "x", "env": {"A": "b"}}}
    async with open_servers(ServerConfig("a", InProcess(MCPServer("a")))) as servers:
        facts = servers.status(), servers.errors, servers.tools.versions, servers["a"].info
    return [
        *facts,
        load_config({"mcpServers": configs}),
        Stdio("x", ["y"], env={"A": "b"}, sandbox=Sandbox(read=["/"])),
        ServerConfig("a", Stdio("x"), static_tools=[TOOL], client_info=ME),
        ServerConfig("a", Stdio("x"), callbacks=Callbacks(sampling_capabilities=SamplingCapability())),
        ToolRequest(server="a", name="x", arguments={"a": [1]}, meta={"b": {}}),
        CallbackContext(server="a", meta={"a": [1]}),
        OAuth(scopes=["a"]),
    ]


async def test_frozen_data_compare_copy_pickle_and_hash() -> None:
    """D-93."""
    for value in await values():
        for how in COPIES.values():
            copied: object = how(value)
            assert copied == value
            assert hash(copied) == hash(value)


def test_a_result_of_a_load_that_has_errors_copies_and_hashes() -> None:
    """D-93: errors are equal only to themselves, as Python's are."""
    loaded = load_config({"mcpServers": {"a": {"command": 1}}})
    assert hash(loaded) is not None
    arrived = pickled(loaded)
    assert copy.copy(loaded) == loaded
    assert [(type(each), str(each)) for each in arrived.errors] == [(ConfigError, str(loaded.errors[0]))]
    assert list(arrived.failed) == ["a"]
