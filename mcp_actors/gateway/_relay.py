"""Pass messages between a client on stdio and one daemon after another.

A `RelaySession` copies lines between stdin/stdout and a daemon's socket, and parses few of them. The next daemon gets
the lines that set up the session, then the unanswered requests that are safe to repeat, then the unsent lines. To save
memory, `attach` does not import `mcp_actors`, but this folder as a package ``attached``. So this file imports little.

Owns: the state of the session; unanswered requests; unsent lines; the connection to a daemon.
Writes: lines to the daemon and the client; warnings to stderr. Starts daemons.
Calls: _daemon.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque

from ._daemon import DIRECTORY, DaemonRefused, Names, daemon_command, end_of, holder, names_for, open_daemon

TYPE_CHECKING = False  # as in `typing`, whose import costs 1 MB
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

# --- Lines and ids ----------------------------------------------------------------------------------------------------

START: Final = b'{"jsonrpc":"2.0","id":'
TOOLS_CALL: Final = b',"method":"tools/call"'
NOTIFICATION_START: Final = b'{"jsonrpc":"2.0","method":"notifications/'
CANCELLED: Final = "notifications/cancelled"


class Line:
    """A line for the daemon.

    Attributes:
        id: the id of a request, as JSON; else empty.
        state: the part of the session that the line sets; ``-PART`` if it removes the part; else empty.
        again: safe to repeat, so an unanswered line goes to the next daemon.
        own: only the present daemon gets the line.
        former: the previous line that set the same part, restored if this line is refused.
        written: a daemon may have read the line.
        cancelled: the client does not wait for the answer.
    """

    __slots__ = ("again", "cancelled", "data", "former", "id", "own", "state", "written")

    def __init__(self, data: bytes, id: bytes = b"", *, own: bool = False) -> None:
        self.data, self.id, self.state, self.own = data, id, "", own
        self.again = self.written = self.cancelled = False
        self.former: Line | None = None


def _cut(parts: list[bytes], data: bytes) -> list[bytes]:
    """Return the lines completed by data, without ends; keep the rest in `parts`."""
    parts.append(data)
    if b"\n" not in data:
        return []
    *lines, rest = b"".join(parts).split(b"\n")
    parts[:] = [rest]
    return lines


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if type(message) is dict else {}


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _id(message: object, key: str = "id") -> bytes:
    """Return the id of a message as JSON, with 1 and "1" distinct; empty without an id."""
    value = message.get(key) if type(message) is dict else None
    return b"%d" % value if type(value) is int else _dump(value) if type(value) is str else b""


def _look(line: bytes) -> tuple[bytes, bytes, int]:
    """Return the id of a message, the bytes after the id, and their position; an empty id if a parser is needed.

    A later id may be part of a result, so only an id at the beginning counts.
    """
    if not line.startswith(START):
        return b"", b"", 0
    at = len(START)
    end = line.find(b'"', at + 1) + 1 if line.startswith(b'"', at) else line.find(b",", at)
    id, follows = line[at:end], line[end : end + 10]
    valid = id.startswith(b'"') or id.removeprefix(b"-").isdigit()
    certain = valid and b"\\" not in id and follows in (b',"result":', b',"error":{', b',"method":')
    return (id if certain else b""), follows, end


def _with_id(line: bytes, id: bytes) -> bytes:
    old, _, end = _look(line)
    return START + id + line[end:] if old else _dump({**_parse(line), "id": json.loads(id)}) + b"\n"


def _message(method: str, params: dict[str, Any] | None = None) -> bytes:
    return _dump({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}) + b"\n"


def _state_of(method: str, params: Any) -> str:
    """Return the part of the session set by a message; the next daemon gets the last message for each part."""
    if method in ("initialize", "notifications/initialized", "logging/setLevel"):
        return method
    if method in ("resources/subscribe", "resources/unsubscribe") and type(params) is dict:
        return f"{'-' if method == 'resources/unsubscribe' else ''}resource {params.get('uri')}"
    return ""


def _directory() -> list[Line]:
    try:
        return [Line(_message(DIRECTORY, {"path": os.getcwdb().decode()}), own=True)]
    except (OSError, UnicodeDecodeError):
        return []


# --- A session --------------------------------------------------------------------------------------------------------

LIMIT: Final = 1024 * 1024  # bytes waiting for one side before the other is not read
CHUNK: Final = 64 * 1024
MAX_MESSAGE: Final = 16 * 1024 * 1024  # bytes, as in the daemon
LOSS_WINDOW: Final = 60.0
RETRY_SECONDS: Final = 10.0  # without retrying a daemon that did not start
CLOSE_SECONDS: Final = 1.0  # for the last answers after stdin closes; clients wait about two, then kill


class RelaySession:
    def __init__(self, config: str, command: Callable[[Names], list[str]]) -> None:
        self._config, self._command = config, command
        self._daemon: socket.socket | None = None
        self._log, self._former = "", b""
        self._writable = False  # False: the daemon takes no more, but may still answer
        self._from_host: list[bytes] = []
        self._from_daemon: list[bytes] = []
        self._to_host = bytearray()
        self._to_daemon: deque[Line] = deque()
        self._waiting = self._sent = 0  # bytes in _to_daemon; written bytes of the first line
        self._requests: dict[bytes, Line] = {}  # the client's, unanswered
        self._state: dict[str, Line] = {}  # goes to the next daemon first
        self._repeated: set[bytes] = set()  # ids of `_state` lines sent again; drop the answers
        self._asked: dict[bytes, bytes] = {}  # requests of daemons: the client's id → the daemon's
        self._questions = 0
        self._fences: list[bytes] = []
        self._failure, self._retry_at = "", 0.0
        self._connects: list[float] = []
        self._ends_at = 0.0  # set once the client has closed stdin
        self._left_at = 0.0  # set once the client leaves while a daemon starts
        self._poll, self._watched = select.poll(), [(-1, 0)]

    def run(self) -> None:
        if not os.isatty(1):  # a terminal is shared with the shell
            os.set_blocking(1, False)
        self._open()
        while not (self._ends_at and self._is_done()):
            if self._fences:
                self._pass_fences()
            if self._to_daemon:
                self._write_daemon()
            self._write_host()
            self._watch()
            left = max(0.0, self._ends_at - time.monotonic()) * 1000 if self._ends_at else None
            for descriptor, events in self._poll.poll(left):
                if descriptor == 0:
                    self._read_host()
                elif events & ~select.POLLOUT:
                    self._read_daemon() if descriptor > 1 else sys.exit()  # nothing reads the answers

    def _is_done(self) -> bool:
        if self._daemon is not None and self._writable and not self._to_daemon:
            self._writable = False
            try:
                self._daemon.shutdown(socket.SHUT_WR)
            except OSError:
                return False  # the next read notices that the daemon has ended
        busy = self._to_host or self._to_daemon or (self._daemon is not None and self._requests)
        return not busy or time.monotonic() >= self._ends_at

    def _watch(self) -> None:
        room = len(self._to_host) <= LIMIT
        watched = [(1, select.POLLOUT if self._to_host else 0)]  # reports a closed stdout even without events
        if not self._ends_at and self._waiting <= LIMIT and (room or self._daemon is not None):
            watched.append((0, select.POLLIN))
        if self._daemon is not None and (room or (self._to_daemon and self._writable)):
            writes = select.POLLOUT if self._to_daemon and self._writable else 0
            watched.append((self._daemon.fileno(), select.POLLIN * room | writes))
        if watched != self._watched:
            self._poll, self._watched = select.poll(), watched
            for descriptor, events in watched:
                self._poll.register(descriptor, events)

    # --- connect to a daemon, and lose it ---------------------------------------------------------------------------

    def _open(self) -> None:
        """Connect and restore the session, or answer all waiting requests with the reason."""
        self._write_host()  # starting a daemon may take long
        problem = "the daemon has ended and the client has closed its side" if self._ends_at else self._failure
        if not self._ends_at and time.monotonic() >= self._retry_at:
            try:
                self._connect()
                self._failure = ""
                return
            except OSError as error:
                refused = isinstance(error, DaemonRefused)
                problem = str(error) if refused else f"the daemon of {self._config} cannot be reached ({error})"
                self._failure = problem
                self._retry_at = time.monotonic() + RETRY_SECONDS
                _warn(problem)
        for line in self._to_daemon:
            self._requests.pop(line.id, line)
            if line.id and not line.cancelled:
                self._answer(line.id, f"{problem}; the request was not sent", "not_sent")
            elif line.state and not line.id and "initialize" in self._state:
                self._state[line.state] = line  # sent once only, and the next daemon needs it
        self._requeue([])

    def _connect(self) -> None:
        now = time.monotonic()
        self._connects = [each for each in self._connects if now - each < LOSS_WINDOW]
        if len(self._connects) > 3:  # limits restarts within LOSS_WINDOW
            problem = f"the daemon of {self._config} has ended {len(self._connects)} times within {LOSS_WINDOW:.0f} s"
            raise DaemonRefused(f"{problem}: {end_of(self._log)}; fix that and try again")
        names = names_for(self._config)
        self._daemon = open_daemon(names, self._command(names), self._former, self._look_at_host)
        self._connects.append(now)
        self._log, self._former, self._writable = names.log, holder(names.lock), True
        first = _directory()  # daemons read in order, so nothing has to wait for an answer
        for line in self._state.values():
            if self._requests.get(line.id) is line:
                first.append(line)
            else:
                first.append(Line(line.data, own=True))
                self._repeated.add(line.id)
        self._repeated.discard(b"")
        # First the lines that make the session, then waiting requests: a request before ``initialize`` would run
        # without the client's capabilities. `_requeue` resets `_sent`, so a line that was half written goes out whole,
        # because the former daemon never saw its end.
        self._requeue([*first, *(line for line in self._to_daemon if line not in first)])
        if "notifications/initialized" in self._state:
            for kind in ("tools", "prompts", "resources"):
                self._to_host += _message(f"notifications/{kind}/list_changed")

    def _look_at_host(self) -> None:
        """End this process if the client leaves while a daemon starts. A daemon without clients ends itself."""
        poll = select.poll()
        poll.register(0, select.POLLIN | getattr(select, "POLLRDHUP", 0))
        poll.register(1, 0)
        events = dict(poll.poll(0))
        if events.get(1):
            sys.exit()
        if (found := events.get(0, 0)) & ~select.POLLIN:
            busy = self._requests or found & select.POLLIN
            self._left_at = self._left_at or time.monotonic() + CLOSE_SECONDS * bool(busy)
            if time.monotonic() >= self._left_at:
                self._refuse_all()
                sys.exit()

    def _refuse_all(self) -> None:
        """Answer the requests of a client that has left. Without a session, `initialize` needs no answer."""
        while not self._ends_at:
            self._read_host()  # never blocks: the other end is closed
        for line in self._requests.values():
            if line.state != "initialize" and not line.cancelled:
                problem = "the client closed its side before a daemon was ready; the request was not sent"
                self._answer(line.id, problem, "not_sent")
        self._write_host()

    def _lose(self) -> None:
        """Forget a daemon after its end. Unanswered requests that were written have an unknown outcome."""
        assert self._daemon is not None
        self._daemon.close()
        self._daemon, self._watched, self._writable = None, [], False
        self._from_daemon.clear()
        self._fences.clear()
        self._repeated.clear()
        lost = "connection lost while the request was in flight; it may have taken effect; check that first"
        again = []
        # `written` is set once the kernel has taken the last byte of a line, and only then can the daemon have read a
        # whole message. Such a request must not go to the next daemon, or it could be carried out twice, unless it
        # is safe to repeat (`again`). All other requests are still in `_to_daemon`.
        for line in [each for each in self._requests.values() if each.written]:
            line.written = False
            if line.again:
                again.append(line)
            else:
                del self._requests[line.id]
                self._answer(line.id, lost, "unknown")
        for known in self._asked:
            reason = "the connection to the server was lost"
            self._to_host += _message(CANCELLED, {"requestId": json.loads(known), "reason": reason})
        self._asked.clear()
        self._requeue([*again, *(line for line in self._to_daemon if not line.own)])
        if not self._ends_at:
            _warn(f"the daemon of {self._config} has ended; the next message starts it again")
            if any(part.startswith("resource ") for part in self._state):
                self._queue(Line(b"\n", own=True))  # a client that waits for updates may send nothing

    def _requeue(self, lines: list[Line]) -> None:
        self._to_daemon = deque(lines)
        self._waiting, self._sent = sum(len(line.data) for line in lines), 0

    def _answer(self, id: bytes, problem: str, outcome: str) -> None:
        ours = {"outcome": outcome, "error": "ConnectionLost"}
        text = problem.encode(errors="replace").decode()  # a path need not be UTF-8
        error = {"code": -32000, "message": f"mcp-actors: {text}", "data": {"mcp_actors": ours}}
        self._to_host += START + id + b',"error":' + _dump(error) + b"}\n"

    # --- from the client to the daemon ------------------------------------------------------------------------------

    def _read_host(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        if not data:
            self._ends_at = time.monotonic() + CLOSE_SECONDS
        for line in _cut(self._from_host, data or b"\n"):
            if line and not line.isspace():
                self._take(line)
        if len(self._from_host) > 1 and sum(map(len, self._from_host)) > MAX_MESSAGE:
            _warn(f"a message of the client has more than {MAX_MESSAGE // 1024**2} MiB; make its requests smaller")
            sys.exit(1)

    def _take(self, line: bytes) -> None:
        id, _, end = _look(line)
        queued = Line(line + b"\n", id)
        if id and line.startswith(TOOLS_CALL, end):  # most lines; not parsed
            self._requests[id] = queued
        elif not self._understand(queued, _parse(line)):
            return
        self._queue(queued)

    def _queue(self, line: Line) -> None:
        self._to_daemon.append(line)
        self._waiting += len(line.data)

    def _understand(self, line: Line, message: dict[str, Any]) -> bool:
        """Note the meaning of a message; return False if no daemon may get it."""
        line.id, method, params = _id(message), message.get("method"), message.get("params")
        if "method" not in message and (line.id in self._asked or "result" in message or "error" in message):
            asked = self._asked.pop(line.id, b"")
            if not asked:
                return False  # its daemon has ended or withdrawn the request
            line.data = _with_id(line.data, asked)
            line.id, line.own = b"", True
        elif method == CANCELLED and "id" not in message:
            request = self._requests.get(_id(params, "requestId"))
            if request is None:
                return self._daemon is not None
            request.cancelled = True
            if request.written:  # the daemon's answer still passes
                del self._requests[request.id]
        else:
            if type(method) is str:
                line.state = _state_of(method, params)
                line.again = bool(line.state) or method == "server/discover" or method.endswith("/list")
            if line.id:  # malformed ones too: the daemon answers them
                self._requests[line.id] = line
        return True

    def _pass_fences(self) -> None:
        """Answer the daemon's fences (see `_serve`), once everything written by the client so far is queued."""
        # The answer promises the daemon that cancellations written before have arrived. So read until stdin stays empty
        # for 50 ms, in which a blocked writer refills a full pipe; an earlier answer would let the daemon begin a
        # request that is already cancelled.
        while not self._ends_at and select.select([0], [], [], 0.05)[0]:
            if self._waiting > LIMIT:
                return  # the daemon must read first
            self._read_host()
        for id in self._fences:
            self._queue(Line(START + id + b',"result":{}}\n', own=True))
        self._fences.clear()

    def _write_daemon(self) -> None:
        if self._daemon is None:
            self._open()
        while self._to_daemon and self._daemon is not None and self._writable:
            line = self._to_daemon[0]
            try:
                sent = self._daemon.send(memoryview(line.data)[self._sent :] if self._sent else line.data)
            except BlockingIOError:
                return
            except OSError:
                self._writable = False
                return
            self._sent += sent
            self._waiting -= sent
            if self._sent < len(line.data):
                continue
            self._to_daemon.popleft()
            self._sent, line.written = 0, True
            if line.state.startswith("-"):
                self._state.pop(line.state[1:], None)
            elif line.state and (former := self._state.get(line.state)) is not line:
                self._state[line.state], line.former = line, former
            if line.cancelled:
                self._requests.pop(line.id, None)
            if not line.again:
                line.data = b""

    # --- from the daemon to the client ------------------------------------------------------------------------------

    def _read_daemon(self) -> None:
        assert self._daemon is not None
        try:
            data = self._daemon.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            self._lose()
        for line in _cut(self._from_daemon, data):
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        id, follows, _ = _look(line)
        if not id and (
            not line.startswith(NOTIFICATION_START) or line.startswith(b"cancelled", len(NOTIFICATION_START))
        ):
            message = _parse(line)
            if not message:
                return  # invalid JSON may end a client
            id = _id(message)
            follows = b',"method":' if "method" in message else b',"error":{' if "error" in message else b""
            if message.get("method") == CANCELLED:
                self._withdraw(message)
                return
        if id and follows == b',"method":':
            self._ask(line, id)
        elif id in self._repeated:
            self._repeated.discard(id)
        else:
            request = self._requests.pop(id, None)
            if request is not None and request.state:
                refused = follows == b',"error":{' and self._state.get(request.state) is request
                if refused:  # the next daemon would refuse it, too
                    del self._state[request.state]
                    if request.former is not None:
                        self._state[request.state] = request.former
                request.former = None
            self._to_host += line + b"\n"

    def _ask(self, line: bytes, id: bytes) -> None:
        """Pass on a request of the daemon, with an id that is new to the client.

        So a late answer never reaches another daemon.
        """
        if id.startswith(b'"mcp-actors:fence:'):
            self._fences.append(id)
            return
        self._questions += 1
        known = b"%d" % self._questions
        self._asked[known] = id
        self._to_host += _with_id(line + b"\n", known)

    def _withdraw(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        for known in [each for each, asked in self._asked.items() if asked == _id(params, "requestId")]:
            del self._asked[known]
            self._to_host += _message(CANCELLED, {**params, "requestId": json.loads(known)})

    def _write_host(self) -> None:
        while self._to_host:
            try:
                written = os.write(1, self._to_host[:CHUNK])
            except BlockingIOError:
                return
            except OSError:
                sys.exit()
            del self._to_host[:written]


def _warn(problem: str) -> None:
    try:
        os.write(2, f"mcp-actors attach: {problem}\n".encode(errors="replace"))
    except OSError:
        return


def main(words: list[str], command: Callable[[Names], list[str]] = daemon_command) -> int:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # a standard stream is closed, and the next file would take its place
    os.close(descriptor)
    try:
        session = RelaySession(words[1] if len(words) == 2 and words[0] == "--config" else "", command)
        session.run()
    except KeyboardInterrupt:
        return 130
    return 1 if session._failure else 0  # no daemon could be started
