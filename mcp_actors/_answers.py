"""Await the answer of a user's function if it is awaitable.

Wherever users give a function, a plain one works as well as an async one. It is called in the event loop, not in a
thread, so it must not block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import isawaitable
from typing import Any, ParamSpec, TypeVar

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
