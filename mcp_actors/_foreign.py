"""Log and show users' objects, even if their code raises.

A log record runs the program's handlers, and a text about a user's object runs the object's ``__repr__``. If an
exception from users' code left a step half done, an actor might not report its end, and the supervision tree would
hang.

Owns: nothing.
Writes: stderr, the log.
Calls: _collapse.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from ._collapse import flattened, is_exit

if TYPE_CHECKING:
    from collections.abc import Mapping


SHOWN_REPR: Final = 1000
"""Maximum characters of a `repr` in an error: a dozen lines of a terminal."""


def shown(value: object, *, limit: int = SHOWN_REPR) -> str:
    """Return the `repr` of any object, shortened; the class if ``__repr__`` raises."""
    return _safely(repr, value, limit)


def words_of(exc: BaseException, *, limit: int = 10_000) -> str:
    """Return the text of an exception, shortened; the class if ``__str__`` raises."""
    # The limit is high: an error of this package may describe a hundred levels of a tree.
    return _safely(str, exc, limit)


def plain_name(name: str) -> str:
    """Return a name, or a member of an `enum.StrEnum`, as a plain `str`."""
    return str.__str__(name) if isinstance(name, str) else name  # type: ignore[redundant-expr,unused-ignore]  # refused later


def _safely(fn: Callable[[object], str], value: object, limit: int) -> str:
    try:
        text = str.__str__(fn(value))  # a subclass of str may have methods that raise
    except BaseException:  # also `SystemExit`: the step in progress must be completed
        return f"{type(value).__name__} (its {fn.__name__}() raises)"
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end - 3]} … {text[-end:]}"


class Log:
    """A logger of the logging module that does not fail if a handler, filter or formatter of the program does.

    The record is written to stderr instead, as the logging module does with records that cannot be formatted. An
    exception that ends the program (`is_exit`) still leaves, after the record was written.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled_for(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def log(
        self,
        level: int,
        text: str,
        *args: object,
        exc_info: BaseException | bool | None = None,
        extra: Mapping[str, object] | None = None,
        stacklevel: int = 1,
    ) -> None:
        """Log a record, with arguments for ``%``. `exc_info` is an exception, or True for the current one."""
        if not self._logger.isEnabledFor(level):
            return
        error = exc_info if isinstance(exc_info, BaseException) else sys.exception() if exc_info else None
        try:
            # The logging module would recurse through nested groups.
            known = None if error is None else flattened(error)
            self._logger.log(level, text, *args, exc_info=known, extra=extra, stacklevel=stacklevel + 1)
        except BaseException as exc:
            # Callers log in the midst of a step, for example between a change of state and an answer. If a mistake in a
            # formatter raised here, the step would stay half done. An exit may leave, because it ends the program.
            _write(level, text, args, error, exc)
            if is_exit(exc):
                raise

    def debug(self, text: str, *args: object, **options: Any) -> None:
        self.log(logging.DEBUG, text, *args, stacklevel=2, **options)

    def info(self, text: str, *args: object, **options: Any) -> None:
        self.log(logging.INFO, text, *args, stacklevel=2, **options)

    def warning(self, text: str, *args: object, **options: Any) -> None:
        self.log(logging.WARNING, text, *args, stacklevel=2, **options)

    def error(self, text: str, *args: object, **options: Any) -> None:
        self.log(logging.ERROR, text, *args, stacklevel=2, **options)

    def exception(self, text: str, *args: object, **options: Any) -> None:
        self.log(logging.ERROR, text, *args, exc_info=True, stacklevel=2, **options)


def _write(
    level: int, text: str, args: tuple[object, ...], error: BaseException | None, problem: BaseException
) -> None:
    if not logging.raiseExceptions:  # the program wants no such lines
        return
    facts = ", ".join(shown(each, limit=200) for each in (*args, *([] if error is None else [error])))
    with suppress(Exception):  # stderr may be closed, or None
        what = f"mcp_actors: logging raised {shown(problem)} for this record"
        sys.stderr.write(f"{what}: {logging.getLevelName(level)}: {text} [{facts}]\n")


# --- Await the answer of a user's function if it is awaitable ---------------------------------------------------------

# A plain function works wherever an async one does. Both are called in the event loop, so they must not block.


P = ParamSpec("P")
T = TypeVar("T")


async def answer_of(answer: Awaitable[T] | T) -> T:
    """Return an answer, awaited if awaitable.

    **Cancellation**: as of the awaitable. A plain answer is not a checkpoint.
    """
    return await answer if isawaitable(answer) else answer


def always_async(fn: Callable[P, Awaitable[T] | T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return an async function that calls `fn`, for the SDK, which awaits results."""

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await answer_of(fn(*args, **kwargs))

    return call
