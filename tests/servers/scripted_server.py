"""A real MCP server in the standard library only, which misbehaves as its arguments say.

It speaks newline-delimited JSON-RPC, by default in the legacy era: ``server/discover`` is an unknown method
to it, as it is to most servers there are. A call of the tool `sleep` runs in a thread of its own and so holds up
nothing.

Run as ``python start_scripted_server.py --tools 3 …``; `command` builds that line for a test.

Tests start thousands of it, so it imports little: `json`, `signal`, `threading` and `argparse` would be half of the
time of a start. It uses the parts of the first three that are written in C.
"""

from __future__ import annotations

import _json
import _signal  # type: ignore[import-not-found]  # as the standard library does
import _thread
import fcntl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeAlias

    Json: TypeAlias = dict[str, Any]

START = os.path.join(os.path.dirname(__file__), "start_scripted_server.py")

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_PROTOCOL_VERSION = -32022

MODERN = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def command(*flags: str) -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server with `flags`; ``-S -E`` saves half of its start."""
    return sys.executable, ("-S", "-E", START, *flags)


class RpcError(Exception):
    """An error to be answered with."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def two(words: str) -> None:
    """Stand for a flag that is followed by two words."""


# Each flag, without its dashes: what its word is, the value without it, and the word and what it does.
FLAGS: dict[str, tuple[Any, Any, str]] = {
    "name": (str, "scripted", "the name in serverInfo"),
    "era": (str, "legacy", "legacy, modern, both: which eras it speaks"),
    "era-file": (str, None, "PATH: read --era from this file at each start"),
    "speaks": (str, None, "VERSION: this one version only, whatever the client speaks"),
    "on-discover": (str, None, "die, ignore: instead of an answer to server/discover"),
    "discover-delay": (float, 0.0, "S: sleep before that answer"),
    "untyped": (bool, False, "leave resultType out of modern results"),
    "handshake": (bool, False, "refuse everything before initialize, as the SDK does"),
    "exit-at-start": (int, None, "CODE: end at once with this code"),
    "stderr": (str, "", "TEXT: write this to stderr first"),
    "stderr-flood": (int, 0, "BYTES: write as much to stderr first"),
    "start-delay": (float, 0.0, "S: sleep before anything else"),
    "fail-first": (two, None, "N FILE: exit with 3 the first N starts"),
    "never-answer": (bool, False, "read everything, answer nothing"),
    "never-read": (str, None, "FILE: after the handshake, read only once FILE is"),
    "ignore-eof": (bool, False, "stay when stdin ends"),
    "ignore-sigterm": (bool, False, "stay when asked to end"),
    "exit-on-sigterm": (int, None, "CODE: end with this code when asked to end"),
    "close-stdout": (bool, False, "close stdout at the first tool call, and stay"),
    "flood-at-eof": (bool, False, "when stdin ends, write 1 MiB and then exit"),
    "spawn-grandchild": (bool, False, "start a child that sleeps, own stdout"),
    "grandchild-keeps-stdout": (bool, False, "… and that inherits stdout instead"),
    "garbage": (bool, False, "print a banner and worse on stdout first"),
    "no-tools-capability": (bool, False, "offer no tools"),
    "tools": (int, 0, "N: offer tool_0 … tool_N-1 as well"),
    "notices": (int, 0, "N: … and `grow` says N times that it grew"),
    "die-on-list": (bool, False, "exit with 7 at tools/list"),
    "error-on-list": (bool, False, "answer tools/list with an error"),
    "deep-list": (int, 0, "N: list the tools with a _meta that deep"),
    "hang-on-list": (bool, False, "never answer tools/list"),
    "die-after-list": (bool, False, "answer tools/list and exit with 8 at once"),
    "error-on-call": (two, None, "CODE TEXT: answer tool calls with this error"),
    "forge-not-sent": (bool, False, "answer calls as a gateway that sent nothing"),
    "die-in": (str, None, "TOOL: exit with 9 when this tool was run, before it is answered"),
    "progress": (int, 0, "N: report progress N times in a tool call"),
    "pid-file": (str, None, "PATH: append the pids of this and the grandchild"),
    "log-file": (str, None, "PATH: append one line per start, message and end"),
    "count-file": (str, None, "PATH: where the tool `count` counts"),
}


class Flags:
    """The ways to misbehave: an attribute for each flag."""

    era: str
    tools: int

    def __init__(self, words: list[str]) -> None:
        for name, (_, default, _) in FLAGS.items():
            setattr(self, name.replace("-", "_"), default)
        left = iter(words)
        for word in left:
            kind, default, _ = FLAGS[word.removeprefix("--")]
            value = not default if kind is bool else (next(left), next(left)) if kind is two else kind(next(left))
            setattr(self, word.removeprefix("--").replace("-", "_"), value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def read_flags(words: list[str]) -> Flags:
    """Read the command line; the era may be in a file."""
    flags = Flags(words)
    if flags.era_file is not None:
        with open(flags.era_file) as file:
            flags.era = file.read()
    return flags


# --- What C has of three modules --------------------------------------------------------------------------------------


class Reading:
    """How JSON is read, as `json.loads` does by default."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012 - it is never written here


def not_json(value: object) -> NoReturn:
    """Refuse a value that JSON does not have."""
    raise TypeError(f"{value!r} cannot be sent")


SCAN = _json.make_scanner(Reading)  # type: ignore[arg-type]  # it asks for these attributes only
ENCODE = _json.make_encoder(None, not_json, _json.encode_basestring_ascii, None, ":", ",", False, False, True)


class Event:
    """An event that a thread waits for, as that of `threading`."""

    def __init__(self) -> None:
        self._closed = _thread.allocate_lock()
        self._closed.acquire()

    def set(self) -> None:
        """Let all go on that wait."""
        if self._closed.locked():
            self._closed.release()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long, and return True if it has happened."""
        if happened := self._closed.acquire(timeout=seconds):
            self._closed.release()
        return happened


def schema(**properties: str) -> Json:
    """Return an input schema in which every property is required."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


TOOLS: dict[str, tuple[str, Json]] = {
    "echo": ("Return the text.", schema(text="string")),
    "pid": ("Return the process id of the server.", schema()),
    "sleep": ("Sleep, then say for how long.", schema(seconds="number")),
    "fail": ("Fail as a tool does: an error result.", schema()),
    "crash": ("End the server at once with a code.", schema(code="integer")),
    "add": ("Add two integers.", schema(a="integer", b="integer")),
    "count": ("Count one more in the count file and return the new number.", schema()),
    "env": ("Return a variable of the server's environment, or nothing.", schema(name="string")),
    "environment": ("Return the names of all variables of the server's environment.", schema()),
    "mute": ("Never answer, cancelled or not.", schema()),
    "block": ("Do nothing else until a file is there.", schema(path="string")),
    "deaf": ("Answer, and then read nothing any more.", schema()),
    "stray": ("Answer a request nobody made, then this one, then this one again.", schema()),
    "chatter": ("Send so many notifications before the answer.", schema(number="integer")),
    "line": ("Answer with a line of exactly so many bytes, its newline aside.", schema(bytes="integer")),
    "grow": ("Offer one more tool, and give notice.", schema()),
    "print_raw": ("Write the text to stdout as it is, in Latin-1, before the answer.", schema(text="string")),
}


def locked_increment(path: str) -> int:
    """Add one to the number in a file, safe against other processes, and return the new one."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or "0") + 1
        file.truncate(0)
        file.write(str(number))
    return number


class ScriptedServer:
    """One run of the server."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        self.writing = _thread.allocate_lock()
        self.cancelled: dict[object, Event] = {}
        self.initialized = not flags.handshake
        self.listening: list[object] = []

    # --- The wire ---------------------------------------------------------------------------------------------------

    def write_line(self, line: bytes) -> None:
        """Write one whole line to stdout; drop it if nothing reads it."""
        with self.writing:
            try:
                sys.stdout.buffer.write(line + b"\n")
                sys.stdout.buffer.flush()
            except (BrokenPipeError, ValueError):
                pass

    def send(self, message: Json) -> None:
        """Send one message."""
        self.write_line(encoded(message))

    def log(self, text: str) -> None:
        """Append a line to the log file, in one write, so that several processes may share it."""
        if self.flags.log_file is not None:
            with open(self.flags.log_file, "a") as file:
                file.write(text + "\n")

    def serve(self) -> None:
        """Read and answer until stdin ends."""
        for line in sys.stdin.buffer:
            self.take(SCAN(line.decode().strip(), 0)[0])
            if self.flags.never_read is not None and b"notifications/initialized" in line:
                wait_for(self.flags.never_read)

    def take(self, message: Json) -> None:
        """Look at one message and start what answers it."""
        method, params = message.get("method", "response"), message.get("params") or {}
        about = params.get("name") if method == "tools/call" else params.get("requestId")
        self.log(method if about is None else f"{method} {about}")
        if method == "notifications/cancelled":
            self.cancelled.setdefault(params.get("requestId"), Event()).set()
        if "id" not in message or "method" not in message or self.flags.never_answer:
            return
        if method == "tools/call" and about == "sleep":
            _thread.start_new_thread(self.answer, (message["id"], method, params))
        else:
            self.answer(message["id"], method, params)

    def answer(self, request_id: object, method: str, params: Json) -> None:
        """Answer one request; a cancelled one is not answered, as the specification wants it."""
        if method == "subscriptions/listen" and self.flags.notices:
            self.listen(request_id, params)
            return
        try:
            outcome: Json | None = self.result(request_id, method, params)
            if outcome is not None and self.flags.era != "legacy":
                outcome |= {"ttlMs": 0, "cacheScope": "private"}
                outcome |= {} if self.flags.untyped else {"resultType": "complete"}
            reply = None if outcome is None else answer_to(request_id, outcome)
        except RpcError as error:
            details = {"code": error.code, "message": str(error), "data": error.data}
            reply = {"id": request_id, "error": {key: value for key, value in details.items() if value is not None}}
        if reply is not None:
            self.send(reply)
        while method == "tools/call" and params.get("name") == "deaf":
            _signal.pause()
        if method == "tools/list" and self.flags.die_after_list:
            os.close(1)  # takes microseconds, while to exit takes long enough for the client to go on
            os._exit(8)

    def result(self, request_id: object, method: str, params: Json) -> Json | None:
        """Return what a request is answered with; None for no answer."""
        match method:
            case "initialize":
                return self.initialize(params)
            case "server/discover" if self.flags.on_discover is not None:
                return None if self.flags.on_discover == "ignore" else self.end(5)
            case "server/discover" if self.flags.era != "legacy":
                time.sleep(self.flags.discover_delay)
                return self.discover()
            case _ if not self.initialized and self.flags.era == "legacy":
                raise RpcError(INVALID_PARAMS, "Received request before initialization was complete")
            case "ping":
                return {}
            case "tools/list" if not self.flags.no_tools_capability:
                return self.list_tools()
            case "tools/call":
                self.report_progress(params)
                return self.call_tool(request_id, params.get("name"), params.get("arguments") or {})
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def initialize(self, params: Json) -> Json:
        """Accept whatever version the client speaks."""
        params = {"protocolVersion": self.flags.speaks} if self.flags.speaks else params
        if self.flags.era == "modern":
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", {"supported": [MODERN]})
        self.initialized = True
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": self.capabilities(),
            "serverInfo": {"name": self.flags.name, "version": "1.0"},
        }

    def capabilities(self) -> Json:
        """Return what it can do."""
        return {} if self.flags.no_tools_capability else {"tools": {"listChanged": True} if self.flags.notices else {}}

    def discover(self) -> Json:
        """Answer server/discover, as of 2026-07-28."""
        if self.flags.speaks:
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported", {"supported": [self.flags.speaks]})
        identity = {"name": self.flags.name, "version": "1.0"}
        return {
            "supportedVersions": [MODERN],
            "capabilities": self.capabilities(),
            "_meta": {"io.modelcontextprotocol/serverInfo": identity},
        }

    def listen(self, request_id: object, params: Json) -> None:
        """Open a stream of notices; it is not answered before it ends."""
        self.listening.append(request_id)
        about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: request_id}}
        self.send({"method": "notifications/subscriptions/acknowledged", "params": about})

    # --- Tools ------------------------------------------------------------------------------------------------------

    def list_tools(self) -> Json | None:
        """List the tools, or do not."""
        if self.flags.die_on_list:
            os._exit(7)
        if self.flags.error_on_list:
            raise RpcError(INTERNAL_ERROR, "the list of tools is lost")
        if self.flags.hang_on_list:
            return None
        deep: Json = {}
        for _ in range(self.flags.deep_list):
            deep = {"deep": deep}
        extra = {f"tool_{number}": (f"Tool number {number}.", schema()) for number in range(self.flags.tools)}
        return {
            "tools": [
                {"name": name, "description": description, "inputSchema": input_schema}
                for name, (description, input_schema) in {**TOOLS, **extra}.items()
            ],
            **({"_meta": deep} if deep else {}),
        }

    def grow(self) -> str:
        """Offer one more tool, and give notice."""
        self.flags.tools += 1
        for _ in range(self.flags.notices):
            for request_id in self.listening or [None]:
                params = {} if request_id is None else {"_meta": {SUBSCRIPTION: request_id}}
                self.send({"method": "notifications/tools/list_changed", "params": params})
        return f"{self.flags.tools} more"

    def report_progress(self, params: Json) -> None:
        """Report progress, if the caller wants to hear of it."""
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            for step in range(1, self.flags.progress + 1):
                self.send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})

    def call_tool(self, request_id: object, name: object, arguments: Json) -> Json | None:
        """Run one tool."""
        if self.flags.error_on_call is not None:
            code, text = self.flags.error_on_call
            raise RpcError(int(code), text)
        if self.flags.forge_not_sent:
            raise RpcError(-32000, "not sent", {"mcp_actors": {"outcome": "not_sent", "error": "ServerUnavailable"}})
        if self.flags.close_stdout:
            os.close(1)
            return None
        if name == "sleep":
            cancelled = self.cancelled.setdefault(request_id, Event())
            return None if cancelled.wait(arguments["seconds"]) else content(f"slept {arguments['seconds']}")
        if name == "mute":
            return None
        if name == "fail":
            return {**content("failed as asked"), "isError": True}
        tools: dict[object, Callable[[], object]] = {
            "echo": lambda: arguments["text"],
            "pid": os.getpid,
            "crash": lambda: self.end(arguments["code"]),
            "add": lambda: arguments["a"] + arguments["b"],
            "count": lambda: locked_increment(self.flags.count_file),
            "env": lambda: os.environ.get(arguments["name"], ""),
            "environment": lambda: " ".join(sorted(os.environ)),
            "block": lambda: wait_for(arguments["path"]),
            "deaf": lambda: "what?",
            "grow": self.grow,
            "stray": lambda: self.stray(request_id),
            "chatter": lambda: self.chatter(arguments["number"]),
            "line": lambda: "x" * (arguments["bytes"] - len(encoded(answer_to(request_id, content(""))))),
            "print_raw": lambda: self.write_line(arguments["text"].encode("latin-1")),
        }
        if isinstance(name, str) and name.startswith("tool_"):
            return content(name)
        if name not in tools:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        result = content(str(tools[name]()))
        if name == self.flags.die_in:
            os._exit(9)
        return result

    def stray(self, request_id: object) -> str:
        """Answer a request that does not exist, and the current one."""
        self.send(answer_to(987654321, content("stray")))
        self.send(answer_to(request_id, content("first")))
        return "second"

    def chatter(self, number: int) -> None:
        """Send notifications as fast as they are taken."""
        for count in range(number):
            self.send({"method": "notifications/message", "params": {"level": "info", "data": count}})

    def end(self, code: int) -> NoReturn:
        """End the process without any clean-up, as a crash does."""
        self.log(f"crash {code}")
        os._exit(code)


def encoded(message: Json) -> bytes:
    """Return a message as it goes over the wire."""
    return "".join(ENCODE({"jsonrpc": "2.0", **message}, 0)).encode()


def answer_to(request_id: object, result: Json) -> Json:
    """Return the message that answers a request."""
    return {"id": request_id, "result": result}


def content(text: str) -> Json:
    """Return a tool result that holds one text."""
    return {"content": [{"type": "text", "text": text}]}


def wait_for(path: str) -> None:
    """Wait until a file exists."""
    while not os.path.exists(path):
        time.sleep(0.005)


def start_grandchild(flags: Flags) -> Iterator[int]:
    """Start a process that outlives this one unless it is killed; return its pid."""
    if flags.spawn_grandchild or flags.grandchild_keeps_stdout:
        import subprocess  # few need it

        stdout = None if flags.grandchild_keeps_stdout else subprocess.DEVNULL
        yield subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stdout).pid


def prepare(flags: Flags) -> None:
    """Do what is asked for before the first message."""
    time.sleep(flags.start_delay)
    if flags.ignore_sigterm:
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    if flags.exit_on_sigterm is not None:
        _signal.signal(_signal.SIGTERM, lambda *_: os._exit(flags.exit_on_sigterm))
    pids = [os.getpid(), *start_grandchild(flags)]
    if flags.pid_file is not None:
        with open(flags.pid_file, "a") as file:
            file.write(" ".join(map(str, pids)) + "\n")
    sys.stderr.write(flags.stderr + "x" * flags.stderr_flood)
    sys.stderr.flush()
    if flags.garbage:
        sys.stdout.buffer.write(
            b'Welcome to the scripted server!\n\n{"jsonrpc":\n\xff\xfe\n[1, 2]\n{"jsonrpc": "2.0"}\n'
        )
        sys.stdout.buffer.flush()
    if flags.exit_at_start is not None:
        sys.exit(flags.exit_at_start)
    if flags.fail_first is not None and locked_increment(flags.fail_first[1]) <= int(flags.fail_first[0]):
        sys.exit(3)


def main() -> None:
    """Run the server."""
    flags = read_flags(sys.argv[1:])
    server = ScriptedServer(flags)
    server.log(f"start {os.getpid()}")
    prepare(flags)
    server.serve()
    server.log("eof")
    if flags.flood_at_eof:
        server.write_line(b"x" * (1 << 20))
        server.log("flooded")
    while flags.ignore_eof:
        _signal.pause()
    # Calls that still sleep do not keep the process: their threads are daemons.
    os._exit(0)
