"""Pickle and copy exceptions and frozen mappings; refuse to pickle refs.

By default a pickle of an exception loses the cause, and loading fails if ``__init__`` requires keywords. Such a failure
breaks a `concurrent.futures.ProcessPoolExecutor`. If another package's exception does not survive pickling, an
`UnpicklableError` replaces the exception.

Owns: nothing.
Writes: nothing.
Calls: _collapse, _foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Self, TypeVar

from ._collapse import flattened
from ._foreign import words_of

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class UnpicklableError(Exception):
    """Replaces an exception that cannot be pickled, and quotes its class and text."""


class Portable(Exception):
    """Base of this package's errors; neither copying nor unpickling calls ``__init__``.

    A copy or a pickle keeps the cause, but neither traceback nor context.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {name: pack(value) for name, value in vars(self).items()}
        # The cause is in the state and not in the arguments, so that pickle can handle a cyclic chain of causes.
        return _blank, (type(self), self.args), {"__cause__": pack(self.__cause__), **attributes}

    def __setstate__(self, state: dict[str, Any] | None, /) -> None:
        for name, value in (state or {}).items():
            setattr(self, name, unpack(value))


def _blank(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError sets them in __init__, which was not called
    return error


def pack(value: object) -> object:
    """Return a picklable form of a value that may be an exception; `unpack` returns the value."""
    return _Packed(value) if isinstance(value, BaseException) else value


def unpack(value: object) -> object:
    return value.error if isinstance(value, _Packed) else value


class _Packed:
    """Wraps an exception of any class. A pickle or a deep copy may have to replace the exception.

    Groups lose their class. Traceback and context are dropped.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self.error
        if isinstance(error, Portable):
            return _Packed, (error,)
        error = flattened(error)  # pickle would recurse through nested groups
        if isinstance(error, BaseExceptionGroup):
            kind = BaseExceptionGroup  # makes an `ExceptionGroup` if all members are `Exception`s
            made: tuple[Any, ...] = (kind, (error.message, [pack(each) for each in error.exceptions]))
        elif _survives(error):
            return _Packed, (error,), pack(error.__cause__)
        else:
            made = (UnpicklableError, (f"{type(error).__module__}.{type(error).__qualname__}: {words_of(error)}",))
        return _unpacked, (*made, getattr(error, "__notes__", None)), pack(error.__cause__)

    def __setstate__(self, cause: object) -> None:
        self.error.__cause__ = unpack(cause)  # type: ignore[assignment]  # it is an exception


def _unpacked(kind: type[BaseException], args: tuple[Any, ...], notes: list[str] | None) -> _Packed:
    error = kind(*([unpack(each) for each in arg] if isinstance(arg, list) else arg for arg in args))
    if notes is not None:
        error.__notes__ = notes
    return _Packed(error)


def _survives(error: BaseException) -> bool:
    """Return True if `error` survives pickling. Many classes of other packages can be dumped but not loaded."""
    # A trial, which runs foreign code.
    import pickle  # here, because most programs never pickle an error

    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


class Handle:
    """Base of references, groups, streams and everything else that works only where it was made."""

    __slots__ = ()

    # Frameworks copy agents with the handles inside.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        problem = "cannot be pickled, because it works only in its own process; open it in the other process"
        raise TypeError(f"{self!r}: {problem}")


class Frozen(Mapping[K, V_co]):
    """An immutable mapping. The hash covers the keys only, because values may have no hash."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V_co]) -> None:
        self._items: dict[K, Any] = {key: unpack(value) for key, value in items.items()}

    def __getitem__(self, key: K) -> V_co:
        value: V_co = self._items[key]
        return value

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({key: pack(value) for key, value in self._items.items()},)
