"""Find the handler of a message in the class of an actor.

Mistakes in handlers (``@handles`` methods, or ``handle``) must show when the class is made, not when the first message
arrives. Annotations of handlers are left to type checkers; only that of ``handle``'s parameter is read here.

Owns: nothing.
Writes: marks on decorated methods.
Calls: _envelope, _later.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isasyncgenfunction, isfunction, isgeneratorfunction, signature
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Never,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from .._foreign import shown
from ._envelope import Call, Message
from ._later import Later

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- Find the handler of a message ------------------------------------------------------------------------------------

# Each actor class has a table that maps message classes to method names. The table is made with the actor class. A
# message without a handler is refused when sent, or at the latest when taken.
#
# An overridden ``handle`` gets all messages, and returns None if its ``match`` has no case. So None is an error if the
# ``Call[...]`` forbids None, or if the annotation of ``handle`` omits the class of the message.


A = TypeVar("A")
R = TypeVar("R")
M_co = TypeVar("M_co", bound=Message, covariant=True)
C = TypeVar("C", bound=Call[Any])
M = TypeVar("M", bound=Message)

Answer = Coroutine[Any, Any, R]

HANDLER_MARK: Final = "_handles_message"

UNIONS: Final = (Union, UnionType)


class handles(Generic[M_co]):  # noqa: N801 - a decorator
    """Make a method of an actor the handler of a class of messages, and of subclasses without a handler.

    ::

        @handles(Lookup)
        def look_up(self, message: Lookup) -> str | None:
            return self._numbers.get(message.name)

    An ``async def`` runs in a task of the actor. A plain ``def`` runs without a task, in the step that delivers the
    message, and so costs less. It must be quick: nothing else runs meanwhile.

    Subclasses inherit handlers, and override them by the name of the method or by the class of the message.

    Raises:
        TypeError: the argument is not a class of messages. Or, when the class of the actor is made: the method is not a
            function of one message, contains ``yield``, or is named like a member of `Actor`; or another method of the
            class handles the same messages.
    """

    _message: type[Message]

    if TYPE_CHECKING:  # so that the error of a checker names the answer that a `Call` wants

        @overload
        def __new__(cls, message: type[C]) -> _HandlesCall[C]: ...
        @overload
        def __new__(cls, message: type[M]) -> handles[M]: ...
        def __new__(cls, message: Any) -> Any: ...

    else:

        def __init__(self, message: type[M_co]) -> None:
            given: object = message
            if not (isinstance(given, type) and issubclass(given, Message)):
                bare = f"{getattr(given, '__name__', '')}(); write @handles(...) with the class of its messages"
                what = bare if isfunction(given) else shown(given)
                if get_origin(given) in UNIONS:
                    what += "; write a method for each, or one with @handles of their base class"
                raise TypeError(f"@handles takes a class derived from Message or Call[...], not {what}")
            self._message = message

    @overload
    def __call__(self, method: Callable[[A, M_co], Answer[None]]) -> Callable[[A, M_co], Answer[None]]: ...
    @overload
    def __call__(self, method: Callable[[A, M_co], None]) -> Callable[[A, M_co], None]: ...
    def __call__(self, method: Any) -> Any:
        if hasattr(method, HANDLER_MARK):
            raise TypeError(f"{method.__qualname__}: @handles twice; write one method for each class of messages")
        setattr(method, HANDLER_MARK, self._message)
        return method


if TYPE_CHECKING:

    class _HandlesCall(handles[M_co]):
        """The `handles` of a `Call`."""

        @overload  # type: ignore[override]  # its answer is not None
        def __call__(
            self: handles[Call[R]], method: Callable[[A, M_co], Answer[R]]
        ) -> Callable[[A, M_co], Answer[R]]: ...
        @overload
        def __call__(
            self: handles[Call[R]], method: Callable[[A, M_co], Answer[R | Later[R]]]
        ) -> Callable[[A, M_co], Answer[R | Later[R]]]: ...
        @overload
        def __call__(self: handles[Call[R]], method: Callable[[A, M_co], R]) -> Callable[[A, M_co], R]: ...
        @overload
        def __call__(
            self: handles[Call[R]], method: Callable[[A, M_co], R | Later[R]]
        ) -> Callable[[A, M_co], R | Later[R]]: ...
        def __call__(self, method: Any) -> Any: ...


def handlers_of(cls: type, actor: type) -> dict[type[Message], str]:
    """Return the table of a class. Raise a `TypeError` for a wrong handler."""
    table: dict[type[Message], str] = {}
    for base in reversed(cls.__mro__):
        own: dict[type[Message], str] = {}
        for name, method in vars(base).items():
            kind = getattr(method, HANDLER_MARK, None)
            if kind is not None:
                if kind in own:
                    both = f"{own[kind]}() and {name}()"
                    raise TypeError(f"{base.__name__}: {both} handle {kind.__name__}; keep one of them")
                own[kind] = name
        table = {kind: name for kind, name in table.items() if name not in own.values()} | own
    for kind, name in table.items():
        if hasattr(actor, name):
            what = f"{cls.__name__}.{name}(): a handler named like a member of Actor, which it would replace"
            raise TypeError(f"{what}; rename it, for example to on_{name}()")
        if name in vars(cls):
            _check(f"{cls.__name__}.{name}()", vars(cls)[name], kind)
    return table


def handler_for(table: Mapping[type[Message], str], kind: type) -> str | None:
    return next((table[each] for each in kind.__mro__ if each in table), None)


def check_declared(cls: type, actor: type, table: Mapping[type[Message], str]) -> None:
    """Raise a `TypeError` if a class handles other messages than ``Actor[...]`` declares."""
    declared = _declared(cls, actor)
    members = _members(declared)
    if members is None:
        return
    missing = [each for each in members if handler_for(table, each) is None]
    if missing:
        names = ", ".join(each.__name__ for each in missing)
        if missing[0] in (Message, Call):
            what = f"{cls.__name__}: Actor[{_shown(members)}] names no class of messages"
            raise TypeError(f"{what}; write Actor[Add | Get] with the classes that it handles, or Actor[Never] if none")
        raise TypeError(
            f"{cls.__name__}: has no handler for {names}, which Actor[{_shown(members)}] declares; add a method with "
            f"@handles({missing[0].__name__}), or leave it out of Actor[...]"
        )
    others = [kind for kind in table if not issubclass(kind, tuple(members))]
    if others:
        names = ", ".join(each.__name__ for each in others)
        raise TypeError(
            f"{cls.__name__}: handles {names}, which Actor[{_shown(members)}] omits; add it there, or remove "
            f"{table[others[0]]}()"
        )


def _declared(cls: type, actor: type) -> Any:
    """Return the type in the ``Actor[...]`` that a class is derived from; `Any` without one."""
    bases = vars(cls).get("__orig_bases__", cls.__bases__)
    # Like type checkers, take the first base that is an actor; `Actor` itself comes last.
    base = next(base for base in bases if _is_actor(base, actor))
    arguments = get_args(base)
    if (origin := get_origin(base) or base) is actor:
        return arguments[0] if arguments else Any
    declared = _declared(origin, actor)
    parameters = getattr(declared, "__parameters__", (declared,) if isinstance(declared, TypeVar) else ())
    if not parameters or not arguments:
        return declared
    given = dict(zip(origin.__parameters__, arguments, strict=True))
    return given[declared] if declared in given else declared[tuple(given[each] for each in parameters)]


def _is_actor(base: Any, actor: type) -> bool:
    origin = get_origin(base) or base
    return isinstance(origin, type) and issubclass(origin, actor)


def _members(declared: Any) -> list[type[Message]] | None:
    """Return the classes of messages of a declared type; None if unknown."""
    if declared in (Never, NoReturn):
        return []
    members = [
        get_origin(each) or each for each in (get_args(declared) if get_origin(declared) in UNIONS else [declared])
    ]
    return members if all(isinstance(each, type) and each is not Any for each in members) else None


def _shown(members: list[type[Message]]) -> str:
    return " | ".join(each.__name__ for each in members) or "Never"


def no_case(actor: str, cls: type, kind: type[Message]) -> TypeError:
    name = kind.__name__
    return TypeError(
        f"actor {actor!r}: {cls.__name__}.handle() has no case for {name}; add one. If there is one that returns None, "
        f"allow None in the reply type of {name}, and {name} in the annotation of handle()"
    )


def may_answer_none(handle: Callable[..., Any], kind: type[Message]) -> bool:
    """Return True if None may answer a message."""
    replies = [
        get_args(base)[0]
        for each in kind.__mro__
        for base in vars(each).get("__orig_bases__", ())
        if get_origin(base) is Call
    ]
    return all(_admits(reply, NoneType) for reply in replies) and _admits(_parameter(handle), kind)


def _check(method: str, fn: Any, kind: type[Message]) -> None:
    if not isfunction(fn) or isgeneratorfunction(fn) or isasyncgenfunction(fn):
        raise TypeError(
            f"{method}: a handler is a function that returns the answer; write `def` or `async def`, without `yield`"
        )
    try:
        signature(fn).bind("self", "message")
    except TypeError:
        write = f"{fn.__name__}(self, message: {kind.__name__})"
        raise TypeError(f"{method}: a handler takes one argument, the message; write {write}") from None


def _parameter(method: Callable[..., Any]) -> Any:
    """Return the annotation of the message; `Any` if missing or not to be evaluated."""
    try:
        hints = get_type_hints(method)
    except Exception:
        return Any  # a name that is imported for type checkers only
    return next((hint for name, hint in hints.items() if name not in ("self", "return")), Any)


def _admits(hint: Any, cls: type) -> bool:
    """Return True if a type hint admits instances of a class, or cannot be checked."""
    origin = get_origin(hint)
    if origin in UNIONS:
        return any(_admits(each, cls) for each in get_args(hint))
    admitted = NoneType if hint is None else origin or hint
    if admitted is Any or not isinstance(admitted, type):
        return True
    try:
        return issubclass(cls, admitted)
    except TypeError:
        return True  # a protocol
