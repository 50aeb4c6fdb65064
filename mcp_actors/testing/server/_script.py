"""A script: tools, planned faults and received requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from attrs import define, field, frozen

from ._faults import Fault, HttpError
from ._signal import Signal

if TYPE_CHECKING:
    from ._faults import Duplicate, Garble, Noise

Era: TypeAlias = Literal["both", "legacy", "modern"]
Answer: TypeAlias = "str | Callable[[dict[str, Any]], object]"

CONNECT: Final = "connect"
HANDSHAKE: Final = ("initialize", "server/discover")


class Connected(Protocol):
    """An open connection, as the script sees it. Its methods may be called from any thread."""

    number: int

    def mark(self, request_id: object, fault: Garble | Duplicate | Noise) -> None:
        """Let a fault happen to the answer to a request."""

    def crash(self) -> None:
        """End at once, like a process that is killed."""

    def freeze(self) -> None:
        """Take and send nothing until `thaw`."""

    def thaw(self) -> None:
        """Go on."""

    def notify(self) -> None:
        """Send a notification that the tools have changed."""


@frozen
class Received:
    """A request that a scripted server received.

    Attributes:
        method: such as ``tools/call``.
        name: the name of the tool or prompt, or the URI of the resource; None for other requests.
        arguments: the arguments of a tool or prompt.
        connection: the number of the connection, counted from 1.
    """

    method: str
    name: str | None = None
    arguments: Mapping[str, Any] = field(factory=dict)
    connection: int = 1


@frozen
class ScriptedTool:
    """A tool: its definition, and a text or a function of the arguments that answers it."""

    name: str
    answer: Answer
    description: str
    input_schema: Mapping[str, Any]


@define
class _Planned:
    fault: Fault
    method: str
    name: str | None
    times: float

    def concerns(self, method: str, name: str | None) -> bool:
        return _is(method, self.method) and (self.name is None or self.name == name)


def _is(method: str, kind: str) -> bool:
    return method == kind or (kind == CONNECT and method in HANDSHAKE)


@define(eq=False)
class Script:
    """Shared by all connections of a server, which may run in other threads.

    Attributes:
        era: the eras that it speaks.
        tools: by name, in the order in which they are listed.
        received: all requests, in the order in which they arrived.
        cancelled: the requests that the client has cancelled.
        answers: what the user answered to `Ask`, as the protocol has it.
        connections: those that are open.
        refusing: True while connects are refused.
    """

    name: str
    era: Era
    tools: dict[str, ScriptedTool] = field(factory=dict)
    received: list[Received] = field(factory=list)
    cancelled: list[Received] = field(factory=list)
    answers: list[Mapping[str, Any]] = field(factory=list)
    connections: list[Connected] = field(factory=list)
    refusing: bool = False
    _planned: list[_Planned] = field(factory=list)
    _connected: int = 0
    _news: list[Signal] = field(factory=list)
    _lock: Any = field(factory=threading.RLock)

    def plan(self, fault: Fault, method: str, name: str | None, times: float) -> None:
        """Let a fault happen in the next requests of a kind."""
        with self._lock:
            self._planned.append(_Planned(fault, method, name, times))

    def forget_faults(self) -> None:
        """Let none of the planned faults happen."""
        with self._lock:
            self._planned.clear()

    def take(self, method: str, name: str | None, *, http: bool = False) -> Fault | None:
        """Return the fault that is to happen in a request, and count it.

        Args:
            method: the method of the request.
            name: see `Received`.
            http: True takes only the faults that happen before the SDK sees the request.
        """
        with self._lock:
            for each in self._planned:
                if each.concerns(method, name):
                    if http and not isinstance(each.fault, HttpError):
                        return None
                    each.times -= 1
                    if each.times <= 0:
                        self._planned.remove(each)
                    return each.fault
            return None

    def receive(self, received: Received) -> None:
        """Note a request, and wake the tasks that wait for it."""
        with self._lock:
            self.received.append(received)
            news, self._news = self._news, []
        for each in news:
            each.set()

    async def wait_received(self, method: str, name: str | None, number: int) -> Received:
        """Wait until so many requests of a kind have arrived; return the last of them."""
        while True:
            signal = Signal()
            with self._lock:
                found = [each for each in self.received if _is(each.method, method) and name in (None, each.name)]
                if len(found) < number:
                    self._news.append(signal)
            if len(found) >= number:
                return found[number - 1]
            await signal.wait()

    def connect(self, connection: Connected) -> int:
        """Note a connection, and return its number."""
        with self._lock:
            self._connected += 1
            self.connections.append(connection)
            return self._connected

    def disconnect(self, connection: Connected) -> None:
        """Note the end of a connection."""
        with self._lock:
            self.connections.remove(connection)
