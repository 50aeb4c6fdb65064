"""Validate request arguments before sending them.

The arguments of tools are checked against their schemas elsewhere, see `mcp_actors.catalog.ToolChecks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..._errors import InvalidArguments
from ...catalog._schemas import dotted, kind_of

_SHOWN: Final = 40  # characters of a name or value that an error shows: enough to recognize it


def given_text(server: str, method: str, root: str, value: object, *path: str) -> str:
    """Return a string that can be sent.

    Args:
        server: the server's name.
        method: the protocol's method.
        root: the name of the parameter.
        value: the argument, or a part of it.
        path: where that part is inside the argument.

    Raises:
        InvalidArguments: the value is not a string, or has no UTF-8 form.
    """
    if not isinstance(value, str):
        raise refused(server, method, root, path, f"is {kind_of(value)}; expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refused(server, method, root, path, "contains a lone surrogate, which UTF-8 cannot encode") from None
    return value


def given_texts(server: str, method: str, root: str, values: object) -> dict[str, str]:
    """Return a mapping of strings that can be sent.

    Raises:
        InvalidArguments: the values are not a mapping of strings to strings.
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
    """Return the error for an argument that cannot be sent."""
    return InvalidArguments(
        f"server {server!r}: {method}: {dotted(root, path)} {problem}; nothing was sent; correct the argument",
        server=server,
        tool=None,
        path=(root, *path),
    )
