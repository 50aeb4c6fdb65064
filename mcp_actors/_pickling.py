"""Pickle and copy exceptions with their attributes, notes and causes.

Python pickles an exception as its class and ``args``: an ``__init__`` with required keywords then fails where it is
loaded, which destroys a `concurrent.futures.ProcessPoolExecutor`, and the cause is dropped. `Portable` does better. A
cause may be of any class, so each one is tried first; one that pickle cannot carry is replaced by its description.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

__all__ = ["Portable", "UnpicklableError", "pack", "unpack"]

_CAUSE: Final = "__cause__"


class UnpicklableError(Exception):
    """Takes the place of an exception that cannot be pickled; its text is the class and the text of that."""


class Portable(Exception):
    """Base of the errors of this package; copies and pickles are made without calling ``__init__``."""

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {name: pack(value) for name, value in vars(self).items()}
        # The cause is part of the state, not of the arguments: pickle can then carry a chain that is a circle.
        return _blank, (type(self), self.args), {_CAUSE: pack(self.__cause__), **attributes}

    def __setstate__(self, state: dict[str, Any] | None, /) -> None:
        for name, value in (state or {}).items():
            setattr(self, name, unpack(value))


def _blank(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError takes them in __init__ only
    return error


def pack(value: object) -> object:
    """Return what to pickle for a value that may be an exception; `unpack` returns the value."""
    return _Packed(value) if isinstance(value, BaseException) else value


def unpack(value: object) -> object:
    """Return the value that was given to `pack`."""
    return value.error if isinstance(value, _Packed) else value


class _Packed:
    """An exception of any class. A copy keeps it; only a pickle, or a deep copy, has to make a choice."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self.error
        if isinstance(error, Portable):
            return _Packed, (error,)
        if isinstance(error, BaseExceptionGroup):
            kind = BaseExceptionGroup  # its constructor chooses the plain class for plain exceptions
            made: tuple[Any, ...] = (kind, (error.message, [pack(each) for each in error.exceptions]))
        elif _survives(error):
            return _Packed, (error,), pack(error.__cause__)
        else:
            made = (UnpicklableError, (f"{type(error).__module__}.{type(error).__qualname__}: {error}",))
        return _unpacked, (*made, getattr(error, "__notes__", None)), pack(error.__cause__)

    def __setstate__(self, cause: object) -> None:
        self.error.__cause__ = unpack(cause)  # type: ignore[assignment]  # it is an exception


def _unpacked(kind: type[BaseException], args: tuple[Any, ...], notes: list[str] | None) -> _Packed:
    error = kind(*([unpack(each) for each in arg] if isinstance(arg, list) else arg for arg in args))
    if notes is not None:
        error.__notes__ = notes
    return _Packed(error)


def _survives(error: BaseException) -> bool:
    """Return True if pickle carries `error`. Classes of other packages often pickle but cannot be loaded."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False
