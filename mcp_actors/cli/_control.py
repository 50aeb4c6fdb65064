"""Send the commands ``status``, ``restart`` and others to the running daemons.

An editor starts a daemon for a configuration file, by ``attach``. The daemon's socket name depends on the editor's
environment variables, and a shell's variables may differ. A command asks every daemon of this user, and daemons of
other files decline.

Owns: connections to daemons.
Writes: requests to daemons; the command's output.
Calls: gateway, _configuration, _output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import trio

from ..gateway.attach import DaemonRefused, check_socket, folder, holder, peer_uid, real_name
from ._configuration import find_file, server_name_of
from ._output import Failure, Misuse, Output, at_the_command_line

DAEMON_TIMEOUT: Final = 5.0
"""Seconds without a line until a daemon counts as hung. A busy daemon sends a line each second."""

_COLUMNS: Final = ("name", "state", "pid", "in_flight", "queued", "restarts", "tools")

Line = dict[str, Any]


async def control(do: str, servers: Sequence[str], config: str | None, output: Output) -> int:
    if do == "start" and not servers:
        raise Misuse("name the servers to start: mcp-actors start SERVER; a daemon is started by mcp-actors attach")
    file = _file_of(config)
    lines = await _answers({"do": do, "file": file, "servers": [*map(server_name_of, servers)]}, output)
    if not lines:
        raise Failure(f"no daemon runs for {file}; the next mcp-actors attach --config {file} starts it")
    output.json([line.get("status", line) for line in lines if not line.keys() & {"waiting", "done"}])
    return 1 if any(line.get("error") or line.get("reload", {}).get("failed") for line in lines) else 0


async def pages_of_daemons(config: str | None, output: Output) -> list[tuple[str, str]]:
    """Make each daemon of a file serve its web page. Return URLs, and HTML files that redirect to them."""
    file = _file_of(config)
    lines = await _answers({"do": "ui", "file": file, "servers": []}, output)
    return [(line["page"], line["file"]) for line in lines if "page" in line]


async def _answers(request: Line, output: Output) -> list[Line]:
    """Send a request to each daemon, and return the lines from daemons of the file."""
    lines, hung = list[Line](), list[str]()
    for socket in _sockets():
        try:
            answer = await _ask(socket, request, output)
        except trio.TooSlowError:
            process = holder(str(socket.with_suffix(".lock"))).decode(errors="replace")
            hung.append(f"{socket} (process {process or 'unknown'}, its log: {socket.with_suffix('.log').name})")
            continue
        if answer and request["do"] == "logs" and not request["servers"]:
            answer.append(_log_of(socket.with_suffix(".log")))
            _show(answer[-1], output)
        lines += answer
    if hung:
        problem = f"a daemon does not answer within {DAEMON_TIMEOUT:g} s: {', '.join(hung)}"
        problem += "; end its process with kill -9, and the next mcp-actors attach starts it"
        if not lines:
            raise Failure(problem)
        output.warning(problem)  # the daemon may serve another file
    return lines


def _file_of(config: str | None) -> str:
    return real_name(os.path.expanduser(config or str(find_file())))


def _sockets() -> list[Path]:
    try:
        return [path for path in sorted(Path(folder()).glob("*.ctl")) if check_socket(str(path))]
    except DaemonRefused as error:
        raise Failure(str(error)) from None


async def _ask(socket: Path, request: Line, output: Output) -> list[Line]:
    """Send a request to a daemon; print and return the lines of the answer as they come.

    The list is empty for a daemon of another file, or a socket left by a killed daemon.

    **Cancellation**: ends the wait. The daemon carries out the request.

    Raises:
        trio.TooSlowError: nothing came for `DAEMON_TIMEOUT` seconds.
    """
    try:
        stream = await trio.open_unix_socket(os.fspath(socket))
    except OSError:
        return []
    lines, data = list[Line](), b""
    try:
        async with stream:
            if peer_uid(stream.socket) != os.geteuid():  # type: ignore[arg-type]  # Trio's has the same getsockopt
                raise Failure(f"{socket} belongs to another user and was not used; remove it")
            await stream.send_all(json.dumps(request).encode() + b"\n")
            while not lines or "done" not in lines[-1]:
                # Limit the wait for each piece, not the answer: a reload may take minutes, with a line each second. A
                # suspended daemon accepts connection and request, and never answers.
                with trio.fail_after(DAEMON_TIMEOUT):
                    piece = await stream.receive_some()
                if not piece:
                    raise trio.BrokenResourceError
                *whole, data = (data + piece).split(b"\n")
                for line in map(json.loads, whole):
                    if line == {"other": True}:
                        return []
                    _show(line, output)
                    lines.append(line)
    except trio.BrokenResourceError:
        # A daemon that stops closes its socket, so for ``stop`` the end of the stream is the answer.
        if request["do"] != "stop" or request["servers"]:
            raise Failure(f"the daemon ended before it had answered; see {socket.with_suffix('.log')}") from None
        lines.append({"stopped": request["file"]})
        _show(lines[-1], output)
    finally:
        output.wait_for("")
    return lines


def _show(line: Line, output: Output) -> None:
    output.wait_for("")
    match line:
        case {"waiting": waiting}:
            output.wait_for(f"waiting for {', '.join(waiting)}")
        case {"status": status}:
            _show_status(status, output)
        case {"server": name, "state": state, "error": error}:
            output.line((name, "bold"), f"  {state}", f"  {at_the_command_line(error)}" if error else "")
        case {"server": name, "stderr": text} | {"log": name, "text": text}:
            for each in text.splitlines():
                output.line((name, "dim"), f"  {each}")
        case {"reload": changes}:
            _show_changes(output, **changes)
        case {"stopped": file}:
            output.line(f"stopped the daemon of {file}")
        case {"error": error}:
            output.error(error)


def _show_changes(output: Output, *, failed: dict[str, str], **changes: list[str]) -> None:
    for what, names in changes.items():
        if names:
            output.line(f"{what}: {', '.join(names)}")
    for error in failed.values():
        output.error(error)


def _log_of(log: Path) -> Line:
    data = log.read_bytes() if log.exists() else b""
    return {"log": str(log), "text": data[-64 * 1024 :].decode(errors="replace")}


def _show_status(status: Line, output: Output) -> None:
    output.line((status["file"], "bold"), f"  pid {status['pid']}")
    servers = [*status["servers"].values()]
    rows = [[key.replace("_", " ") for key in _COLUMNS]]
    rows += [["" if each[key] is None else str(each[key]) for key in _COLUMNS] for each in servers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, each in zip(rows, [{}, *servers], strict=True):
        output.line("  ".join(map(str.ljust, row, widths)).rstrip())
        if each.get("last_error") and each["state"] != "ready":
            output.line((f"  error: {at_the_command_line(each['last_error']['message'])}", "red"))
    for each in status["sources"]:
        if each["error"]:
            output.warning(each["error"])
