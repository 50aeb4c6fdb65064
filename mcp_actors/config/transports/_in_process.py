"""Servers that are objects in this process (`InProcess`)."""

from __future__ import annotations

from typing import Any

import attrs

from ..._misuse import explained
from .. import _validators as check


def _check_server(instance: InProcess, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None or isinstance(value, str):
        remedy = 'give the server object; a program is Stdio("…") and a URL is Http("…")'
        raise check.refused("InProcess", "server", f"server is {check.a_type(value)}; {remedy}")


def _shown_server(server: object) -> str:
    return f"<{type(server).__name__}>"


@explained
@attrs.frozen
class InProcess:
    """A server object of the `mcp` package in this process, for tests and for embedding.

    Two instances are equal if they contain the same object. The object is checked when it is connected, not before.

    Args:
        server: the server object.

    Raises:
        ConfigError: `server` is None or a str.
    """

    server: Any = attrs.field(validator=_check_server, eq=id, repr=_shown_server)
