"""Each malformed message is answered exactly once, with its id if it has a valid one, by real processes.

The messages are sent over each way to a gateway, in both eras, and each is followed by a normal call on the same
connection. `http/test_malformed.py` sends them over HTTP.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from ..forkserver import interpreter
from ..source import ROOT
from .daemons import counting, daemon
from .hosts import LEGACY, MODERN
from .test_attach import PROGRAM, Attached, Place, end, place

__all__ = ["place"]  # the fixture

DEEP: Final = "[" * 100_000 + "]" * 100_000

ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}

PIPE: Final = """
import os, socket, sys, threading
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
def receive():
    while data := peer.recv(65536):
        os.write(1, data)
threading.Thread(target=receive, daemon=True).start()
while data := os.read(0, 65536):
    peer.sendall(data)
"""
"""A program that passes stdin to a socket, and what that sends to stdout."""

CASES: Final[dict[str, tuple[str, object]]] = {
    # name: (message, id of its answer); ID is an id that no other message has
    "no version": ('{"id":ID,"method":"ping"}', "ID"),
    "no version, id last": ('{"method":"tools/call","params":{"name":"x"},"id":ID}', "ID"),
    "another version": ('{"jsonrpc":"1.0","id":ID,"method":"ping"}', "ID"),
    "the version as a number": ('{"jsonrpc":2.0,"id":ID,"method":"ping"}', "ID"),
    "params is an array": ('{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":["x"]}', "ID"),
    "params is a string": ('{"jsonrpc":"2.0","id":ID,"method":"tools/list","params":"x"}', "ID"),
    "params of initialize is an array": ('{"jsonrpc":"2.0","id":ID,"method":"resources/subscribe","params":[]}', "ID"),
    "a number as method": ('{"jsonrpc":"2.0","id":ID,"method":7}', "ID"),
    "null as method": ('{"jsonrpc":"2.0","id":ID,"method":null}', "ID"),
    "a string as id": ('{"id":"ID","method":"ping"}', "'ID'"),
    "an id of 400 digits": ('{"id":' + "9" * 400 + 'ID,"method":"ping"}', "9" * 400 + "ID"),
    "an id of 1 MB": ('{"id":"' + "x" * 2**20 + 'ID","method":"ping"}', "'" + "x" * 2**20 + "ID'"),
    "no method": ('{"jsonrpc":"2.0","id":ID}', "ID"),
    "no method but params": ('{"jsonrpc":"2.0","id":ID,"params":{}}', "ID"),
    "a cancellation with an id": ('{"jsonrpc":"2.0","id":ID,"method":"notifications/cancelled","params":{}}', "ID"),
    "null as id": ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
    "null as id of a call": ('{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{}}', None),
    "true as id": ('{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
    "a fraction as id": ('{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{}}', None),
    "NaN as id": ('{"jsonrpc":"2.0","id":NaN,"method":"ping"}', None),
    "an object as id": ('{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
    "no method and no id": ('{"jsonrpc":"2.0"}', None),
    "a batch": ('[{"jsonrpc":"2.0","id":ID,"method":"ping"}]', None),
    "an empty batch": ("[]", None),
    "a string": ('"ping"', None),
    "a word": ("hello", None),
    "half an object": ('{"jsonrpc":"2.0","method":"ping"', None),
    "half an object with an id": ('{"jsonrpc":"2.0","id":ID,"method":"ping"', "ID"),
    "half of a surrogate pair": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"\\ud800"}}',
        "ID",
    ),
    "half of a surrogate pair, id last": (
        '{"method":"tools/call","params":{"name":"\\ud800"},"jsonrpc":"2.0","id":ID}',
        "ID",
    ),
    "half of a surrogate pair as id": ('{"jsonrpc":"2.0","id":"\\ud800ID","method":"ping"}', "'\\ud800ID'"),
    "deep params": ('{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":' + DEEP + "}", "ID"),
    "deep params, id last": ('{"method":"tools/call","params":' + DEEP + ',"jsonrpc":"2.0","id":ID}', "ID"),
    "a deep array": (DEEP, None),
    "_meta is an array": ('{"jsonrpc":"2.0","id":ID,"method":"tools/list","params":{"_meta":[1]}}', "ID"),
    "arguments is a string": ('{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":CALL"x"}}', "ID"),
    "NaN in the arguments": ('{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":CALL{"id":ID,"x":NaN}}}', "ID"),
    "Infinity in the arguments": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":CALL{"id":ID,"x":1e999}}}',
        "ID",
    ),
    "an object as progress token": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"s_run","arguments":{"id":ID},'
        '"_meta":{"progressToken":{}}}}',
        "ID",
    ),
    "the id twice": ('{"id":1,"jsonrpc":"1.0","method":"ping","id":ID}', "ID"),
}

ANSWERS: Final = (
    '{"jsonrpc":"2.0","id":"nobody asked","result":{}}',
    '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
    '{"id":1,"result":{}}',
    '{"jsonrpc":"2.0","id":null,"result":{}}',
    '{"jsonrpc":"2.0","id":"mcp-actors:1","result":"\\ud800"}',
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}',
    '{"jsonrpc":"2.0","method":"notifications/x","params":[]}',
)
"""Messages that are never answered."""


def cases(version: str) -> Iterator[tuple[int, str, bytes, object]]:
    """Yield the number of each case, its name, its message, and the id of the answer."""
    call = '{"_meta":%s,"name":"s_run","arguments":' % (json.dumps(ENVELOPE) if version == MODERN else "{}")
    for number, (name, (text, shown)) in enumerate(CASES.items(), 1000):
        request_id = None if shown is None else json.loads(str(shown).replace("ID", f"{number}").replace("'", '"'))
        yield number, name, text.replace("ID", f"{number}").replace("CALL", call).encode(), request_id


@contextmanager
def connected(way: str, place: Place) -> Iterator[Attached]:
    """Run a gateway, and a client of it, whose pipes lead there."""
    entries = {"s": counting(place.ledger)}
    place.config.write_text(json.dumps({"mcpServers": entries}))
    if way == "stdio":
        command = [interpreter(), "-m", "mcp_actors", "serve", "--config", str(place.config), "--stdio"]
        yield place.start(command, place.environ, cwd=ROOT)
    elif way == "attach":
        yield place.start([sys.executable, "-I", "-S", str(PROGRAM), "--config", str(place.config)], place.environ)
    else:
        with daemon(place.folder, **entries) as served:
            client = place.start([sys.executable, "-I", "-S", "-c", PIPE, served.path], place.environ)
            try:
                yield client
            finally:
                end(client.process)


class Speaker:
    """A client that counts the answers to each id."""

    def __init__(self, client: Attached, version: str) -> None:
        self.answers: Counter[object] = Counter()
        self.number = 10_000
        self._client = client
        self._version = version

    def read_until(self, request_id: object, times: int = 1) -> Any:
        answer = None
        while self.answers[request_id] < times:
            message = self._client.receive()
            if "method" not in message:
                answer = message
                self.answers[message["id"]] += 1
        return answer

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        params |= {"_meta": ENVELOPE} if self._version == MODERN else {}
        self._client.request(self.number, method, **params)
        return self.read_until(self.number)

    def begin(self) -> None:
        client = {"name": "t", "version": "1"}
        if self._version == MODERN:
            self.ask("server/discover")
        else:
            self.ask("initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=client)
            self._client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert "result" in self.ask("tools/list")


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("way", ["socket", "stdio", "attach"])
def test_each_malformed_message_is_answered_once_with_its_id(way: str, version: str, place: Place) -> None:
    with connected(way, place) as client:
        speaker = Speaker(client, version)
        speaker.begin()
        expected = Counter(speaker.answers)
        for number, name, text, request_id in cases(version):
            client.send(text + b"\n")
            expected[request_id] += 1
            answered = speaker.ask("tools/call", name="s_run", arguments={"id": number})
            assert answered["result"]["content"][0]["text"] == str(number), (name, answered)
            expected[speaker.number] += 1
            if speaker.answers[request_id] < expected[request_id]:
                speaker.read_until(request_id, expected[request_id])
            assert speaker.answers == expected, (name, answered)
        for answer in ANSWERS:
            client.send(answer.encode() + b"\n")
            assert "result" in speaker.ask("tools/list"), answer
            expected[speaker.number] += 1
            assert speaker.answers == expected, answer
