"""Call the functions of a sign-in, and check their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._foreign import answer_of
from ._failures import Refused


async def call_back(fn: Callable[..., Any], name: str, *args: str, or_none: bool = False) -> Any:
    """Return the text that a function of the user returns; with ``or_none``, it may return None.

    Args:
        fn: the function, async or not.
        name: its name in errors.
        args: its arguments.
        or_none: whether it may return None.

    Raises:
        Refused: it returns something else.
    """
    text = await answer_of(fn(*args))
    if not isinstance(text, str) and not (or_none and text is None):
        remedy = "return a str, or None to wait for the redirect" if or_none else "return a str"
        raise Refused("invalid_callback", f"{name} returned {type(text).__name__}; {remedy}")
    return text
