"""Whether what a caller gives is what the protocol has, before anything is sent. Pure functions.

What tools are called with is another matter, see `mcp_actors.catalog.ToolChecks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .._errors import InvalidArguments
from ..catalog.schemas import dotted, kind_of

__all__ = ["given_text", "given_texts", "refused"]

_SHOWN: Final = 40  # characters of a name or value: enough to recognize it


def given_text(server: str, method: str, root: str, value: object, *path: str) -> str:
    """Return a text that can be sent.

    Args:
        server: who is asked.
        method: what is asked of it, in the words of the protocol.
        root: the name of the parameter.
        value: what was given.
        path: where it is inside the parameter.

    Raises:
        InvalidArguments: it is no str, or one that cannot be sent.
    """
    if not isinstance(value, str):
        raise refused(server, method, root, path, f"is {kind_of(value)}; expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refused(server, method, root, path, "holds half a character, which cannot be sent") from None
    return value


def given_texts(server: str, method: str, root: str, values: object) -> dict[str, str]:
    """Return texts by name, as they can be sent.

    Raises:
        InvalidArguments: they are not that.
    """
    if not isinstance(values, Mapping):
        raise refused(server, method, root, (), f"is {kind_of(values)}; expected a mapping of names to strings")
    texts: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise refused(server, method, root, (), f"has the key {name!r:.{_SHOWN}}; expected strings as keys")
        given_text(server, method, root, name)
        texts[name] = given_text(server, method, root, value, name)
    return texts


def refused(server: str, method: str, root: str, path: tuple[str, ...], problem: str) -> InvalidArguments:
    """The error for what cannot be sent."""
    return InvalidArguments(
        f"server {server!r}: {method}: {dotted(root, path)} {problem}; correct that and ask again, nothing was sent",
        server=server,
        tool=None,
        path=(root, *path),
    )
