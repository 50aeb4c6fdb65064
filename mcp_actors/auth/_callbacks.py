"""Call the functions of a sign-in, and check their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ._failures import Refused


async def call_back(fn: Callable[..., Awaitable[Any]], name: str, *args: str, or_none: bool = False) -> Any:
    """Return the text that a function of the user returns; with ``or_none``, it may return None.

    Args:
        fn: the function.
        name: its name in errors.
        args: its arguments.
        or_none: whether it may return None.

    Raises:
        Refused: it is not an async function, or it returns something else.
    """
    answer = fn(*args)
    if not isawaitable(answer):
        raise Refused("invalid_callback", f"{name} is not an async function; define it with 'async def'")
    text = await answer
    if not isinstance(text, str) and not (or_none and text is None):
        remedy = "return a str, or None to wait for the redirect" if or_none else "return a str"
        raise Refused("invalid_callback", f"{name} returned {type(text).__name__}; {remedy}")
    return text
