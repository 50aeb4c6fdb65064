"""Explain wrong uses of the public API, with remedies; check options.

Python's errors say what Python could not do (``'Door' object is not subscriptable``), not what to write instead. Only
failed calls are explained, so correct calls lose no time.

A system task protects each entered `open_servers` block from the garbage collector.

Owns: `open_servers` blocks; their system tasks.
Writes: methods of public classes, to explain wrong calls; notes on errors; the log.
Calls: _exports, _foreign, _patched.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, _AsyncGeneratorContextManager, asynccontextmanager
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, ParamSpec, TypeGuard, TypeVar, cast

import sniffio
import trio

from ._exports import public_members
from ._foreign import Log, shown
from ._patched import refuse_patched

logger = Log("mcp_actors.servers")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
C = TypeVar("C", bound=Callable[..., Any])

LONGEST_MESSAGE: Final = 300
"""Errors with more characters refer to ``help()`` instead of listing all arguments."""

_LISTED: Final = 8  # suggested names
_SHOWN: Final = 40  # characters of a wrong word
_COMPARED_NAMES: Final = 500  # known names
_COMPARED_LENGTH: Final = 64  # characters; most programs refuse longer names of tools
_TIMEOUTS: Final = frozenset({"timeout", "timeout_seconds", "read_timeout", "read_timeout_seconds"})

# --- Unknown arguments ------------------------------------------------------------------------------------------------


def explained(thing: C) -> C:
    """Make a function or a class explain calls with wrong arguments, and wrong uses of blocks. A decorator."""
    made: Any = thing
    if not isinstance(thing, type):
        made = _explaining(thing, f"{thing.__name__}()")
    else:
        made.__init__ = _explaining(made.__init__, thing.__name__)
    return cast("C", made)


def explained_methods(kind: type[T]) -> type[T]:
    """Apply `explained` to the public methods of a class, except those with ``**kwargs``."""
    of_actor = f"{kind.__name__}." if hasattr(kind, "tell") else ""
    for name, member in tuple(vars(kind).items()):
        if inspect.isfunction(member) and not name.startswith("_") and not _takes_any(member):
            # The asyncio bridge calls methods with this prefix; users know the names without the prefix.
            public = name.removeprefix("send_")
            setattr(kind, name, _explaining(member, f"{of_actor}{public if hasattr(kind, public) else name}()"))
    kind.__getattr__ = _explain_attribute  # type: ignore[attr-defined]  # type checkers know the attributes
    return kind


def explained_names(kind: type[T]) -> type[T]:
    """Make the objects of a class explain the usual wrong names. A decorator.

    A ``__getattr__``, as of `explained_methods`, slows all attributes down.
    """
    wrong = {name for known, names, _ in _ATTRIBUTE_REMEDIES if hasattr(kind, known) for name in names.split()}
    for name in wrong:
        setattr(kind, name, property(partial(_explain_attribute, name=name), doc=""))

    def names(self: object) -> list[str]:
        return [name for name in public_members(self) if name not in wrong]

    kind.__dir__ = names  # type: ignore[method-assign]  # type checkers look at the class, not at an object
    return kind


_ATTRIBUTE_REMEDIES: Final[tuple[tuple[str, str, str], ...]] = (
    ("list_tools", "aclose close disconnect kill shutdown", "leave its block, or await stop() of one server"),
    ("list_tools", "connect initialize open session", "it is connected by its block; call its tools"),
    ("list_tools", "tools get_tools list", "write servers.tools, or await list_tools() of one server"),
    ("list_tools", "invoke run execute arun", "await call(tool, …), or call_tool(tool, {…})"),
    ("list_tools", "ping is_alive is_connected is_ready connected healthy", "read state, or await check_health()"),
    ("list_tools", "capabilities server_info version", "read info"),
    ("list_tools", "watch_events", "give open_servers(…, observers=[function])"),
    ("list_tools", "subscribe", "it needs an event loop: open the servers with mcp_actors.bridge"),
    ("restart", "*", "write call(*, …) for a tool"),
    ("start_child", "aclose close exit kill shutdown stop", "leave its block, or await stop_child(id) of one child"),
    ("start_child", "kill_child terminate_child", "await stop_child(id)"),
    ("start_child", "remove_child", "await stop_child(id), then await delete_child(id)"),
    ("start_child", "add_child spawn start start_soon supervise", "await start_child(ChildSpec(id, factory))"),
    ("start_child", "children get_children list_children", "await which_children()"),
    ("start_child", "get get_child lookup whereis", "write child(id), or find(path)"),
    ("tell", "aclose cancel close exit kill shutdown stop terminate", "await stop_child(id) of its supervisor"),
    ("tell", "done is_alive join wait", "read state, or await wait_stopped()"),
    ("tell", "link monitor", "write: async with ref.watch() as monitor: …"),
    ("tell", "*", "send a message: await call(message) for an answer, or await tell(message) without one"),
    ("reply", "answer resolve send set set_result", "write reply(value)"),
    ("reply", "reject set_exception", "write fail(error)"),
)
"""An attribute that marks the class, wrong names, and the remedy. ``*`` is any name unlike all attributes."""


def _explain_attribute(instance: object, name: str) -> NoReturn:
    """Raise an error with the replacement of a missing attribute. Python suggests similar names."""
    kind, hint = type(instance), None
    if isinstance(instance, Mapping) and name in instance:
        hint = f"write servers[{name!r}]"
    elif isinstance(instance, Mapping) and instance and hasattr(type(next(iter(instance.values()))), name):
        hint = f"write servers[{next(iter(instance))!r}].{name}, which is of one server"
    else:
        far = not name.startswith("_") and not nearest(name, (each for each in dir(instance) if each[0] != "_"))
        fitting = (row for row in _ATTRIBUTE_REMEDIES if name in row[1].split() or (far and row[1] == "*"))
        hint = next((what.replace("*", repr(name)) for known, _, what in fitting if hasattr(kind, known)), None)
    problem = f"{kind.__name__!r} object has no attribute {name!r}"
    if hint is None:
        raise AttributeError(problem)
    # Python suggests names only for an error without a name.
    raise AttributeError(
        f"{problem}; {hint.replace('await ', '') if kind.__name__.startswith('Sync') else hint}", name=name
    )


def _explaining(fn: Any, who: str) -> Any:
    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            made = fn(*args, **kwargs)
        except TypeError:
            if explanation := _explanation(fn, who, args, kwargs):
                raise explanation from None
            raise
        return _Explained(who.removesuffix("()"), made) if isinstance(made, _AsyncGeneratorContextManager) else made

    @wraps(fn)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    # Frameworks ask whether a function is async.
    return call_async if inspect.iscoroutinefunction(fn) else call


def _takes_any(fn: Callable[..., object]) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(fn).parameters.values())


def _explanation(
    fn: Callable[..., object], who: str, args: tuple[object, ...], given: Mapping[str, object]
) -> TypeError | None:
    """Return the error for a call with wrong arguments; None if the arguments fit, and something else failed."""
    if _takes_any(fn):
        return None
    signature = inspect.signature(fn)
    parameters = signature.parameters.values()
    known = [each.name for each in parameters if each.name != "self" and each.kind is not each.VAR_POSITIONAL]
    if unknown := [name for name in given if name not in known]:
        return unknown_argument(who, unknown[0], known)
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        subject = f"{who}: {error}; "
        return TypeError(subject + (_elsewhere(who, str(error)) or _listing(subject, who, known)))
    return None


CALL_ARGUMENTS: Final = ("name", "arguments", "progress", "meta", "idempotent")
"""The arguments of ``call_tool``, which finds unknown arguments itself: a wrapper would slow down each call."""


def unknown_argument(who: str, word: str, known: Collection[str]) -> TypeError:
    """Return the error for an argument that `who`, a class or a function with ``()``, does not have."""
    subject = f"{who}: unknown argument {word[:_SHOWN]!r}; "
    return TypeError(subject + (_elsewhere(who, word) or _remedy(who, word, known) or _listing(subject, who, known)))


def _listing(subject: str, who: str, known: Collection[str]) -> str:
    """Return the list of arguments; if too long for a message, where to read it."""
    listed = f"its arguments are: {', '.join(known) or 'none'}"
    return listed if len(subject) + len(listed) < LONGEST_MESSAGE else f"see help({who.removesuffix('()')})"


def refuse_positional(tool: str, positional: Sequence[object]) -> None:
    if positional:
        raise TypeError(
            f"call(): the arguments of a tool have names, as in call({tool!r}, city='Rome'); for a mapping of them "
            f"write call_tool({tool!r}, {{…}})"
        )


OPTIONS: Final = frozenset({"timeout", "progress", "meta", "idempotent"})
"""Arguments of ``call`` that are meant as options of the call, unless the tool has them."""


def refuse_option(tool: str, option: str) -> TypeError:
    """Return the error for an option given to ``call``, which sends all arguments to the tool."""
    remedy = _remedy("call()", option, ()) or f"write call_tool({tool!r:.40}, {{…}}, {option}=…)"
    problem = f"call(): {option!r} is an option of a call, and tool {tool!r:.40} has no such argument"
    return TypeError(f"{problem}; {remedy}")


def _remedy(who: str, word: str, known: Collection[str]) -> str | None:
    if word in _TIMEOUTS and who in ("open_servers()", "Http", "Socket", "Sse", "Stdio"):
        return "set it for each server: ServerConfig(connect_timeout=…, request_timeout=…)"
    actor = who.startswith("actor ") or "." in who  # or a method of an actor
    if word in _TIMEOUTS and (actor or who.endswith("()")):
        limit = (
            "limit this call with `with trio.fail_after(seconds):` (on asyncio: `async with asyncio.timeout(seconds):`"
        )
        if actor:
            return f"{limit})"
        in_threads = "in threads: `with mcp_actors.sync.fail_after(seconds):`"
        return f"set ServerConfig(request_timeout=…), or {limit}; {in_threads})"
    near = names_containing(word, known) or [name for name in known if word.startswith(name)] or nearest(word, known)
    *others, last = near[:_LISTED] or [""]
    meant = f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if near else None
    if who in ("call_tool()", "get_prompt()"):
        own = f"{who[:-2].split('_')[1]}'s own arguments are one mapping: {who[:-2]}(name, {{{word[:_SHOWN]!r}: …}})"
        return f"{meant} The {own}" if meant else f"the {own}"
    return meant


_OPTIONS_ELSEWHERE: Final = (
    ("ChildSpec", "backoff max_restarts on_limit strategy window", "give it to open_supervisor(…, *=…)"),
    ("Supervisor", "restart significant", "give it to ChildSpec(…, *=…)"),
    ("ServerConfig", "command args env cwd", "it belongs in Stdio(command, args, …)"),
    ("ServerConfig", "url headers auth", "it belongs in Http(url, …)"),
    ("ServerConfig", "approval require_approval", "ask in a middleware, or set the approval of an agent's adapter"),
    ("Http Sse", "token bearer_token", "write auth=…"),
    ("Http Sse", "api_key", "write headers={…}"),
    ("Stdio", "too many positional arguments", 'its arguments are one list: Stdio("command", ["--option", "value"])'),
    ("Socket", "too many positional arguments", 'the address is one str: Socket("HOST:PORT")'),
    ("open_actor()", "missing a required argument: 'name'", "it opens a block: async with open_actor(…, name=…)"),
    ("open_servers()", "stop_on", "in threads, call sys.exit in a handler of the signal"),
    ("open_servers()", "reload_on", "in threads, call servers.reload() in a handler of the signal"),
)
"""Classes or functions, misplaced options (or a problem), and the remedy. ``*`` is the option."""


def _elsewhere(who: str, word: str) -> str | None:
    fitting = (
        what for whose, words, what in _OPTIONS_ELSEWHERE if who in whose.split() and word in (words, *words.split())
    )
    return next((what.replace("*", word) for what in fitting), None)


def names_containing(word: str, known: Iterable[str]) -> list[str]:
    """Return the names of which this word is a part, in the singular or the plural."""
    stem = word.rstrip("s")
    return [name for name in known if stem in (part.rstrip("s") for part in name.split("_"))]


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return similar names, the nearest first.

    Servers choose the number and length of names, and comparing is slow, so both are limited: this takes milliseconds.
    """
    import difflib  # here, because only errors need it

    names = islice((name for name in known if len(name) <= _COMPARED_LENGTH), _COMPARED_NAMES)
    return difflib.get_close_matches(word[:_COMPARED_LENGTH], [*names], n=count)


# --- Blocks that are used without `async with` or `with` --------------------------------------------------------------


class Unopened:
    """The result of a function, `door`, that opens a block. Explains uses without entering the block."""

    _statement: ClassVar[str]

    __dir__ = public_members

    def __init__(self, door: str) -> None:
        self._door = door
        self._entered = False

    def __repr__(self) -> str:
        return f"<{self._door}(), {'entered' if self._entered else 'not entered'}>"

    def _enter_once(self) -> None:
        """Note that the block is entered, or raise a `RuntimeError` the second time."""
        if self._entered:
            raise RuntimeError(
                f"{self._door}(): this block was already entered; call {self._door}() for each {self._statement!r}"
            )
        self._entered = True

    def _refuse(self, problem: str) -> TypeError:
        noun = re.split("[._]", self._door)[-1]
        return TypeError(f"{self._door}(): {problem}; write: {self._statement} {self._door}(…) as {noun}: …")

    def __await__(self) -> NoReturn:
        raise self._refuse("this cannot be awaited")

    def __getitem__(self, key: object) -> NoReturn:
        raise self._refuse("nothing is open before the block")

    def __iter__(self) -> NoReturn:
        raise self._refuse("this cannot be iterated")

    __aiter__ = __iter__

    if not TYPE_CHECKING:  # type checkers would accept misspelled attributes

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # Python and libraries look for optional names
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            problem = f"nothing is open before the block, so {name[:_SHOWN]!r} cannot be used"
            raise AttributeError(str(self._refuse(problem)))


class Block(Unopened, AbstractAsyncContextManager[T_co]):
    """An ``async with`` that explains other uses."""

    _statement = "async with"

    def __enter__(self) -> NoReturn:
        other = " (in code without it, use mcp_actors.sync)" if self._door == "open_servers" else ""
        raise self._refuse(f"'with' needs 'async' in front of it{other}")

    def __exit__(self, *_: object) -> None:
        """Exist, because ``with`` looks for this method before it calls `__enter__`."""


def opens_block(fn: Callable[P, AsyncIterator[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Do as `contextlib.asynccontextmanager` does, and explain wrong arguments and other uses of the result."""
    opening = asynccontextmanager(fn)

    @wraps(opening)
    def door(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _OpenedBlock(fn.__name__, opening(*args, **kwargs))

    return explained(door)


class _Explained(Block[T_co]):
    """Passes on the coroutines of a block of `asynccontextmanager`."""

    def __init__(self, door: str, opening: AbstractAsyncContextManager[T_co]) -> None:
        super().__init__(door)
        self._opening: Any = opening

    def __aenter__(self) -> Coroutine[Any, Any, T_co]:
        self._enter_once()
        entering: Coroutine[Any, Any, T_co] = self._opening.__aenter__()
        return entering

    def __aexit__(self, *failure: object) -> Coroutine[Any, Any, bool | None]:
        leaving: Coroutine[Any, Any, bool | None] = self._opening.__aexit__(*failure)
        return leaving


class _OpenedBlock(_Explained[T_co]):
    def __init__(self, door: str, opening: AbstractAsyncContextManager[T_co]) -> None:
        super().__init__(door, opening)
        self._exited, self._released = trio.Event(), trio.Event()

    async def __aenter__(self) -> T_co:
        opened = await super().__aenter__()
        trio.lowlevel.spawn_system_task(self._keep, name=f"{self._door}: keeps the block")
        return opened

    async def __aexit__(self, *failure: object) -> bool | None:
        try:
            return await super().__aexit__(*failure)
        finally:
            self._exited.set()
            # Leave no task behind; this takes two steps of the event loop. A cancellation must not skip the wait.
            with trio.CancelScope(shield=True):
                await self._released.wait()

    async def _keep(self) -> None:
        """Keep the block alive until it exits, also if the program holds only what the block has opened."""
        # Otherwise the garbage collector would find the block's generator, and Trio would close the generator in a task
        # that cannot leave the nurseries of the program's task. A system task, because the nurseries must not wait.
        try:
            await self._exited.wait()
        except trio.Cancelled:  # Trio cancels system tasks once the main task has ended
            problem = "the main task has ended and this block has not exited, which Trio reports as an internal error"
            logger.warning("%s", self._refuse(problem))
            raise
        finally:
            self._released.set()


# --- The wrong kind of event loop -------------------------------------------------------------------------------------

# Trio's own check is not enough: trio-asyncio runs asyncio code inside a Trio task, and a nursery that is opened there
# corrupts the run. sniffio, on which Trio depends, distinguishes the two.


def check_flavor(door: str, flavor: Literal["asyncio", "trio"], remedy: str) -> None:
    """Raise a `RuntimeError` unless the caller of `door` runs on the event loop `flavor`, in an unpatched program.

    `remedy` says what to do on another event loop, as an imperative.
    """
    refuse_patched(door)
    try:
        running = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        running = "no event loop"
    if running != flavor:
        raise RuntimeError(f"{door}: needs {flavor} and was called on {running}; {remedy}")


def check_trio(subject: str, *, here: bool) -> None:
    """Raise a `RuntimeError` if the user of a group or a ref (`subject`) is outside its Trio run.

    `here` says whether the caller is in the thread of the group.
    """
    if not here or not trio.lowlevel.in_trio_run():
        raise outside_trio(subject)


def outside_trio(subject: str) -> RuntimeError:
    """Return the error for the use of a group or a ref outside its Trio run."""
    return RuntimeError(
        f"{subject}: used outside its Trio run; on asyncio, open the group with mcp_actors.bridge.open_servers; in a "
        "thread, call trio.from_thread.run(ref.call_tool, name, arguments) (with trio_token=... if Trio did not start "
        "the thread)"
    )


_OF_OTHER_LOOP: Final = {
    "no running event loop": "note: this runs on Trio, also if it is called from asyncio; write: await trio.sleep(…)",
    "must be called from async context": "note: this runs on asyncio, not on Trio; write: await asyncio.sleep(…)",
    "Task got bad yield": "note: this runs on asyncio, not on Trio; write: await asyncio.sleep(…)",
}


def note_loop(error: BaseException) -> None:
    """Note the running event loop on the error of a function that needs another event loop."""
    if type(error) is RuntimeError and error.args and isinstance(error.args[0], str):
        for note in (note for text, note in _OF_OTHER_LOOP.items() if error.args[0].startswith(text)):
            error.add_note(note)


# --- Check numbers and other options; a bool is never a number --------------------------------------------------------

# Python counts ``True`` as an int, but ``connect_timeout=True`` is a mistake and does not mean one second.


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is an int or a float; NaN and infinity are numbers too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_seconds(value: object) -> TypeGuard[float]:
    """Return whether `value` is a positive and finite number."""
    # The comparison refuses NaN, and unlike `math.isfinite` it takes integers that are too large for a float.
    return is_number(value) and 0 < value < math.inf


def is_name(name: object) -> TypeGuard[str]:
    """Return True for a text of one line; other texts could forge a line of a log."""
    return isinstance(name, str) and name.splitlines() == [name]


def is_whole(value: object, lowest: int) -> TypeGuard[int]:
    """Return whether `value` is an int of at least `lowest`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Return True for a callable, but False for a class given in place of its object."""
    return callable(value) and not isinstance(value, type)


def is_plain(value: object) -> TypeGuard[Callable[..., Any]]:
    """Return True for a function that is not async."""
    call: Any = type(value).__call__ if is_function(value) else None
    return call is not None and not any(map(inspect.iscoroutinefunction, (value, call)))


def takes(value: Callable[..., Any], count: int) -> bool:
    """Return False for a function that cannot be called with so many positional arguments."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # written in C, or its class has an odd `__eq__`
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def type_of(value: object) -> str:
    """Return the type of a value, or the name of a class given in place of its object."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_option(owner: str, name: str, given: object, wanted: str, *, valid: bool) -> None:
    """Raise a `ValueError` unless an argument is valid; `wanted` follows the words *must be*."""
    if not valid:
        what = f"{type_of(given)}; write {given.__name__}(...)" if isinstance(given, type) else shown(given)
        raise ValueError(f"{owner}: {name} must be {wanted}, not {what}")


# --- Names of states to wait for --------------------------------------------------------------------------------------


def check_states(owner: str, wanted: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise a `ValueError` unless at least one state is wanted and all are known."""
    wanted = tuple(wanted)
    if not wanted:
        raise ValueError(f"{owner}: wait_state() was called without a state; give {_either(known)}")
    for state in wanted:
        if state not in known:
            near = nearest(str(state), known)
            hint = f"did you mean {near[0]!r}?" if near else f"give {_either(known)}"
            raise ValueError(f"{owner}: there is no state {state!r}; {hint}")


def _either(known: tuple[str, ...]) -> str:
    return f"one of {', '.join(map(repr, known))}"
