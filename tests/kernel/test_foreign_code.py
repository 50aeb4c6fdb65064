"""Log handlers, `repr` and other code of users that raises in the midst of the kernel's steps."""

from __future__ import annotations

import ast
import io
import logging
import pickle
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from functools import wraps
from typing import Any, ClassVar, Final, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import _foreign
from mcp_actors._collapse import collapse, leaves
from mcp_actors.auth import _flow
from mcp_actors.cli import _output, _start
from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStartError,
    ChildSpec,
    Event,
    Later,
    Message,
    Pool,
    RestartLimitReached,
    Started,
    Supervisor,
    SupervisorRef,
    _envelope,
    _events,
    open_actor,
    open_supervisor,
)
from mcp_actors.transports import _logs

from ..source import PACKAGE, parse, python_files
from .actors import Boom, Do, Fatal, Get, Host, hook, leaving, raising

KERNEL: Final = "mcp_actors.kernel"


class Ill(Exception):
    """Nothing of it can be asked for."""

    def _raises(self, *_: object) -> Any:
        raise RuntimeError("not even this works")

    __repr__ = __str__ = __bool__ = __len__ = __eq__ = add_note = _raises  # on purpose
    __hash__ = None  # type: ignore[assignment]  # on purpose
    __cause__ = property(_raises, _raises)  # on purpose
    __notes__ = property(_raises)  # on purpose


class IllGroup(ExceptionGroup[Exception]):
    """A group that cannot be asked for its members."""

    exceptions = property(Ill._raises)  # on purpose
    split = derive = subgroup = Ill._raises  # on purpose


# --- logging ----------------------------------------------------------------------------------------------------------


class Bad(Actor):
    """Raises where the test says."""

    def __init__(self, where: str) -> None:
        self.where = where

    def at(self, where: str) -> None:
        if where == self.where:
            raise Boom(where)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.at("start")
        yield
        if self.where == "kill":
            await trio.sleep_forever()
        self.at("stop")

    async def handle(self, message: Do[Any]) -> Any:
        return await message.fn()

    def take(self, later: Later[Any]) -> bool:
        later.on_cancel = lambda _: self.at("on_cancel")
        return self.where == "on_cancel"

    def ending(self) -> None:
        self.at("ending")

    def is_fatal(self, exc: Exception) -> bool:
        return True

    def is_hopeless(self, exc: BaseException) -> bool:
        self.at("is_hopeless")
        return False


async def stopped_at(where: str, top: SupervisorRef) -> None:
    """Stop an actor that raises then."""
    child = await top.start_child(ChildSpec("child", lambda: Bad(where), shutdown=1))
    if where == "on_cancel":
        await child.tell(Do(trio.lowlevel.checkpoint))
    await top.stop_child("child")


async def told(top: SupervisorRef) -> None:
    """Let a handler raise for which no task waits."""
    child = await top.start_child(ChildSpec("child", Host))
    await child.tell(Do(raising(Boom())))
    await settle()


async def hopeless(top: SupervisorRef) -> None:
    child = await top.start_child(ChildSpec("child", lambda: Bad("is_hopeless")))
    with pytest.raises(Boom):
        await child.call(Do(raising(Boom())))
    await settle()
    assert child.statistics().incarnation == 2


async def parked(top: SupervisorRef) -> None:
    def park_retry(_: object) -> float | None:
        raise Boom("park_retry")

    def make() -> Supervisor:
        spec = ChildSpec("x", lambda: Bad("start"))
        return Supervisor(spec, max_restarts=0, on_limit="park", park_retry=park_retry, strict=False)

    child = await top.start_child(ChildSpec("child", make))
    assert child.state == "running"
    assert (await SupervisorRef(child._record).which_children())[0].state == "failed"


async def grown(top: SupervisorRef) -> None:
    """Let a pool grow by a member that does not start."""
    made = iter([Host()])
    pool = await top.start_child(ChildSpec("child", lambda: Pool(lambda: next(made, None) or Bad("start"), (1, 2))))
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(pool.call, Do(trio.sleep_forever))
        await settle()
        nursery.cancel_scope.cancel("the pool has tried to grow")


async def keyed(top: SupervisorRef) -> None:
    """Let a message without a key wait for a pool to start."""

    def key(_: object) -> object:
        raise Boom("key")

    started = trio.Event()

    async def slow(_: Host) -> None:
        await started.wait()

    async with trio.open_nursery() as nursery:
        first = ChildSpec("first", lambda: Host(start=slow))
        pool = ChildSpec("pool", lambda: Pool(Host, 2, key=key))
        spec = ChildSpec("child", lambda: Supervisor(first, pool))
        nursery.start_soon(top.start_child, spec)
        await settle()
        below = SupervisorRef(top.child("child")._record)
        await below.child("pool").tell(Get(1))
        started.set()


async def answered(top: SupervisorRef) -> None:
    """Let the function raise that gets an answer."""

    def fn(_: object) -> None:
        raise Boom("on_answer")

    child = await top.start_child(ChildSpec("child", Host))
    child.send_request(Get(1)).on_answer(fn)
    await settle()
    assert await child.call(Get(2)) == 2


async def nothing(_: SupervisorRef) -> None:
    """The observer has raised already."""


SCENES: Final[dict[str, Callable[[SupervisorRef], Awaitable[None]]]] = {
    "stop": lambda top: stopped_at("stop", top),
    "ending": lambda top: stopped_at("ending", top),
    "on_cancel": lambda top: stopped_at("on_cancel", top),
    "kill": lambda top: stopped_at("kill", top),
    "told": told,
    "is_hopeless": hopeless,
    "park_retry": parked,
    "grown": grown,
    "key": keyed,
    "on_answer": answered,
    "observer": nothing,
}


class Breaks(logging.Handler):
    """Raises for each record."""

    error: ClassVar[BaseException | type[BaseException]] = Boom("the disk is full")

    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1
        raise self.error


class BreaksFormat(logging.StreamHandler[io.StringIO]):
    """Formats with a formatter that recurses, which a `logging.StreamHandler` passes on."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.records = 0

    def format(self, record: logging.LogRecord) -> str:
        self.records += 1
        raise RecursionError


class BreaksFilter(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.records += 1
        raise GeneratorExit


@contextmanager
def logging_with(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(KERNEL)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def observe(event: Event) -> None:
    if isinstance(event, Started) and event.actor == "healthy":
        raise Boom("observer")


@pytest.mark.parametrize("kind", [Breaks, BreaksFormat, BreaksFilter])
@pytest.mark.parametrize("scene", SCENES)
async def test_a_log_handler_that_raises_hurts_no_actor(
    scene: str, kind: type[Any], autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-30: whichever line is logged, the tree goes on, a healthy child keeps running, and the block ends."""
    handler = kind()
    with logging_with(handler), trio.fail_after(60):
        async with open_supervisor(
            ChildSpec("healthy", Host), max_restarts=3, observers=[observe] if scene == "observer" else []
        ) as top:
            await SCENES[scene](top)
            assert await top.child("healthy").call(Get(1)) == 1
            assert top.child("healthy").statistics().incarnation == 1
    assert handler.records
    assert "mcp_actors: logging raised" in capsys.readouterr().err


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene != "on_answer"])
async def test_an_exit_out_of_a_log_handler_leaves_the_block(
    scene: str, error: BaseException, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-30: as itself, once the step is complete, and after the clean-up."""
    handler = Breaks()
    monkeypatch.setattr(Breaks, "error", error)
    log: list[str] = []

    async def leave(_: Host) -> None:
        log.append("left")

    with leaving(type(error)) as caught, logging_with(handler), trio.fail_after(60):
        async with open_supervisor(
            ChildSpec("healthy", lambda: Host(stop=leave)),
            max_restarts=3,
            observers=[observe] if scene == "observer" else [],
        ) as top:
            await SCENES[scene](top)
            await trio.sleep_forever()
    assert caught.value is error
    assert log == ["left"]


async def test_a_program_that_wants_no_errors_of_logging_gets_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-30: the logging module has a switch for that."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with logging_with(Breaks()):
        async with open_supervisor(ChildSpec("healthy", Host), observers=[observe]):
            pass
    assert capsys.readouterr().err == ""


# --- texts ------------------------------------------------------------------------------------------------------------


MAKERS: Final[list[Callable[[], Exception]]] = [
    Ill,
    lambda: IllGroup("group", [Ill()]),
    lambda: ExceptionGroup("group", [Ill(), Ill()]),
]


def shows_failures(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Let a test fail with an exception that pytest can show."""

    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        problem: BaseException
        try:
            await test(*args, **kwargs)
            return
        except BaseException as exc:
            problem = exc
        lines = "".join(traceback.format_tb(problem.__traceback__))
        raise AssertionError(f"{[type(leaf).__name__ for leaf in leaves(problem)]}\n{lines}")

    return run


class Fails(Host):
    """Raises an exception at a place, once."""

    def __init__(self, where: str, errors: list[Exception]) -> None:
        super().__init__()
        self.where = where
        self.errors = errors

    def at(self, where: str) -> None:
        if where == self.where and self.errors:
            raise self.errors.pop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.at("start")
        yield
        self.at("stop")

    async def handle(self, message: Any) -> Any:
        self.at("handle")
        return await super().handle(message)

    def is_fatal(self, exc: Exception) -> bool:
        self.at("is_fatal")
        return self.where == "handle"


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("where", ["factory", "start", "stop", "handle", "is_fatal", "fail"])
@shows_failures
async def test_an_exception_that_cannot_be_shown_ends_only_its_actor(where: str, make: Callable[[], Exception]) -> None:
    """C-30: Trio itself asks for its `repr` when it leaves a nursery, and the program would end."""
    error = make()
    errors, made = [error], list[Fails]()

    def factory() -> Fails:
        if where == "factory" and errors:
            raise errors.pop()
        made.append(Fails(where, errors))
        return made[-1]

    specs = [ChildSpec("healthy", Host), ChildSpec("child", factory)]
    with trio.fail_after(60):
        async with open_supervisor(*specs, strict=False, max_restarts=3) as top:
            child = top.child("child")
            match where:
                case "handle":
                    with pytest.raises(type(error)):
                        await child.call(Get(1))
                case "is_fatal":
                    await child.tell(Do(raising(Boom())))
                case "fail":
                    made[0].fail(error)
                case "stop":
                    await top.stop_child("child")
                    await top.restart_child("child")
            await settle()
            assert await top.child("healthy").call(Get(1)) == 1
            assert await child.call(Get(2)) == 2
            assert [row.incarnation for row in await top.which_children()] == [1, 2]
            last = top.tree().children[1].last_error
            assert where == "stop" or last is not None


@pytest.mark.parametrize("make", MAKERS)
@shows_failures
async def test_an_exception_that_cannot_be_shown_leaves_the_block_as_itself(make: Callable[[], Exception]) -> None:
    """C-30: out of the block; as the cause of a failed start; and as that of a crash."""
    error = make()
    with leaving(type(error)) as caught:
        async with open_supervisor(ChildSpec("a", Host)):
            raise error
    assert caught.value is error
    with leaving(ActorStartError) as failed:
        async with open_supervisor(ChildSpec("a", lambda: Host(start=hook(raising(error))))):
            pytest.fail("it started")
    assert failed.value.__cause__ is collapse(error)
    host = Host()
    with leaving(ActorCrashed) as crashed:
        async with open_actor(host, name="host") as ref:
            host.fail(error)
            await ref.call(Get(1))
    assert crashed.value.__cause__ is error


async def test_the_texts_of_failures_are_bounded() -> None:
    """C-30: also at the top of a tree, and for values that are not exceptions."""
    long = Boom("x" * 10**6)

    def below(depth: int) -> ChildSpec:
        if not depth:
            return ChildSpec("child", lambda: Host(start=lambda _: raising(long)()))
        return ChildSpec(f"level {depth}", lambda: Supervisor(below(depth - 1)))

    with pytest.raises(ActorStartError) as caught:
        async with open_supervisor(below(3)):
            pytest.fail("it started")
    assert len(str(caught.value)) < 1500
    with pytest.raises(ActorStartError) as caught:
        async with open_supervisor(below(200)):
            pytest.fail("it started")
    assert len(str(caught.value)) < 12_000
    with leaving(ActorCrashed) as crashed:
        host = Host()
        async with open_actor(host, name="host"):
            host.fail(long)
            await trio.sleep_forever()
    assert len(str(crashed.value)) < 1500
    async with open_actor(Host(), name="host") as ref:
        with pytest.raises(TypeError) as refused:
            await ref.call(cast("Any", "x" * 10**6))
        assert len(str(refused.value)) < 1500
    with leaving(RestartLimitReached) as limit:
        async with open_supervisor(ChildSpec("a", Host), max_restarts=0) as top:
            await top.child("a").tell(Do(raising(Fatal("x" * 10**6))))
            await trio.sleep_forever()
    assert len(str(limit.value)) < 1500


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    """C-30: the cause at the bottom of a tree is at the end."""
    assert _foreign.shown("x") == "'x'"
    text = _foreign.shown(["begin", "x" * 5000, "end"])
    assert len(text) == _foreign.SHOWN_REPR
    assert text.startswith("['begin', 'xxx")
    assert text.endswith("xxx', 'end']")
    assert _foreign.words_of(Ill()) == "Ill (its str() raises)"


def test_an_exception_that_cannot_be_shown_can_be_pickled() -> None:
    """C-30: as the cause of an error of this package."""
    error = ActorCrashed("it crashed", actor="a")
    error.__cause__ = Unpicklable()
    assert str(pickle.loads(pickle.dumps(error)).__cause__) == (
        f"{__name__}.Unpicklable: Unpicklable (its str() raises)"
    )


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not this one")

    def __str__(self) -> str:
        raise RuntimeError("nor as text")


class Color(StrEnum):
    RED = "red"

    def __repr__(self) -> str:
        raise RuntimeError("no text")


async def test_a_name_may_be_of_a_class_of_the_program() -> None:
    """C-30: errors and references show its text."""
    async with open_supervisor(ChildSpec(Color.RED, Host), name=Color.RED) as top:
        assert repr(top.child("red")) == "<ActorRef 'red' running, 0 in flight, 0 queued>"
        assert type(top.child(Color.RED).name) is type(top.name) is str


# --- other code of users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-1.0, "soon", float("nan"), float("inf"), Ill()])
async def test_a_park_retry_that_returns_no_seconds_counts_as_none(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """C-30: the child stays parked, and its supervisor runs."""
    spec = ChildSpec("a", lambda: Bad("start"))
    async with open_supervisor(spec, max_restarts=0, on_limit="park", strict=False, park_retry=lambda _: wrong) as top:
        assert top.child("a").state == "failed"
    assert "park_retry raised for child 'a', which counts as None" in caplog.text
    assert "return seconds, 0 or more, or None" in caplog.text


class Wants:
    """An observer that cannot be asked what it wants."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @property
    def wants_requests(self) -> bool:
        raise Ill

    def __call__(self, event: Event) -> None:
        self.seen.append(type(event).__name__)


async def test_an_observer_that_cannot_be_asked_gets_all_events() -> None:
    """C-30: the message is handled."""
    wants = Wants()
    async with open_actor(Host(), name="host", observers=[wants]) as ref:
        assert await ref.call(Get(1)) == 1
    assert "RequestFinished" in wants.seen


class Watches(Pool):
    """A pool that watches an actor, and whose key function does not know what that sends."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            assert self.supervisor is not None
            self.watch(self.supervisor.child("watched"))
            yield


async def test_a_key_function_that_raises_at_the_end_of_another_actor_crashes_its_own_pool() -> None:
    """C-30: the report is sent in the last step of the actor that was watched."""

    def key(message: Message) -> int:
        return message.number  # type: ignore[attr-defined,no-any-return]  # there is none in a Down

    specs = [ChildSpec("watched", Host), ChildSpec("pool", lambda: Watches(Host, 2, key=key))]
    with trio.fail_after(60):
        async with open_supervisor(*specs, max_restarts=3) as top:
            await top.child("watched").tell(Do(raising(Fatal())))
            await settle()
            assert await top.child("watched").call(Get(1)) == 1
            assert [child.incarnation for child in await top.which_children()] == [2, 2]


class Vague(Host):
    """Has its bound when it starts, and none when it is asked to stop."""

    asked = 0

    @property
    def default_shutdown(self) -> float:  # on purpose
        self.asked += 1
        if self.asked > 2:
            raise Ill
        return 5.0

    @default_shutdown.setter
    def default_shutdown(self, _: float) -> None: ...


async def test_the_bound_of_a_stop_is_asked_for_at_the_start() -> None:
    """C-30: a stop is not the time to find out that it cannot be had."""
    with trio.fail_after(60):
        async with open_supervisor(ChildSpec("a", Vague), ChildSpec("b", Host)) as top:
            await top.stop_child("a")
            assert await top.child("b").call(Get(1)) == 1


async def test_messages_of_a_pool_survive_a_key_function_that_ends_its_start() -> None:
    """C-30: they are answered when the pool is not started again."""
    started = trio.Event()
    outcomes: list[type[BaseException]] = []

    def key(_: object) -> int:
        raise GeneratorExit

    async def slow(_: Host) -> None:
        await started.wait()

    async def ask(top: SupervisorRef) -> None:
        try:
            await top.child("pool").call(Get(1))
        except Exception as exc:
            outcomes.append(type(exc))

    specs = [ChildSpec("first", lambda: Host(start=slow)), ChildSpec("pool", lambda: Pool(Host, 2, key=key))]
    with trio.fail_after(60):
        async with open_supervisor() as top, trio.open_nursery() as nursery:

            async def start() -> None:
                with pytest.raises(ActorStartError):
                    await top.start_child(ChildSpec("below", lambda: Supervisor(*specs)))

            nursery.start_soon(start)
            await settle()
            below = SupervisorRef(top.child("below")._record)
            for _ in range(3):
                nursery.start_soon(ask, below)
            await settle()
            started.set()
    assert len(outcomes) == 3


# --- the source -------------------------------------------------------------------------------------------------------

OURS: Final = re.compile(r"(^|[._])(name|id|path|supervisor|child|actor|waits|blocker)$")
"""Expressions that are names, which are plain texts. A ``raise`` that refuses an argument may show that: it was passed
in the step of the user who gets the error."""


def test_the_kernel_calls_the_logging_module_by_one_door() -> None:
    """C-30: every other call could raise within a step."""
    doors = {_events.__file__, _envelope.__file__}
    for path in python_files(PACKAGE / "kernel"):
        for node in ast.walk(parse(path)):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom) and node.module == "logging":
                assert {each.name for each in node.names} <= {"ERROR", "WARNING"}, where
            if isinstance(node, ast.Import) and any(each.name == "logging" for each in node.names):
                pytest.fail(f"{where} imports logging")
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Log":
                assert str(path) in doors, where


def test_this_package_logs_by_one_door() -> None:
    """C-30: a handler that raises must not end a healthy server either."""
    filters = {each.__file__ for each in (_foreign, _flow, _logs, _start, _output)}
    for path in python_files(PACKAGE):
        if str(path) not in filters:
            assert "getLogger" not in path.read_text(), path


def test_the_kernel_shows_foreign_objects_by_one_door() -> None:
    """C-30: a `repr` or `str` of anything else could raise, or be longer than a screen."""
    for path in python_files(PACKAGE / "kernel"):
        tree = parse(path)
        raised = {id(each) for node in ast.walk(tree) if isinstance(node, ast.Raise) for each in ast.walk(node)}
        for node in ast.walk(tree):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.FormattedValue) and node.conversion != -1 and id(node) not in raised:
                assert OURS.search(ast.unparse(node.value)), where
            if isinstance(node, ast.Call) and ast.unparse(node) != "str(hint)":  # of a method, when its class is made
                assert ast.unparse(node.func) not in ("repr", "str"), f"{where}: use shown() or words_of()"


class Sealed(Host):
    """An actor whose attributes cannot be set any more once it is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "complete", False):
            raise AttributeError(f"{name} cannot be set")
        super().__setattr__(name, value)


async def test_an_actor_whose_attributes_cannot_be_set_ends_alone() -> None:
    async with open_supervisor(ChildSpec("sealed", Sealed), ChildSpec("other", Host)) as tree:
        sealed, other = tree.child("sealed"), tree.child("other")
        with pytest.raises(Fatal):
            await sealed.call(Do(raising(Fatal())))
        assert await other.call(Get(1)) == 1
        assert await sealed.call(Get(2)) == 2
        assert [each.statistics().incarnation for each in (sealed, other)] == [2, 1]
