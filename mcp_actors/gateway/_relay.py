"""Pass messages between a client on stdio and one daemon after another.

Theory of operation. A `Session` passes lines between stdin and stdout and the socket of a daemon. It looks at each line
as little as it can, and mostly without parsing it, but knows which requests of the client have no answer yet.

When the daemon has ended, requests that were written as a whole are answered with an error whose outcome is
``unknown``, because the daemon may have carried them out; those that change nothing, or the session only, are sent
again. Lines that were not written as a whole were not read, and go to the next daemon, behind those that made the
session what it is: ``initialize``, a log level, subscriptions. The next daemon is started when there is something to
send. Requests of a daemon to the client get ids of this program, so that a late answer to a daemon that has ended
cannot be taken for an answer to the next one.

`attach` runs this without the package, like ``_daemon``, which connects and starts.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque

from ._daemon import DIRECTORY, Names, Refused, daemon_command, end_of, holder, names_for, open_daemon

TYPE_CHECKING = False  # as in `typing`, whose import costs 1 MB
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

# --- Lines and ids ----------------------------------------------------------------------------------------------------

START: Final = b'{"jsonrpc":"2.0","id":'  # of a message with an id, as the daemon writes it
CALL: Final = b',"method":"tools/call"'  # what follows the id
NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":"notifications/'
CANCELLED: Final = "notifications/cancelled"


class Line:
    """A line for the daemon.

    Attributes:
        data: the line with its end.
        id: the id as JSON, empty if this is not a request.
        state: the part of the session that it sets, empty for none. With a ``-`` in front it removes that part.
        again: whether the next daemon gets it too, if it has no answer.
        own: whether only the present daemon gets it.
        former: the line that has set that part before, until this one has an answer.
        written: whether a daemon may have read it.
        cancelled: whether the client does not wait for the answer.
    """

    __slots__ = ("again", "cancelled", "data", "former", "id", "own", "state", "written")

    def __init__(self, data: bytes, id: bytes = b"", *, own: bool = False) -> None:
        self.data, self.id, self.state, self.own = data, id, "", own
        self.again = self.written = self.cancelled = False
        self.former: Line | None = None


def _cut(parts: list[bytes], data: bytes) -> list[bytes]:
    """Return the lines that data completes, without their ends; the rest stays in `parts`."""
    parts.append(data)
    if b"\n" not in data:
        return []
    *lines, rest = b"".join(parts).split(b"\n")
    parts[:] = [rest]
    return lines


def _parse(line: bytes) -> dict[str, Any]:
    """Return a message; an empty one for a line that is something else."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if type(message) is dict else {}


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _id(message: object, key: str = "id") -> bytes:
    """Return the id in a message as JSON, so that 1 and "1" differ; empty if it has none."""
    value = message.get(key) if type(message) is dict else None
    return b"%d" % value if type(value) is int else _dump(value) if type(value) is str else b""


def _look(line: bytes) -> tuple[bytes, bytes, int]:
    """Return the id of a message, what follows the id, and where; an empty id if that takes a parser.

    Only an id at the begin is taken. It is that of the message, while one further on may be in a result.
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
    """Return a line with another id."""
    old, _, end = _look(line)
    return START + id + line[end:] if old else _dump({**_parse(line), "id": json.loads(id)}) + b"\n"


def _message(method: str, params: dict[str, Any] | None = None) -> bytes:
    return _dump({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}) + b"\n"


def _state_of(method: str, params: Any) -> str:
    """Return the part of a session that a message sets: the next daemon gets the last message for each."""
    if method in ("initialize", "notifications/initialized", "logging/setLevel"):
        return method
    if method in ("resources/subscribe", "resources/unsubscribe") and type(params) is dict:
        return f"{'-' if method == 'resources/unsubscribe' else ''}resource {params.get('uri')}"
    return ""


def _directory() -> list[Line]:
    """Return the line that says where this client works; none if that was removed, or its name cannot be written."""
    try:
        return [Line(_message(DIRECTORY, {"path": os.getcwdb().decode()}), own=True)]
    except (OSError, UnicodeDecodeError):
        return []


# --- A session --------------------------------------------------------------------------------------------------------

LIMIT: Final = 1024 * 1024  # bytes that wait for one side before the other one is not read from
CHUNK: Final = 64 * 1024
MAX_MESSAGE: Final = 16 * 1024 * 1024  # bytes of a message of the client; the daemon accepts no longer one
WINDOW: Final = 60.0
RETRY_SECONDS: Final = 10.0  # in which a daemon that did not start is not tried again
CLOSE_SECONDS: Final = 1.0  # for the last answers after the client has closed stdin; it waits about two, then kills


class Session:
    """One client, and the daemon that it is connected to at the moment, if any.

    Args:
        config: the configuration, as the user has written it.
        command: makes the command of a daemon; tests give another one.
    """

    def __init__(self, config: str, command: Callable[[Names], list[str]]) -> None:
        self._config, self._command = config, command
        self._daemon: socket.socket | None = None
        self._log, self._former = "", b""
        self._writable = False  # whether the daemon takes anything more; what it has written is read in any case
        self._from_host: list[bytes] = []  # parts of a line
        self._from_daemon: list[bytes] = []
        self._to_host = bytearray()
        self._to_daemon: deque[Line] = deque()
        self._waiting = self._sent = 0  # bytes in _to_daemon, and how many of its first line are written
        self._requests: dict[bytes, Line] = {}  # of the client, without an answer
        self._state: dict[str, Line] = {}  # what the next daemon gets first
        self._repeated: set[bytes] = set()  # ids of that; the answers are not for the client
        self._asked: dict[bytes, bytes] = {}  # requests of the daemon: the id that the client knows → the daemon's
        self._questions = 0
        self._fences: list[bytes] = []
        self._failure, self._retry_at = "", 0.0
        self._connects: list[float] = []
        self._ends_at = 0.0  # not 0 once the client has closed stdin
        self._left_at = 0.0  # not 0 once that was seen while a daemon starts
        self._poll, self._watched = select.poll(), [(-1, 0)]

    def run(self) -> None:
        """Pass messages until the client has closed stdin and has its answers, or is gone."""
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
                    self._read_daemon() if descriptor > 1 else sys.exit()  # nothing reads the answers any more

    def _is_done(self) -> bool:
        if self._daemon is not None and self._writable and not self._to_daemon:
            self._writable = False
            try:
                self._daemon.shutdown(socket.SHUT_WR)
            except OSError:
                return False  # the daemon has ended, which the next read says
        busy = self._to_host or self._to_daemon or (self._daemon is not None and self._requests)
        return not busy or time.monotonic() >= self._ends_at

    def _watch(self) -> None:
        """Set what the next poll() waits for. A side that is slow stops the reading of the other one."""
        room = len(self._to_host) <= LIMIT
        watched = [(1, select.POLLOUT if self._to_host else 0)]  # also without events it returns that 1 is closed
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
        """Connect, and begin with what the session needs; or answer all requests that wait with the reason."""
        self._write_host()  # the following may take as long as a daemon needs to start
        problem = "the daemon has ended and the client has closed its side" if self._ends_at else self._failure
        if not self._ends_at and time.monotonic() >= self._retry_at:
            try:
                self._connect()
                self._failure = ""
                return
            except OSError as error:
                refused = isinstance(error, Refused)
                problem = str(error) if refused else f"the daemon of {self._config} cannot be reached ({error})"
                self._failure = problem
                self._retry_at = time.monotonic() + RETRY_SECONDS
                _warn(problem)
        for line in self._to_daemon:
            self._requests.pop(line.id, line)
            if line.id and not line.cancelled:
                self._answer(line.id, f"{problem}; the request was not sent", "not_sent")
            elif line.state and not line.id and "initialize" in self._state:
                self._state[line.state] = line  # the client sends its "initialized" once, and the next daemon needs it
        self._requeue([])

    def _connect(self) -> None:
        now = time.monotonic()
        self._connects = [each for each in self._connects if now - each < WINDOW]
        if len(self._connects) > 3:  # so often it is replaced within this time
            problem = f"the daemon of {self._config} has ended {len(self._connects)} times within {WINDOW:.0f} s"
            raise Refused(f"{problem}: {end_of(self._log)}; fix that and try again")
        names = names_for(self._config)
        self._daemon = open_daemon(names, self._command(names), self._former, self._look_at_host)
        self._connects.append(now)
        self._log, self._former, self._writable = names.log, holder(names.lock), True
        first = _directory()  # the daemon reads one message after the other, so nothing has to wait for the answers
        for line in self._state.values():
            if self._requests.get(line.id) is line:
                first.append(line)
            else:
                first.append(Line(line.data, own=True))
                self._repeated.add(line.id)
        self._repeated.discard(b"")
        self._requeue([*first, *(line for line in self._to_daemon if line not in first)])
        if "notifications/initialized" in self._state:
            for kind in ("tools", "prompts", "resources"):
                self._to_host += _message(f"notifications/{kind}/list_changed")

    def _look_at_host(self) -> None:
        """End this process if the client has left while a daemon starts, which ends on its own without clients."""
        poll = select.poll()
        poll.register(0, select.POLLIN | getattr(select, "POLLRDHUP", 0))
        poll.register(1, 0)
        events = dict(poll.poll(0))
        if events.get(1):
            sys.exit()  # nothing reads the answers any more
        if (found := events.get(0, 0)) & ~select.POLLIN:
            busy = self._requests or found & select.POLLIN
            self._left_at = self._left_at or time.monotonic() + CLOSE_SECONDS * bool(busy)
            if time.monotonic() >= self._left_at:
                self._refuse_all()
                sys.exit()

    def _refuse_all(self) -> None:
        """Answer what a client has asked before it left, but for `initialize`, which is of no use without a session."""
        while not self._ends_at:
            self._read_host()  # this does not block, because the other end is closed
        for line in self._requests.values():
            if line.state != "initialize" and not line.cancelled:
                problem = "the client closed its side before a daemon was ready; the request was not sent"
                self._answer(line.id, problem, "not_sent")
        self._write_host()

    def _lose(self) -> None:
        """Forget a daemon that has ended. The outcome of what it may have read and has not answered is unknown."""
        assert self._daemon is not None
        self._daemon.close()
        self._daemon, self._watched, self._writable = None, [], False
        self._from_daemon.clear()
        self._fences.clear()
        self._repeated.clear()
        lost = "connection lost while the request was in flight; it may have taken effect; check that first"
        again = []
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
        """Queue a line of the client, and remember what it means for the session."""
        id, _, end = _look(line)
        queued = Line(line + b"\n", id)
        if id and line.startswith(CALL, end):  # most lines; the arguments are not parsed
            self._requests[id] = queued
        elif not self._understand(queued, _parse(line)):
            return
        self._queue(queued)

    def _queue(self, line: Line) -> None:
        self._to_daemon.append(line)
        self._waiting += len(line.data)

    def _understand(self, line: Line, message: dict[str, Any]) -> bool:
        """Remember what a message means; return False if no daemon may have it."""
        line.id, method, params = _id(message), message.get("method"), message.get("params")
        if "method" not in message and (line.id in self._asked or "result" in message or "error" in message):
            asked = self._asked.pop(line.id, b"")
            if not asked:
                return False  # its daemon has ended, or has withdrawn the request
            line.data = _with_id(line.data, asked)
            line.id, line.own = b"", True
        elif method == CANCELLED and "id" not in message:
            request = self._requests.get(_id(params, "requestId"))
            if request is None:
                return self._daemon is not None
            request.cancelled = True
            if request.written:  # it gets no answer from here; one of the daemon is passed on all the same
                del self._requests[request.id]
        else:
            if type(method) is str:
                line.state = _state_of(method, params)
                line.again = bool(line.state) or method == "server/discover" or method.endswith("/list")
            if line.id:  # also of one that is malformed: the daemon answers it
                self._requests[line.id] = line
        return True

    def _pass_fences(self) -> None:
        """Answer the fences, once everything that the client has written by now, or is just writing, is queued."""
        # A full pipe is refilled within this time.
        while not self._ends_at and select.select([0], [], [], 0.05)[0]:
            if self._waiting > LIMIT:
                return  # the daemon has to take this first
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
        """Pass on a line of the daemon; parse it only if it is not of the usual form."""
        id, follows, _ = _look(line)
        if not id and (not line.startswith(NOTIFICATION) or line.startswith(b"cancelled", len(NOTIFICATION))):
            message = _parse(line)
            if not message:
                return  # not a message: clients take one that cannot be parsed for the end of the connection
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
        """Pass on a request of the daemon, with an id that no other request to this client has had."""
        if id.startswith(b'"mcp-actors:fence:'):
            self._fences.append(id)
            return
        self._questions += 1
        known = b"%d" % self._questions
        self._asked[known] = id
        self._to_host += _with_id(line + b"\n", known)

    def _withdraw(self, message: dict[str, Any]) -> None:
        """Pass on a cancellation by the daemon, with the id that the client knows."""
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
                sys.exit()  # the client has gone
            del self._to_host[:written]


def _warn(problem: str) -> None:
    try:
        os.write(2, f"mcp-actors attach: {problem}\n".encode(errors="replace"))
    except OSError:
        return  # nothing reads it


def main(words: list[str], command: Callable[[Names], list[str]] = daemon_command) -> int:
    """Run a session for the client at stdin and stdout, and return the exit code."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # a stream is missing; the first file that is opened would take its place
    os.close(descriptor)
    try:
        session = Session(words[1] if len(words) == 2 and words[0] == "--config" else "", command)
        session.run()
    except KeyboardInterrupt:
        return 130
    return 1 if session._failure else 0  # the last daemon that it needed did not start
