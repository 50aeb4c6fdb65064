"""The faults of a scripted server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import field, frozen
from mcp.types import INTERNAL_ERROR

from ._signal import Signal


@frozen
class Crash:
    """Carry out the request, and die before the answer: the process is killed, or the connections are reset."""


@frozen
class Hang:
    """Carry out the request, and never answer it."""


@frozen
class Delay:
    """Wait some seconds before the request is carried out."""

    seconds: float


@frozen
class Fail:
    """Answer with a JSON-RPC error; the request is not carried out."""

    message: str = "failed as scripted"
    code: int = INTERNAL_ERROR
    data: object = None


@frozen
class Garble:
    """Carry out the request, and send these bytes as a line, or as the body, instead of the answer."""

    line: bytes = b'{"jsonrpc": "2.0", "id": 1, "resu'


@frozen
class Noise:
    """Carry out the request, and send these bytes as a line, or as an event of a stream, before the answer."""

    line: bytes = b"debug: a print() in the server"


@frozen
class Duplicate:
    """Carry out the request, and answer twice."""


@frozen
class Flood:
    """Send so many notifications of progress of unknown requests, then carry out the request and answer."""

    number: int


@frozen
class Ask:
    """Ask the user (elicitation) before the request is carried out, in the way of the era."""

    message: str = "Go on?"


@frozen
class HttpError:
    """Answer with an HTTP status. The server must be reached over HTTP; otherwise this is a `Fail`."""

    status: int
    headers: Mapping[str, str] = field(factory=dict)


class Gate:
    """Keep the request waiting until the test opens the gate. Several gates let a test choose the order of answers."""

    def __init__(self) -> None:
        self._opened = Signal()

    def __repr__(self) -> str:
        return f"<Gate, {'open' if self._opened.is_set else 'closed'}>"

    def open(self) -> None:
        """Let the request go on. Any thread may call it."""
        self._opened.set()

    async def wait(self) -> None:
        """Wait until it is open."""
        await self._opened.wait()


Fault: TypeAlias = Ask | Crash | Delay | Duplicate | Fail | Flood | Garble | Gate | Hang | HttpError | Noise
