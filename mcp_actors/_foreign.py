"""Log, show and await what users give, whatever their code does.

A line of log runs the handlers, filters and formatters of the program, and a text in it runs the ``__repr__`` of an
exception or an observer. Any of them may raise, in the midst of a step: an actor might then not report its end, and its
tree would hang. So `Log` writes a record to stderr if the logging module raises (unless ``logging.raiseExceptions`` is
false), and then lets an exit of the program leave; groups that are nested too deep are logged as flat ones. `shown` and
`words_of` return a text of limited length even if ``__repr__`` or ``__str__`` raises, an exit included. `plain_name`
returns the text of a name whose class has another ``repr``, such as an `enum.StrEnum`.

`answer_of` and `always_async` let users give a plain function or an async one. An exception of that function leaves.

All folders but ``observe`` and ``testing`` use this file, and so do ``_misuse``, ``_pickling`` and ``_tasks``. Of the
package it imports ``_collapse``. It keeps no state but the logger in a `Log`, and starts no task.
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


SHOWN: Final = 1000
"""Characters of the `repr` of an object in the text of an error: a dozen lines of a terminal."""


def shown(value: object, *, limit: int = SHOWN) -> str:
    """Return the `repr` of any object, shortened; the name of its class if that raises."""
    return _safely(repr, value, limit)


def words_of(exc: BaseException, *, limit: int = 10_000) -> str:
    """Return the text of an exception, shortened; the name of its class if its ``__str__`` raises."""
    # An error of this package may describe a hundred levels of a tree.
    return _safely(str, exc, limit)


def plain_name(name: str) -> str:
    """Return the text of a name. Its class may be an `enum.StrEnum`, whose `repr` is something else."""
    return str.__str__(name) if isinstance(name, str) else name  # type: ignore[redundant-expr,unused-ignore]  # checked later


def _safely(fn: Callable[[object], str], value: object, limit: int) -> str:
    try:
        text = str.__str__(fn(value))  # of a subclass of str, whose methods may raise as well
    except BaseException:  # an exit too: the text is needed to complete a step
        return f"{type(value).__name__} (its {fn.__name__}() raises)"
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end - 3]} … {text[-end:]}"


class Log:
    """A logger of the logging module that does not fail if a handler, filter or formatter of the program does.

    The record is written to stderr instead, as the logging module does with records that cannot be formatted. An
    exception that ends the program (`is_exit`) still leaves, after the record was handled as far as possible.

    Args:
        name: the name of the logger.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled_for(self, level: int) -> bool:
        """Return True if records of this level are logged."""
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
        """Log a record, with arguments for ``%`` and an exception if one is given. True means the current one."""
        if not self._logger.isEnabledFor(level):
            return
        error = exc_info if isinstance(exc_info, BaseException) else sys.exception() if exc_info else None
        try:
            # The logging module would recurse through nested groups.
            known = None if error is None else flattened(error)
            self._logger.log(level, text, *args, exc_info=known, extra=extra, stacklevel=stacklevel + 1)
        except BaseException as exc:
            _write(level, text, args, error, exc)
            if is_exit(exc):
                raise

    def debug(self, text: str, *args: object, **options: Any) -> None:
        """Log at level DEBUG."""
        self.log(logging.DEBUG, text, *args, stacklevel=2, **options)

    def info(self, text: str, *args: object, **options: Any) -> None:
        """Log at level INFO."""
        self.log(logging.INFO, text, *args, stacklevel=2, **options)

    def warning(self, text: str, *args: object, **options: Any) -> None:
        """Log at level WARNING."""
        self.log(logging.WARNING, text, *args, stacklevel=2, **options)

    def error(self, text: str, *args: object, **options: Any) -> None:
        """Log at level ERROR."""
        self.log(logging.ERROR, text, *args, stacklevel=2, **options)

    def exception(self, text: str, *args: object, **options: Any) -> None:
        """Log at level ERROR, with the current exception."""
        self.log(logging.ERROR, text, *args, exc_info=True, stacklevel=2, **options)


def _write(
    level: int, text: str, args: tuple[object, ...], error: BaseException | None, problem: BaseException
) -> None:
    """Write a record to stderr that could not be logged."""
    if not logging.raiseExceptions:  # the program wants no such lines
        return
    facts = ", ".join(shown(each, limit=200) for each in (*args, *([] if error is None else [error])))
    with suppress(Exception):  # it may be closed, or None
        what = f"mcp_actors: logging raised {shown(problem)} for this record"
        sys.stderr.write(f"{what}: {logging.getLevelName(level)}: {text} [{facts}]\n")


# --- Await the answer of a user's function if it is awaitable ---------------------------------------------------------

# Wherever users give a function, a plain one works as well as an async one. It is called in the event loop, not in a
# thread, so it must not block.


P = ParamSpec("P")
T = TypeVar("T")


async def answer_of(answer: Awaitable[T] | T) -> T:
    """Return what a function has returned; if that is awaitable, await it.

    **Cancellation**: as of the awaitable. Otherwise this is not a checkpoint.
    """
    return await answer if isawaitable(answer) else answer


def always_async(fn: Callable[P, Awaitable[T] | T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return an async function that calls `fn`, for the SDK, which awaits what users give."""

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await answer_of(fn(*args, **kwargs))

    return call
