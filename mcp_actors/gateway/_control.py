"""Answer ``mcp-actors status``, ``restart`` and the like in a daemon.

`serve_control` accepts connections on a socket that the clients of the gateway do not use, so a program in a sandbox
that is given theirs cannot stop or reload anything. A connection is one request, a line with a JSON object such as
``{"do": "restart", "file": "/home/me/mcp.json", "servers": ["docs"]}``. Without names it is about all servers, and for
``stop`` about the daemon. The answer is lines, then the connection ends:

- ``{"other": true}`` alone: this daemon serves another file.
- ``{"server": "docs", "state": "ready", "error": null}`` for each server, as soon as its change is complete;
  ``{"reload": {…}}``, ``{"status": {…}}``, ``{"server": …, "stderr": …}``, ``{"page": …, "file": …}`` for the others.
- ``{"waiting": ["time"]}`` in each second without another line, so that a caller can tell slow from hung.
- ``{"error": "…"}`` if the request is refused or fails as a whole.
- ``{"done": true}`` as the last one. After a ``stop`` of the daemon it does not come: the connection ends with
  `serve_control`.

`read_request` validates a line and does no I/O. Each connection is a task of `serve_control`, which alone reads and
writes it. The changes of servers are tasks below it; they pass their results to it through a channel. A peer that
breaks a bound raises in the task of its connection, where the exception ends: no other connection notices.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Never

import trio
from attrs import asdict, define, frozen

from .._errors import McpActorsError
from .._foreign import Log
from ..observe import status
from ..servers import ReloadSummary, ServerRef
from ._daemon import peer_uid
from ._front import Front
from ._listen import Acceptor

MAX_REQUEST: Final = 64 * 1024
"""Bytes of a request."""

MAX_CONNECTIONS: Final = 16
"""Connections at a time. The user types each of them."""

SECONDS: Final = 5.0
"""Seconds for a peer to send its request, and to read each line of the answer."""

RULE: Final = "---- its next process ----"
"""The line between the last lines of two processes of a server."""

VERBS: Final = ("status", "logs", "restart", "stop", "start", "reload", "ui")

logger = Log("mcp_actors.gateway")

Line = dict[str, Any]
Changes = Mapping[str, Callable[[], Awaitable[Line]]]

_DONE: Final[Line] = {"done": True}


async def serve_control(
    front: Front,
    acceptor: Acceptor,
    *,
    file: str,
    stop: Callable[[], None],
    reload: Callable[[], Awaitable[ReloadSummary]] | None = None,
    page: Callable[[], Awaitable[Line]] | None = None,
) -> None:
    """Answer requests about a group. Does not return. A peer of another user is disconnected.

    Run it around the block of the group, and cancel it after that has been left: ``mcp-actors stop`` waits until its
    connection ends.

    **Cancellation**: ends all connections at once. A change of a server that has begun is completed by the group.

    Args:
        front: the servers.
        acceptor: accepts the connections. No request arrives after it is closed.
        file: the file that this daemon serves, as requests name it.
        stop: called to end the daemon. It must not wait.
        reload: called to read the file again; None is `ServerGroup.reload`. The text of its error is for the user.
        page: called to serve the page for people, if it is not served yet; returns its address, and a file that leads a
            browser there. The text of its error is for the user. None if this daemon has no page.
    """
    control = _Control(front, file, stop, reload or front.group.reload, page)
    async with trio.open_nursery() as nursery:

        def take(client: socket.socket) -> None:
            nursery.start_soon(control.serve, trio.SocketStream(trio.socket.from_stdlib_socket(client)))

        await acceptor.run(take)
        await trio.sleep_forever()


@frozen
class Request:
    """A request, see above."""

    do: str
    file: str
    servers: tuple[str, ...]


def read_request(line: bytes) -> Request:
    """Return the request in a line.

    Raises:
        ValueError: it is not one, or too long; the message is for the user.
    """
    try:
        found = json.loads(line) if len(line) <= MAX_REQUEST else None
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"do": str(do), "file": str(file), "servers": [*names]}:
            if do in VERBS and all(isinstance(name, str) for name in names):
                return Request(do, file, tuple(dict.fromkeys(names)))
    shape = f'{{"do": one of {", ".join(VERBS)}, "file": a path, "servers": names}}'
    raise ValueError(f"not a request of at most {MAX_REQUEST // 1024} KiB: {shape}")


@define(eq=False)
class _Control:
    """The connections to one group."""

    front: Front
    file: str
    stop: Callable[[], None]
    reload: Callable[[], Awaitable[ReloadSummary]]
    page: Callable[[], Awaitable[Line]] | None
    connections: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection, whatever its peer does."""
        self.connections += 1
        try:
            async with stream:
                if peer_uid(stream.socket) != os.geteuid():  # type: ignore[arg-type]  # Trio's has the same getsockopt
                    logger.warning("control socket: a process of another user was disconnected")
                elif self.connections > MAX_CONNECTIONS:
                    problem = f"{MAX_CONNECTIONS} commands are waiting for the daemon already; end some of them"
                    await _write(stream, {"error": problem}, _DONE)
                else:
                    await self._answer(stream)
        except* (trio.BrokenResourceError, trio.TooSlowError, OSError):
            pass  # the peer has left, or breaks a bound
        except* Exception as group:
            logger.error("control socket: a request failed", exc_info=group)
        finally:
            self.connections -= 1

    async def _answer(self, stream: trio.SocketStream) -> None:
        line = await _read(stream)
        try:
            request = read_request(line)
            if request.file != self.file:
                await _write(stream, {"other": True})
                return
            refs = [self.front.group[name] for name in request.servers] or [*self.front.group.values()]
        except (ValueError, KeyError) as refused:
            await _write(stream, {"error": refused.args[0]}, _DONE)
            return
        if request.do == "status":
            found = status(self.front)
            found["servers"] = {ref.name: found["servers"][ref.name] for ref in refs}
            await _write(stream, {"status": {"file": self.file, "pid": os.getpid(), **found}})
        elif request.do == "logs":
            await _write(stream, *({"server": ref.name, "stderr": _stderr_of(ref)} for ref in refs))
        else:
            await _run(stream, self._changes(request, refs))
        await _write(stream, _DONE)

    def _changes(self, request: Request, refs: list[ServerRef]) -> Changes:
        """Return the changes of a request, each under the name of what is waited for."""
        if request.do == "reload":
            return {self.file: self._reload}
        if request.do == "ui":
            return {"the page": self._open_page}
        if request.do == "stop" and not request.servers:
            return {"the daemon": self._stop}
        return {ref.name: partial(self._change, request.do, ref) for ref in refs}

    async def _change(self, do: str, ref: ServerRef) -> Line:
        error: Exception | None
        try:
            await {"restart": ref.restart, "stop": ref.stop, "start": ref.start}[do]()
            error = self.front.group.errors.get(ref.name)
        except McpActorsError as failed:
            error = failed
        return {"server": ref.name, "state": ref.state, "error": None if error is None else str(error)}

    async def _reload(self) -> Line:
        try:
            done = await self.reload()
        except Exception as failed:
            return {"error": str(failed)}
        return {"reload": {**asdict(done), "failed": self.front.failed_in(done)}}

    async def _open_page(self) -> Line:
        try:
            return {"error": "this daemon has no page"} if self.page is None else await self.page()
        except Exception as failed:
            return {"error": str(failed)}

    async def _stop(self) -> Never:
        self.stop()
        await trio.sleep_forever()


def _stderr_of(ref: ServerRef) -> str:
    """Return the last lines of the processes of a server, those before included, with a rule between them."""
    earlier = [text for each in ref._record.connections for text in each.earlier_stderr]
    return f"\n{RULE}\n".join([*earlier, ref.stderr_tail]) if earlier else ref.stderr_tail


async def _run(stream: trio.SocketStream, changes: Changes) -> None:
    """Carry out changes side by side, and write the result of each, and what is waited for in between."""
    send, results = trio.open_memory_channel[tuple[str, Line]](len(changes))

    async def carry_out(name: str) -> None:
        send.send_nowait((name, await changes[name]()))

    async with trio.open_nursery() as nursery:
        for name in changes:
            nursery.start_soon(carry_out, name, name=f"control:{name}")
        waiting = [*changes]
        while waiting:
            line: Line = {"waiting": waiting}
            with trio.move_on_after(1.0):  # the caller waits no longer for a line
                name, line = await results.receive()
                waiting.remove(name)
            await _write(stream, line)


async def _read(stream: trio.SocketStream) -> bytes:
    data = bytearray()
    with trio.fail_after(SECONDS):
        while b"\n" not in data and len(data) <= MAX_REQUEST and (piece := await stream.receive_some(MAX_REQUEST)):
            data += piece
    return bytes(data.partition(b"\n")[0])


async def _write(stream: trio.SocketStream, *lines: Line) -> None:
    with trio.fail_after(SECONDS):
        await stream.send_all(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
