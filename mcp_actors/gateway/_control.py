"""Answer ``mcp-actors status``, ``restart`` and the like in a daemon.

Commands have their own socket: a program in a sandbox gets the clients' socket only, and can neither stop nor reload
anything. Each connection carries one request, a line of JSON, and its answer, several lines::

    {"do": "restart", "file": "/home/me/mcp.json",    request; without names, about all servers
     "servers": ["docs"]}                             (a "stop" without names stops the daemon)

    {"waiting": ["docs"]}                             each second without another line, as a sign of life
    {"server": "docs", "state": "ready",              for each server, as soon as its change is complete
     "error": null}
    {"status": {…}}, {"reload": {…}}                  for "status", for "reload"
    {"server": "docs", "stderr": "…"}                 for "logs", for each server
    {"page": "http://…", "file": "/…"}                for "ui": an address, and a file to open in a browser
    {"error": "…"}                                    the request is refused, or fails as a whole
    {"done": true}                                    the end; a stopped daemon ends the connection instead
    {"other": true}                                   the whole answer of a daemon that serves another file

Owns: connections of commands; tasks of commands; tasks of changes.
Writes: answers to commands; the log. Starts and stops servers; reloads the group; serves a web page; ends the daemon.
Calls: observe, servers, _daemon, _front, _listen.
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

MAX_CONTROL_CONNECTIONS: Final = 16

PEER_SECONDS: Final = 5.0
"""Seconds for a peer to send its request, and to read each line."""

SEPARATOR: Final = "---- its next process ----"  # between the stderr of two processes of a server

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
    """Answer requests about a group. Does not return.

    Run this around the block of the group, and cancel it after that block: ``mcp-actors stop`` waits for the end of its
    connection.

    **Cancellation**: ends all connections at once. The group completes any change already begun.

    Args:
        front: the servers.
        acceptor: accepts connections; no request arrives once closed. Peers of other users are disconnected.
        file: the daemon's file, as requests name it.
        stop: called to end the daemon. Must not wait.
        reload: reads the file again; None is `ServerGroup.reload`. The text of an error is for the user.
        page: serves the page for people, unless served already; returns the address, and a file to open in a browser.
            The text of an error is for the user. None if there is no page.
    """
    control = _Control(front, file, stop, reload or front.group.reload, page)
    async with trio.open_nursery() as nursery:

        def take(client: socket.socket) -> None:
            nursery.start_soon(control.serve, trio.SocketStream(trio.socket.from_stdlib_socket(client)))

        await acceptor.run(take)
        await trio.sleep_forever()


@frozen
class ControlRequest:
    do: str
    file: str
    servers: tuple[str, ...]


def read_request(line: bytes) -> ControlRequest:
    """Parse a request, or raise ValueError, whose message is for the user."""
    try:
        found = json.loads(line) if len(line) <= MAX_REQUEST else None
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"do": str(do), "file": str(file), "servers": [*names]}:
            if do in VERBS and all(isinstance(name, str) for name in names):
                return ControlRequest(do, file, tuple(dict.fromkeys(names)))
    shape = f'{{"do": one of {", ".join(VERBS)}, "file": a path, "servers": names}}'
    raise ValueError(f"not a request of at most {MAX_REQUEST // 1024} KiB: {shape}")


@define(eq=False)
class _Control:
    front: Front
    file: str
    stop: Callable[[], None]
    reload: Callable[[], Awaitable[ReloadSummary]]
    page: Callable[[], Awaitable[Line]] | None
    connections: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            async with stream:
                if peer_uid(stream.socket) != os.geteuid():  # type: ignore[arg-type]  # Trio's has the same getsockopt
                    logger.warning("control socket: a process of another user was disconnected")
                elif self.connections > MAX_CONTROL_CONNECTIONS:
                    problem = f"{MAX_CONTROL_CONNECTIONS} commands are waiting for the daemon already; end some of them"
                    await _write(stream, {"error": problem}, _DONE)
                else:
                    await self._answer(stream)
        except* (trio.BrokenResourceError, trio.TooSlowError, OSError):
            pass  # the peer has left, or breaks a bound; other connections go on
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

    def _changes(self, request: ControlRequest, refs: list[ServerRef]) -> Changes:
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
    earlier = [text for each in ref._record.connections for text in each.earlier_stderr]
    return f"\n{SEPARATOR}\n".join([*earlier, ref.stderr_tail]) if earlier else ref.stderr_tail


async def _run(stream: trio.SocketStream, changes: Changes) -> None:
    """Carry out changes concurrently; write each result, and once a second the names still waited for."""
    send, results = trio.open_memory_channel[tuple[str, Line]](len(changes))

    async def carry_out(name: str) -> None:
        send.send_nowait((name, await changes[name]()))

    async with trio.open_nursery() as nursery:
        for name in changes:
            nursery.start_soon(carry_out, name, name=f"control:{name}")
        waiting = [*changes]
        while waiting:
            line: Line = {"waiting": waiting}
            with trio.move_on_after(1.0):
                name, line = await results.receive()
                waiting.remove(name)
            await _write(stream, line)


async def _read(stream: trio.SocketStream) -> bytes:
    data = bytearray()
    with trio.fail_after(PEER_SECONDS):
        while b"\n" not in data and len(data) <= MAX_REQUEST and (piece := await stream.receive_some(MAX_REQUEST)):
            data += piece
    return bytes(data.partition(b"\n")[0])


async def _write(stream: trio.SocketStream, *lines: Line) -> None:
    with trio.fail_after(PEER_SECONDS):
        await stream.send_all(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
